"""Counting of usage, and that failures of the store lose no usage (C-5)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pytest

from antiphon.errors import StorageUnavailable
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops import usage_counter
from antiphon.ops.logger import Logger
from antiphon.ops.maintenance import MaintenanceTasks
from antiphon.ops.usage_counter import UsageCounter
from antiphon.store.interface import Store
from antiphon.store.usage import UsageRow

pytestmark = pytest.mark.without_coverage


class Shelf:
    """The part of a store that a counter uses: stores rows, or raises."""

    def __init__(self, *faults: Exception) -> None:
        self.kept: list[UsageRow] = []
        self.asked = 0
        self.waits = asyncio.Event()
        self.waits.set()
        self._faults = list(faults)

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        self.asked += 1
        await self.waits.wait()
        if self._faults:
            raise self._faults.pop(0)
        self.kept += rows


def counter(shelf: Shelf, out: io.StringIO | None = None) -> UsageCounter:
    return UsageCounter(cast(Store, shelf), lambda line: str(line.model), Logger(out or io.StringIO(), "json"))


def line(**fields: Any) -> RequestLog:
    settings: dict[str, Any] = {
        "model": "m",
        "owner": "anna",
        "upstream": "lab",
        "time": 86_400.0 * 20_000 + 5,
        **fields,
    }
    return RequestLog(request_id="req_1", method="POST", path="/v1/responses", **settings)


def test_usage_is_summed_by_day_owner_model_and_upstream() -> None:
    """C-5."""

    async def story() -> None:
        shelf = Shelf()
        usage = counter(shelf)
        usage.count_request(line(input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=2, losses=1))
        usage.count_request(line(input_tokens=1, error="server_error"))
        usage.count_request(line(owner=None, upstream=None, error="model_not_found"))
        usage.count_request(line(model=None))
        usage.count_request(line(is_deferred=True))
        await usage.flush()
        await usage.flush()
        assert shelf.asked == 1
        assert shelf.kept == [
            UsageRow(
                day=20_000,
                owner="anna",
                model="m",
                upstream="lab",
                requests=2,
                errors=1,
                input_tokens=11,
                cached_tokens=4,
                output_tokens=5,
                reasoning_tokens=2,
                losses=1,
            ),
            UsageRow(day=20_000, owner="", model="m", upstream="", requests=1, errors=1),
        ]

    asyncio.run(story())


def test_usage_that_cannot_be_stored_is_stored_later() -> None:
    async def story() -> None:
        out = io.StringIO()
        shelf = Shelf(StorageUnavailable("gone"), StorageUnavailable("gone"))
        shelf.waits.clear()
        usage = counter(shelf, out)
        usage.count_request(line())
        flushing = asyncio.create_task(usage.flush())
        while not shelf.asked:
            await asyncio.sleep(0)
        usage.count_request(line())
        usage.count_request(line(model="n"))
        shelf.waits.set()
        await flushing
        await usage.flush()
        await usage.flush()
        assert [(row.model, row.requests) for row in shelf.kept] == [("m", 2), ("n", 1)]
        assert out.getvalue().count("usage cannot be stored at the moment") == 1

    asyncio.run(story())


def test_cancelled_flush_completes_its_write() -> None:
    async def story() -> None:
        shelf = Shelf()
        shelf.waits.clear()
        usage = counter(shelf)
        usage.count_request(line())
        running = asyncio.create_task(usage.run(interval=0))
        while not shelf.asked:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        shelf.waits.set()
        await usage.flush()
        assert [row.requests for row in shelf.kept] == [1]

    asyncio.run(story())


def test_internal_error_does_not_end_the_counter() -> None:
    async def story() -> None:
        out = io.StringIO()
        shelf = Shelf(ValueError("ours"))
        usage = counter(shelf, out)
        tasks = MaintenanceTasks(Logger(out, "json"), restart_delay=0)
        tasks.start("usage", partial(usage.run, interval=0))
        usage.count_request(line())
        while not shelf.asked:
            await asyncio.sleep(0)
        usage.count_request(line(model="n"))
        while not shelf.kept:
            await asyncio.sleep(0)
        await tasks.close()
        assert "ValueError: ours" in out.getvalue()

    asyncio.run(story())


def test_number_of_counted_keys_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(usage_counter, "MAX_KEYS", 2)
        usage = counter(Shelf())
        for number in range(5):
            usage.count_request(line(model=f"m{number}"))
        assert usage.dropped_requests == 3

    asyncio.run(story())
