"""Content of hub messages and tool outputs as chat parts. What a place cannot hold becomes a note in its text, and a loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from antiphon.dialects.chat.wire import ChatWire, PartOut
from antiphon.dialects.common.notes import note_of
from antiphon.dialects.common.unknown_fields import lose_unknown_fields
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
)
from antiphon.protocol.losses import Losses


class ContentFromHub:
    """Translates parts for one server; `path` and `member` say where their list stands."""

    def __init__(self, wire: ChatWire, losses: Losses) -> None:
        self._wire = wire
        self._losses = losses

    def parts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[PartOut]:
        """Where every kind of part may stand: in user messages and tool outputs."""
        if isinstance(content, str):
            return [_text(content)]
        return [self._part(part, f"{path}.{member}[{at}]") for at, part in enumerate(content, first)]

    def texts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[str]:
        """Where only text may stand: in system and assistant messages and in reasoning."""
        if isinstance(content, str):
            return [content]
        return [self._only_text(part, f"{path}.{member}[{at}]") for at, part in enumerate(content, first)]

    def _part(self, part: ContentParam, path: str) -> PartOut:
        match part:
            case InputImageParam():
                return self._image(part, path)
            case InputFileParam():
                return self._file(part, path)
            case InputAudio(input_audio=audio):
                self._report_fields(part, path)
                self._report_fields(audio, f"{path}.input_audio")
                return PartOut(type="input_audio", input_audio={"data": audio.data, "format": audio.format})
            case _:
                return _text(self._only_text(part, path))

    def _only_text(self, part: ContentParam, path: str) -> str:
        match part:
            case OutputTextParam():
                if part.annotations:
                    self._losses.add(f"{path}.annotations", "citations of earlier text", NO_PLACE)
                if part.logprobs:
                    self._losses.add(f"{path}.logprobs", "log probabilities of earlier text", NO_PLACE)
                text = part.text
            case InputText() | Text() | SummaryText() | ReasoningText():
                text = part.text
            case Refusal():
                text = part.refusal
            case _:
                return self._note(part, path, NO_PLACE)
        self._report_fields(part, path)
        return text

    def _image(self, part: InputImageParam, path: str) -> PartOut:
        if not self._wire.images:
            return _text(self._note(part, path, "the server takes no images"))
        if not part.image_url:
            return _text(self._note(part, path, "a file id means nothing to another server"))
        self._report_fields(part, path)
        if part.file_id:
            self._losses.add(f"{path}.file_id", "the image's file id", "its address was sent instead")
        image = {"url": part.image_url}
        if part.detail == "original":
            self._losses.add(f"{path}.detail", 'the detail "original"', '"high" is the most there is')
            image["detail"] = "high"
        elif part.detail:
            image["detail"] = part.detail
        return PartOut(type="image_url", image_url=image)

    def _file(self, part: InputFileParam, path: str) -> PartOut:
        file: dict[str, str] = {}
        if part.file_data:
            file["file_data"] = part.file_data
        elif part.file_id:
            file["file_id"] = part.file_id
        else:
            return _text(self._note(part, path, "a file is sent by its data only"))
        if part.filename:
            file["filename"] = part.filename
        for name, value in (("file_id", part.file_id), ("file_url", part.file_url)):
            if value and name not in file:
                self._losses.add(f"{path}.{name}", f"the file's {name}", "its content was sent instead")
        self._report_fields(part, path)
        return PartOut(type="file", file=file)

    def _note(self, part: ContentParam, path: str, why: str) -> str:
        note = note_of(part)
        self._losses.add(path, note.strip("[]"), why)
        return note

    def _report_fields(self, part: Shape, path: str) -> None:
        if part.extra:
            lose_unknown_fields(part, path, self._losses)


def joined(parts: list[PartOut]) -> str | list[PartOut]:
    """Text alone is one string."""
    texts = [part.text for part in parts if part.text is not UNSET]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _text(text: str) -> PartOut:
    return PartOut(type="text", text=text)


NO_PLACE: Final = "chat has no place for it"
