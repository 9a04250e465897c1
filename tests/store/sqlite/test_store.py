"""SQLite only: queries, deletion, damage, a full disk, and that reads do not wait for writes."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace
from tests.store.sqlite.processes import child, held, output_of
from tests.store.stores import NO_LIMIT, find_turn_by_item, read_chain, record

from antiphon.errors import StorageUnavailable
from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite import responses as sqlite_responses
from antiphon.store.sqlite import store as sqlite_store
from antiphon.store.sqlite.store import SqliteStore


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
        "SELECT_PRUNABLE",
    ],
)
def test_queries_never_scan_a_whole_table(query: str, tmp_path: Path) -> None:
    sqlite_file.prepare_file(tmp_path / "a.db", 1.0)
    with closing(sqlite_file.connect(tmp_path / "a.db", 1.0)) as db:
        module = sqlite_responses if hasattr(sqlite_responses, query) else sqlite_store
        statement = getattr(module, query).replace("{ids}", "?, ?")
        count = 4 if "CHAIN" in query else statement.count("?")
        plan = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", (1,) * count)]
    scans = [
        line
        for line in plan
        if line.startswith("SCAN")
        and not line.startswith(("SCAN walk", "SCAN turn", "SCAN json_each"))
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
    assert "responses" not in sqlite_responses.SELECT_CHAIN.partition("UNION ALL")[2]


# Writing


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


def test_prune_needs_few_statements_and_truncates_the_log_once(tmp_path: Path) -> None:
    """Other writes wait for a batch, and for a truncation: the timed test is in tests/faults_outside."""
    statements: list[str] = []

    async def go() -> None:
        store = await SqliteStore.open(tmp_path / "a.db")
        await asyncio.gather(*(store.save("anna", record(f"resp_{n}", at=1), [f"msg_{n}"], []) for n in range(200)))
        await store.save("anna", record("new", at=50), [], [])
        await store._writer.run_write(
            lambda cursor: cursor.connection.trace_v2(
                apsw.SQLITE_TRACE_PROFILE, lambda statement: statements.append(statement["sql"])
            )
        )
        log = Path(f"{tmp_path}/a.db-wal")
        for _ in range(2):
            statements.clear()
            assert await store.prune(before=10, keep=None, batch_size=100) == 100
            pruning = [
                sql for sql in statements if not sql.startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "--"))
            ]
            assert len(pruning) == 2, pruning  # whatever the number of rows
            assert log.stat().st_size > 0
        assert await store.prune(before=10, keep=None, batch_size=100) == 0
        assert log.stat().st_size == 0
        assert (await store.stats()).responses == 1
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


def test_full_storage_is_reported_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sqlite_file.SETTINGS, "max_page_count", 80)

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
        with child(code, path, round) as process:
            assert process.stdout
            for _ in range(60 + 7 * round):
                acknowledged.append(process.stdout.readline().strip())
            process.kill()
            # `communicate` would skip the data that `stdout` has buffered, and could begin inside a line.
            acknowledged += [line for line in process.stdout if line.endswith("\n")]

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
    whole, size = path.read_bytes(), sqlite_file.PAGE_SIZE
    path.write_bytes(whole[:size] + b"\xff" * (len(whole) - size))  # the first page contains the schema
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
            rows = db.execute(sqlite_responses.SELECT_CHAIN, (b"anna", b"resp_5", NO_LIMIT, False)).fetchall()
            by_ids = db.execute(sqlite_responses.SELECT_CHAIN_BY_IDS, (b"anna", b"resp_5", NO_LIMIT, False)).fetchall()
        assert rows == by_ids
        assert rows[0][2] == await read_chain(store, "anna", "resp_5")
        await store.close()

    asyncio.run(go())


def test_oversized_response_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(path: Path, lock_timeout: float, *, is_read_only: bool = False) -> apsw.Connection:
        db = sqlite_file.connect(path, lock_timeout, is_read_only=is_read_only)
        db.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
        return db

    monkeypatch.setattr(sqlite_store, "connect", limited)

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
