"""Translates citations in both directions. A citation belongs to a whole text block here, and to a range of text in the
hub.

A web citation is the hub's `url_citation`, with the members that its server needs back in `extra`. Citations of
documents, which only this dialect has, travel as unknown annotations.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Raw

from antiphon.dialects.messages.answers import PREFIX
from antiphon.protocol import codec
from antiphon.protocol.content import Annotation, UnknownAnnotation, UrlCitation, UrlCitationParam


def citation_to_hub(citation: dict[str, Any], length: int) -> Annotation:
    """Translate a citation of a text with `length` characters."""
    kind, url, title = citation.get("type"), citation.get("url"), citation.get("title")
    if kind == WEB_CITATION and isinstance(url, str):
        server_members = {name: Raw(codec.encode(citation[name])) for name in SERVER_MEMBERS if citation.get(name)}
        named = title if isinstance(title, str) else ""
        return UrlCitation(start_index=0, end_index=length, url=url, title=named, extra=server_members or UNSET)
    kind_in_hub = f"{PREFIX}{kind or 'citation'}"
    return UnknownAnnotation(kind=kind_in_hub, raw=Raw(codec.encode({**citation, "type": kind_in_hub})))


def citation_from_hub(annotation: UrlCitationParam | UnknownAnnotation) -> dict[str, Any] | None:
    """Translate an annotation; None if this dialect has no such citation."""
    if isinstance(annotation, UnknownAnnotation):
        if not annotation.kind.startswith(PREFIX):
            return None
        return {**annotation.raw_members(), "type": annotation.kind.removeprefix(PREFIX)}
    # The members are required, but only the server that searched knows their values.
    server_members = {name: Raw(b'""') for name in SERVER_MEMBERS} | (annotation.extra or {})
    return {"type": WEB_CITATION, "url": annotation.url, "title": annotation.title or None, **server_members}


WEB_CITATION: Final = "web_search_result_location"
SERVER_MEMBERS: Final[tuple[str, ...]] = ("cited_text", "encrypted_index")
