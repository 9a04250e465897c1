"""Laws of usage on every store (C-5)."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace
from tests.store.conftest import Run
from tests.store.store_setups import StoreSetup

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


def test_usage_rows_with_the_same_key_are_summed(run: Run) -> None:
    """C-5: from either of two gateways."""

    async def law(setup: StoreSetup) -> None:
        other = await setup.open_another()
        await setup.store.add_usage([ROW])
        await other.add_usage([replace(ROW, input_tokens=2**40), replace(ROW, model="n")])
        rows = await setup.store.get_usage(since=20_000, until=20_000)
        assert [(row.model, row.requests, row.input_tokens) for row in rows] == [("m", 2, 10 + 2**40), ("n", 1, 10)]
        assert rows[1] == replace(ROW, model="n")

    run(law)


def test_concurrent_usage_additions_are_all_counted(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        other = await setup.open_another()
        rows = [replace(ROW, model=f"m{number}") for number in range(20)]
        adding = [
            store.add_usage(order) for order in (rows, rows[::-1]) for store in (setup.store, other) for _ in range(3)
        ]
        await asyncio.gather(*adding)
        assert [row.requests for row in await setup.store.get_usage(since=0, until=30_000)] == [12] * 20

    run(law)


def test_usage_is_filtered_by_owner_and_days(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        rows = [replace(ROW, day=day, owner=owner) for day in (19_999, 20_000, 20_001) for owner in ("anna", "bob\0")]
        await setup.store.add_usage(rows)
        assert [row.day for row in await setup.store.get_usage(since=20_000, until=20_001, owner="bob\0")] == [
            20_000,
            20_001,
        ]
        assert await setup.store.get_usage(since=20_000, until=20_001, owner="nobody") == []
        assert await setup.store.get_usage(since=-9, until=20_000) == rows[:4]
        await setup.store.add_usage([])

    run(law)


def test_prune_deletes_old_usage_days(run: Run) -> None:
    async def law(setup: StoreSetup) -> None:
        await setup.store.add_usage([replace(ROW, day=day) for day in range(5)])
        assert await setup.store.prune_usage(before=3) == 3
        assert await setup.store.prune_usage(before=3) == 0
        assert [row.day for row in await setup.store.get_usage(since=0, until=9)] == [3, 4]

    run(law)


def test_sum_usage_orders_by_day_or_tokens() -> None:
    """C-5: days in order, everything else by most tokens."""
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
