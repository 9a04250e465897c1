"""Citations, both ways. Here they belong to a whole block of text, in the hub to a stretch of it.

A page of the web is the hub's `url_citation`, with what its maker wants back in `extra`; places in documents, which only this
dialect knows, travel under a name of its own.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Raw

from antiphon.dialects.messages.answers import PREFIX
from antiphon.protocol import codec
from antiphon.protocol.content import Annotation, UnknownAnnotation, UrlCitation, UrlCitationParam


def citation_to_hub(citation: dict[str, Any], length: int) -> Annotation:
    """A citation of a text that is so long."""
    kind, url, title = citation.get("type"), citation.get("url"), citation.get("title")
    if kind == OF_WEB and isinstance(url, str):
        beside = {name: Raw(codec.encode(citation[name])) for name in BESIDE if citation.get(name)}
        named = title if isinstance(title, str) else ""
        return UrlCitation(start_index=0, end_index=length, url=url, title=named, extra=beside or UNSET)
    carried = f"{PREFIX}{kind or 'citation'}"
    return UnknownAnnotation(kind=carried, raw=Raw(codec.encode({**citation, "type": carried})))


def citation_from_hub(annotation: UrlCitationParam | UnknownAnnotation) -> dict[str, Any] | None:
    """The citation that an annotation makes; None if this dialect has no such thing."""
    if isinstance(annotation, UnknownAnnotation):
        if not annotation.kind.startswith(PREFIX):
            return None
        return {**annotation.raw_members(), "type": annotation.kind.removeprefix(PREFIX)}
    # What a server says of its own search another cannot know, but the members must be there.
    beside = {name: Raw(b'""') for name in BESIDE} | (annotation.extra or {})
    return {"type": OF_WEB, "url": annotation.url, "title": annotation.title or None, **beside}


OF_WEB: Final = "web_search_result_location"
BESIDE: Final[tuple[str, ...]] = ("cited_text", "encrypted_index")
