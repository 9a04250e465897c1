"""`store/sqlite/migrations`: files of earlier versions, of newer versions and of other programs."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.store.sqlite.processes import child
from tests.store.stores import find_turn_by_item, read_chain, record

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.conversations import ConversationEntry, StoredConversation
from antiphon.store.interface import RetentionState, StoredTurn
from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite.migrations import APPLICATION_ID, MIGRATIONS
from antiphon.store.sqlite.store import SqliteStore
from antiphon.store.work import EventsAfter

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
    "",
)


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
        # Two gateways start together; one of them migrates.
        store, other = await asyncio.gather(SqliteStore.open(path), SqliteStore.open(path))
        await other.close()
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
            assert (
                await store.prune_conversations(changed_before=2**30) == 0
            )  # its change time is the time of the migration
        if steps >= 6:
            assert [row.input_tokens for row in await store.get_usage(since=0, until=9)] == [10]
        assert await store.retention_state() is None
        await store.save_retention_state(RetentionState(looked_at=7, held_until=9))
        assert await store.retention_state() == RetentionState(looked_at=7, held_until=9)
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
