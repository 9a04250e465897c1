"""Translates content of hub messages and tool outputs to gemini parts. Unsupported content becomes a note and a loss.

Nothing is downloaded: data is sent as data, a URL as a URL. A media type comes from the part, else from the file name
or the first bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.placeholders import replace_with_placeholder, text_or_placeholder
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.gemini.wire import PREFIX, BlobOut, FileDataOut, GeminiWire, PartOut
from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputVideo,
    UnknownContent,
)
from antiphon.protocol.losses import Losses

#: A part on the wire. A dict is a part of a kind, or with fields, that only this dialect has; it is sent unchanged.
AnyPartOut = PartOut | dict[str, Raw]


class ContentFromHub:
    """Translates parts for one server; `path` and `member` locate their list in the request."""

    def __init__(self, wire: GeminiWire, losses: Losses) -> None:
        self._wire = wire
        self._losses = losses

    def parts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[AnyPartOut]:
        """The parts, without empty ones, which the API refuses."""
        if isinstance(content, str):
            return [PartOut(text=content)] if content else []
        parts = [self._part_from_hub(part, f"{path}.{member}[{index}]") for index, part in enumerate(content, first)]
        return [part for part in parts if not (type(part) is PartOut and part.text == "")]

    def texts(self, content: str | Sequence[ContentParam], path: str, member: str, first: int = 0) -> list[str]:
        """The texts, for system messages, which hold only text."""
        if isinstance(content, str):
            return [content]
        return [
            text_or_placeholder(part, f"{path}.{member}[{index}]", NO_EQUIVALENT, self._losses)
            for index, part in enumerate(content, first)
        ]

    def _part_from_hub(self, part: ContentParam, path: str) -> AnyPartOut:
        match part:
            case InputImageParam():
                if part.detail and part.detail != "auto":
                    self._losses.add(f"{path}.detail", f"the detail {part.detail!r}", "the API has no equivalent")
                if part.image_url and part.file_id:
                    self._losses.add(f"{path}.file_id", "the file id of an image", "its URL is sent instead")
                return self._media_part(part, path, part.image_url or None, "image")
            case InputFileParam():
                return self._file_part(part, path)
            case InputVideo():
                return self._media_part(part, path, part.video_url, "video")
            case InputAudio(input_audio=audio):
                report_unknown_fields(audio, f"{path}.input_audio", self._losses)
                return self._with_native_fields(
                    PartOut(inline_data=BlobOut(mime_type=f"audio/{audio.format}", data=audio.data)), part, path
                )
            case UnknownContent() if part.kind.startswith(PREFIX):
                return native_part(part)
            case _:
                return PartOut(text=text_or_placeholder(part, path, NO_EQUIVALENT, self._losses))

    def _file_part(self, part: InputFileParam, path: str) -> AnyPartOut:
        if part.filename and (part.file_data or part.file_url):
            self._losses.add(f"{path}.filename", "the filename of a file", NO_EQUIVALENT)
        if not part.file_data:
            if part.file_url and part.file_id:
                self._losses.add(f"{path}.file_id", "the file_id of a file", "its URL is sent instead")
            return self._media_part(part, path, part.file_url or None, part.filename or "")
        for name, value in (("file_id", part.file_id), ("file_url", part.file_url)):
            if value:
                self._losses.add(f"{path}.{name}", f"the {name} of a file", "its content is sent instead")
        url = part.file_data
        if not url.startswith("data:"):
            url = f"data:{_media_type_of_name(part.filename or '') or _media_type_of_data(url)};base64,{url}"
        return self._media_part(part, path, url, part.filename or "")

    def _media_part(
        self, part: InputImageParam | InputFileParam | InputVideo, path: str, url: str | None, name: str
    ) -> AnyPartOut:
        """Media as data or as a URL; `name` is the file name, or the kind of media."""
        if not url:
            return PartOut(
                text=replace_with_placeholder(
                    part, path, "a file id is valid only on the server that issued it", self._losses
                )
            )
        if url.startswith("data:"):
            head, _, data = url.removeprefix("data:").partition(",")
            return self._with_native_fields(
                PartOut(inline_data=BlobOut(mime_type=head.partition(";")[0], data=data)), part, path
            )
        if not self._wire.urls:
            return PartOut(
                text=replace_with_placeholder(
                    part, path, "the server does not accept URLs, and the gateway downloads nothing", self._losses
                )
            )
        kind = (
            _media_type_of_name(url.partition("?")[0])
            or _media_type_of_name(name)
            or DEFAULT_MEDIA_TYPES.get(name, UNSET)
        )
        return self._with_native_fields(PartOut(file_data=FileDataOut(file_uri=url, mime_type=kind)), part, path)

    def _with_native_fields(self, part_out: PartOut, part: Shape, path: str) -> AnyPartOut:
        """Add the fields that a client of this dialect set beside the media. Other unknown fields are losses."""
        native_fields: dict[str, Raw] = {}
        other_fields: dict[str, Raw] = {}
        for name, raw in (part.extra or {}).items():
            if name.startswith(PREFIX) or name in NATIVE_FIELDS:
                native_fields[name.removeprefix(PREFIX)] = raw
            else:
                other_fields[name] = raw
        report_unknown_fields(Shape(extra=other_fields), path, self._losses)
        if not native_fields:
            return part_out
        return {**msgspec.json.decode(msgspec.json.encode(part_out), type=dict[str, Raw]), **native_fields}


def native_part(part: Unknown) -> dict[str, Raw]:
    """A part of a kind that only this dialect has, without the members that the hub added."""
    return {name: raw for name, raw in part.raw_members().items() if name not in HUB_MEMBERS}


def _media_type_of_name(name: str) -> str | UnsetType:
    return MEDIA_TYPES.get(name.rpartition(".")[2].lower(), UNSET)


def _media_type_of_data(data: str) -> str:
    return next((kind for head, kind in BASE64_PREFIXES.items() if data.startswith(head)), "application/pdf")


NO_EQUIVALENT: Final = "the API has no equivalent"
HUB_MEMBERS: Final = frozenset({"type", "id", "status"})
NATIVE_FIELDS: Final = frozenset({"videoMetadata", "mediaResolution", "partMetadata"})
#: Assumed media types of URLs without a known extension.
DEFAULT_MEDIA_TYPES: Final[dict[str, str | UnsetType]] = {"image": "image/jpeg", "video": "video/mp4"}
MEDIA_TYPES: Final[dict[str, str | UnsetType]] = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "xml": "text/xml",
    "json": "application/json",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "gif": "image/gif",
    "heic": "image/heic",
    "wav": "audio/wav",
    "mp3": "audio/mp3",
    "mp4": "video/mp4",
    "mov": "video/mov",
    "webm": "video/webm",
}
#: The first base64 characters of file types that have a signature.
BASE64_PREFIXES: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
