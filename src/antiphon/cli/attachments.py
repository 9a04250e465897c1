"""Files for a prompt: images, texts and PDFs, as content of a message."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Final

from antiphon.cli.exits import InvalidUsage
from antiphon.client import image_from_file
from antiphon.errors import ClientFault
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText, MiB

MAX_FILE_SIZE: Final = 15 * MiB  # as base64 it takes 20 MiB
PDF_START: Final = b"%PDF"
UTF_16_STARTS: Final = (b"\xff\xfe", b"\xfe\xff")
TEXT_BYTES: Final = re.compile(rb"[\t\n\f\r\x1b -~\x80-\xff]*")  # no control characters

Attachment = InputText | InputImageParam | InputFileParam


def attach_file(file: Path) -> Attachment:
    """Read a file: an image or a PDF as data, anything that is valid UTF-8 as text with its name. Others are
    refused, because no server takes them."""
    try:
        if file.stat().st_size > MAX_FILE_SIZE:
            raise InvalidUsage(f"{file} is too large: expected at most {MAX_FILE_SIZE // MiB} MiB")
        data = file.read_bytes()
    except OSError as error:
        raise InvalidUsage(f"cannot read {file}: {error.strerror}") from None
    text = _decode_text(data)
    if text is not None:
        return InputText(text=f"{file.name}:\n\n{text}")
    if data.startswith(PDF_START):
        return InputFileParam(
            filename=file.name, file_data=f"data:application/pdf;base64,{base64.b64encode(data).decode()}"
        )
    try:
        return image_from_file(file)
    except ClientFault:
        raise InvalidUsage(f"cannot send {file}: {_describe_refusal(data)}") from None


def _describe_refusal(data: bytes) -> str:
    """Why this is no text, for data that is neither an image nor a PDF."""
    if data.startswith(UTF_16_STARTS):
        return "its encoding is UTF-16; convert it to UTF-8"
    if TEXT_BYTES.fullmatch(data):
        return "it is text in another encoding than UTF-8, such as Latin-1; convert it with: iconv -f latin1 -t utf-8"
    return "it is neither text, nor an image (PNG, JPEG, GIF, WebP), nor a PDF"


def _decode_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
