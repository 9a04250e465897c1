"""Failures of PostgreSQL, and what only PostgreSQL has; the laws of every store are in `test_laws.py`.

All tests run on the event loop of the gateway, which notices lost connections at other moments than asyncio's own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest
import uvloop
from tests.store import postgres_server
from tests.store.stores import find_turn_by_call, find_turn_by_item, join_chain, read_chain, record

from antiphon.errors import AntiphonError, ConfigError, StorageUnavailable
from antiphon.store.conversations import ConversationEntry, StoredConversation
from antiphon.store.interface import RetentionState, StoredTurn
from antiphon.store.postgres.connections import LARGE_STATEMENT, ConnectionLimits, Connections, PooledConnection
from antiphon.store.postgres.faults import startup_error, storage_unavailable
from antiphon.store.postgres.migrations import MIGRATIONS, migrate
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.work import EventsAfter

pytestmark = pytest.mark.io
IMPATIENT = ConnectionLimits(reconnect_timeout=0.0)
# No server is ever this slow, so a test that uses it ends for another reason.
NEVER = 600.0


# The server stops and restarts


def test_store_reconnects_after_a_server_restart() -> None:
    async def story() -> None:
        async with opened(postgres_server.fresh_url(), IMPATIENT) as store:
            await store.save("anna", record("resp_1"), ["msg_1"], [])
            async with postgres_server.stopped_aside():
                for operation in (
                    store.get("anna", "resp_1"),
                    store.save("anna", record("resp_2"), [], []),
                    store.verify(),
                ):
                    with pytest.raises(StorageUnavailable, match="the database cannot be reached"):
                        await operation
            await before_long(lambda: store.save("anna", record("resp_3", "resp_1"), [], []))
            assert await read_chain(store, "anna", "resp_3") == join_chain(record("resp_1"), record("resp_3"))
            assert await store.get("anna", "resp_2") is None

    uvloop.run(story())


def test_store_calls_during_a_restart_wait_for_its_end() -> None:
    async def story() -> None:
        async with opened(postgres_server.fresh_url(), ConnectionLimits(reconnect_timeout=NEVER)) as store:
            await store.save("anna", record("resp_1"), [], [])
            async with postgres_server.stopped_aside():
                operations = [
                    asyncio.create_task(store.save("anna", record("resp_2"), [], [])),
                    asyncio.create_task(store.get("anna", "resp_1")),
                ]
            assert await asyncio.gather(*operations) == [None, record("resp_1")]
            assert await store.get("anna", "resp_2") == record("resp_2")

    uvloop.run(story())


def test_store_calls_succeed_after_all_backends_were_killed() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store:
            questions: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                lambda: store.save("anna", record("resp_2", "resp_1"), ["msg_2"], ["call_2"]),
                lambda: store.get("anna", "resp_2"),
                lambda: read_chain(store, "anna", "resp_2"),
                lambda: find_turn_by_item(store, "anna", "msg_2"),
                lambda: find_turn_by_call(store, "anna", "call_2"),
                lambda: store.prune(before=None, keep=10),
                lambda: store.delete("anna", "resp_2"),
                lambda: store.enqueue("anna", record("work"), [], b"{}"),
                lambda: store.claim("one", 0, 1),
                lambda: store.append("one", "work", 0, [b"{}"], "in_progress"),
                lambda: store.renew("one", 10, ["work"]),
                lambda: store.cancel("anna", "work", None),
                lambda: store.events_after("anna", "work", -1),
                lambda: store.finish("one", record("work"), [], [], 1, []),
                lambda: store.release("one", ["work"]),
                lambda: store.create_conversation(
                    "anna", StoredConversation(id="conv", created_at=1, metadata=b"{}"), []
                ),
                lambda: store.add_entries("anna", "conv", [ConversationEntry(id="a", item=b"{}")]),
                lambda: store.list_entries("anna", "conv", after=None, order="asc", limit=1000),
                store.queue_stats,
                store.stats,
                store.verify,
            ]
            await store.save("anna", record("resp_1"), [], [])
            for question in questions:
                assert postgres_server.kill_backends(url) >= 1
                await question()
            assert await store.get("anna", "resp_1") == record("resp_1")

    uvloop.run(story())


def test_store_call_of_a_killed_backend_is_repeated_on_another() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store, another(url) as holder:
            async with locked(holder):
                operations = [
                    asyncio.create_task(store.save("anna", record("resp_1"), [], [])),
                    asyncio.create_task(store.get("anna", "x")),
                ]
                await until(lambda: waiting_for_a_lock(url) == 2)
                killed = await holder.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE application_name = 'antiphon' AND datname = current_database()"
                )
                assert killed == 2
            assert await asyncio.gather(*operations) == [None, None]
            assert await store.get("anna", "resp_1") == record("resp_1")

    uvloop.run(story())


def test_read_only_server_is_reported_and_recovers() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store:
            await store.save("anna", record("resp_1"), [], [])
            database = postgres_server.database_of(url)
            postgres_server.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            postgres_server.kill_backends(url)
            with pytest.raises(StorageUnavailable, match="read-only"):
                await store.save("anna", record("resp_2"), [], [])
            assert await store.get("anna", "resp_1") == record("resp_1")
            postgres_server.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            await before_long(lambda: store.save("anna", record("resp_2"), [], []))

    uvloop.run(story())


def test_acknowledged_responses_survive_a_killed_process() -> None:
    url = postgres_server.fresh_url()
    uvloop.run(_open_and_close(url))
    acknowledged: list[str] = []
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", SAVES_FOR_EVER, url], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout
            lines = [child.stdout.readline() for _ in range(40)]
            child.kill()
            # Ids printed before the kill count as well; the last line may be incomplete.
            lines += [line for line in child.stdout if line.endswith("\n")]
        acknowledged += [line.strip() for line in lines]
    assert len(set(acknowledged)) == len(acknowledged) >= 120

    async def story() -> None:
        async with opened(url) as store:
            for id in acknowledged:
                assert await store.get("anna", id) is not None
                assert await find_turn_by_item(store, "anna", f"msg_{id}") is not None
            assert await store.verify() == []

    uvloop.run(story())


# Timeouts


def test_store_waits_for_a_short_lock() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store, another(url) as holder:
            async with locked(holder):
                saving = asyncio.create_task(store.save("anna", record("resp_1"), [], []))
                await until(lambda: waiting_for_a_lock(url) == 1)
            await saving
            assert await store.get("anna", "resp_1") == record("resp_1")

    uvloop.run(story())


def test_long_lock_is_reported_and_the_store_recovers() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with (
            opened(url, ConnectionLimits(statement_timeout=0.2, answer_timeout=NEVER)) as store,
            another(url) as holder,
        ):
            async with locked(holder):
                for operation in (store.save("anna", record("resp_1"), [], []), store.get("anna", "resp_1")):
                    with pytest.raises(StorageUnavailable, match="did not answer in time"):
                        await operation
            assert await store.get("anna", "resp_1") is None
            await store.save("anna", record("resp_1"), [], [])

    uvloop.run(story())


@pytest.mark.parametrize("question", ["get", "stats"])
def test_unresponsive_server_is_abandoned_and_the_next_call_reconnects(question: str) -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(
            url, ConnectionLimits(statement_timeout=NEVER, answer_timeout=0.3, long_timeout=0.3)
        ) as store:
            await store.save("anna", record("resp_1"), [], [])
            pid = int(
                postgres_server.sql(
                    f"SELECT pid FROM pg_stat_activity WHERE datname = '{postgres_server.database_of(url)}'"
                )
            )
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(StorageUnavailable, match="did not answer in time"):
                    await (store.get("anna", "resp_1") if question == "get" else store.stats())
                await before_long(lambda: store.save("anna", record("resp_2"), [], []))
            finally:
                os.kill(pid, signal.SIGCONT)

    uvloop.run(story())


def test_exhausted_connection_pool_is_reported() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with (
            opened(
                url, ConnectionLimits(connections=1, statement_timeout=NEVER, answer_timeout=0.5, reconnect_timeout=0.0)
            ) as store,
            another(url) as holder,
        ):
            async with locked(holder):
                counting = asyncio.create_task(store.stats())
                await until(lambda: waiting_for_a_lock(url) == 1)
                with pytest.raises(StorageUnavailable, match="did not answer in time"):
                    await store.get("anna", "resp_1")
            assert (await counting).responses == 0
            assert await store.get("anna", "resp_1") is None

    uvloop.run(story())


def test_long_statements_have_their_own_timeout() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with (
            opened(url, ConnectionLimits(statement_timeout=0.1, long_timeout=0.5)) as store,
            another(url) as holder,
        ):
            async with locked(holder):
                with pytest.raises(StorageUnavailable, match="did not answer in time"):
                    await store.stats()
            assert (await store.stats()).responses == 0

    uvloop.run(story())


# Callers


def test_cancelled_call_releases_its_connection() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url, ConnectionLimits(connections=1)) as store, another(url) as holder:
            async with locked(holder):
                for _ in range(3):
                    asking = asyncio.create_task(store.get("anna", "resp_1"))
                    await until(lambda: waiting_for_a_lock(url) >= 1)
                    asking.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asking
            assert await store.get("anna", "resp_1") is None

    uvloop.run(story())


def test_cancelled_save_is_still_written() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store, another(url) as holder:
            async with locked(holder):
                leaving = asyncio.create_task(store.save("anna", record("resp_1"), [], []))
                await until(lambda: waiting_for_a_lock(url) == 1)
                waiting = asyncio.create_task(store.save("anna", record("resp_2"), [], []))
                leaving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await leaving
            await waiting
            assert await store.get("anna", "resp_1") == record("resp_1")

    uvloop.run(story())


def test_invalid_response_does_not_fail_others_of_its_batch() -> None:
    async def story() -> None:
        async with opened(postgres_server.fresh_url()) as store:
            good, too_late, too_long = record("good"), record("bad", at=2**70), record(os.urandom(5000).hex())
            outcomes = await asyncio.gather(
                *(store.save("anna", each, [each.id], []) for each in (good, too_late, too_long, record("good", at=5))),
                return_exceptions=True,
            )
            assert [type(outcome) for outcome in outcomes] == [
                type(None),
                StorageUnavailable,
                StorageUnavailable,
                type(None),
            ]
            assert str(outcomes[1]) == str(outcomes[2]) == "the data is too large or invalid for the database"
            assert await store.get("anna", "good") == record("good", at=5)

    uvloop.run(story())


def test_item_ids_may_be_longer_than_an_index_entry() -> None:
    async def story() -> None:
        async with opened(postgres_server.fresh_url()) as store:
            long = os.urandom(50_000).hex()
            await store.save("anna", record("resp_1"), [long, f"{long}1"], [long])
            await store.save("anna", record("resp_2"), [f"{long}2"], [])
            assert await find_turn_by_item(store, "anna", long) == turn("resp_1")
            assert await find_turn_by_item(store, "anna", f"{long}2") == turn("resp_2")
            assert await find_turn_by_item(store, "anna", f"{long}3") is None
            assert await find_turn_by_call(store, "anna", long) == turn("resp_1")

    uvloop.run(story())


def test_saves_over_the_batch_limit_are_written_in_the_next_batch() -> None:
    async def story() -> None:
        async with opened(postgres_server.fresh_url()) as store:
            big = os.urandom(3 * 1024 * 1024)
            await asyncio.gather(
                *(store.save("anna", record(f"big_{number}", text=big), [], []) for number in range(5)),
                *(store.save("anna", record(f"small_{number}"), [], []) for number in range(200)),
            )
            assert (await store.stats()).responses == 205

    uvloop.run(story())


def test_large_statement_has_more_time() -> None:
    """The same statement is aborted if it is small: it would be repeated for ever, and never be fast enough."""
    limits = ConnectionLimits(statement_timeout=0.2, answer_timeout=0.5)

    async def story() -> None:
        connections = Connections(postgres_server.fresh_url(), limits)
        await connections.open()
        with pytest.raises(StorageUnavailable):
            await connections.fetch("SELECT pg_sleep(0.6)")
        assert len(await connections.fetch_unwrapped("SELECT pg_sleep(0.6)", size=3 * LARGE_STATEMENT)) == 1
        with pytest.raises(asyncpg.QueryCanceledError):
            await connections.fetch_unwrapped("SELECT pg_sleep(0.3)", size=LARGE_STATEMENT)
        await connections.close()

    uvloop.run(story())


def test_saves_fail_if_the_writer_crashes() -> None:
    class Broken(Connections):
        async def fetch_unwrapped(self, sql: str, *arguments: Any, size: int = 0) -> list[Any]:
            raise RuntimeError(sql, arguments, size)

    async def story() -> None:
        unforeseen: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unforeseen.append(context["exception"]))
        store = PostgresStore(Broken(postgres_server.url_of("postgres"), ConnectionLimits()))
        outcomes = await asyncio.gather(
            *(store.save("anna", record("same"), [], []) for _ in range(3)), return_exceptions=True
        )
        assert [str(outcome) for outcome in outcomes] == ["the response could not be stored"] * 3
        await until(lambda: [type(error) for error in unforeseen] == [RuntimeError])

    uvloop.run(story())


def test_close_waits_for_pending_saves() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with another(url) as holder:
            store = await PostgresStore.open(url)
            async with locked(holder):
                saving = asyncio.create_task(store.save("anna", record("resp_1"), [], []))
                await until(lambda: waiting_for_a_lock(url) == 1)
                closing = asyncio.create_task(store.close())
            await closing
            await saving
        async with opened(url) as again:
            assert await again.get("anna", "resp_1") == record("resp_1")

    uvloop.run(story())


def test_close_has_a_timeout_and_later_calls_fail() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        store = await PostgresStore.open(url, ConnectionLimits(answer_timeout=0.2, long_timeout=NEVER))
        async with another(url) as holder, locked(holder):
            counting = asyncio.create_task(store.stats())
            await until(lambda: waiting_for_a_lock(url) == 1)
            await store.close()
            with pytest.raises(StorageUnavailable):
                await counting
        with pytest.raises(StorageUnavailable):
            await store.get("anna", "resp_1")
        with pytest.raises(StorageUnavailable):
            await store.save("anna", record("resp_1"), [], [])

    uvloop.run(story())


# Pruning, verifying


def test_prune_skips_rows_that_another_gateway_has_locked() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url, ConnectionLimits(statement_timeout=NEVER)) as store, another(url) as holder:
            for number in range(4):
                await store.save("anna", record(f"resp_{number}", at=number), [], [])
            await store.save("anna", record("resp_4", "resp_0", at=4), [], [])
            async with holder.transaction():
                await holder.execute(
                    "SELECT FROM antiphon_responses WHERE id IN ($1, $2) FOR UPDATE", b"resp_0", b"resp_2"
                )
                assert await store.prune(before=100, keep=None) == 3
            assert await store.prune(before=100, keep=None) == 2

    uvloop.run(story())


def test_verify_reports_ids_without_a_response() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store:
            await store.save("anna", record("resp_1"), ["msg_1", "msg_2"], ["call_1"])
            postgres_server.sql("SET session_replication_role = replica; DELETE FROM antiphon_responses", url)
            assert await store.verify() == ["3 ids without a response of their owner"]

    uvloop.run(story())


def test_verify_reports_unreadable_content() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url) as store:
            await store.save("anna", record("resp_1"), [], [])
            postgres_server.sql(
                "CREATE FUNCTION damaged() RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS "
                "$$ BEGIN RAISE EXCEPTION 'missing chunk 0' USING ERRCODE = 'XX001'; END $$; "
                "ALTER TABLE antiphon_responses RENAME TO beneath; "
                "CREATE VIEW antiphon_responses AS SELECT * FROM beneath WHERE damaged()",
                url,
            )
            assert await store.verify() == ["error of the database: missing chunk 0"]

    uvloop.run(story())


# Connections


def test_synchronous_commit_is_always_enabled() -> None:
    async def story() -> None:
        for configured, expected in {"off": "on", "on": "on", "remote_apply": "remote_apply"}.items():
            url = postgres_server.fresh_url()
            postgres_server.sql(
                f"ALTER DATABASE {postgres_server.database_of(url)} SET synchronous_commit = {configured}"
            )
            connections = Connections(url, ConnectionLimits())
            await connections.open()
            assert [tuple(row) for row in await connections.fetch("SHOW synchronous_commit")] == [(expected,)]
            await connections.close()

    uvloop.run(story())


def test_store_opens_at_most_the_configured_connections() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url, ConnectionLimits(connections=2)) as store:
            await asyncio.gather(*(store.get("anna", "resp_1") for _ in range(50)))
            connected = postgres_server.sql(
                f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{postgres_server.database_of(url)}'"
            )
            assert connected == "2"

    uvloop.run(story())


# The tables


@pytest.mark.parametrize("version", range(len(MIGRATIONS) + 1))
def test_tables_of_every_earlier_version_are_migrated_with_their_content(version: int) -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        async with another(url) as early:
            await migrate(early, target_version=version)
            if version >= 1:
                await early.execute(
                    "INSERT INTO antiphon_responses (owner, id, created_at, status, head, input, output) "
                    "VALUES ('anna', 'resp_old', 7, 'completed', '{}', '[]', '[1]')"
                )
                await early.execute(
                    "INSERT INTO antiphon_found_by SELECT seq, 0, owner, 'msg_old' FROM antiphon_responses"
                )
            if version >= 2:
                await early.execute(
                    "INSERT INTO antiphon_work (seq, id, attempt, runner, held_until, next_event, request) "
                    "SELECT seq, id, 1, 'dead', now() - interval '1 hour', 2, '{}' FROM antiphon_responses"
                )
                await early.execute("INSERT INTO antiphon_events SELECT seq, 0, 2, '2 3 ', '{}[0]' FROM antiphon_work")
            if version >= 3:
                await early.execute(
                    "INSERT INTO antiphon_conversations (owner, id, created_at, metadata) VALUES ('anna', 'conv_old', 7, '{}')"
                )
        # Two gateways start together; one of them migrates.
        for replica in await asyncio.gather(PostgresStore.open(url), PostgresStore.open(url)):
            await replica.close()
        async with opened(url) as store:
            if version >= 1:
                stored = await store.get("anna", "resp_old")
                assert stored
                assert (stored.created_at, stored.head, stored.output) == (7, b"{}", b"[1]")
                assert await find_turn_by_item(store, "anna", "msg_old") == StoredTurn(
                    id="resp_old", input=b"[]", output=b"[1]"
                )
            if version >= 2:
                assert await store.events_after("anna", "resp_old", -1) == EventsAfter(
                    events=[b"{}", b"[0]"], status="completed"
                )
                [work] = await store.claim("one", 10, 5)
                assert (work.id, work.request, work.attempt, work.next_event) == ("resp_old", b"{}", 2, 2)
                assert await store.prune(before=None, keep=0) == 0
            if version >= 3:
                assert await store.get_conversation("anna", "conv_old")
                assert (
                    await store.prune_conversations(changed_before=2**30) == 0
                )  # its change time is the time of the migration
            assert await store.retention_state() is None
            await store.save_retention_state(RetentionState(looked_at=7, held_until=9))
            assert await store.retention_state() == RetentionState(looked_at=7, held_until=9)
            await store.save("anna", record("resp_new"), ["msg_new"], ["call_new"])
            assert await find_turn_by_call(store, "anna", "call_new") == turn("resp_new")
            await store.enqueue("anna", record("resp_2"), [], b"{}")
            await store.create_conversation(
                "anna",
                StoredConversation(id="conv", created_at=1, metadata=b"{}"),
                [ConversationEntry(id="a", item=b"{}")],
            )
            assert [work.id for work in await store.claim("one", 10, 5)] == ["resp_2"]
            assert await store.get_entry("anna", "conv", "a")
            assert await store.verify() == []
        assert postgres_server.sql("SELECT max(version) FROM antiphon_schema", url) == str(len(MIGRATIONS))

    uvloop.run(story())


def test_concurrent_starts_create_the_tables_once() -> None:
    async def story() -> None:
        url = postgres_server.fresh_url()
        stores = await asyncio.gather(*(PostgresStore.open(url) for _ in range(5)))
        await asyncio.gather(
            *(store.save("anna", record(f"resp_{number}"), [], []) for number, store in enumerate(stores))
        )
        assert (await stores[0].stats()).responses == 5
        await asyncio.gather(*(store.close() for store in stores))
        versions = postgres_server.sql("SELECT array_agg(version ORDER BY version) FROM antiphon_schema", url)
        assert versions == f"{{{','.join(str(number + 1) for number in range(len(MIGRATIONS)))}}}"

    uvloop.run(story())


def test_tables_of_a_newer_version_are_refused_unchanged() -> None:
    url = postgres_server.fresh_url()
    uvloop.run(_open_and_close(url))
    postgres_server.sql("INSERT INTO antiphon_schema (version) VALUES (999)", url)
    with pytest.raises(ConfigError, match=rf"have version 999, expected at most {len(MIGRATIONS)};"):
        uvloop.run(_open_and_close(url))
    assert postgres_server.sql("SELECT max(version) FROM antiphon_schema", url) == "999"


def test_user_without_create_right_can_only_use_existing_tables() -> None:
    url = postgres_server.fresh_url()
    poor = postgres_server.url_of(
        postgres_server.database_of(url), f"{postgres_server.GUARDED_ROLE}:{postgres_server.PASSWORD}"
    )
    with pytest.raises(ConfigError, match="grant it CREATE on a schema"):
        uvloop.run(_open_and_close(poor))
    uvloop.run(_open_and_close(url))
    with pytest.raises(ConfigError, match="all permissions on the tables"):
        uvloop.run(_open_and_close(poor))
    postgres_server.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {postgres_server.GUARDED_ROLE}", url)

    async def story() -> None:
        async with opened(poor) as store:
            await store.save("anna", record("resp_1"), ["msg_1"], [])
            assert await store.prune(before=None, keep=0) == 1

    uvloop.run(story())


def test_tables_are_created_in_the_first_schema_of_the_search_path() -> None:
    url = postgres_server.fresh_url()
    database = postgres_server.database_of(url)
    postgres_server.sql(f"CREATE SCHEMA elsewhere; ALTER DATABASE {database} SET search_path = elsewhere, public", url)
    uvloop.run(_open_and_close(url))
    assert (
        postgres_server.sql("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'antiphon%'", url)
        == "elsewhere"
    )
    postgres_server.sql(f"ALTER DATABASE {database} SET search_path = nowhere", url)
    with pytest.raises(ConfigError, match="no schema for tables"):
        uvloop.run(_open_and_close(url))


# Error messages


def test_unusable_database_is_a_config_error_without_secrets() -> None:
    there = postgres_server.url_of("postgres", "guarded:sesame")
    for url, expected in {
        there.replace("sesame", "secret-word"): "refused the password",
        there.replace("guarded:sesame", "stranger:secret-word"): "refused this user",
        there.replace("/postgres?", "/secret_name?"): "the database does not exist",
        "postgresql://anna:secret-word@secret.host:port/db": "not a valid URL",
        "postgresql://anna:secret-word@secret.host/db?sslmode=secret": "not a valid URL",
    }.items():
        with pytest.raises(ConfigError, match=expected) as caught:
            uvloop.run(_open_and_close(url))
        assert str(caught.value).startswith("[store] url: ")
        assert keeps_secrets(caught.value, url)


def test_unreachable_server_at_startup_is_reported_without_secrets() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(silence, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            silent = f"postgresql://anna:secret-word@127.0.0.1:{port}/db"
            with pytest.raises(StorageUnavailable, match="did not answer in time") as caught:
                await PostgresStore.open(silent, ConnectionLimits(connect_timeout=0.2, reconnect_timeout=0.0))
            assert keeps_secrets(caught.value, silent)
        for gone in (
            silent,
            "postgresql://anna:secret-word@secret-host.invalid/db",
            "postgresql://anna@/db?host=/secret/path",
        ):
            with pytest.raises(StorageUnavailable, match="cannot be reached") as caught:
                await PostgresStore.open(gone, IMPATIENT)
            assert keeps_secrets(caught.value, gone)
            assert caught.value.__cause__ is not None

    uvloop.run(story())


def test_open_can_be_cancelled() -> None:
    async def story() -> None:
        opening = asyncio.create_task(
            PostgresStore.open("postgresql://anna@/db?host=/not/there", ConnectionLimits(reconnect_timeout=NEVER))
        )
        done, _ = await asyncio.wait([opening], timeout=0.05)
        assert not done
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    uvloop.run(story())


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("53100", "the disk of the database is full"),
        ("53200", "the database is out of memory"),
        ("53300", "the database has no connection left"),
        ("53400", "the database is out of resources"),
        ("57P03", "the database is shutting down or starting up"),
        ("58030", "the database has a disk error"),
        ("42P01", "the tables of the database are not as expected"),
        ("XX002", "the database is damaged"),
        ("0A000", "the database refused the statement"),
    ],
)
def test_server_errors_are_mapped_to_our_messages(state: str, expected: str) -> None:
    error: BaseException = asyncpg.PostgresError.new(
        {"C": state, "M": "could not extend file base/5/1259 at secret-host"}
    )
    fault = storage_unavailable(error)
    assert fault.message == expected
    assert fault.__cause__ is error
    assert (fault.status, fault.code) == (503, "storage_unavailable")
    assert isinstance(startup_error(error), StorageUnavailable)


# Helpers


def turn(id: str) -> StoredTurn:
    saved = record(id)
    return StoredTurn(id=id, input=saved.input, output=saved.output)


@asynccontextmanager
async def opened(url: str, limits: ConnectionLimits | None = None) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url, limits)
    try:
        yield store
    finally:
        await store.close()


async def _open_and_close(url: str) -> None:
    async with opened(url):
        pass


@asynccontextmanager
async def another(url: str) -> AsyncIterator[Any]:
    """A connection of another client."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def locked(holder: Any) -> AsyncIterator[None]:
    """Blocks every read and write of responses meanwhile."""
    async with holder.transaction():
        await holder.execute("LOCK TABLE antiphon_responses")
        yield


