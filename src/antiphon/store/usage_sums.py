"""Sums rows of usage by model, key, upstream or day."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, timedelta
from operator import add
from typing import Final

from antiphon.store.usage import COUNTER_NAMES, UsageRow

FIRST_DAY: Final = date(1970, 1, 1)


def sum_usage(rows: Iterable[UsageRow], grouping: str) -> dict[str, list[int]]:
    """Returns the sums of each group, in the order of `COUNTER_NAMES`. Days are sorted by date, other groups by
    tokens."""
    sums: dict[str, list[int]] = {}
    for row in rows:
        group = GROUPINGS[grouping](row)
        counts = [getattr(row, name) for name in COUNTER_NAMES]
        sums[group] = list(map(add, sums[group], counts)) if group in sums else counts
    return dict(
        sorted(sums.items())
        if grouping == "day"
        else sorted(sums.items(), key=lambda entry: (-total_tokens(entry[1]), entry[0]))
    )


def total_tokens(counts: list[int]) -> int:
    """Input and output tokens."""
    return counts[COUNTER_NAMES.index("input_tokens")] + counts[COUNTER_NAMES.index("output_tokens")]


def day_name(day: int) -> str:
    return (FIRST_DAY + timedelta(days=day)).isoformat()


GROUPINGS: Final[dict[str, Callable[[UsageRow], str]]] = {
    "model": lambda row: row.model,
    "key": lambda row: row.owner,
    "upstream": lambda row: row.upstream,
    "day": lambda row: day_name(row.day),
}
