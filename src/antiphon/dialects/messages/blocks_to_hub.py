"""A client's content blocks as the hub's content parts.

What a block says besides (`cache_control`, say) goes with it in `extra`, so that a server of this dialect gets it back. A block
that the hub has no part for goes as it is.
"""

from __future__ import annotations

import base64
from typing import Any, assert_never

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.messages.answers import PREFIX
from antiphon.dialects.messages.citations import citation_to_hub
from antiphon.dialects.messages.request_in import (
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
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText, OutputTextParam, UnknownContent


def block_to_hub(block: PlainBlockIn) -> InputText | InputImageParam | InputFileParam | UnknownContent:
    """A block that somebody gives the model."""
    match block:
        case TextBlockIn():
            return InputText(text=block.text, extra=extra_fields_of(block, citations=block.citations or UNSET))
        case ImageBlockIn():
            return _image(block)
        case DocumentBlockIn():
            return _document(block)
        case UnknownContent():
            return _as_it_is(block.raw, block.kind)
        case _ as never:
            assert_never(never)


def output_text_to_hub(block: TextBlockIn) -> OutputTextParam:
    """A text that the model said, with its citations."""
    citations = [citation_to_hub(citation, len(block.text)) for citation in block.citations or ()]
    return OutputTextParam(text=block.text, annotations=[*citations] or UNSET, extra=extra_fields_of(block))


def extra_fields_of(block: Any, **others: Any) -> dict[str, Raw] | UnsetType:
    """What the hub's shape has no name for, each under its own."""
    if not block.extra and not block.cache_control and not others:
        return UNSET
    cache_control: CacheControl = block.cache_control
    named = {"cache_control": cache_control or UNSET, **others}
    extra = {name: Raw(codec.encode(value)) for name, value in named.items() if value is not UNSET}
    return {**(block.extra or {}), **extra} or UNSET


def _image(block: ImageBlockIn) -> InputImageParam | UnknownContent:
    match block.source:
        case Base64SourceIn(media_type=kind, data=data):
            return InputImageParam(image_url=f"data:{kind};base64,{data}", extra=extra_fields_of(block))
        case UrlSourceIn(url=url):
            return InputImageParam(image_url=url, extra=extra_fields_of(block))
        case FileSourceIn(file_id=file_id):
            return InputImageParam(file_id=file_id, extra=extra_fields_of(block))
        case UnknownSource():
            return _as_it_is(Raw(codec.encode(block)), "image")
        case _ as never:
            assert_never(never)


def _document(block: DocumentBlockIn) -> InputFileParam | UnknownContent:
    named = block.title or UNSET
    match block.source:
        case Base64SourceIn(media_type=kind, data=data):
            return InputFileParam(file_data=f"data:{kind};base64,{data}", filename=named, extra=extra_fields_of(block))
        case TextSourceIn(data=text):
            data = base64.b64encode(text.encode()).decode()
            return InputFileParam(file_data=f"data:text/plain;base64,{data}", filename=named, extra=extra_fields_of(block))
        case UrlSourceIn(url=url):
            return InputFileParam(file_url=url, filename=named, extra=extra_fields_of(block))
        case FileSourceIn(file_id=file_id):
            return InputFileParam(file_id=file_id, filename=named, extra=extra_fields_of(block))
        case UnknownSource():
            return _as_it_is(Raw(codec.encode(block)), "document")
        case _ as never:
            assert_never(never)


def _as_it_is(block: Raw, kind: str) -> UnknownContent:
    return UnknownContent(kind=PREFIX + kind, raw=block)
