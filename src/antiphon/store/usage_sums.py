"""Rows of usage, added up by one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, timedelta
from operator import add
from typing import Final

from antiphon.store.usage import COUNTER_NAMES, UsageRow

FIRST_DAY: Final = date(1970, 1, 1)


def sum_usage(rows: Iterable[UsageRow], by: str) -> dict[str, list[int]]:
    """What was counted, in the order of `COUNTER_NAMES`, by name; days in their order, all else by the most tokens first."""
    sums: dict[str, list[int]] = {}
    for row in rows:
        name = GROUPINGS[by](row)
        counts = [getattr(row, counted) for counted in COUNTER_NAMES]
        sums[name] = list(map(add, sums[name], counts)) if name in sums else counts
    return dict(sorted(sums.items()) if by == "day" else sorted(sums.items(), key=lambda each: (-total_tokens(each[1]), each[0])))


def total_tokens(counts: list[int]) -> int:
    """All that went in and came out."""
    return counts[COUNTER_NAMES.index("input_tokens")] + counts[COUNTER_NAMES.index("output_tokens")]


def day_name(day: int) -> str:
    return (FIRST_DAY + timedelta(days=day)).isoformat()


GROUPINGS: Final[dict[str, Callable[[UsageRow], str]]] = {
    "model": lambda row: row.model,
    "key": lambda row: row.owner,
    "upstream": lambda row: row.upstream,
    "day": lambda row: day_name(row.day),
}
