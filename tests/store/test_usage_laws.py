"""What holds of usage on every store (C-5)."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace
from tests.store.benches import Bench
from tests.store.conftest import Run

from antiphon.store.usage import UsageRow
from antiphon.store.usage_sums import sum_usage, total_tokens

ROW = UsageRow(
    day=20_000,
    owner="anna",
    model="m",
    upstream="lab",
    requests=1,
    errors=1,
    input_tokens=10,
    cached_tokens=4,
    output_tokens=5,
    reasoning_tokens=2,
    losses=3,
)


def test_what_is_added_twice_is_there_twice_over(run: Run) -> None:
    """C-5: whichever of two gateways adds it."""

    async def law(bench: Bench) -> None:
        other = await bench.another()
        await bench.store.add_usage([ROW])
        await other.add_usage([replace(ROW, input_tokens=2**40), replace(ROW, model="n")])
        found = await bench.store.get_usage(since=20_000, until=20_000)
        assert [(row.model, row.requests, row.input_tokens) for row in found] == [("m", 2, 10 + 2**40), ("n", 1, 10)]
        assert found[1] == replace(ROW, model="n")

    run(law)


def test_two_who_add_at_once_lose_nothing(run: Run) -> None:
    async def law(bench: Bench) -> None:
        other = await bench.another()
        rows = [replace(ROW, model=f"m{number}") for number in range(20)]
        adding = [
            store.add_usage(order) for order in (rows, rows[::-1]) for store in (bench.store, other) for _ in range(3)
        ]
        await asyncio.gather(*adding)
        assert [row.requests for row in await bench.store.get_usage(since=0, until=30_000)] == [12] * 20

    run(law)


def test_an_owner_and_some_days_are_told_apart(run: Run) -> None:
    async def law(bench: Bench) -> None:
        rows = [replace(ROW, day=day, owner=owner) for day in (19_999, 20_000, 20_001) for owner in ("anna", "bob\0")]
        await bench.store.add_usage(rows)
        assert [row.day for row in await bench.store.get_usage(since=20_000, until=20_001, owner="bob\0")] == [
            20_000,
            20_001,
        ]
        assert await bench.store.get_usage(since=20_000, until=20_001, owner="nobody") == []
        assert await bench.store.get_usage(since=-9, until=20_000) == rows[:4]
        await bench.store.add_usage([])

    run(law)


def test_old_days_go(run: Run) -> None:
    async def law(bench: Bench) -> None:
        await bench.store.add_usage([replace(ROW, day=day) for day in range(5)])
        assert await bench.store.prune_usage(before=3) == 3
        assert await bench.store.prune_usage(before=3) == 0
        assert [row.day for row in await bench.store.get_usage(since=0, until=9)] == [3, 4]

    run(law)


def test_sums_come_in_an_order_that_people_read() -> None:
    """C-5: days in their order, all else by the most tokens."""
    rows = [
        ROW,
        replace(ROW, model="n", day=19_999, input_tokens=99),
        replace(ROW, owner="bob", upstream="other", day=20_001),
    ]
    assert list(sum_usage(rows, "model")) == ["n", "m"]
    assert list(sum_usage(rows, "day")) == ["2024-10-03", "2024-10-04", "2024-10-05"]
    assert list(sum_usage(rows, "key")) == ["anna", "bob"]
    assert {name: total_tokens(counts) for name, counts in sum_usage(rows, "upstream").items()} == {
        "lab": 119,
        "other": 15,
    }
    assert sum_usage(rows, "model")["m"] == [2, 2, 20, 8, 10, 4, 6]
