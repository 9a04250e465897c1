"""Copies an SQLite database to a file while it is used, and replaces a database by such a copy."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import apsw

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.sqlite.file import connect, fetch, storage_error
from antiphon.store.sqlite.migrations import check_schema

LOCK_TIMEOUT: Final = 10.0  # seconds


def back_up(path: Path, target: Path) -> int:
    """Writes a consistent copy of the database to a new private file, while others read and write. Returns its size.
    If it fails, there is no file."""
    if target.exists():
        raise ConfigError(f"{target} exists already: name a new file, or delete it")
    if not path.exists():
        raise ConfigError(f"{path}: there is no database to back up")
    part_path = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with contextlib.closing(connect(path, LOCK_TIMEOUT)) as db:
            # One read transaction: writers go on meanwhile. Deleted content is not copied.
            db.execute("VACUUM INTO ?", (str(part_path),))
        _sync(part_path)
        os.replace(part_path, target)
        _sync(target.parent)
    except apsw.Error as error:
        raise storage_error(error) from error
    except OSError as error:
        raise ConfigError(f"{target}: cannot write the backup: {error.strerror}") from error
    finally:
        part_path.unlink(missing_ok=True)
    return target.stat().st_size


def restore(backup: Path, path: Path) -> Path | None:
    """Replaces the database with a backup. Returns the new name of the previous database, if there was one. Refuses if
    a process uses the database."""
    _check_backup(backup)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    previous_path = path.with_name(f"{path.name}.before-restore")
    if path.exists():
        if previous_path.exists():
            raise ConfigError(f"{previous_path} exists already: the database before the last restore; move it away")
        _close_log(path)
    part_path = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(os.open(part_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
            with open(backup, "rb") as source:
                shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())
        has_previous = path.exists()
        if has_previous:
            os.rename(path, previous_path)
        for suffix in ("-wal", "-shm"):  # of a damaged database: they do not belong to the backup
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        os.rename(part_path, path)
        _sync(path.parent)
    except OSError as error:
        raise ConfigError(f"{path}: cannot restore the backup: {error.strerror}") from error
    finally:
        part_path.unlink(missing_ok=True)
    return previous_path if has_previous else None


def _check_backup(backup: Path) -> None:
    """Refuses a file that is no undamaged database of Antiphon."""
    if not backup.is_file() or backup.stat().st_size == 0:
        raise ConfigError(f"{backup}: there is no backup in this file")
    try:
        with contextlib.closing(apsw.Connection(f"file:{_quote(backup)}?immutable=1", flags=READ_ONLY)) as db:
            check_schema(db, str(backup))
            problems = [line for (line,) in fetch(db.cursor(), "PRAGMA integrity_check") if line != "ok"]
    except apsw.Error as error:
        raise ConfigError(f"{backup}: not a valid database: {error}") from error
    if problems:
        raise ConfigError(f"{backup}: the backup is damaged: {problems[0]}")


def _close_log(path: Path) -> None:
    """Writes the log into the database and removes it, which only works if no other process uses the database."""
    try:
        with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
            db.set_busy_timeout(1000)
            db.execute("PRAGMA journal_mode = delete").fetchall()
    except apsw.BusyError as error:
        raise StorageUnavailable(f"{path} is in use: stop the gateway first") from error
    except (apsw.NotADBError, apsw.CorruptError, apsw.IOError):
        return  # damaged: it is renamed as it is


def _quote(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


READ_ONLY: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
