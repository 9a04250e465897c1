"""What a judge says: findings, each with the row it breaks and what a server's author needs to mend it.

A row is one observable requirement of the specification. Its level decides what breaking it means: a `must` fails the whole
check, a `should` is a warning.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

Level = Literal["must", "should"]


class CheckFinding(Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be: what came and what was wanted, after what was sent."""

    row: str
    message: str
    sent: str = ""
    came: str = ""

    @property
    def level(self) -> Level:
        return level_of(self.row)


class Flaw(Struct, frozen=True):
    """Something wrong with an answer, before anyone says what was sent to get it; `came` is the piece of the answer it is about."""

    row: str
    message: str
    came: str = ""


class SkipCase(Exception):
    """This server, or the model behind it, cannot show what the case looks for; the message says why."""


class StopCase(Exception):
    """What was found leaves nothing more to look at."""


def level_of(row: str) -> Level:
    return "should" if row in SHOULD else "must"


def excerpt(data: bytes | str, limit: int = 300) -> str:
    """The beginning of something, on one line."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    line = " ".join(text[: limit * 2].split())
    return line if len(line) <= limit and len(text) <= limit * 2 else line[:limit] + "…"


def format_value(value: Any) -> str:
    """A JSON value as a finding shows it."""
    return excerpt(msgspec.json.encode(value), 80)


SHOULD: Final = frozenset({"HTTP-5", "HTTP-7", "HTTP-8", "WS-13", "STR-13", "PREV-5", "API-4"})  # level S in docs/requirements.md
