"""Background work on PostgreSQL: other gateways are notified at once, and listeners reconnect after failures."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
import uvloop
from msgspec.structs import replace
from tests.store import postgres_server
from tests.store.stores import find_turn_by_item, record

from antiphon.errors import StorageUnavailable
from antiphon.store.conversations import ConversationAddition, ConversationEntry, StoredConversation
from antiphon.store.postgres import listener as postgres_listener
from antiphon.store.postgres import work as postgres_work
from antiphon.store.postgres.connections import ConnectionLimits, Connections
from antiphon.store.postgres.listener import CHANNEL, notification_payload, parse_payload
from antiphon.store.postgres.notifier import SEND_NOTIFICATION
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.work import EventsAfter

pytestmark = pytest.mark.io
QUEUED = replace(record("resp_1"), status="queued")
NEVER = 600.0  # so long that a test which uses it ends for another reason


@pytest.fixture(autouse=True)
def no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are noticed by notifications only."""
    monkeypatch.setattr(postgres_work, "MAX_WAIT", NEVER)


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    here, there = await PostgresStore.open(url), await PostgresStore.open(url)
    try:
        yield here, there
    finally:
        await here.close()
        await there.close()


async def listening(store: PostgresStore, url: str) -> None:
    """Waits until the store listens to notifications of others."""
    waiting = asyncio.create_task(store.wait_for_change("resp_1", NEVER))
    await asyncio.wait_for(waiting, 60)  # a new listener may have missed a notification
    assert listeners(url) == 1


def listeners(url: str) -> int:
    database = postgres_server.database_of(url)
    return int(
        postgres_server.sql(
            f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'antiphon' "
            "AND (query ILIKE 'LISTEN%' OR query = 'SELECT 1')"
        )
    )


def test_change_notifies_another_gateway_at_once() -> None:
    """F-2, of the store: a live tail on another replica."""

    async def story() -> None:
        url = postgres_server.fresh_url()
        async with two(url) as (here, there):
            await listening(there, url)
            await here.enqueue("anna", QUEUED, [], b"{}")
            await here.claim("one", NEVER, 1)
            for number in range(3):
                waiting = asyncio.create_task(there.wait_for_change("resp_1", NEVER, there.change_counter))
                await here.append("one", "resp_1", number, [b"{}"], "in_progress")
                await asyncio.wait_for(waiting, 60)
                log = await there.events_after("anna", "resp_1", number - 1)
                assert log
                assert log.events == [b"{}"]

    uvloop.run(story())


def test_own_notifications_are_not_counted_twice() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with two(url) as (here, there):
            await listening(here, url)
            moment = here.change_counter
            await here.enqueue("anna", QUEUED, [], b"{}")
            await there.cancel("anna", "resp_1", None)
            while here.change_counter < moment + 2:
                await here.wait_for_change("resp_1", NEVER, here.change_counter)
            assert here.change_counter == moment + 2

    uvloop.run(story())


def test_listener_reconnects_after_a_lost_connection() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with two(url) as (here, there):
            await here.enqueue("anna", QUEUED, [], b"{}")
            await here.claim("one", NEVER, 1)
            await listening(there, url)
            waiting = asyncio.create_task(there.wait_for_change("resp_1", NEVER, there.change_counter))
            await asyncio.sleep(0)
            assert postgres_server.kill_backends(url) >= 1
            await asyncio.wait_for(waiting, 60)  # a notification may have been missed
            waiting = asyncio.create_task(there.wait_for_change("resp_1", NEVER, there.change_counter))
            await here.append("one", "resp_1", 0, [b"{}"], "in_progress")
            await asyncio.wait_for(waiting, 60)

    uvloop.run(story())


def test_listener_reconnects_after_a_server_restart() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with two(url) as (here, there):
            await here.enqueue("anna", QUEUED, [], b"{}")
            await here.claim("one", NEVER, 1)
            await listening(there, url)
            moment = there.change_counter
            async with postgres_server.stopped_aside():
                await asyncio.sleep(3 * postgres_listener.RECONNECT_INTERVAL)  # one or two failed attempts
            await asyncio.wait_for(there.wait_for_change("resp_1", NEVER, moment), 60)
            waiting = asyncio.create_task(there.wait_for_change("resp_1", NEVER, there.change_counter))
            assert await here.append("one", "resp_1", 0, [b"{}"], "in_progress")
            await asyncio.wait_for(waiting, 60)

    uvloop.run(story())


