"""The closed table of differences that are allowed between what one side sent and what the other side received."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal

from msgspec import Struct
from tests.recorded_traffic.json_diff import Delta

from antiphon.dialects.dialect import ServerDialectName

Direction = Literal["request", "answer", "stream"]


class AllowedDifference(Struct, frozen=True, kw_only=True):
    """Paths and changes may contain `*`."""

    dialect: ServerDialectName
    directions: tuple[Direction, ...]
    paths: tuple[str, ...]
    reason: str
    changes: tuple[str, ...] = ("*",)

    def matches(self, direction: Direction, delta: Delta) -> bool:
        return (
            direction in self.directions
            and any(_matches(pattern, delta.path) for pattern in self.paths)
            and any(_matches(pattern, delta.change) for pattern in self.changes)
        )


def find_allowed(dialect: ServerDialectName, direction: Direction, delta: Delta) -> AllowedDifference | None:
    """The row of the table that allows a difference."""
    rows = (row for row in ALLOWED if row.dialect == dialect)
    return next((row for row in rows if row.matches(direction, delta)), None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _matches(pattern: str, text: str) -> bool:
    return _compile(pattern).fullmatch(text) is not None


ALLOWED: Final[tuple[AllowedDifference, ...]] = ()
