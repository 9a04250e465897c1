"""Translates content of hub messages and tool outputs into chat parts. Unsupported parts become a note and a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.dialects.chat.wire import PREFIX, VIDEO_FIELD, AnyPartOut, ChatWire, PartOut
from antiphon.dialects.common.cache_marks import CACHE_MARK, breakpoint_from_mark, cache_control_from_mark, take_mark
from antiphon.dialects.common.placeholders import replace_with_placeholder, text_or_placeholder
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputVideo,
    UnknownContent,
)
from antiphon.protocol.losses import Losses


class ContentFromHub:
    """Translates parts for one server. `path` and `member` name the position of the list of parts."""

    def __init__(self, wire: ChatWire, losses: Losses) -> None:
        self._wire = wire
        self._losses = losses

    def parts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[AnyPartOut]:
        """Translate the parts of a user message or a tool output, where all kinds of parts are allowed."""
        if isinstance(content, str):
            return [_text_part(content)]
        return [self._marked_part(part, f"{path}.{member}[{index}]") for index, part in enumerate(content, first)]

    def text_parts(
        self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0
    ) -> list[AnyPartOut]:
        """Translate like `texts`, but into parts, which may have cache marks."""
        if isinstance(content, str):
            return [_text_part(content)]
        return [
            self._marked_part(part, f"{path}.{member}[{index}]", is_text=True)
            for index, part in enumerate(content, first)
        ]

    def texts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[str]:
        """Translate the parts of a system message, an assistant message or reasoning, where only text is allowed."""
        if isinstance(content, str):
            return [content]
        return [
            text_or_placeholder(part, f"{path}.{member}[{index}]", NO_EQUIVALENT, self._losses)
            for index, part in enumerate(content, first)
        ]

    def _marked_part(self, part: ContentParam, path: str, *, is_text: bool = False) -> AnyPartOut:
        """E-4: translate a part and its cache mark. A `cache_control` is allowed on texts only."""
        unmarked, mark = (
            take_mark(part) if self._wire.cache_marks != "none" and isinstance(part, Shape) else (part, None)
        )
        part_out = (
            _text_part(text_or_placeholder(unmarked, path, NO_EQUIVALENT, self._losses))
            if is_text
            else self._part_from_hub(unmarked, path)
        )
        if mark is None or isinstance(part_out, Raw):
            return part_out
        if self._wire.cache_marks == "prompt_cache_breakpoint":
            return replace(part_out, prompt_cache_breakpoint=breakpoint_from_mark(mark, path, self._losses))
        if part_out.type == "text":
            return replace(part_out, cache_control=cache_control_from_mark(mark, path, self._losses))
        self._losses.add(f"{path}.{CACHE_MARK}", "a cache mark", "the server accepts it on texts only")
        return part_out

    def _part_from_hub(self, part: ContentParam, path: str) -> AnyPartOut:
        match part:
            case InputImageParam():
                return self._image_part(part, path)
            case InputFileParam():
                return self._file_part(part, path)
            case InputAudio(input_audio=audio):
                report_unknown_fields(part, path, self._losses)
                report_unknown_fields(audio, f"{path}.input_audio", self._losses)
                return PartOut(type="input_audio", input_audio={"data": audio.data, "format": audio.format})
            case InputVideo():
                return self._video_part(part, path)
            case UnknownContent() if self._wire.native_types or part.kind.startswith(PREFIX):
                return part.raw
            case _:
                return _text_part(text_or_placeholder(part, path, NO_EQUIVALENT, self._losses))

    def _image_part(self, part: InputImageParam, path: str) -> PartOut:
        if not self._wire.images:
            return _text_part(replace_with_placeholder(part, path, "the server does not support images", self._losses))
        if not part.image_url:
            return _text_part(
                replace_with_placeholder(
                    part, path, "a file id is valid only on the server that issued it", self._losses
                )
            )
        report_unknown_fields(part, path, self._losses)
        if part.file_id:
            self._losses.add(f"{path}.file_id", "the file id of an image", "its URL is sent instead")
        image = {"url": part.image_url}
        if part.detail == "original":
            self._losses.add(
                f"{path}.detail", "the detail 'original'", "'high' is the highest value that the API accepts"
            )
            image["detail"] = "high"
        elif part.detail:
            image["detail"] = part.detail
        return PartOut(type="image_url", image_url=image)

    def _video_part(self, part: InputVideo, path: str) -> AnyPartOut:
        """A video of a chat client is sent as it came, because only some servers know the type."""
        client_part = (part.extra or {}).get(VIDEO_FIELD)
        if client_part is not None:
            return client_part
        if not self._wire.videos:
            return _text_part(replace_with_placeholder(part, path, "the server does not support videos", self._losses))
        report_unknown_fields(part, path, self._losses)
        return PartOut(type="video_url", video_url={"url": part.video_url})

    def _file_part(self, part: InputFileParam, path: str) -> PartOut:
        file: dict[str, str] = {}
        if part.file_data:
            file["file_data"] = part.file_data
        elif part.file_id:
            file["file_id"] = part.file_id
        else:
            return _text_part(
                replace_with_placeholder(part, path, "the API accepts only inline file data", self._losses)
            )
        if part.filename:
            file["filename"] = part.filename
        for name, value in (("file_id", part.file_id), ("file_url", part.file_url)):
            if value and name not in file:
                self._losses.add(f"{path}.{name}", f"the {name} of a file", "its content is sent instead")
        report_unknown_fields(part, path, self._losses)
        return PartOut(type="file", file=file)


def text_or_parts(parts: list[AnyPartOut]) -> str | list[AnyPartOut]:
    """Return one string if all parts are text, else the parts."""
    texts = [part.text for part in parts if isinstance(part, PartOut) and part.text is not UNSET]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _text_part(text: str) -> PartOut:
    return PartOut(type="text", text=text)


NO_EQUIVALENT: Final = "the API has no equivalent"
