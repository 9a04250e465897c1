"""Retention: responses that are too old or too many are deleted, oldest first and chains as a whole, despite failures
of the store."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from tests.running import one_upstream, running, until
from tests.store.stores import STORE_OPENERS, STORES, OpenStore, join_chain, read_chain, record

from antiphon.config import StoreConfig
from antiphon.errors import StorageUnavailable
from antiphon.ops import retention
from antiphon.ops.logger import Logger
from antiphon.ops.maintenance import MaintenanceTasks
from antiphon.ops.retention import HOLD, delete_expired, run_retention
from antiphon.store.conversations import ConversationEntry, StoredConversation
from antiphon.store.interface import RetentionState, Store
from antiphon.store.sqlite.store import SqliteStore
from antiphon.store.usage import UsageRow
from antiphon.testing import ChatServer

pytestmark = pytest.mark.without_coverage
DAY = 86_400
NOW = int(time.time())


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small step, so that a few responses are many, and no pause between two steps."""
    monkeypatch.setattr(retention, "BATCH_SIZE", 3)
    monkeypatch.setattr(retention, "BATCH_PAUSE", 0)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> OpenStore:
    return STORE_OPENERS[request.param]


async def keep(store: Store, *ages: tuple[str, str | None, float]) -> None:
    """Responses by id, the id that each continues, and its age in days."""
    for id, previous, days in ages:
        await store.save("anna", record(id, previous, at=int(NOW - days * DAY)), [f"msg_{id}"], [])


async def left(store: Store, *ids: str) -> list[str]:
    return [id for id in ids if await store.get("anna", id) is not None]


def test_expired_responses_are_deleted(place: OpenStore) -> None:
    async def go() -> None:
        async with place() as store:
            await keep(
                store, *((f"old_{n}", None, 31 + n) for n in range(10)), *((f"new_{n}", None, n) for n in range(10))
            )
            assert await delete_expired(store, StoreConfig(retention_days=30), NOW) == (10, 0)
            stats = await store.stats()
            assert (stats.responses, stats.items) == (10, 10)
            assert await left(store, "old_0", "old_9", "new_0", "new_9") == ["new_0", "new_9"]
            assert await delete_expired(store, StoreConfig(retention_days=30), NOW) == (0, 0)
            assert await delete_expired(store, StoreConfig(retention_days=4.5), NOW) == (5, 0)

    asyncio.run(go())


def test_expired_conversations_are_deleted_if_configured(place: OpenStore) -> None:
    """API-4. An addition or new metadata renews a conversation."""

    async def go() -> None:
        async with place() as store:
            for number in range(10):
                made = StoredConversation(id=f"conv_{number}", created_at=NOW - (26 + number) * DAY, metadata=b"{}")
                await store.create_conversation("anna", made, [ConversationEntry(id="a", item=b"{}")])
            assert await store.add_entries("anna", "conv_9", [ConversationEntry(id="b", item=b"{}")])
            assert await store.update_conversation("anna", "conv_8", b'{"a":"b"}')
            assert await delete_expired(store, StoreConfig(retention_days=1), NOW) == (0, 0)
            assert await delete_expired(store, StoreConfig(conversation_days=29.5), NOW) == (0, 4)
            ids = [f"conv_{number}" for number in range(10)]
            there = [id for id in ids if await store.get_conversation("anna", id) is not None]
            assert there == ["conv_0", "conv_1", "conv_2", "conv_3", "conv_8", "conv_9"]
            assert await store.get_entry("anna", "conv_4", "a") is None
            assert await store.get_entry("anna", "conv_9", "a") is not None
            assert await store.verify() == []

    asyncio.run(go())


def test_usage_is_deleted_with_the_retention_of_responses(place: OpenStore) -> None:
    """C-5."""

    async def go() -> None:
        async with place() as store:
            today = int(NOW) // DAY
            await store.add_usage(
                [UsageRow(day=today - days, owner="anna", model="m", upstream="lab") for days in (0, 29, 32)]
            )
            await delete_expired(store, StoreConfig(retention_days=30), NOW)
            assert [row.day for row in await store.get_usage(since=0, until=today)] == [today - 29, today]

    asyncio.run(go())


