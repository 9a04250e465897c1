"""Widths in columns of a terminal: of a terminal, and of a text. A line is cut to a width, so that it does not wrap."""

from __future__ import annotations

import os
from typing import Final, TextIO
from unicodedata import category, east_asian_width

DEFAULT_WIDTH: Final = 80
ELLIPSIS: Final = "…"
WIDE_CHARACTERS: Final = ("W", "F")  # East Asian wide and full width: two columns
INVISIBLE_CATEGORIES: Final = ("Mn", "Me", "Cf")  # combining marks and format characters: no column


def terminal_width(stream: TextIO) -> int:
    """Return the columns of the terminal that `stream` writes to; `DEFAULT_WIDTH` if they are not known."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except (OSError, ValueError):  # no terminal, no file, a closed file
        return DEFAULT_WIDTH


def text_width(text: str) -> int:
    """Return the columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def cut_text(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis if it is wider than `width` columns."""
    if text_width(text) <= width:
        return text
    kept, columns = "", 1  # the ellipsis
    for character in text:
        columns += _character_width(character)
        if columns > width:
            break
        kept += character
    return kept + ELLIPSIS if width > 0 else ""


def pad_text(text: str, width: int) -> str:
    """Return the text with spaces up to `width` columns; a wider text is not cut."""
    return text + " " * (width - text_width(text))


def _character_width(character: str) -> int:
    if category(character) in INVISIBLE_CATEGORIES:
        return 0
    return 2 if east_asian_width(character) in WIDE_CHARACTERS else 1
