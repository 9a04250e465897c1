"""Findings of the check: each names the violated row and has what a server's author needs to fix it.

A row is one observable requirement of the specification. A violated `must` row fails the whole check; a violated
`should` row is a warning.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

Level = Literal["must", "should"]


class CheckFinding(Struct, frozen=True, kw_only=True):
    """One violation of a row: the message, the request, and the excerpt of the answer."""

    row: str
    message: str
    sent: str = ""
    received: str = ""

    @property
    def level(self) -> Level:
        return level_of(self.row)


class Flaw(Struct, frozen=True):
    """A violation in an answer, without its request; `received` is the excerpt of the answer that it concerns."""

    row: str
    message: str
    received: str = ""


class SkipCase(Exception):
    """The server or its model does not show the behaviour that the case tests; the message has the reason."""


class StopCase(Exception):
    """The findings so far make the rest of the case impossible."""


def level_of(row: str) -> Level:
    return "should" if row in SHOULD_ROWS else "must"


def excerpt(data: bytes | str, limit: int = 300) -> str:
    """Return the start of a text, on one line."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join(text[: limit * 2].split())
    return line if len(line) <= limit and len(text) <= limit * 2 else line[:limit] + "…"


def format_value(value: Any) -> str:
    """Format a JSON value for a finding."""
    return excerpt(msgspec.json.encode(value), 80)


SHOULD_ROWS: Final = frozenset(
    {"HTTP-5", "HTTP-7", "HTTP-8", "WS-13", "STR-13", "PREV-5", "API-4"}
)  # level S in docs/requirements.md
