"""Translates a client's content blocks and citations to hub content parts.

`cache_control` becomes the hub's cache mark (E-4). Other members that the hub does not have travel as
`extra["messages:name"]` and reach servers of this dialect. A block without an equivalent in the hub travels unchanged.
A citation belongs to a whole text block here, and to a range of text in the hub. A web citation is the hub's
`url_citation`, with the members that its server needs back in `extra`. Citations of documents, which only this dialect
has, travel as unknown annotations.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import CACHE_MARK, mark_from_cache_control
from antiphon.dialects.messages.wire import (
    CITATION_SERVER_MEMBERS,
    DOCUMENT_FIELD,
    PREFIX,
    WEB_CITATION,
    Base64SourceIn,
    CacheControl,
    DocumentBlockIn,
    FileSourceIn,
    ImageBlockIn,
    PlainBlockIn,
    TextBlockIn,
    TextSourceIn,
    UnknownSource,
    UrlSourceIn,
)
from antiphon.protocol import codec
from antiphon.protocol.content import (
    Annotation,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    UnknownAnnotation,
    UnknownContent,
    UrlCitation,
)


def block_to_hub(block: PlainBlockIn) -> InputText | InputImageParam | InputFileParam | UnknownContent:
    """A block of user or system input as a hub part."""
    match block:
        case TextBlockIn():
            return InputText(text=block.text, extra=extra_fields_of(block, **{CITATIONS: block.citations or UNSET}))
        case ImageBlockIn():
            return _image_to_hub(block)
        case DocumentBlockIn():
            return _document_to_hub(block)
        case UnknownContent():
            return _native_part(block.raw, block.kind)
        case _ as never:
            assert_never(never)


def output_text_to_hub(block: TextBlockIn) -> OutputTextParam:
    """A text of the model, with its citations."""
    citations = [citation_to_hub(citation, len(block.text)) for citation in block.citations or ()]
    return OutputTextParam(text=block.text, annotations=[*citations] or UNSET, extra=extra_fields_of(block))


def extra_fields_of(block: Any, **others: Any) -> dict[str, Raw] | UnsetType:
    """The members of a block that the hub's shape does not have."""
    if not block.extra and not block.cache_control and not others:
        return UNSET
    cache_control: CacheControl = block.cache_control
    extra = {name: Raw(codec.encode(value)) for name, value in others.items() if value is not UNSET}
    if cache_control:
        extra[CACHE_MARK] = mark_from_cache_control(cache_control)
    return {**prefixed(block.extra), **extra} or UNSET


def prefixed(members: dict[str, Raw] | UnsetType) -> dict[str, Raw]:
    """Members that only this dialect has, by their names in the hub."""
    return {PREFIX + name: raw for name, raw in (members or {}).items()}


def citation_to_hub(citation: dict[str, Any], length: int) -> Annotation:
    """Translate a citation of a text with `length` characters."""
    kind, url, title = citation.get("type"), citation.get("url"), citation.get("title")
    if kind == WEB_CITATION and isinstance(url, str):
        server_members = {
            name: Raw(codec.encode(citation[name])) for name in CITATION_SERVER_MEMBERS if citation.get(name)
        }
        filename = title if isinstance(title, str) else ""
        return UrlCitation(start_index=0, end_index=length, url=url, title=filename, extra=server_members or UNSET)
    kind_in_hub = f"{PREFIX}{kind or 'citation'}"
    return UnknownAnnotation(kind=kind_in_hub, raw=Raw(codec.encode({**citation, "type": kind_in_hub})))


def _image_to_hub(block: ImageBlockIn) -> InputImageParam | UnknownContent:
    match block.source:
        case Base64SourceIn(media_type=kind, data=data):
            return InputImageParam(image_url=f"data:{kind};base64,{data}", extra=extra_fields_of(block))
        case UrlSourceIn(url=url):
            return InputImageParam(image_url=url, extra=extra_fields_of(block))
        case FileSourceIn(file_id=file_id):
            return InputImageParam(file_id=file_id, extra=extra_fields_of(block))
        case UnknownSource():
            return _native_part(Raw(codec.encode(block)), "image")
        case _ as never:
            assert_never(never)


def _document_to_hub(block: DocumentBlockIn) -> InputText | InputFileParam | UnknownContent:
    filename = block.title or UNSET
    match block.source:
        case Base64SourceIn(media_type=kind, data=data):
            return InputFileParam(
                file_data=f"data:{kind};base64,{data}", filename=filename, extra=extra_fields_of(block)
            )
        case TextSourceIn(data=text):
            return _text_document(block, text)
        case UrlSourceIn(url=url):
            return InputFileParam(file_url=url, filename=filename, extra=extra_fields_of(block))
        case FileSourceIn(file_id=file_id):
            return InputFileParam(file_id=file_id, filename=filename, extra=extra_fields_of(block))
        case UnknownSource():
            return _native_part(Raw(codec.encode(block)), "document")
        case _ as never:
            assert_never(never)


def _text_document(block: DocumentBlockIn, text: str) -> InputText:
    """A document of text: its text for servers of other dialects, and the block itself for servers of this one."""
    members = {**(block.extra or {})}
    lines = [block.title, msgspec.json.decode(members.pop("context", Raw(b"null"))), text]
    own_block = Raw(codec.encode(replace(block, cache_control=UNSET)))
    extra = extra_fields_of(replace(block, extra=members or UNSET), **{DOCUMENT_FIELD: own_block})
    return InputText(text="\n".join(line for line in lines if isinstance(line, str) and line), extra=extra)


def _native_part(block: Raw, kind: str) -> UnknownContent:
    return UnknownContent(kind=PREFIX + kind, raw=block)


CITATIONS: Final = PREFIX + "citations"
