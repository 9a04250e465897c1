"""What was used, added up: tokens, requests, errors and losses of a day, by who asked, for which model, of which upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from msgspec import Struct


class UsageRow(Struct, frozen=True, kw_only=True):
    """One row. The first four say of what, the rest how much."""

    day: int  # since 1970, in UTC
    owner: str
    model: str
    upstream: str
    requests: int = 0
    errors: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0  # of those in
    output_tokens: int = 0
    reasoning_tokens: int = 0  # of those out
    losses: int = 0


#: What is counted, in the order of the columns.
COUNTER_NAMES: Final = ("requests", "errors", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "losses")


class UsageStore(Protocol):
    """Every store has this too."""

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """Adds to what is there, all or nothing, whoever else adds at the same time. No two rows are of the same."""
        ...

    async def get_usage(self, *, since: int, until: int, owner: str | None = None) -> list[UsageRow]:
        """The rows of the days from one to another, both counted, of one owner or of all, in the order of day, owner, model and
        upstream."""
        ...

    async def prune_usage(self, *, before: int) -> int:
        """Deletes the rows of the days before one. Returns how many."""
        ...


def usage_to_columns(row: UsageRow) -> tuple[Any, ...]:
    """A row as it is kept: what came from outside is bytes."""
    counts = [getattr(row, name) for name in COUNTER_NAMES]
    return (row.day, row.owner.encode(), row.model.encode(), row.upstream.encode(), *counts)


def usage_from_columns(columns: Sequence[Any]) -> UsageRow:
    """The same, read back."""
    day, owner, model, upstream, *counts = columns
    counted = dict(zip(COUNTER_NAMES, counts, strict=True))
    return UsageRow(day=day, owner=owner.decode(), model=model.decode(), upstream=upstream.decode(), **counted)
