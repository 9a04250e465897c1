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


#: The members of a response that Open Responses requires, except those that every server sends.
REQUIRED_MEMBERS: Final = (
    *("background", "completed_at", "error", "frequency_penalty", "incomplete_details", "instructions"),
    *("max_output_tokens", "max_tool_calls", "metadata", "presence_penalty", "previous_response_id"),
    *("prompt_cache_key", "reasoning", "safety_identifier", "service_tier", "store", "temperature", "text"),
    *("top_logprobs", "top_p", "truncation", "usage"),
)
ALLOWED: Final = (
    AllowedDifference(
        dialect="responses",
        directions=("request",),
        paths=("store",),
        reason="The gateway stores responses itself, and asks no server to store them.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("answer",),
        paths=("id", "previous_response_id", "conversation", "background"),
        reason="The gateway stores and continues responses itself, under its own ids.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("stream",),
        paths=tuple(
            f"events[].response.{name}" for name in ("id", "previous_response_id", "conversation", "background")
        ),
        reason="The gateway stores and continues responses itself, under its own ids.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("stream",),
        paths=("events[].obfuscation",),
        changes=("added",),
        reason="A client that asks for obfuscation gets it from the gateway if the server sends none.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("answer",),
        paths=REQUIRED_MEMBERS,
        changes=("added*",),
        reason="Open Responses requires these members. The gateway adds those that a server left out.",
    ),
    AllowedDifference(
        dialect="responses",
        directions=("stream",),
        paths=tuple(f"events[].response.{name}" for name in REQUIRED_MEMBERS),
        changes=("added*",),
        reason="Open Responses requires these members. The gateway adds those that a server left out.",
    ),
)
