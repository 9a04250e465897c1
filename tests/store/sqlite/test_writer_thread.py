"""The writer thread of `store/sqlite/threads`: group commit, the order of writes, and which callers get the error of a write."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.store.sqlite.processes import commits_in_log, held, path_of_new_store
from tests.store.stores import record

from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite.file import connect, fetch, prepare_file
from antiphon.store.sqlite.responses import SaveResponse, index_keys, response_row
from antiphon.store.sqlite.store import SqliteStore
from antiphon.store.sqlite.threads import BatchedWrite, WriterThread


def run_with_writer(
    path: Path, scenario: Callable[[WriterThread], Awaitable[None]], now: Callable[[], float] = time.monotonic
) -> None:
    prepare_file(path, 10.0)

    async def go() -> None:
        writer = WriterThread(partial(connect, path), asyncio.get_running_loop(), lock_timeout=10.0, now=now)
        await scenario(writer)
        await writer.stop()

    asyncio.run(go())


def count_tables(cursor: apsw.Cursor) -> int:
    ((count,),) = fetch(cursor, "SELECT count(*) FROM sqlite_schema WHERE name IN ('first', 'second')")
    return int(count)


class BrokenBatch(BatchedWrite):
    """A write that works alone, and whose batch has a programming error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, cursor: apsw.Cursor) -> Any:
        cursor.execute("CREATE TABLE second (a)")

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, writes: Sequence[Any]) -> list[Any]:
        cursor.execute("CREATE TABLE first (a)")
        raise writes[0].error


def test_internal_error_of_one_write_is_handed_to_its_caller_alone(tmp_path: Path) -> None:
    error = KeyError("of the program")

    def create_first(cursor: apsw.Cursor) -> None:
        cursor.execute("CREATE TABLE first (a)")

    def create_second_and_fail(cursor: apsw.Cursor) -> None:
        cursor.execute("CREATE TABLE second (a)")
        raise error

    async def scenario(writer: WriterThread) -> None:
        writes = [writer.run_write(create_first), writer.run_write(create_second_and_fail)]
        assert await asyncio.gather(*writes, return_exceptions=True) == [None, error]
        assert await writer.run_write(count_tables) == 1

    run_with_writer(tmp_path / "a.db", scenario)


def test_internal_error_of_a_batch_is_handed_to_its_callers(tmp_path: Path) -> None:
    error = KeyError("of the program")

    async def scenario(writer: WriterThread) -> None:
        with pytest.raises(KeyError) as caught:
            await writer.run_write(BrokenBatch(error))
        assert caught.value is error
        assert await writer.run_write(count_tables) == 0

    run_with_writer(tmp_path / "a.db", scenario)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def save_of(id: str) -> SaveResponse:
    return SaveResponse(response_row("anna", record(id)), [])


async def run_busy_pass(clock: Clock) -> None:
    """A pass of the event loop in which other work takes a millisecond."""
    clock.seconds += 0.001
    await asyncio.sleep(0)


def test_writes_of_a_busy_event_loop_share_a_transaction(tmp_path: Path) -> None:
    clock = Clock()

    async def scenario(writer: WriterThread) -> None:
        writes = []
        for number in range(8):
            writes.append(writer.run_write(save_of(f"resp_{number}")))
            await run_busy_pass(clock)
        await asyncio.gather(*writes)  # the clock stands still: the loop has nothing else to do
        assert commits_in_log(tmp_path / "a.db") == 1

    run_with_writer(tmp_path / "a.db", scenario, clock)


