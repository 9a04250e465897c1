"""What stands in the text where a part of a message had to be left out, so that the model knows that something was there."""

from __future__ import annotations

from typing import Any

from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.content import ContentParam, InputAudio, InputFileParam, InputImageParam, InputVideo


def type_of(thing: Shape | Unknown) -> str:
    """The `type` of anything that has one, known to us or not."""
    return thing.kind if isinstance(thing, Unknown) else str(thing.__struct_config__.tag)


def note_of(part: ContentParam) -> str:
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


def _source(*names: Any) -> str:
    """Where it came from: names and addresses as they are, data by its media type alone."""
    given = [name for name in names if name]
    return ", ".join(f"{_media_type(name)} data" if name.startswith("data:") else name for name in given) or "nothing was given"


def _media_type(data_url: str) -> str:
    return data_url.removeprefix("data:").partition(",")[0].partition(";")[0]
