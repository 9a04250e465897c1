"""`store/sqlite/backup`: a copy under load is consistent and private, and restoring it loses nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.store.stores import record

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.sqlite.backup import back_up, restore
from antiphon.store.sqlite.file import prepare_file
from antiphon.store.sqlite.store import SqliteStore


async def saved(path: Path, *ids: str) -> None:
    store = await SqliteStore.open(path)
    for id in ids:
        await store.save("anna", record(id), [f"msg_{id}"], [])
    await store.close()


def ids_in(path: Path) -> list[str]:
    with closing(apsw.Connection(str(path))) as db:
        return sorted(str(id) for (id,) in db.execute("SELECT CAST(id AS TEXT) FROM responses").fetchall())


def test_backup_under_load_is_a_private_and_consistent_copy(tmp_path: Path) -> None:
    path, target = tmp_path / "a.db", tmp_path / "copy.db"

    async def go() -> None:
        store = await SqliteStore.open(path)
        is_done = asyncio.Event()

        async def write(name: str) -> int:
            count, previous = 0, None
            while not is_done.is_set():
                await store.save("anna", record(f"{name}_{count}", previous), [f"msg_{name}_{count}"], [])
                previous, count = f"{name}_{count}", count + 1
            return count

        await store.save("anna", record("first"), [], [])
        writers = [asyncio.create_task(write(f"resp_{number}")) for number in range(8)]
        await asyncio.to_thread(back_up, path, target)
        is_done.set()
        assert min(await asyncio.gather(*writers)) > 0
        await store.close()

    asyncio.run(go())
    assert target.stat().st_mode & 0o777 == 0o600
    assert "first" in ids_in(target)

    async def verified() -> list[str]:
        copy = await SqliteStore.open(target)
        try:
            return await copy.verify()
        finally:
            await copy.close()

    assert asyncio.run(verified()) == []
    assert {file.name for file in tmp_path.iterdir()} == {"a.db", "copy.db"}


def test_restored_backup_replaces_the_database_and_keeps_it(tmp_path: Path) -> None:
    path, target = tmp_path / "a.db", tmp_path / "copy?#%.db"
    asyncio.run(saved(path, "resp_1", "resp_2"))
    back_up(path, target)
    asyncio.run(saved(path, "resp_3"))
    assert restore(target, path) == tmp_path / "a.db.before-restore"
    assert ids_in(path) == ["resp_1", "resp_2"]
    assert ids_in(tmp_path / "a.db.before-restore") == ["resp_1", "resp_2", "resp_3"]
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match=r"before-restore exists already"):
        restore(target, path)
    assert restore(target, tmp_path / "new" / "b.db") is None
    assert ids_in(tmp_path / "new" / "b.db") == ["resp_1", "resp_2"]


def test_restore_refuses_a_database_in_use(tmp_path: Path) -> None:
    path, target = tmp_path / "a.db", tmp_path / "copy.db"
    asyncio.run(saved(path, "resp_1"))
    back_up(path, target)

    async def go() -> None:
        store = await SqliteStore.open(path)
        await store.save("anna", record("resp_2"), [], [])
        with pytest.raises(StorageUnavailable, match=r"a\.db is in use: stop the gateway first"):
            await asyncio.to_thread(restore, target, path)
        assert await store.get("anna", "resp_2") == record("resp_2")
        await store.close()

    asyncio.run(go())
    assert ids_in(path) == ["resp_1", "resp_2"]


def test_damaged_database_can_be_replaced(tmp_path: Path) -> None:
    path, target = tmp_path / "a.db", tmp_path / "copy.db"
    asyncio.run(saved(path, "resp_1"))
    back_up(path, target)
    path.write_bytes(b"Dear diary, " * 1000)
    Path(f"{path}-wal").write_bytes(b"old log")
    restore(target, path)
    assert ids_in(path) == ["resp_1"]
    assert not Path(f"{path}-wal").exists()


def test_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    path, other, damaged = tmp_path / "a.db", tmp_path / "other.db", tmp_path / "damaged.db"
    asyncio.run(saved(path, "resp_1"))
    with closing(apsw.Connection(str(other))) as db:
        db.execute("CREATE TABLE t (a)")
    with closing(apsw.Connection(str(tmp_path / "empty.db"))) as db:
        db.execute("CREATE TABLE t (a); DROP TABLE t")
    (tmp_path / "text.db").write_bytes(b"Dear diary, " * 1000)
    (tmp_path / "zero.db").touch()
    back_up(path, damaged)
    content = bytearray(damaged.read_bytes())
    content[4096:8192] = bytes(4096)
    damaged.write_bytes(content)
    for name, words in {
        "missing.db": "there is no backup",
        "zero.db": "there is no backup",
        "text.db": "not a valid database",
        "other.db": "belongs to another program",
        "empty.db": "has no tables of Antiphon",
        "damaged.db": "damaged|not a valid database",
    }.items():
        with pytest.raises(ConfigError, match=words):
            restore(tmp_path / name, path)
    assert ids_in(path) == ["resp_1"]


def test_backup_refuses_an_existing_target_and_a_missing_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pytest.raises(ConfigError, match="no database to back up"):
        back_up(path, tmp_path / "copy.db")
    prepare_file(path, 1.0)
    with pytest.raises(ConfigError, match="exists already"):
        back_up(path, path)
    with pytest.raises(ConfigError, match="cannot write the backup: No such file"):
        back_up(path, tmp_path / "missing" / "copy.db")
    (tmp_path / "text.db").write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(StorageUnavailable, match="damaged"):
        back_up(tmp_path / "text.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_failed_restore_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = tmp_path / "a.db", tmp_path / "copy.db"
    asyncio.run(saved(path, "resp_1"))
    back_up(path, target)

    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    with pytest.raises(ConfigError, match="cannot restore the backup: No space left"):
        restore(target, path)
    assert ids_in(path) == ["resp_1"]


def test_backup_that_fails_the_integrity_check_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = tmp_path / "a.db", tmp_path / "copy.db"
    asyncio.run(saved(path, "resp_1"))
    back_up(path, target)
    monkeypatch.setattr("antiphon.store.sqlite.backup.fetch", lambda *_: [("row 1 missing from index",)])
    with pytest.raises(ConfigError, match=r"copy\.db: the backup is damaged: row 1 missing from index"):
        restore(target, path)
    assert ids_in(path) == ["resp_1"]
    assert not (tmp_path / "a.db.before-restore").exists()
