"""Reads docs/errors.md: the rows of its tables of error codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "errors.md"


class ErrorRow(NamedTuple):
    status: int | None  # None for errors that are not the response to a request
    type: str
    code: str
    cause: str
    remedy: str


def error_rows() -> list[ErrorRow]:
    """Every row of both tables, in the order of the page."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [ErrorRow(int(first) if first.isdecimal() else None, *others) for first, *others in rows]


ROW: Final = re.compile(r"^\| ([^|]+) \| `(\w+)` \| `(\w+)` \| (.+) \| (.+) \|$", flags=re.MULTILINE)
