"""Convert an image file to a data URL. The media type is from the first bytes, or else from the file name."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Final

from antiphon.cli.exits import InvalidUsage
from antiphon.protocol.content import MiB

MAX_URL_LENGTH: Final = 20 * MiB  # REQ-8


def data_url(file: Path) -> str:
    """Return the file as a `data:` URL."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidUsage(f"cannot read the image {file}: {error.strerror}") from None
    url = f"data:{_media_type(file, data)};base64,{base64.b64encode(data).decode()}"
    if len(url) > MAX_URL_LENGTH:
        raise InvalidUsage(
            f"the image {file} is too large: {len(data) / MiB:.1f} MiB, expected less than "
            f"{MAX_URL_LENGTH // MiB * 3 // 4} MiB"
        )
    return url


def _media_type(file: Path, data: bytes) -> str:
    for media_type, offset, magic in MAGIC_BYTES:
        if data.startswith(magic, offset):
            return media_type
    guess = mimetypes.guess_type(file.name)[0] or ""
    if data and guess.startswith("image/"):
        return guess
    raise InvalidUsage(f"{file} is not an image: neither its first bytes nor its suffix are known")


MAGIC_BYTES: Final = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
    ("image/bmp", 0, b"BM"),
    ("image/avif", 4, b"ftypavif"),
    ("image/heic", 4, b"ftypheic"),
)