def waiting_for_a_lock(url: str) -> int:
    database = postgres_server.database_of(url)
    return int(
        postgres_server.sql(
            f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
        )
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.01)


async def before_long(attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await attempt()
            except StorageUnavailable:
                await asyncio.sleep(0.05)


def keeps_secrets(error: AntiphonError, url: str) -> bool:
    """Whether the message contains nothing of an address: no name, host or path of it, and no password."""
    parts = [
        part
        for part in re.split(r"[^\w-]+", url)
        if len(part) > 3 and part not in ("postgresql", "postgres", "port", "host", "data")
    ]
    return not any(part in str(error) for part in [*parts, str(Path.home())])


# Saves in eight tasks, and prints each id once it is acknowledged.
SAVES_FOR_EVER = """
import asyncio, sys, uuid
from antiphon.store.interface import ResponseRecord
from antiphon.store.postgres.store import PostgresStore

async def saves(store):
    while True:
        id = uuid.uuid4().hex
        record = ResponseRecord(id=id, previous=None, created_at=1, status="completed", head=b"{}", input=b"[]", output=b"[]")
        await store.save("anna", record, [f"msg_{id}"], [])
        print(id, flush=True)

async def main():
    store = await PostgresStore.open(sys.argv[1])
    await asyncio.gather(*(saves(store) for _ in range(8)))

asyncio.run(main())
"""


def test_closing_a_dead_connection_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool closes some connections in unobserved tasks, whose exceptions would be logged."""

    async def broken(self: object, *, timeout: float | None = None) -> None:
        del self, timeout
        raise BrokenPipeError

    async def story() -> None:
        connection = await asyncpg.connect(postgres_server.fresh_url(), connection_class=PooledConnection)
        with monkeypatch.context() as patch:
            patch.setattr(asyncpg.Connection, "close", broken)
            await connection.close(timeout=1)
        assert connection.is_closed()
        other = await asyncpg.connect(postgres_server.fresh_url(), connection_class=PooledConnection)
        await other.close(timeout=5)
        assert other.is_closed()

    asyncio.run(story())


def test_silent_server_is_an_error_within_five_seconds_by_default() -> None:
    limits = ConnectionLimits()
    assert limits.statement_timeout < limits.answer_timeout < 5


def test_callers_do_not_wait_for_the_batches_before_their_own() -> None:
    """A silent server: neither a queue for connections nor a queue of writes adds to the time until the error."""

    async def story() -> None:
        url = postgres_server.fresh_url()
        async with opened(url, ConnectionLimits(statement_timeout=NEVER, answer_timeout=1.0)) as store:
            await store.save("anna", record("resp_1"), [], [])
            async with another(url) as blocker:
                async with blocker.transaction():
                    await blocker.execute("LOCK TABLE antiphon_responses IN ACCESS EXCLUSIVE MODE")
                    first = asyncio.create_task(store.save("anna", record("resp_2"), [], []))
                    for _ in range(5):  # the first one is a batch of its own
                        await asyncio.sleep(0)
                    later = [store.save("anna", record(f"resp_{number}"), [], []) for number in range(3, 9)]
                    loop = asyncio.get_running_loop()
                    start = loop.time()
                    outcomes = await asyncio.gather(first, *later, return_exceptions=True)
                    assert all(isinstance(outcome, StorageUnavailable) for outcome in outcomes), outcomes
                    assert loop.time() - start < 1.9  # the second batch alone would end after two seconds

    uvloop.run(story())


def test_health_names_the_reason_why_the_storage_is_unavailable() -> None:
    class Unreachable:
        """Connections to a server that does not answer."""

        answer_timeout = 1.0

        async def fetch(self, _query: str) -> list[Any]:
            raise StorageUnavailable("the database cannot be reached")

    async def story() -> None:
        connections: Any = Unreachable()
        assert await PostgresStore(connections).health() == "the database cannot be reached"

    uvloop.run(story())
