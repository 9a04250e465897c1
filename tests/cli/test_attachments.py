"""Files for a prompt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from antiphon.cli import attachments
from antiphon.cli.attachments import attach_file
from antiphon.cli.exits import InvalidUsage
from antiphon.protocol.content import InputFileParam, InputImageParam, InputText


def test_attachment_of_text_has_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('é')", encoding="utf-8")
    assert attach_file(tmp_path / "a.py") == InputText(text="a.py:\n\nprint('é')")


def test_attachment_of_an_image_is_a_data_url(tmp_path: Path) -> None:
    (tmp_path / "dot").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    assert attach_file(tmp_path / "dot") == InputImageParam(image_url="data:image/png;base64,iVBORw0KGgoA")


def test_attachment_of_a_pdf_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF\0")
    url = "data:application/pdf;base64,JVBERgA="
    assert attach_file(tmp_path / "a.pdf") == InputFileParam(filename="a.pdf", file_data=url)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("café\n".encode("latin-1"), "text in another encoding than UTF-8, such as Latin-1"),
        ("café\n".encode("utf-16"), "its encoding is UTF-16"),
        (b"PK\x03\x04\0", "neither text, nor an image"),
    ],
)
def test_attachment_of_other_data_is_refused_with_the_reason(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_bytes(data)
    with pytest.raises(InvalidUsage, match=rf"cannot send .*a\.dat: .*{reason}"):
        attach_file(tmp_path / "a.dat")


def test_attachment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidUsage, match=r"cannot read .*missing\.txt: No such file or directory"):
        attach_file(tmp_path / "missing.txt")


def test_attachment_has_a_size_limit(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as output:
        os.truncate(output.fileno(), attachments.MAX_FILE_SIZE + 1)
    with pytest.raises(InvalidUsage, match="large is too large: expected at most 15 MiB"):
        attach_file(file)
