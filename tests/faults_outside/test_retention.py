"""A sweep of many old responses, timed: the saves meanwhile have a p99 of at most 100 ms, here with a factor of three.
`make bench-retention` measures a million responses from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from bench.retention import fill_postgres, fill_sqlite
from tests.store import postgres_server
from tests.store.stores import record

from antiphon.config import StoreConfig
from antiphon.ops.retention import delete_expired
from antiphon.store.interface import Store
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore

pytestmark = [pytest.mark.io, pytest.mark.timed]
ROWS = 20_000
BOUND = 0.3  # seconds; three times the documented 100 ms


async def sweep_under_load(open_store: Callable[[], Awaitable[Store]]) -> list[float]:
    """Deletes all old responses while others are saved. Returns the durations of the saves."""
    store = await open_store()
    durations: list[float] = []
    sweep = asyncio.create_task(delete_expired(store, StoreConfig(), int(time.time())))
    while not sweep.done():
        begin = time.monotonic()
        id = f"resp_during_{len(durations)}"
        await store.save("bench", record(id, at=int(time.time())), [f"msg_{id}"], [])
        durations.append(time.monotonic() - begin)
        await asyncio.sleep(0.005)
    assert (await sweep).responses == ROWS
    assert (await store.stats()).responses == 1 + len(durations)
    await store.close()
    return durations


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_sweep_of_many_responses_delays_no_save(name: str, tmp_path: Path) -> None:
    if name == "sqlite":
        path = tmp_path / "antiphon.db"
        fill_sqlite(path, ROWS)
        durations = asyncio.run(sweep_under_load(lambda: SqliteStore.open(path)))
    else:
        url = postgres_server.fresh_url()
        fill_postgres(url, ROWS)
        durations = asyncio.run(sweep_under_load(lambda: PostgresStore.open(url)))
    assert len(durations) >= 100
    assert sorted(durations)[len(durations) * 99 // 100] < BOUND
