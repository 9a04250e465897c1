"""SQLite only: the file, its failures, and that reads do not wait for writes."""

from __future__ import annotations

import asyncio
import os
import re
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from msgspec.structs import replace
from tests.store.stores import NO_LIMIT, find_turn_by_item, read_chain, record

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.conversations import ConversationEntry, StoredConversation
from antiphon.store.interface import StoredTurn
from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite import store as sqlite
from antiphon.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS
from antiphon.store.sqlite.response_rows import SaveResponse, response_row
from antiphon.store.sqlite.store import SqliteStore
from antiphon.store.sqlite.writer import WriterThread
from antiphon.store.work import EventsAfter

HEAD = """
import asyncio, os, sys
from pathlib import Path
from antiphon.errors import AntiphonError
from antiphon.store.sqlite.store import SqliteStore
from tests.store.stores import record
path = Path(sys.argv[1])
"""


def child(code: str, *argv: object) -> subprocess.Popen[str]:
    """Another process that opens a store at `path`."""
    repo = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), *map(str, argv)]
    environ = os.environ | {"PYTHONPATH": f"{repo / 'src'}{os.pathsep}{repo}"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


def output_of(code: str, *argv: object) -> list[str]:
    process = child(code, *argv)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.splitlines()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process holds the write lock of the file for as long."""
    process = child(
        "import apsw; db = apsw.Connection(str(path)); db.set_busy_timeout(10_000); "
        "db.execute('BEGIN IMMEDIATE'); print('held', flush=True); input()",
        path,
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate("\n", timeout=30)


def commits_in_log(path: Path) -> int:
    """The number of transactions in the log: the last page of each has the file size after it."""
    log = Path(f"{path}-wal").read_bytes()
    salt, step = log[16:24], 24 + 4096
    heads = [log[start : start + 24] for start in range(32, len(log), step)]
    return sum(1 for head in heads if head[8:16] == salt and struct.unpack(">I", head[4:8])[0])


# The file


def test_store_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "new" / "folder" / "antiphon.db"
        store = await SqliteStore.open(path)
        await store.save("anna", record("resp_1"), [], [])
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        assert modes == {"antiphon.db": 0o600, "antiphon.db-wal": 0o600, "antiphon.db-shm": 0o600}
        assert path.parent.stat().st_mode & 0o777 == 0o700
        await store.close()
        assert [file.name for file in path.parent.iterdir()] == ["antiphon.db"]

    before = os.umask(0)
    try:
        asyncio.run(go())
    finally:
        os.umask(before)


def test_connection_settings_are_durable(tmp_path: Path) -> None:
    sqlite_file.prepare_file(tmp_path / "a.db", 1.0)
    with closing(sqlite_file.connect(tmp_path / "a.db", 1.0)) as db:
        assert db.pragma("journal_mode") == "wal"
        assert db.pragma("synchronous") == 2
        assert db.pragma("secure_delete") == 1
    with closing(sqlite_file.connect(tmp_path / "a.db", 1.0, is_read_only=True)) as db:
        with pytest.raises(apsw.ReadOnlyError):
            db.execute("DELETE FROM responses")


def test_setting_that_sqlite_ignores_is_a_config_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sqlite_file.SETTINGS, "page_size", 3)
    with pytest.raises(ConfigError, match="the SQLite setting page_size is 4096, expected 3"):
        sqlite_file.prepare_file(tmp_path / "a.db", 1.0)


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_sqlite_version_that_can_lose_commits_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"SQLite {version} can lose")):
        sqlite_file.check_version(version)


def test_fixed_sqlite_version_is_accepted() -> None:
    for version in ("3.51.3", "3.54.1", "4.0.0"):
        sqlite_file.check_version(version)


@pytest.mark.parametrize("steps", range(len(MIGRATIONS)))
def test_file_of_every_earlier_version_is_migrated_with_its_content(steps: int, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(apsw.Connection(str(path))) as db:
        if steps:
            db.pragma("application_id", APPLICATION_ID)
        for step, content in zip(MIGRATIONS[:steps], CONTENT_BY_VERSION[:steps], strict=True):
            db.execute(step)
            db.execute(content)
        db.pragma("user_version", steps)

    async def go() -> None:
        store = await SqliteStore.open(path)
        if steps >= 1:
            migrated = await store.get("anna", "resp_old")
            assert migrated
            assert (migrated.created_at, migrated.head, migrated.output) == (7, b"{}", b"[1]")
            assert await find_turn_by_item(store, "anna", "msg_old") == StoredTurn(
                id="resp_old", input=b"[]", output=b"[1]"
            )
            assert await read_chain(store, "anna", "resp_next") == b"[],[1],[2],[3]"
            assert (
                await read_chain(store, "anna", "resp_early") == b"[],[1],[],[1]"
            )  # its row number is smaller than that of the response it continues
        if steps >= 2:
            assert await store.events_after("anna", "resp_old", -1) == EventsAfter(
                events=[b"{}", b"[0]"], status="in_progress"
            )
            [work] = await store.claim("one", 10, 5)
            assert (work.id, work.request, work.attempt, work.next_event) == ("resp_old", b"{}", 2, 2)
        if steps >= 3:
            assert await store.get_entry("anna", "conv_old", "a")
            assert await store.prune_conversations(before=2**30) == 0  # its change time is the time of the migration
        if steps >= 6:
            assert [row.input_tokens for row in await store.get_usage(since=0, until=9)] == [10]
        await store.save("anna", record("resp_1"), ["msg_1"], [])
        await store.enqueue("anna", record("resp_2"), [], b"{}")
        await store.create_conversation(
            "anna", StoredConversation(id="conv", created_at=1, metadata=b"{}"), [ConversationEntry(id="a", item=b"{}")]
        )
        assert [work.id for work in await store.claim("one", 10, 5)] == ["resp_2"]
        assert await store.get_entry("anna", "conv", "a")
        assert await store.verify() == []
        await store.close()

    asyncio.run(go())


# Content that a file of each version may have, in addition to the version before.
CONTENT_BY_VERSION = (
    """
    INSERT INTO responses (owner, id, created_at, status, head, input, output)
    VALUES (CAST('anna' AS BLOB), CAST('resp_old' AS BLOB), 7, CAST('in_progress' AS BLOB), x'7B7D', x'5B5D', CAST('[1]' AS BLOB));
    INSERT INTO found_by SELECT owner, 0, CAST('msg_old' AS BLOB), seq FROM responses;
    INSERT INTO responses (owner, id, previous, created_at, status, head, input, output)
    SELECT owner, CAST('resp_next' AS BLOB), id, 8, status, head, CAST('[2]' AS BLOB), CAST('[3]' AS BLOB) FROM responses;
    INSERT INTO responses (seq, owner, id, previous, created_at, status, head, input, output)
    SELECT -1, owner, CAST('resp_early' AS BLOB), id, 9, status, head, input, output FROM responses WHERE seq = 1;
    """,
    """
    INSERT INTO work (seq, id, attempt, runner, held_until, next_event)
    SELECT seq, id, 1, x'00', 1.5, 2 FROM responses WHERE seq = 1;
    INSERT INTO work_requests SELECT seq, x'7B7D' FROM work;
    INSERT INTO events SELECT seq, 0, 2, CAST('2 3 ' AS BLOB), CAST('{}[0]' AS BLOB) FROM work;
    """,
    """
    INSERT INTO conversations (owner, id, created_at, metadata)
    SELECT owner, CAST('conv_old' AS BLOB), 7, x'7B7D' FROM responses WHERE seq = 1;
    INSERT INTO entries (seq, id, item) SELECT seq, CAST('a' AS BLOB), x'7B7D' FROM conversations;
    """,
    "",
    "",
    """
    INSERT INTO usage VALUES (3, CAST('anna' AS BLOB), CAST('m' AS BLOB), CAST('lab' AS BLOB), 1, 0, 10, 4, 5, 2, 0);
    """,
)


def test_file_of_a_newer_version_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    sqlite_file.prepare_file(path, 1.0)
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("user_version", len(MIGRATIONS) + 1)
    with pytest.raises(
        ConfigError, match=rf"schema version {len(MIGRATIONS) + 1}, expected at most {len(MIGRATIONS)};"
    ):
        asyncio.run(SqliteStore.open(path))
    with closing(apsw.Connection(str(path))) as db:
        assert db.pragma("user_version") == len(MIGRATIONS) + 1


@pytest.mark.parametrize("make", ["CREATE TABLE recipes (id)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"])
def test_file_of_another_program_is_refused(make: str, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(apsw.Connection(str(path))) as db:
        db.execute(make)
    with pytest.raises(ConfigError, match="the database belongs to another program"):
        asyncio.run(SqliteStore.open(path))


def test_failed_migration_leaves_the_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "antiphon.store.sqlite.migrations.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE more (id); CREATE TABLE more (id)")
    )
    with pytest.raises(StorageUnavailable):
        asyncio.run(SqliteStore.open(tmp_path / "a.db"))
    with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
        assert db.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]


@pytest.mark.io
def test_concurrent_processes_can_create_the_same_file(tmp_path: Path) -> None:
    code = """
        async def go():
            input()
            store = await SqliteStore.open(path)
            await store.save("anna", record(f"resp_{os.getpid()}"), [], [])
            print((await store.stats()).responses)
            await store.close()
        asyncio.run(go())
    """
    together = [child(code, tmp_path / "folder" / "a.db") for _ in range(4)]
    for each in together:
        assert each.stdin
        each.stdin.write("\n")
        each.stdin.flush()
    counts = [int(each.communicate(timeout=60)[0]) for each in together]
    assert max(counts) == 4
    assert [each.returncode for each in together] == [0] * 4


def test_two_stores_on_one_file_share_their_responses(tmp_path: Path) -> None:
    async def go() -> None:
        stores = [await SqliteStore.open(tmp_path / "a.db") for _ in range(2)]
        await asyncio.gather(*(stores[n % 2].save("anna", record(f"resp_{n}"), [], []) for n in range(100)))
        for store in stores:
            assert (await store.stats()).responses == 100
            assert await store.get("anna", "resp_0") == await store.get("anna", "resp_0") == record("resp_0")
        for store in stores:
            await store.close()

    asyncio.run(go())


# Queries


@pytest.mark.parametrize(
    "query",
    [
        "SELECT_RECORD",
        "SELECT_CHAIN",
        "SELECT_CHAIN_BY_IDS",
        "FIND_ITEMS",
        "FIND_CALLS",
        "SELECT_TURN",
        "SELECT_NEWEST_EXCEPT",
        "SELECT_OLDEST",
        "DELETE_PRUNABLE",
        "SELECT_PREVIOUS",
    ],
)
def test_queries_never_scan_a_whole_table(query: str, tmp_path: Path) -> None:
    sqlite_file.prepare_file(tmp_path / "a.db", 1.0)
    with closing(sqlite_file.connect(tmp_path / "a.db", 1.0)) as db:
        statement = getattr(sqlite, query).replace("{ids}", "?, ?")
        count = 4 if "CHAIN" in query else statement.count("?")
        plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", (1,) * count)]
    scans = [
        line
        for line in plan
        if line.startswith("SCAN")
        and line not in ("SCAN walk", "SCAN turn")
        and "USING COVERING INDEX responses_created_at" not in line
    ]
    assert plan
    assert scans == []
    sorts = [line for line in plan if "TEMP B-TREE" in line]
    assert sorts == (
        ["USE TEMP B-TREE FOR ORDER BY"] if "CHAIN" in query else []
    )  # row numbers, before any row is read


def test_chain_query_reads_no_response_heads(tmp_path: Path) -> None:
    sqlite_file.prepare_file(tmp_path / "a.db", 1.0)
    with closing(sqlite_file.connect(tmp_path / "a.db", 1.0)) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(turns)")] == ["seq", "before", "input", "output"]
    assert "responses" not in sqlite.SELECT_CHAIN.partition("UNION ALL")[2]


# Writing


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
    monkeypatch.setattr("antiphon.store.sqlite.writer.MAX_TRANSACTION_SIZE", 10)

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
def test_rollback_by_sqlite_fails_every_write_of_the_transaction(tmp_path: Path) -> None:
    path = path_of_new_store(tmp_path / "a.db")

    def fill_the_disk(cursor: apsw.Cursor) -> None:
        cursor.execute("ROLLBACK")  # as SQLite may do by itself when the disk is full
        raise apsw.FullError

    async def go() -> None:
        writer = WriterThread(partial(sqlite_file.connect, path), asyncio.get_running_loop(), lock_timeout=10.0)
        save = SaveResponse(response_row("anna", record("resp_1")), ())
        with held(path):
            operations = [writer.run_write(save), writer.run_write(fill_the_disk), writer.run_write(save)]
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["the storage is full"] * 3
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


def test_deleted_response_is_erased_from_the_files(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        secret = b"the secret of the house " * 500
        await store.save("anna", record("resp_1", text=secret), ["the secret item"], [])
        assert secret[:20] in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert await store.delete("anna", "resp_1")
        assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        await store.close()

    asyncio.run(go())


def test_open_reader_only_delays_the_erasure(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("resp_1", text=b"secret" * 500), [], [])
        with closing(apsw.Connection(str(tmp_path / "a.db"))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM responses").fetchall()
            assert await store.delete("anna", "resp_1")
            await store.save("anna", record("resp_2"), [], [])
            assert b"secret" in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        await store.save("anna", record("resp_3"), [], [])
        assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        await store.close()

    asyncio.run(go())


@pytest.mark.io
def test_prune_keeps_a_response_that_was_continued_meanwhile(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("a", at=1), [], [])
        with held(tmp_path / "a.db"):
            continued = asyncio.create_task(store.save("anna", record("b", "a", at=50), [], []))
            await asyncio.sleep(0)
            pruned = asyncio.create_task(store.prune(before=10, keep=None))
            await asyncio.wait([pruned], timeout=0.2)  # it has selected what to delete
        await continued
        assert await pruned == 0
        assert await read_chain(store, "anna", "b")
        await store.close()

    asyncio.run(go())


@pytest.mark.io
def test_save_completes_after_the_event_loop_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def go() -> None:
        store = await SqliteStore.open(path)
        await store.get("anna", "resp_1")
        asyncio.create_task(store.save("anna", record("resp_1"), [], []))  # noqa: RUF006 (nobody waits for it)
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


def path_of_new_store(path: Path) -> Path:
    sqlite_file.prepare_file(path, 1.0)
    return path


# Failures


@pytest.mark.io
def test_short_lock_delays_writes_but_not_reads(tmp_path: Path) -> None:
    """docs/errors.md, "Storage": a short lock delays writes without blocking the loop; readers continue."""

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("resp_1"), [], [])
        with held(tmp_path / "a.db"):
            waiting = asyncio.create_task(store.save("anna", record("resp_2"), [], []))
            for _ in range(20):
                assert await store.get("anna", "resp_1") == record("resp_1")
            assert not waiting.done()
            another = await SqliteStore.open(tmp_path / "a.db")  # no write, so it need not wait either
            assert await another.get("anna", "resp_2") is None
            await another.close()
        await waiting
        assert await store.get("anna", "resp_2") == record("resp_2")
        await store.close()

    asyncio.run(go())


@pytest.mark.io
def test_long_lock_fails_writes_and_the_store_recovers(tmp_path: Path) -> None:
    """docs/errors.md, "Storage": a longer lock is a 503, for each caller after the same time, and the store
    recovers."""

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db", lock_timeout=1.0)
        with held(tmp_path / "a.db"):
            early = [asyncio.create_task(store.save("anna", record(f"early_{n}"), [], [])) for n in range(3)]
            await asyncio.wait(early)
            late = asyncio.create_task(store.save("anna", record("late"), [], []))
            await asyncio.sleep(0)
            for outcome in await asyncio.gather(*early, return_exceptions=True):
                assert isinstance(outcome, StorageUnavailable)
                assert (outcome.status, outcome.code) == (503, "storage_unavailable")
                assert outcome.message == "the storage is busy: another connection holds the lock; retry"
                assert isinstance(outcome.__cause__, apsw.BusyError)
            assert not late.done()
        await late
        assert (await store.stats()).responses == 1
        await store.close()

    asyncio.run(go())


@pytest.mark.io
def test_close_waits_for_saves_behind_a_lock(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        with held(tmp_path / "a.db"):
            first = asyncio.create_task(store.save("anna", record("resp_1"), [], []))
            await asyncio.wait([first], timeout=0.05)  # the writer has started with it
            second = asyncio.create_task(store.save("anna", record("resp_2"), [], []))
            await asyncio.sleep(0)
            closing_down = asyncio.create_task(store.close())
            await asyncio.wait([closing_down], timeout=0.05)
            assert not closing_down.done()
        await asyncio.gather(first, second, closing_down)

    asyncio.run(go())


@pytest.mark.io
def test_locked_file_at_startup_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    with held(tmp_path / "a.db"), pytest.raises(StorageUnavailable, match="busy"):
        asyncio.run(SqliteStore.open(tmp_path / "a.db", lock_timeout=0.1))


def test_full_storage_is_reported_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sqlite_file.SETTINGS, "max_page_count", 100)

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("large", text=b"x" * 300_000), [], [])
        with pytest.raises(StorageUnavailable, match="the storage is full") as caught:
            await store.save("anna", record("larger", text=b"x" * 200_000), [], [])
        assert isinstance(caught.value.__cause__, apsw.FullError)
        assert await store.get("anna", "larger") is None
        assert await store.delete("anna", "large")
        await store.save("anna", record("larger", text=b"x" * 200_000), [], [])
        assert await store.verify() == []
        await store.close()

    asyncio.run(go())


FULL_DISK = """
    import resource
    def allow(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    async def go():
        store = await SqliteStore.open(path)
        if sys.argv[2] == "limit":
            allow(300_000)
        kept, told = [], []
        async def save(id):
            try:
                await store.save("anna", record(id, text=b"x" * 50_000), [id], [])
            except AntiphonError as error:
                told.append(str(error))
            else:
                kept.append(id)
        for batch in range(8):
            await asyncio.gather(*(save(f"resp_{batch}_{n}") for n in range(4)))
        print(told[-1])
        assert len(told) >= 4, "nothing was refused"
        if sys.argv[2] == "limit":
            allow(resource.RLIM_INFINITY)
        else:
            (path.parent / "ballast").unlink()
        refused = len(told)
        await asyncio.gather(*(save(f"after_{n}") for n in range(4)))
        assert len(told) == refused, told
        assert [id for id in kept if not await store.get("anna", id)] == []
        assert (await store.stats()).responses == len(kept)
        assert await store.verify() == []
        await store.close()
    asyncio.run(go())
"""


@pytest.mark.io
def test_file_size_limit_is_reported_and_recovers(tmp_path: Path) -> None:
    """docs/errors.md, "Storage": a failed save is never acknowledged, and an acknowledged one is present."""
    assert output_of(FULL_DISK, tmp_path / "a.db", "limit") == ["the storage cannot be read or written"]


@pytest.mark.io
def test_full_disk_is_reported_and_recovers(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False
        ).returncode
        == 0
    )
    try:
        (disk / "ballast").write_bytes(bytes(1_300_000))
        output = output_of(FULL_DISK, disk / "a.db", "disk" if mounted else "limit")
    finally:
        if mounted:
            subprocess.run(["umount", disk], check=True)
    assert output == ["the storage is full" if mounted else "the storage cannot be read or written"]


@pytest.mark.io
def test_acknowledged_responses_survive_kill_9(tmp_path: Path) -> None:
    """docs/errors.md, "Storage", a few rounds; the soak has many."""
    code = """
        async def go():
            store = await SqliteStore.open(path)
            async def save(lane):
                for n in range(1_000_000):
                    id = f"{sys.argv[2]}_{lane}_{n}"
                    previous = f"{sys.argv[2]}_{lane}_{n - 1}" if n else None
                    await store.save("anna", record(id, previous, text=b"x" * 2000), [f"msg_{id}"], [])
                    print(id, flush=True)
            await asyncio.gather(*map(save, range(8)))
        asyncio.run(go())
    """
    path = tmp_path / "a.db"
    acknowledged: list[str] = []
    for round in range(3):
        process = child(code, path, round)
        assert process.stdout
        for _ in range(60 + 7 * round):
            acknowledged.append(process.stdout.readline().strip())
        process.kill()
        acknowledged += [
            line for line in process.communicate(timeout=30)[0].splitlines(keepends=True) if line.endswith("\n")
        ]

    async def look() -> None:
        store = await SqliteStore.open(path)
        assert await store.verify() == []
        for id in map(str.strip, acknowledged):
            chain = await read_chain(store, "anna", id)
            assert chain is not None
            assert chain.count(b"to ") == int(id.rpartition("_")[2]) + 1
            last = await find_turn_by_item(store, "anna", f"msg_{id}")
            assert last is not None
            assert chain.endswith(last.input + b"," + last.output)
        await store.close()

    asyncio.run(look())


def test_file_that_is_no_database_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: not a valid database")):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == b"Dear diary, " * 1000


def test_damaged_file_is_reported_without_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    async def fill() -> None:
        store = await SqliteStore.open(path)
        await asyncio.gather(*(store.save("anna", record(f"resp_{n}"), [f"msg_{n}"], []) for n in range(200)))
        await store.close()

    async def look() -> None:
        store = await SqliteStore.open(path)
        for question in (store.get("anna", "resp_150"), store.save("anna", record("resp_1"), [], [])):
            with pytest.raises(StorageUnavailable) as caught:
                await question
            assert caught.value.message == "the storage is damaged"
            assert isinstance(caught.value.__cause__, apsw.CorruptError)
        assert await store.verify()
        with pytest.raises(StorageUnavailable, match="damaged"):
            await store.stats()
        await store.close()

    asyncio.run(fill())
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))  # the first page contains the schema
    asyncio.run(look())


def test_verify_reports_ids_without_a_response(tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("resp_1"), ["msg_1"], [])
        with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
            db.execute("INSERT INTO found_by VALUES (CAST('bert' AS BLOB), 0, CAST('msg_1' AS BLOB), 1)")
        assert await store.verify() == ["ids without a response of their owner: 1"]
        await store.close()

    asyncio.run(go())


@pytest.mark.parametrize("damage", ["DELETE FROM turns WHERE seq = 1", "UPDATE turns SET before = 2 WHERE seq = 1"])
def test_verify_reports_responses_without_content_or_with_later_predecessors(damage: str, tmp_path: Path) -> None:
    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("resp_1"), [], [])
        with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
            db.execute(damage)
        assert await store.verify() == ["responses without input and output, or whose previous response is newer: 1"]
        await store.close()

    asyncio.run(go())


def test_chain_in_order_is_read_by_row_numbers(tmp_path: Path) -> None:
    """One after the other, and many in one transaction."""

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        names = [f"resp_{number}" for number in range(6)]
        chain = [record(name, previous=before) for name, before in zip(names, [None, *names], strict=False)]
        for each in chain[:3]:
            await store.save("anna", each, [], [])
        await asyncio.gather(*(store.save("anna", each, [], []) for each in chain[3:]))
        with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
            assert db.execute("SELECT seq, before FROM turns").fetchall() == [(seq, seq - 1) for seq in range(1, 7)]
            rows = db.execute(sqlite.SELECT_CHAIN, (b"anna", b"resp_5", NO_LIMIT, False)).fetchall()
            by_ids = db.execute(sqlite.SELECT_CHAIN_BY_IDS, (b"anna", b"resp_5", NO_LIMIT, False)).fetchall()
        assert rows == by_ids
        assert rows[0][2] == await read_chain(store, "anna", "resp_5")
        await store.close()

    asyncio.run(go())


def test_folder_that_cannot_be_created_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path / 'file' / 'a.db'}: cannot create the file: ")):
        asyncio.run(SqliteStore.open(tmp_path / "file" / "a.db"))


def test_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}: cannot be opened for writing")):
        asyncio.run(SqliteStore.open(tmp_path))


READ_ONLY = """
    from antiphon.store.sqlite.file import prepare_file
    folder = path.parent
    {before}
    folder.chmod(0o555)
    if os.geteuid() == 0:  # for whom nothing is read-only
        os.seteuid(65534)
    try:
        prepare_file(path, 1.0)  # all of `open` that touches the file, without modules that another user may not be able to read
    except AntiphonError as error:
        print(type(error).__name__, error)
    os.seteuid(os.getuid())
    folder.chmod(0o700)
"""


@pytest.mark.io
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("pass", "cannot create the file: Permission denied; name another file in [store] url"),
        (
            "path.touch(); path.chmod(0o444)",
            "cannot be opened for writing; the file and its folder must belong to the user that runs Antiphon",
        ),
    ],
)
def test_read_only_file_or_folder_is_refused_with_its_name(before: str, words: str) -> None:
    with TemporaryDirectory() as folder:  # the folder of pytest is closed to other users, and the child is another user
        path = Path(folder) / "a.db"
        assert output_of(READ_ONLY.replace("{before}", before), path) == [f"ConfigError {path}: {words}"]


def test_missing_file_is_reported_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite_file.prepare_file(path, 1.0)

    async def go() -> None:
        store = SqliteStore(path, 1.0)
        path.rename(tmp_path / "b.db")
        for question in (store.get("anna", "resp_1"), store.save("anna", record("resp_1"), [], []), store.stats()):
            with pytest.raises(StorageUnavailable, match="cannot be read or written"):
                await question
        assert not path.exists()
        (tmp_path / "b.db").rename(path)
        await store.save("anna", record("resp_1"), [], [])
        assert await store.get("anna", "resp_1") == record("resp_1")
        await store.close()

    asyncio.run(go())


def test_oversized_response_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(path: Path, lock_timeout: float, *, is_read_only: bool = False) -> apsw.Connection:
        db = sqlite_file.connect(path, lock_timeout, is_read_only=is_read_only)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
        return db

    monkeypatch.setattr(sqlite, "connect", limited)

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await store.save("anna", record("a", text=b"x" * 60_000), [], [])
        await store.save("anna", replace(record("b", "a", text=b"x" * 60_000)), [], [])
        for question in (store.save("anna", record("c", text=b"x" * 200_000), [], []), read_chain(store, "anna", "b")):
            with pytest.raises(StorageUnavailable, match="the data is too large for the storage"):
                await question
        assert await store.get("anna", "b")
        await store.close()

    asyncio.run(go())


def test_chain_numbers_refer_only_to_earlier_rows(tmp_path: Path) -> None:
    """A response that continues itself, or a later one, is found by ids: a walk along numbers ends."""

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        for each in (
            record("resp_1", previous="resp_1"),
            record("resp_2", previous="resp_3"),
            record("resp_3", previous="resp_2"),
        ):
            await store.save("anna", each, [], [])
            await store.save("anna", each, [], [])
        with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
            assert db.execute("SELECT seq, before FROM turns").fetchall() == [(1, None), (2, None), (3, 2)]
        assert [await read_chain(store, "anna", f"resp_{number}") for number in (1, 2, 3)] == [None] * 3
        await store.close()

    asyncio.run(go())
