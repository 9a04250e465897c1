"""Placeholder texts for parts of a message that a translation leaves out, so that the model knows about them."""

from __future__ import annotations

from typing import Any

from antiphon.dialects.common.documents import text_of_document
from antiphon.dialects.common.unknown_fields import report_unknown_fields, without_prefix
from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    InputVideo,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    UnknownContent,
)
from antiphon.protocol.losses import Losses


def type_of(thing: Shape | Unknown) -> str:
    """The `type` of a typed or unknown object."""
    return thing.kind if isinstance(thing, Unknown) else str(thing.__struct_config__.tag)


def placeholder_for(part: ContentParam) -> str:
    """The placeholder text for a part."""
    match part:
        case InputImageParam():
            return f"[image omitted: {_source(part.image_url, part.file_id)}]"
        case InputFileParam():
            return f"[file omitted: {_source(part.filename, part.file_url, part.file_id, part.file_data and 'data')}]"
        case InputVideo():
            return f"[video omitted: {_source(part.video_url)}]"
        case InputAudio():
            return f"[audio omitted: {part.input_audio.format}]"
        case UnknownContent(kind="messages:tool_reference"):
            return f"[tool: {part.string_member('tool_name')}]"
        case _:
            return f"[{without_prefix(type_of(part))} omitted]"


def replace_with_placeholder(part: ContentParam, path: str, why: str, losses: Losses) -> str:
    """Returns the text of a document. For all other parts, reports the loss and returns the placeholder."""
    text = text_of_document(part, path, losses)
    if text is not None:
        return text
    note = placeholder_for(part)
    losses.add(path, note.strip("[]"), why)
    return note


def text_or_placeholder(part: ContentParam, path: str, loss_reason: str, losses: Losses) -> str:
    """The text of a part, or its placeholder; `loss_reason` is the reason why other parts are lost."""
    match part:
        case OutputTextParam():
            if part.annotations:
                losses.add(f"{path}.annotations", "citations", loss_reason)
            if part.logprobs:
                losses.add(f"{path}.logprobs", "log probabilities", loss_reason)
            text = part.text
        case InputText() | Text() | SummaryText() | ReasoningText():
            text = part.text
        case Refusal():
            text = part.refusal
        case _:
            return replace_with_placeholder(part, path, loss_reason, losses)
    report_unknown_fields(part, path, losses)
    return text


def _source(*names: Any) -> str:
    """The source of a part: its name or URL; for inline data only the media type."""
    sources = [name for name in names if name]
    return (
        ", ".join(f"{_media_type(name)} data" if name.startswith("data:") else name for name in sources) or "no source"
    )


def _media_type(data_url: str) -> str:
    return data_url.removeprefix("data:").partition(",")[0].partition(";")[0]