def test_responses_over_the_maximum_number_are_deleted_oldest_first(place: OpenStore) -> None:
    async def go() -> None:
        async with place() as store:
            await keep(store, *((f"r{n}", None, 20 - n) for n in range(20)))
            assert await delete_expired(store, StoreConfig(max_responses=8), NOW) == (12, 0)
            assert await left(store, *(f"r{n}" for n in range(20))) == [f"r{n}" for n in range(12, 20)]
            assert await delete_expired(store, StoreConfig(), NOW) == (0, 0)

    asyncio.run(go())


@pytest.mark.parametrize(
    "config", [StoreConfig(retention_days=30), StoreConfig(max_responses=1)], ids=["age", "number"]
)
def test_chain_is_deleted_only_as_a_whole(place: OpenStore, config: StoreConfig) -> None:
    """A chain that can still be continued never loses its start."""

    async def go() -> None:
        async with place() as store:
            chain = [(f"c{n}", f"c{n - 1}" if n else None, 50.0 - n) for n in range(10)]
            await keep(store, *chain, ("last", "c9", 0.0), ("alone", None, 45.0))
            assert await delete_expired(store, config, NOW) == (1, 0)
            assert await read_chain(store, "anna", "last") == join_chain(
                *(record(id) for id, _, _ in chain), record("last")
            )
            assert await left(store, "alone") == []
            assert await store.delete("anna", "last")
            await keep(store, ("other", None, 0.0))
            assert await delete_expired(store, config, NOW) == (10, 0)
            assert (await store.stats()).responses == 1

    asyncio.run(go())


