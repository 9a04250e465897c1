"""Background work and conversations on SQLite: its queries, its transactions, and changes of other processes."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace
from tests.store.stores import record

from antiphon.errors import StorageUnavailable
from antiphon.store.changes import Changes
from antiphon.store.conversations import ConversationEntry, StoredConversation
from antiphon.store.sqlite import change_watcher as sqlite_watch
from antiphon.store.sqlite import conversations as sqlite_conversations
from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite import work as sqlite_work
from antiphon.store.sqlite import work_writes as sqlite_writes
from antiphon.store.sqlite.change_watcher import ChangeWatcher
from antiphon.store.sqlite.store import SqliteStore
from antiphon.store.work import EventsAfter

QUEUED = replace(record("resp_1"), status="queued")


@pytest.mark.parametrize(
    "statement",
    [
        *(getattr(sqlite_work, name) for name in ("SELECT_CLAIMABLE", "CLAIM_WORK", "SELECT_LEASES", "RENEW_LEASES")),
        *(getattr(sqlite_work, name) for name in ("SELECT_CONTENTS", "RELEASE_LEASES", "SELECT_CANCELLABLE")),
        *(getattr(sqlite_writes, name) for name in ("SELECT_HELD_WORK", "SET_NEXT_EVENT", "SET_STATUS")),
        *(getattr(sqlite_writes, name) for name in ("SELECT_WORK_TO_FINISH", "END_WORK", "DELETE_REQUESTS")),
        sqlite_work.SELECT_EVENTS,
        sqlite_work.SELECT_QUEUE_STATS,
        sqlite_work.SELECT_LEASE_HOLDERS,
        sqlite_work.RELEASE_RUNNERS,
        *(getattr(sqlite_watch, name) for name in ("SELECT_STATES", "SELECT_QUEUE_STATE")),
        *(
            getattr(sqlite_conversations, name)
            for name in ("SELECT_CONVERSATION", "TOUCH_CONVERSATION", "UPDATE_CONVERSATION", "DELETE_CONVERSATION")
        ),
        *(getattr(sqlite_conversations, name) for name in ("PRUNE_CONVERSATIONS", "SELECT_ENTRY", "DELETE_ENTRY")),
        *sqlite_conversations.PAGE_STATEMENTS.values(),
    ],
)
def test_queries_never_scan_a_whole_table(statement: str, tmp_path: Path) -> None:
    sqlite_file.prepare_file(tmp_path / "a.db", 1.0)
    with closing(sqlite_file.connect(tmp_path / "a.db", 1.0)) as db:
        expected_count = max(
            [number for number in range(1, 5) if f"?{number}" in statement], default=statement.count("?")
        )
        plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", ("[]",) * expected_count)]
    tables = ("work", "w", "events", "e", "responses", "r", "conversations", "entries", "work_requests", "q")
    whole = [line for line in plan for table in tables if line == f"SCAN {table}" or line.startswith(f"SCAN {table} ")]
    # All open work is a short list with its own index.
    assert [line for line in whole if not line.endswith("USING INDEX work_open")] == []
    assert not any("TEMP B-TREE" in line for line in plan)


def test_waiting_appends_are_written_in_one_transaction(tmp_path: Path) -> None:
    statements: list[str] = []

    def note(statement: dict[str, Any]) -> None:
        statements.append(statement["sql"])

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        ids = [f"resp_{number}" for number in range(30)]
        for id in ids:
            await store.enqueue("anna", replace(QUEUED, id=id), [], b"{}")
        await store.claim("one", 60, 50)
        await store._writer.run_write(lambda cursor: cursor.connection.trace_v2(apsw.SQLITE_TRACE_STMT, note))
        await asyncio.gather(*(store.append("one", id, 0, [id.encode()], "in_progress") for id in ids))
        assert len(statements) <= 3 * 8, statements
        for id in ids:
            assert await store.events_after("anna", id, -1) == EventsAfter(events=[id.encode()], status="in_progress")
        await store.close()

    asyncio.run(go())


def test_waiting_requests_are_queued_in_one_transaction(tmp_path: Path) -> None:
    """An id that exists changes nothing, and an id of another owner is refused alone."""
    statements: list[str] = []

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store._writer.run_write(
            lambda cursor: cursor.connection.trace_v2(
                apsw.SQLITE_TRACE_STMT, lambda statement: statements.append(statement["sql"])
            )
        )
        ids = [f"resp_{number}" for number in range(30)]
        records = [replace(record(id), status="queued") for id in ids]
        await asyncio.gather(*(store.enqueue("anna", each, [f"msg_{each.id}"], each.id.encode()) for each in records))
        assert len(statements) <= 3 * 10, statements  # at most three transactions
        assert await store.find_items("anna", ["msg_resp_0", "msg_resp_29"]) == {"msg_resp_0": 1, "msg_resp_29": 30}
        outcomes = await asyncio.gather(
            store.enqueue("anna", records[0], [], b"again"),
            store.enqueue("bert", records[1], [], b"foreign"),
            store.enqueue("anna", replace(records[0], id="resp_new"), [], b"new"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), StorageUnavailable, type(None)]
        claimed = [(work.id, work.request) for work in await store.claim("one", 60, 50)]
        assert claimed == [*((id, id.encode()) for id in ids), ("resp_new", b"new")]
        await store.close()

    asyncio.run(go())


def test_waiting_ends_are_written_in_one_transaction(tmp_path: Path) -> None:
    statements: list[str] = []

    def note(statement: dict[str, Any]) -> None:
        statements.append(statement["sql"])

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        ids = [f"resp_{number}" for number in range(30)]
        for id in ids:
            await store.enqueue("anna", replace(record(id), status="queued"), [], b"{}")
        await store.claim("one", 60, 50)
        await store._writer.run_write(lambda cursor: cursor.connection.trace_v2(apsw.SQLITE_TRACE_STMT, note))
        ends = [store.finish("one", record(id), [f"msg_{id}"], [], 0, [id.encode()]) for id in ids]
        twice = [store.finish("one", record("resp_1"), [], [], 0, [b"resp_1"]) for _ in range(2)]
        assert await asyncio.gather(*ends, store.finish("two", record("resp_1"), [], [], 0, [])) == [True] * 30 + [
            False
        ]
        assert len(statements) <= 3 * 14, statements  # at most three transactions
        assert await asyncio.gather(*twice) == [True, True]
        for id in ids:
            assert await store.events_after("anna", id, -1) == EventsAfter(events=[id.encode()], status="completed")
            assert await store.get("anna", id) == record(id)
        await store.close()

    asyncio.run(go())


def test_oversized_append_does_not_fail_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(path: Path, lock_timeout: float, *, is_read_only: bool = False) -> apsw.Connection:
        db = sqlite_file.connect(path, lock_timeout, is_read_only=is_read_only)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
        return db

    monkeypatch.setattr("antiphon.store.sqlite.store.connect", limited)

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        for id in "abc":
            await store.enqueue("anna", replace(QUEUED, id=id), [], b"{}")
        await store.claim("one", 60, 5)
        operations = [
            store.append("one", id, 0, [b"x" * (200_000 if id == "b" else 10)], "in_progress") for id in "abc"
        ]
        operations.append(store.append("one", "a", 7, [b"x"], "in_progress"))
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [bool, StorageUnavailable, bool, ValueError]
        assert await store.events_after("anna", "b", -1) == EventsAfter(events=[], status="queued")
        assert await store.events_after("anna", "c", -1) == EventsAfter(events=[b"x" * 10], status="in_progress")
        assert await store.verify() == []
        await store.close()

    asyncio.run(go())


def test_oversized_end_does_not_fail_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(path: Path, lock_timeout: float, *, is_read_only: bool = False) -> apsw.Connection:
        db = sqlite_file.connect(path, lock_timeout, is_read_only=is_read_only)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
        return db

    monkeypatch.setattr("antiphon.store.sqlite.store.connect", limited)

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        for id in "abcd":
            await store.enqueue("anna", replace(QUEUED, id=id), [], b"{}")
        await store.claim("one", 60, 5)
        ends = [store.finish("one", record(id), [], [], 0, [b"x" * (200_000 if id == "b" else 10)]) for id in "abc"]
        ends.append(store.finish("one", record("d"), [], [], 7, [b"x"]))
        outcomes = await asyncio.gather(*ends, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [bool, StorageUnavailable, bool, ValueError]
        assert await store.events_after("anna", "b", -1) == EventsAfter(events=[], status="queued")
        assert await store.events_after("anna", "c", -1) == EventsAfter(events=[b"x" * 10], status="completed")
        assert await store.verify() == []
        await store.close()

    asyncio.run(go())


def test_verify_reports_gaps_between_events(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.enqueue("anna", QUEUED, [], b"{}")
        await store.claim("one", 60, 1)
        for number in range(3):
            await store.append("one", "resp_1", number, [b"{}"], "in_progress")
        with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
            db.execute("DELETE FROM events WHERE first = 1")
        assert await store.verify() == ["event batches after a gap: 1"]
        await store.close()

    asyncio.run(go())


def test_deleted_conversation_items_are_erased_from_the_files(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        secret = [ConversationEntry(id=id, item=b"the secret of the house " * 300) for id in ("secret_1", "secret_2")]
        await store.create_conversation("anna", StoredConversation(id="conv", created_at=1, metadata=b"secret"), secret)
        assert await store.delete_entry("anna", "conv", "secret_1")
        assert b"secret_1" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert await store.delete_conversation("anna", "conv")
        assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        await store.close()

    asyncio.run(go())


def test_watch_stops_polling_without_waiters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_watch, "POLL_INTERVAL", 0.001)
    monkeypatch.setattr(sqlite_watch, "EXTRA_WATCH_TIME", 0.05)

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.wait_for_change("resp_1", 0.01)
        async with asyncio.timeout(60):
            while any(task.get_coro().__qualname__ == "ChangeWatcher._poll" for task in asyncio.all_tasks()):  # type: ignore[union-attr]
                await asyncio.sleep(0.005)
        await store.wait_for_change("resp_1", 0.01)  # and again
        await store.close()

    asyncio.run(go())


def test_watch_wakes_waiters_if_the_file_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_watch, "POLL_INTERVAL", 0.001)

    class Readers:
        """They report no change, until they fail."""

        is_ill = False

        def run_query(self, question: Any) -> asyncio.Future[Any]:
            del question
            answer = asyncio.get_running_loop().create_future()
            if self.is_ill:
                answer.set_exception(StorageUnavailable("the storage is damaged"))
            else:
                answer.set_result({"resp_1": [0, 0, 0, ""]})
            return answer

    async def go() -> None:
        readers: Any = Readers()
        changes = Changes()
        watch = ChangeWatcher(readers, changes)
        watch.watch_key("resp_1", 600)
        await asyncio.wait_for(changes.wait("resp_1", 600, 0), 60)  # it was unknown before
        waiting = asyncio.create_task(changes.wait("resp_1", 600, None))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        readers.is_ill = True
        await asyncio.wait_for(waiting, 60)
        await watch.stop()

    asyncio.run(go())
