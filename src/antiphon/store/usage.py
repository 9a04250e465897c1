"""The interface for usage: tokens, requests, errors and losses per day, owner, model and upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from msgspec import Struct


class UsageRow(Struct, frozen=True, kw_only=True):
    """One row: four key columns, then counters."""

    day: int  # since 1970, in UTC
    owner: str
    model: str
    upstream: str
    requests: int = 0
    errors: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0  # part of `input_tokens`
    output_tokens: int = 0
    reasoning_tokens: int = 0  # part of `output_tokens`
    losses: int = 0


#: The counters, in the order of the columns.
COUNTER_NAMES: Final = (
    "requests",
    "errors",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "losses",
)


class UsageStore(Protocol):
    """The usage of a store."""

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """Adds rows to the stored counters in one transaction. Safe against concurrent additions. The keys of the rows
        differ."""
        ...

    async def get_usage(self, *, since: int, until: int, owner: str | None = None) -> list[UsageRow]:
        """Returns the rows from day `since` to day `until`, both included, of one owner or of all, sorted by day,
        owner, model and upstream."""
        ...

    async def prune_usage(self, *, before: int) -> int:
        """Deletes the rows before a day. Returns how many were deleted."""
        ...


def usage_to_columns(row: UsageRow) -> tuple[Any, ...]:
    """The columns of a row. External strings are stored as bytes."""
    counts = [getattr(row, name) for name in COUNTER_NAMES]
    return (row.day, row.owner.encode(), row.model.encode(), row.upstream.encode(), *counts)


def usage_from_columns(columns: Sequence[Any]) -> UsageRow:
    """The row of stored columns."""
    day, owner, model, upstream, *counts = columns
    counters = dict(zip(COUNTER_NAMES, counts, strict=True))
    return UsageRow(day=day, owner=owner.decode(), model=model.decode(), upstream=upstream.decode(), **counters)