def test_concurrent_saves_need_few_statements_and_one_call_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of 32 stored responses, for which the timed figures are in bench/RESULTS.md."""
    statements: list[str] = []
    calls: list[Callable[..., Any]] = []

    async def scenario(writer: WriterThread) -> None:
        await writer.run_write(
            lambda cursor: cursor.connection.trace_v2(
                apsw.SQLITE_TRACE_STMT, lambda statement: statements.append(statement["sql"])
            )
        )
        statements.clear()
        loop = asyncio.get_running_loop()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def count_call(callback: Callable[..., Any], *arguments: Any) -> Any:
            calls.append(callback)
            return call_soon_threadsafe(callback, *arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count_call)
        rows = [response_row("anna", record(f"resp_{number}")) for number in range(32)]
        keys = index_keys([f"items_{0:040x}", f"msg_{1:040x}"], [])
        await asyncio.gather(*(writer.run_write(SaveResponse(row, keys)) for row in rows))
        assert len(calls) == 1
        assert [sql.split(" ", 1)[0] for sql in statements] == ["BEGIN", "INSERT", "INSERT", "WITH", "COMMIT"]

    run_with_writer(tmp_path / "a.db", scenario)


def test_batch_writes_no_temporary_file(tmp_path: Path) -> None:
    """SQLite keeps what it needs to undo a statement in memory. The keys are spread over many pages of the index."""

    def find_temporary_files(_: apsw.Cursor) -> set[str]:
        links = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if os.path.lexists(path)}
        return {link for link in links if link.endswith(" (deleted)")}

    async def scenario(writer: WriterThread) -> None:
        before = await writer.run_write(find_temporary_files)
        for first in range(0, 512, 64):
            saves = [
                SaveResponse(
                    response_row("anna", record(f"resp_{number}")),
                    index_keys([sha256(f"{number} {key}".encode()).hexdigest() for key in range(20)], []),
                )
                for number in range(first, first + 64)
            ]
            writes = [writer.run_write(save) for save in saves]
            assert await writer.run_write(find_temporary_files) <= before  # in the same transaction
            await asyncio.gather(*writes)

    run_with_writer(tmp_path / "a.db", scenario)


def test_transaction_without_failures_has_no_savepoint(tmp_path: Path) -> None:
    """With a savepoint, SQLite copies every page before it changes it."""
    statements: list[str] = []

    async def scenario(writer: WriterThread) -> None:
        await writer.run_write(
            lambda cursor: cursor.connection.trace_v2(
                apsw.SQLITE_TRACE_STMT, lambda statement: statements.append(statement["sql"])
            )
        )
        await asyncio.gather(
            *(writer.run_write(save_of(f"resp_{n}")) for n in range(3)), writer.run_write(count_tables)
        )

    run_with_writer(tmp_path / "a.db", scenario)
    assert not [sql for sql in statements if "SAVEPOINT" in sql]


def test_writes_of_an_idle_event_loop_do_not_wait_for_others(tmp_path: Path) -> None:
    clock = Clock()

    async def scenario(writer: WriterThread) -> None:
        for number in range(3):
            await writer.run_write(save_of(f"resp_{number}"))
        assert clock.seconds == 0.0
        assert commits_in_log(tmp_path / "a.db") == 3

    run_with_writer(tmp_path / "a.db", scenario, clock)


def test_stop_writes_what_is_not_queued_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def scenario(writer: WriterThread) -> None:
        write = writer.run_write(lambda cursor: fetch(cursor, "CREATE TABLE first (a)"))
        await writer.stop()  # in the same step
        await write
        await asyncio.sleep(0)  # the step that would have queued it

    run_with_writer(path, scenario)
    with connect(path, 10.0) as database:
        assert count_tables(database.cursor()) == 1


def test_write_is_not_delayed_for_ever_by_a_busy_event_loop(tmp_path: Path) -> None:
    clock = Clock()

    async def scenario(writer: WriterThread) -> None:
        write = writer.run_write(save_of("resp_1"))
        async with asyncio.timeout(60):
            while not write.done():
                await run_busy_pass(clock)
        assert clock.seconds >= 0.01

    run_with_writer(tmp_path / "a.db", scenario, clock)


@pytest.mark.io
def test_waiting_saves_are_written_in_one_transaction(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("first"), [], [])
        before = commits_in_log(tmp_path / "a.db")
        with held(tmp_path / "a.db"):
            saves = [asyncio.create_task(store.save("anna", record(f"resp_{n}"), [f"msg_{n}"], [])) for n in range(200)]
            await asyncio.sleep(0)
        await asyncio.gather(*saves)
        assert commits_in_log(tmp_path / "a.db") - before <= 2  # the first may have been written alone
        assert (await store.stats()).responses == 201
        await store.close()

    asyncio.run(go())


def test_saves_over_the_limit_are_written_in_several_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.store.sqlite.threads.MAX_TRANSACTION_SIZE", 10)

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await asyncio.gather(*(store.save("anna", record(f"resp_{n}"), [], []) for n in range(35)))
        assert commits_in_log(tmp_path / "a.db") >= 4
        assert (await store.stats()).responses == 35
        await store.close()

    asyncio.run(go())


@pytest.mark.io
def test_invalid_entry_does_not_fail_others_of_its_transaction(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        with held(tmp_path / "a.db"):
            records = [record(f"resp_{n}", at=2**63 if n == 5 else n) for n in range(10)]
            saves = [asyncio.create_task(store.save("anna", each, [f"msg_{each.id}"], [])) for each in records]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OverflowError if n == 5 else type(None) for n in range(10)]
        assert (await store.stats()).responses == (await store.stats()).items == 9
        assert await store.verify() == []
        await store.close()

    asyncio.run(go())


@pytest.mark.io
@pytest.mark.parametrize("is_repeated", [False, True])
def test_rollback_by_sqlite_fails_every_write_of_the_transaction(tmp_path: Path, is_repeated: bool) -> None:
    """Also while the writes are repeated one by one."""
    path = path_of_new_store(tmp_path / "a.db")
    failures: list[apsw.Error] = []

    def fill_the_disk(cursor: apsw.Cursor) -> None:
        failures.append(apsw.FullError())
        if len(failures) > is_repeated:
            cursor.execute("ROLLBACK")  # as SQLite may do by itself when the disk is full
        raise failures[-1]

    async def go() -> None:
        writer = WriterThread(partial(sqlite_file.connect, path), asyncio.get_running_loop(), lock_timeout=10.0)
        save = SaveResponse(response_row("anna", record("resp_1")), [])
        with held(path):
            operations = [writer.run_write(save), writer.run_write(fill_the_disk), writer.run_write(save)]
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the storage is full"] * 3
        assert len(failures) == 1 + is_repeated
        assert await writer.run_write(lambda cursor: cursor.execute("SELECT count(*) FROM responses").fetchall()) == [
            (0,)
        ]
        await writer.stop()

    asyncio.run(go())


@pytest.mark.io
def test_saves_and_deletions_keep_their_order(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        with held(tmp_path / "a.db"):
            operations = [
                asyncio.create_task(each)
                for each in (
                    store.save("anna", record("a"), [], []),
                    store.delete("anna", "a"),
                    store.delete("anna", "a"),
                    store.save("anna", record("b"), [], []),
                    store.save("anna", record("b", text=b"again"), [], []),
                )
            ]
            await asyncio.sleep(0)
        assert await asyncio.gather(*operations) == [None, True, False, None, None]
        assert await store.get("anna", "a") is None
        assert await store.get("anna", "b") == record("b", text=b"again")
        await store.close()

    asyncio.run(go())


@pytest.mark.io
def test_save_completes_after_the_event_loop_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def go() -> None:
        store = await SqliteStore.open(path)
        await store.get("anna", "resp_1")
        asyncio.create_task(store.save("anna", record("resp_1"), [], []))  # noqa: RUF006 (nobody waits for it)
        for _ in range(102):  # one of them is idle, or they take long enough together
            await asyncio.sleep(0)

    with held(path_of_new_store(path)):
        asyncio.run(go())

    async def look() -> None:
        store = await SqliteStore.open(path)
        async with asyncio.timeout(60):
            while await store.get("anna", "resp_1") is None:
                await asyncio.sleep(0.01)
        await store.close()

    asyncio.run(look())


def test_connection_with_large_cached_statements_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.store.sqlite.threads.MAX_STATEMENT_BYTES", 0)
    monkeypatch.setattr("antiphon.store.sqlite.threads.LARGE_MEMORY", 0)
    connections: list[apsw.Connection] = []

    def create_first(cursor: apsw.Cursor) -> None:
        connections.append(cursor.connection)
        cursor.execute("CREATE TABLE first (a)")

    def count_on_new_connection(cursor: apsw.Cursor) -> int:
        connections.append(cursor.connection)
        return count_tables(cursor)

    async def scenario(writer: WriterThread) -> None:
        await writer.run_write(create_first)
        assert await writer.run_write(count_on_new_connection) == 1
        assert connections[0] is not connections[1]

    run_with_writer(tmp_path / "a.db", scenario)
