"""Files for a prompt: images, texts and other files, as content of a message."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Final

from antiphon.cli.exits import InvalidUsage
from antiphon.client import image_from_file
from antiphon.errors import ClientFault
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText, MiB

MAX_FILE_SIZE: Final = 15 * MiB  # as base64 it takes 20 MiB

Attachment = InputText | InputImageParam | InputFileParam


def attach_file(file: Path) -> Attachment:
    """Read a file: an image or a file as data, anything that is valid UTF-8 as text with its name."""
    try:
        if file.stat().st_size > MAX_FILE_SIZE:
            raise InvalidUsage(f"{file} is too large: expected at most {MAX_FILE_SIZE // MiB} MiB")
        data = file.read_bytes()
    except OSError as error:
        raise InvalidUsage(f"cannot read {file}: {error.strerror}") from None
    text = _decode_text(data)
    if text is not None:
        return InputText(text=f"{file.name}:\n\n{text}")
    try:
        return image_from_file(file)
    except ClientFault:
        media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return InputFileParam(
            filename=file.name, file_data=f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        )


def _decode_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
