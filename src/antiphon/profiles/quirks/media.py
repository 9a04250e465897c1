"""Quirks for servers without images, files, audio or video: each such part becomes a short text note (F-4)."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from antiphon.dialects.common.placeholders import placeholder_for
from antiphon.profiles.quirks.rewriting import NoOptions, are_identical, change_items, with_content
from antiphon.protocol.content import InputAudio, InputFileParam, InputImageParam, InputText, InputVideo
from antiphon.protocol.items import CustomToolCallOutputParam, FunctionCallOutputParam, ItemParam, MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request


def images_as_notes(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """For servers that accept no images."""
    return _with_notes(request, losses, {InputImageParam: MEDIA_NAMES[InputImageParam]})


def files_as_notes(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """For servers that accept images but no other files."""
    return _with_notes(request, losses, {InputFileParam: MEDIA_NAMES[InputFileParam]})


def media_as_notes(request: Request, losses: Losses, _options: NoOptions) -> Request:
    """For servers that accept only text: replaces images, files, audio and video."""
    return _with_notes(request, losses, MEDIA_NAMES)


def _with_notes(request: Request, losses: Losses, media_names: dict[type, tuple[str, str]]) -> Request:
    def change(path: str, item: ItemParam) -> ItemParam:
        match item:
            case MessageParam(content=list() as parts):
                return with_content(item, _replace_with_notes(parts, f"{path}.content", losses, media_names))
            case FunctionCallOutputParam(output=list() as parts) | CustomToolCallOutputParam(output=list() as parts):
                new_parts = _replace_with_notes(parts, f"{path}.output", losses, media_names)
                return item if are_identical(new_parts, parts) else replace(item, output=new_parts)
            case _:
                return item

    return change_items(request, change)


def _replace_with_notes(
    parts: list[Any], path: str, losses: Losses, media_names: dict[type, tuple[str, str]]
) -> list[Any]:
    new_parts = list(parts)
    for index, part in enumerate(parts):
        names = next((names for kind, names in media_names.items() if isinstance(part, kind)), None)
        if names is not None:
            singular, plural = names
            losses.add(f"{path}[{index}]", singular, f"the server accepts no {plural}; a note is sent instead")
            new_parts[index] = InputText(text=placeholder_for(part))
    return new_parts


MEDIA_NAMES: Final[dict[type, tuple[str, str]]] = {
    InputImageParam: ("an image", "images"),
    InputFileParam: ("a file", "files"),
    InputAudio: ("audio", "audio"),
    InputVideo: ("a video", "videos"),
}
