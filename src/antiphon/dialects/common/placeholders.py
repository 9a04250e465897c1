"""What stands in the text where a part of a message had to be left out, so that the model knows that something was there."""

from __future__ import annotations

from typing import Any

from antiphon.dialects.common.unknown_fields import report_unknown_fields
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
)
from antiphon.protocol.losses import Losses


def type_of(thing: Shape | Unknown) -> str:
    """The `type` of anything that has one, known to us or not."""
    return thing.kind if isinstance(thing, Unknown) else str(thing.__struct_config__.tag)


def placeholder_for(part: ContentParam) -> str:
    """The note that takes a part's place."""
    match part:
        case InputImageParam():
            return f"[image omitted: {_source(part.image_url, part.file_id)}]"
        case InputFileParam():
            return f"[file omitted: {_source(part.filename, part.file_url, part.file_id, part.file_data and 'data')}]"
        case InputVideo():
            return f"[video omitted: {_source(part.video_url)}]"
        case InputAudio():
            return f"[audio omitted: {part.input_audio.format}]"
        case _:
            return f"[{type_of(part)} omitted]"


def replace_with_placeholder(part: ContentParam, path: str, why: str, losses: Losses) -> str:
    """The note, and the loss that it stands for."""
    note = placeholder_for(part)
    losses.add(path, note.strip("[]"), why)
    return note


def text_or_placeholder(part: ContentParam, path: str, no_place: str, losses: Losses) -> str:
    """A part where only text may stand; `no_place` says why anything else is left out."""
    match part:
        case OutputTextParam():
            if part.annotations:
                losses.add(f"{path}.annotations", "citations of earlier text", no_place)
            if part.logprobs:
                losses.add(f"{path}.logprobs", "log probabilities of earlier text", no_place)
            text = part.text
        case InputText() | Text() | SummaryText() | ReasoningText():
            text = part.text
        case Refusal():
            text = part.refusal
        case _:
            return replace_with_placeholder(part, path, no_place, losses)
    report_unknown_fields(part, path, losses)
    return text


def _source(*names: Any) -> str:
    """Where it came from: names and addresses as they are, data by its media type alone."""
    sources = [name for name in names if name]
    return (
        ", ".join(f"{_media_type(name)} data" if name.startswith("data:") else name for name in sources)
        or "nothing was given"
    )


def _media_type(data_url: str) -> str:
    return data_url.removeprefix("data:").partition(",")[0].partition(";")[0]
