"""Makes an image for a request from a file. The media type is from the first bytes, or else from the file name."""

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import Final

from antiphon.errors import ClientFault
from antiphon.protocol.content import InputImageParam, MiB

MAX_URL_LENGTH: Final = 20 * MiB  # REQ-8


def image_from_file(file: str | Path) -> InputImageParam:
    """Reads an image, which is sent as a data URL. A file that is not an image, or too large, is a `ClientFault`.

    Example:
        Path("dot.gif").write_bytes(b"GIF89a")
        content = [{"type": "input_text", "text": "What is this?"}, image_from_file("dot.gif")]
        client.create([{"role": "user", "content": content}])
    """
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ClientFault(f"cannot read the image {path}: {error.strerror}") from None
    url = f"data:{_media_type(path, data)};base64,{base64.b64encode(data).decode()}"
    if len(url) > MAX_URL_LENGTH:
        raise ClientFault(
            f"the image {path} is too large: {len(data) / MiB:.1f} MiB, expected less than "
            f"{MAX_URL_LENGTH // MiB * 3 // 4} MiB"
        )
    return InputImageParam(image_url=url)


def _media_type(file: Path, data: bytes) -> str:
    for media_type, offset, magic in MAGIC_BYTES:
        if data.startswith(magic, offset):
            return media_type
    guess = mimetypes.guess_type(file.name)[0] or ""
    if data and guess.startswith("image/"):
        return guess
    raise ClientFault(f"{file} is not an image: neither its first bytes nor its suffix are known")


MAGIC_BYTES: Final = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
    ("image/bmp", 0, b"BM"),
    ("image/avif", 4, b"ftypavif"),
    ("image/heic", 4, b"ftypheic"),
)
