"""An image file as a data URL."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from antiphon.client import image_from_file
from antiphon.errors import ClientFault

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
    "image/bmp": b"BM\x00\x00",
    "image/avif": b"\x00\x00\x00\x20ftypavif",
    "image/heic": b"\x00\x00\x00\x20ftypheic",
}


@pytest.mark.parametrize("media_type", HEADS)
def test_image_from_file_takes_the_media_type_from_the_first_bytes(media_type: str, tmp_path: Path) -> None:
    file = tmp_path / "picture.txt"
    file.write_bytes(HEADS[media_type])
    assert image_from_file(file).image_url == f"data:{media_type};base64,{base64.b64encode(HEADS[media_type]).decode()}"


def test_image_from_file_falls_back_to_the_media_type_of_the_name(tmp_path: Path) -> None:
    file = tmp_path / "drawing.svg"
    file.write_bytes(b"<svg/>")
    assert str(image_from_file(str(file)).image_url).startswith("data:image/svg+xml;base64,")


@pytest.mark.parametrize(("name", "data"), [("notes.txt", b"hello"), ("empty.png", b""), ("nothing", b"hello")])
def test_image_from_file_rejects_files_that_are_no_images(name: str, data: bytes, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(ClientFault, match="is not an image"):
        image_from_file(file)


def test_image_from_file_names_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ClientFault, match=r"cannot read the image .*nowhere\.png: No such file"):
        image_from_file(tmp_path / "nowhere.png")


def test_image_from_file_rejects_images_over_the_limit(tmp_path: Path) -> None:
    """REQ-8: an image URL has at most 20 MiB."""
    file = tmp_path / "large.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(15 * 1024 * 1024))
    with pytest.raises(ClientFault, match=r"too large: 15\.0 MiB, expected less than 15 MiB"):
        image_from_file(file)