def test_listener_probes_an_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_listener, "HEALTH_CHECK_INTERVAL", 0.01)

    async def story() -> None:
        url = postgres_server.fresh_url()
        async with two(url) as (_, there):
            await listening(there, url)
            database = postgres_server.database_of(url)

            def query_count() -> str:
                return postgres_server.sql(
                    f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND query = 'SELECT 1'"
                )

            async with asyncio.timeout(60):
                while await asyncio.to_thread(query_count) != "1":
                    await asyncio.sleep(0.01)

    uvloop.run(story())


def test_listener_closes_its_connection_if_setup_fails() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()

        class Unsettled(Connections):
            async def _configure(self, connection: Any) -> None:
                del connection
                raise asyncpg.InterfaceError("not today")

        with pytest.raises(asyncpg.InterfaceError):
            await Unsettled(url, ConnectionLimits()).connect()
        database = postgres_server.database_of(url)
        async with asyncio.timeout(60):
            while postgres_server.sql(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'") != "0":
                await asyncio.sleep(0.01)

    uvloop.run(story())


def test_repeated_call_after_a_lost_answer_takes_effect_once() -> None:
    """The first attempt is committed, and its answer is lost."""

    class Forgetful(Connections):
        forgets = False

        async def _run_query_once(self, question: Any) -> Any:
            answer = await super()._run_query_once(question)
            if self.forgets:
                self.forgets = False
                raise ConnectionResetError
            return answer

    async def story() -> None:
        connections = Forgetful(postgres_server.fresh_url(), ConnectionLimits())
        await connections.open()
        store = PostgresStore(connections)
        await store.create_conversation("anna", StoredConversation(id="conv", created_at=1, metadata=b"{}"), [])
        connections.forgets = True
        await store.enqueue("anna", QUEUED, [], b"{}")
        [work] = await store.claim("one", NEVER, 5)
        assert work.attempt == 1
        for number in range(2):
            connections.forgets = True
            assert await store.append("one", "resp_1", number, [b"%d" % number], "in_progress")
        for addition in (
            None,
            ConversationAddition(conversation_id="conv", entries=[ConversationEntry(id="a", item=b"{}")]),
        ):
            connections.forgets = True
            assert await store.finish("one", record("resp_1"), [], [], 2, [b"2"], addition=addition)
        assert await store.events_after("anna", "resp_1", -1) == EventsAfter(
            events=[b"0", b"1", b"2"], status="completed"
        )
        connections.forgets = True
        addition = ConversationAddition(conversation_id="conv", entries=[ConversationEntry(id="b", item=b"{}")])
        await store.save("anna", record("resp_2"), [], [], addition=addition)
        page = await store.list_entries("anna", "conv", after=None, order="asc", limit=1000)
        assert page
        assert [entry.id for entry in page.entries] == ["b"]  # work that was finished before adds nothing
        await store.close()

    uvloop.run(story())


def test_concurrent_work_is_batched_and_keeps_its_order() -> None:
    """An invalid entry does not fail the others."""

    class Counting(Connections):
        query_count = 0

        async def fetch_unwrapped(self, sql: str, *arguments: Any, size: int = 0) -> list[Any]:
            self.query_count += sql != SEND_NOTIFICATION
            return await super().fetch_unwrapped(sql, *arguments, size=size)

    async def story() -> None:
        connections = Counting(postgres_server.fresh_url(), ConnectionLimits())
        await connections.open()
        store = PostgresStore(connections)
        ids = [f"resp_{number}" for number in range(150)]
        enqueues = [store.enqueue("anna", replace(QUEUED, id=id), [f"item of {id}"], id.encode()) for id in ids]
        await asyncio.gather(*enqueues)
        assert connections.query_count <= 5
        assert [(work.id, work.request) for work in await store.claim("one", NEVER, 200)] == [
            (id, id.encode()) for id in ids
        ]
        stored = await find_turn_by_item(store, "anna", "item of resp_99")
        assert stored is not None
        assert stored.id == "resp_99"

        for name, write in {
            "APPEND": lambda id: store.append("one", id, 0, [b"1", b"2"], "in_progress"),
            "FINISH": lambda id: store.finish("one", record(id), [f"item of {id}"], [f"call of {id}"], 2, [b"3"]),
        }.items():
            connections.query_count = 0
            assert all(await asyncio.gather(*map(write, ids))), name
            assert connections.query_count <= 4, name  # the first one alone, then 64 at a time
        assert await store.finish("two", record("resp_1"), [], [], 3, []) is False
        assert await store.finish("one", record("resp_1"), [], [], 3, []) is True
        assert await store.events_after("anna", "resp_99", -1) == EventsAfter(
            events=[b"1", b"2", b"3"], status="completed"
        )
        assert list(await store.find_calls("anna", ["call of resp_7"])) == ["call of resp_7"]

        same, other = replace(QUEUED, id="same"), replace(QUEUED, id="other")
        enqueues = [
            store.enqueue("anna", same, [], b"1"),
            store.enqueue("bert", same, [], b"2"),
            store.enqueue("anna", other, [], b"3"),
        ]
        outcomes = await asyncio.gather(*enqueues, return_exceptions=True)
        assert [isinstance(outcome, StorageUnavailable) for outcome in outcomes] == [False, True, False]
        assert [work.request for work in await store.claim("one", NEVER, 5)] == [b"1", b"3"]
        await store.close()

    uvloop.run(story())


def test_invalid_work_is_refused_without_side_effects() -> None:
    async def story() -> None:
        store = await PostgresStore.open(postgres_server.fresh_url())
        await store.create_conversation("anna", StoredConversation(id="conv", created_at=1, metadata=b"{}"), [])
        addition = ConversationAddition(conversation_id="conv", entries=[ConversationEntry(id="a", item=b"{}")])
        with pytest.raises(StorageUnavailable, match="too large or invalid for the database"):
            await store.save("anna", record(os.urandom(5000).hex()), [], [], addition=addition)
        assert await store.get_entry("anna", "conv", "a") is None
        await store.close()

    uvloop.run(story())


def test_verify_reports_gaps_between_events() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        store = await PostgresStore.open(url)
        await store.enqueue("anna", QUEUED, [], b"{}")
        await store.claim("one", NEVER, 1)
        for number in range(3):
            await store.append("one", "resp_1", number, [b"{}"], "in_progress")
        postgres_server.sql("DELETE FROM antiphon_events WHERE first = 1", url)
        assert await store.verify() == ["1 event batches have a gap before them or cannot be read"]
        await store.close()

    uvloop.run(story())


def test_batch_of_changes_is_one_notification() -> None:
    """PostgreSQL serialises commits that notify."""

    async def story() -> None:
        url = postgres_server.fresh_url()
        store, other = await PostgresStore.open(url), await PostgresStore.open(url)
        payloads: list[str] = []
        listener = await asyncpg.connect(url)
        await listener.add_listener(CHANNEL, lambda *event: payloads.append(event[-1]))
        ids = [f"resp_{number}" for number in range(40)]
        await asyncio.gather(*(store.enqueue("anna", replace(QUEUED, id=id), [], b"{}") for id in ids))
        await store.claim("one", NEVER, 50)
        for _ in range(2):  # the other gateway listens from its first wait on
            await other.wait_for_change(None, 0.5)
        counter = other.change_counter
        waits = [asyncio.create_task(other.wait_for_change(id, 30, counter)) for id in ids]
        payloads.clear()
        await asyncio.gather(*(store.finish("one", record(id), [], [], 0, [b"1"]) for id in ids))
        await asyncio.wait_for(asyncio.gather(*waits), 30)
        await listener.execute("SELECT 1")
        assert len(payloads) <= 3  # the first response alone, then all others
        assert sum(len(parse_payload(payload)[1]) for payload in payloads) == len(ids)
        await listener.close()
        await store.close()
        await other.close()

    uvloop.run(story())


def test_commits_of_work_do_not_notify() -> None:
    """PostgreSQL serialises commits that notify, until each is on disk."""

    async def story() -> None:
        statements: list[str] = []

        class Recording(Connections):
            async def fetch_unwrapped(self, sql: str, *arguments: Any, size: int = 0) -> list[Any]:
                statements.append(sql)
                return await super().fetch_unwrapped(sql, *arguments, size=size)

        connections = Recording(postgres_server.fresh_url(), ConnectionLimits())
        await connections.open()
        store = PostgresStore(connections)
        await store.enqueue("anna", QUEUED, [], b"{}")
        await store.claim("one", NEVER, 1)
        await store.append("one", "resp_1", 0, [b"0"], "in_progress")
        await store.finish("one", record("resp_1"), [], [], 1, [b"1"])
        await store.delete("anna", "resp_1")
        await store.close()
        assert {sql for sql in statements if "pg_notify" in sql} == {SEND_NOTIFICATION}
        assert "'synchronous_commit', 'off', true" in SEND_NOTIFICATION  # for this transaction only
        assert sum("pg_notify" not in sql for sql in statements) == 5

    uvloop.run(story())


def test_payload_of_an_earlier_version_is_understood() -> None:
    key = sha256(b"resp_1").hexdigest()
    assert parse_payload(f"origin {key}") == ("origin", [key[:16]])
    assert parse_payload("origin queue") == ("origin", [None])
    assert parse_payload(notification_payload("origin", [None, key[:16]])) == ("origin", [None, key[:16]])
