"""Creates, opens and checks one SQLite file, readable by its owner only, and translates the errors of SQLite.

Settings are read back after they are set. A setting that SQLite does not accept is an error at the start, and so is a
version of SQLite that can lose acknowledged commits.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.sqlite.migrations import migrate

T = TypeVar("T")


def prepare_file(path: Path, lock_timeout: float) -> None:
    """Creates the file if it is missing, and migrates it. A problem with the location is a `ConfigError`."""
    check_version(apsw.sqlite_lib_version())
    try:
        if not path.exists():
            _make_file(path, lock_timeout)
        if path.is_file() and path.stat().st_size == 0:
            raise ConfigError(
                f"{path}: the file is empty, and a database is never empty: its content is lost. Restore a copy of the "
                "file, or delete it to begin with an empty database"
            )
        _retry_while_busy(lambda: _migrate_file(path, lock_timeout), lock_timeout)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot create the file: {error.strerror}; name another file in [store] url"
        ) from error
    except apsw.Error as error:
        raise _startup_error(error, path) from error


def connect(path: Path, lock_timeout: float, *, is_read_only: bool = False) -> apsw.Connection:
    """Connects to an existing file. `lock_timeout` is how many seconds it waits for the lock of another connection."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENT_CACHE_SIZE)
    try:
        set_lock_timeout(db, lock_timeout)
        db.pragma("page_size", PAGE_SIZE)  # an existing file keeps its own
        for name, value in (SETTINGS | (READER_SETTINGS if is_read_only else WRITER_SETTINGS)).items():
            db.pragma(name, value)
            if (actual := db.pragma(name)) != value:
                raise ConfigError(
                    f"{path}: the SQLite setting {name} is {actual!r}, expected {value!r}; put the file on a local disk"
                )
    except BaseException:
        db.close(True)
        raise
    return db


def fetch(cursor: apsw.Cursor, statement: str, *bindings: bytes | str | float | None) -> list[Any]:
    """Fetches all rows. An unfinished read would keep the write-ahead log from being truncated."""
    return cursor.execute(statement, bindings).fetchall()


def set_lock_timeout(db: apsw.Connection, lock_timeout: float) -> None:
    """Sets how long the connection blocks its thread while another connection has the lock."""
    db.set_busy_timeout(max(1, math.ceil(lock_timeout * 1000)))


def check_version(version: str) -> None:
    """Refuses versions before 3.51.3: they can lose an acknowledged commit if the log restarts while another process
    writes."""
    if tuple(map(int, version.split("."))) < MIN_VERSION:
        raise ConfigError(
            f"SQLite {version} can lose acknowledged writes; expected {'.'.join(map(str, MIN_VERSION))} "
            "or newer: upgrade the package apsw"
        )


def storage_error(error: Exception) -> Exception:
    """Translates an error of SQLite for clients. Other errors are returned unchanged."""
    if not isinstance(error, apsw.Error | OSError):
        return error
    unavailable = StorageUnavailable(
        next((message for kind, message in ERROR_MESSAGES if isinstance(error, kind)), DEFAULT_MESSAGE)
    )
    unavailable.__cause__ = error
    return unavailable


def _make_file(path: Path, lock_timeout: float) -> None:
    """Creates a database under another name and renames it, so that an empty file is always an error."""
    # SQLite gives its log and the log's index the mode of the file, so this sets the mode of all three.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new_path = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.new")
    os.close(os.open(new_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        _migrate_file(new_path, lock_timeout)
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(new_path, path)
    finally:
        for leftover in (new_path, *(Path(f"{new_path}{suffix}") for suffix in ("-wal", "-shm"))):
            leftover.unlink(missing_ok=True)


def _migrate_file(path: Path, lock_timeout: float) -> None:
    with contextlib.closing(connect(path, lock_timeout)) as db:
        migrate(db, str(path))


def _retry_while_busy(operation: Callable[[], T], lock_timeout: float) -> T:
    """Retries while another process has the lock: SQLite does not wait when it switches to a write-ahead log."""
    deadline = time.monotonic() + lock_timeout
    while True:
        try:
            return operation()
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _startup_error(error: apsw.Error, path: Path) -> Exception:
    for kind, message in STARTUP_ERROR_MESSAGES:
        if isinstance(error, kind):
            return ConfigError(f"{path}: {message}")
    return storage_error(error)


MIN_VERSION: Final = (3, 51, 3)
PAGE_SIZE: Final = 8192  # bytes; SQLite writes each page in two system calls
STATEMENT_CACHE_SIZE: Final = 256  # enough for the writer, which has one statement for each number of rows
SETTINGS: Final[dict[str, int | str]] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: every commit is on disk before it returns
    "fullfsync": 1,  # on macOS, fsync alone does not flush the disk's own cache
    "checkpoint_fullfsync": 1,
    "foreign_keys": 1,
    "secure_delete": 1,  # overwrites deleted content
    "wal_autocheckpoint": 2000,  # pages of a new file: 16 MiB
    "journal_size_limit": 16 << 20,
}
READER_SETTINGS: Final = {"query_only": 1}
# Before a statement with many rows changes a page, SQLite copies it. 2: it keeps the copies in memory; by default it
# writes more than 64 KiB of them to a temporary file, which was a quarter to a third of all pages that a batch writes.
# There are few: new pages are not copied, nor those that a deletion frees. A repeated save copies the whole response.
WRITER_SETTINGS: Final = {"query_only": 0, "temp_store": 2}
ERROR_MESSAGES: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    (apsw.BusyError, "the storage is busy: another connection holds the lock; retry"),
    (apsw.FullError, "the storage is full"),
    ((apsw.ReadOnlyError, apsw.PermissionsError), "the storage cannot be written to"),
    ((apsw.CorruptError, apsw.NotADBError), "the storage is damaged"),
    (apsw.TooBigError, "the data is too large for the storage"),
)
DEFAULT_MESSAGE: Final = "the storage cannot be read or written"
STARTUP_ERROR_MESSAGES: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    (
        (apsw.NotADBError, apsw.CorruptError),
        "not a valid database; restore a copy of the file, or name another file in [store] url",
    ),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError),
        "cannot be opened for writing; the file and its folder must belong to the user that runs Antiphon",
    ),
)
