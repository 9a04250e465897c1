"""`store/sqlite/file`: permissions, settings and versions, and locations that are refused."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from tests.store.sqlite.processes import held, output_of
from tests.store.stores import record

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.sqlite import file as sqlite_file
from antiphon.store.sqlite.store import SqliteStore


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
    with pytest.raises(ConfigError, match="the SQLite setting page_size is 8192, expected 3"):
        sqlite_file.prepare_file(tmp_path / "a.db", 1.0)


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_sqlite_version_that_can_lose_commits_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"SQLite {version} can lose")):
        sqlite_file.check_version(version)


def test_fixed_sqlite_version_is_accepted() -> None:
    for version in ("3.51.3", "3.54.1", "4.0.0"):
        sqlite_file.check_version(version)


@pytest.mark.io
def test_locked_file_at_startup_is_reported(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "a.db"))) as db:
        db.execute("CREATE TABLE t (a); DROP TABLE t")  # a file without tables, which must be migrated
    with held(tmp_path / "a.db"), pytest.raises(StorageUnavailable, match="busy"):
        asyncio.run(SqliteStore.open(tmp_path / "a.db", lock_timeout=0.1))


def test_file_that_is_no_database_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: not a valid database")):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == b"Dear diary, " * 1000


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
            "prepare_file(path, 1.0); path.chmod(0o444)",
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
            with pytest.raises(StorageUnavailable, match=r"cannot be read or written|was deleted"):
                await question
        assert not path.exists()
        (tmp_path / "b.db").rename(path)
        await store.save("anna", record("resp_1"), [], [])
        assert await store.get("anna", "resp_1") == record("resp_1")
        await store.close()

    asyncio.run(go())


def test_empty_file_where_a_database_was_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sqlite_file.prepare_file(path, 1.0)
    os.truncate(path, 0)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: the file is empty")):
        asyncio.run(SqliteStore.open(path))
    assert path.stat().st_size == 0
    path.unlink()
    sqlite_file.prepare_file(path, 1.0)
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]


def test_file_that_another_process_creates_first_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "a.db", tmp_path / "other.db"
    sqlite_file.prepare_file(other, 1.0)
    link = os.link

    def lose_the_race(source: Path, target: Path) -> None:
        link(other, path)
        link(source, target)

    monkeypatch.setattr(os, "link", lose_the_race)
    sqlite_file.prepare_file(path, 1.0)
    assert path.samefile(other)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.db", "other.db"]