class Ill:
    """A store that cannot be reached the first time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0

    async def prune(self, **settings: Any) -> int:
        self.asked += 1
        if self.asked == 1:
            raise StorageUnavailable("the storage is busy")
        return await self._store.prune(**settings)

    async def prune_usage(self, **settings: Any) -> int:
        return await self._store.prune_usage(**settings)

    async def newest_time(self) -> int | None:
        return await self._store.newest_time()

    async def retention_state(self) -> RetentionState | None:
        return await self._store.retention_state()

    async def save_retention_state(self, state: RetentionState) -> None:
        await self._store.save_retention_state(state)


def test_sweep_is_retried_after_a_storage_failure(place: OpenStore) -> None:
    async def go() -> None:
        log = io.StringIO()
        logger = Logger(log, "json")
        async with place() as store:
            await keep(store, *((f"old_{n}", None, 31) for n in range(7)), ("new", None, 0.5))
            ill = Ill(store)
            task = asyncio.create_task(run_retention(cast(Store, ill), StoreConfig(), logger, interval=0))
            async with asyncio.timeout(60):
                while ill.asked < 6:  # the failure; three steps and the empty one; the next sweep
                    await asyncio.sleep(0)
            task.cancel()
            assert (await store.stats()).responses == 1
        logger.flush()
        lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
        assert [(line["level"], line["event"]) for line in lines] == [
            ("warning", "failed to prune the store"),
            ("info", "removed responses because of their age or number"),
        ]
        assert (lines[0]["why"], lines[1]["count"]) == ("the storage is busy", 7)

    asyncio.run(go())


@pytest.mark.io
def test_gateway_sweeps_periodically(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await SqliteStore.open(tmp_path / "antiphon.db")
        await keep(store, ("old", None, 3), ("new", None, 0.5))
        await store.close()

    asyncio.run(fill())
    config = StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db", retention_days=2)
    with ChatServer() as upstream, running(replace(one_upstream(upstream.base_url), store=config)) as gateway:
        until(lambda: any(line.get("count") == 1 for line in gateway.log))

    async def look() -> None:
        store = await SqliteStore.open(tmp_path / "antiphon.db")
        assert await left(store, "old", "new") == ["new"]
        await store.close()

    asyncio.run(look())


def test_internal_error_does_not_end_retention() -> None:
    """The fault is logged, and the next sweep runs."""

    class Odd:
        swept = 0

        async def newest_time(self) -> None:
            return None

        async def retention_state(self) -> None:
            return None

        async def save_retention_state(self, state: RetentionState) -> None: ...

        async def prune(self, **_: object) -> int:
            self.swept += 1
            if self.swept == 1:
                raise RuntimeError("odd")
            return 0

    async def within() -> str:
        store, log = Odd(), io.StringIO()
        logger = Logger(log, "json")
        tasks = MaintenanceTasks(logger, restart_delay=0)
        tasks.start("retention", lambda: run_retention(cast(Store, store), StoreConfig(), logger, interval=0))
        while store.swept < 2:
            await asyncio.sleep(0)
        await tasks.close()
        return log.getvalue()

    assert "RuntimeError: odd" in asyncio.run(within())


async def sweep(store: Store, *times: float, config: StoreConfig) -> list[dict[str, Any]]:
    """Sweeps at these times in one process, and returns its log."""
    log = io.StringIO()
    logger = Logger(log, "json")
    clock = iter(times)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_retention(store, config, logger, interval=0, now=lambda: next(clock))
    logger.flush()
    return [msgspec.json.decode(line) for line in log.getvalue().splitlines()]


def test_nothing_is_deleted_for_a_day_after_a_jump_of_the_clock(place: OpenStore) -> None:
    """C5: the hold lasts across sweeps and restarts, and ends."""
    config = StoreConfig(retention_days=29.5)

    async def go() -> None:
        async with place() as store:
            await keep(store, ("old", None, 29), ("new", None, 0.5))
            assert await sweep(store, NOW, config=config) == []
            jumped = NOW + 40 * DAY
            lines = await sweep(store, jumped, jumped + 60, config=config)
            assert [(line["level"], line.get("days"), line.get("seconds_left")) for line in lines] == [
                ("warning", 40.0, None),
                ("warning", None, HOLD),
            ]
            [line] = await sweep(store, jumped + HOLD - 1, config=config)  # after a restart
            assert line["seconds_left"] == 1
            assert await left(store, "old", "new") == ["old", "new"]
            [line] = await sweep(store, jumped + HOLD, config=config)
            assert (line["event"], line["count"]) == ("removed responses because of their age or number", 2)

    asyncio.run(go())


def test_hold_begins_again_when_the_clock_is_corrected(place: OpenStore) -> None:
    config = StoreConfig(retention_days=29.5)

    async def go() -> None:
        async with place() as store:
            await keep(store, ("old", None, 29.4), ("new", None, 0.5))
            jumped = NOW + 40 * DAY
            lines = await sweep(store, NOW, jumped, NOW + 60, NOW + 2 * 3600, config=config)
            assert [line["days"] for line in lines if "days" in line] == [40.0, -40.0]
            assert await left(store, "old", "new") == ["old", "new"]
            await sweep(store, NOW + 20 * 3600, NOW + 60 + HOLD, config=config)
            assert await left(store, "old", "new") == ["new"]

    asyncio.run(go())


def test_first_sweep_compares_the_clock_with_the_newest_response(place: OpenStore) -> None:
    """A database of an earlier version has no time of a sweep."""
    config = StoreConfig(retention_days=1)

    async def go() -> None:
        async with place() as store:
            assert await store.newest_time() is None
            assert await store.retention_state() is None
            await keep(store, ("old", None, 4), ("new", None, 3))
            assert await store.newest_time() == int(NOW - 3 * DAY)
            lines = await sweep(store, NOW, config=config)
            assert lines[0]["days"] == 3.0
            assert await store.retention_state() == RetentionState(looked_at=NOW, held_until=NOW + HOLD)
            assert await left(store, "old", "new") == ["old", "new"]

    asyncio.run(go())


def test_empty_store_needs_no_hold(place: OpenStore) -> None:
    async def go() -> None:
        async with place() as store:
            assert await sweep(store, NOW, config=StoreConfig()) == []
            assert await store.retention_state() == RetentionState(looked_at=NOW, held_until=0)

    asyncio.run(go())
