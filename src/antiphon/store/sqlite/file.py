"""One SQLite file: made so that nobody else can read it, opened, checked; and what its faults mean to people.

Settings are read back after they are set. A setting that SQLite does not take, or a SQLite that is known to lose what it
acknowledged, is an error at the start and not a surprise later.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from antiphon.errors import ConfigError, StorageUnavailable
from antiphon.store.sqlite.migrations import migrate

T = TypeVar("T")


def prepare_file(path: Path, lock_timeout: float) -> None:
    """Makes the file if it is not there, and brings it up to date. Whatever is wrong with the place is a `ConfigError`."""
    check_version(apsw.sqlite_lib_version())
    try:
        _make_file(path)
        _patiently(lambda: _make_ready(path, lock_timeout), lock_timeout)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror}; name another file in [store] url") from error
    except apsw.Error as error:
        raise _at_start(error, path) from error


def connect(path: Path, lock_timeout: float, *, only_reads: bool = False) -> apsw.Connection:
    """A connection to a file that is there. `lock_timeout` is how many seconds it waits while another holds the file."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENTS)
    try:
        set_lock_timeout(db, lock_timeout)
        for name, value in (SETTINGS | {"query_only": int(only_reads)}).items():
            db.pragma(name, value)
            if (found := db.pragma(name)) != value:
                raise ConfigError(f"{path}: SQLite leaves {name} at {found!r}, {value!r} is needed; put the file on a local disk")
    except BaseException:
        db.close(True)
        raise
    return db


def fetch(cursor: apsw.Cursor, statement: str, *bindings: bytes | str | float | None) -> list[Any]:
    """Every row, so that nothing is left half read: a reader in the middle keeps the log from being emptied."""
    return cursor.execute(statement, bindings).fetchall()


def set_lock_timeout(db: apsw.Connection, lock_timeout: float) -> None:
    """How long the connection waits, in its thread, while another holds the file."""
    db.set_busy_timeout(max(1, math.ceil(lock_timeout * 1000)))


def check_version(version: str) -> None:
    """Before 3.51.3 a commit that was acknowledged could be lost when the log began anew while another process wrote."""
    if tuple(map(int, version.split("."))) < OLDEST:
        raise ConfigError(
            f"SQLite {version} can lose what it has acknowledged; {'.'.join(map(str, OLDEST))} or newer is needed: "
            "upgrade the package apsw"
        )


def storage_error(error: Exception) -> Exception:
    """What a client is told of something that went wrong in SQLite; of our own mistakes, those themselves."""
    if not isinstance(error, apsw.Error | OSError):
        return error
    told = StorageUnavailable(next((words for kind, words in WORDS if isinstance(error, kind)), OTHERWISE))
    told.__cause__ = error
    return told


def _make_file(path: Path) -> None:
    # SQLite gives its log and its index of it the mode of the file itself, so this is where all three get theirs.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _make_ready(path: Path, lock_timeout: float) -> None:
    with contextlib.closing(connect(path, lock_timeout)) as db:
        migrate(db, str(path))


def _patiently(work: Callable[[], T], lock_timeout: float) -> T:
    """Tries again while another process has the file: SQLite itself does not wait for the change to a log written ahead."""
    end = time.monotonic() + lock_timeout
    while True:
        try:
            return work()
        except apsw.BusyError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.01)


def _at_start(error: apsw.Error, path: Path) -> Exception:
    for kind, words in AT_START:
        if isinstance(error, kind):
            return ConfigError(f"{path}: {words}")
    return storage_error(error)


OLDEST: Final = (3, 51, 3)
STATEMENTS: Final = 256  # as many as the writer may have, which has one for each number of rows
SETTINGS: Final[dict[str, int | str]] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: every commit is on disk before it returns
    "fullfsync": 1,  # where "on disk" would else mean "in the disk's memory", as on macOS
    "checkpoint_fullfsync": 1,
    "foreign_keys": 1,
    "secure_delete": 1,  # what is deleted is overwritten
    "wal_autocheckpoint": 4000,
    "journal_size_limit": 16 << 20,
}
WORDS: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    (apsw.BusyError, "the storage is busy: something else holds it; try again"),
    (apsw.FullError, "the storage is full"),
    ((apsw.ReadOnlyError, apsw.PermissionsError), "the storage cannot be written to"),
    ((apsw.CorruptError, apsw.NotADBError), "the storage is damaged"),
    (apsw.TooBigError, "this is too large for the storage"),
)
OTHERWISE: Final = "the storage cannot be read or written"
AT_START: Final[tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...]] = (
    ((apsw.NotADBError, apsw.CorruptError), "is not a usable database; put a copy of it back, or name another file in [store] url"),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError),
        "cannot be opened for writing; the file and its folder must belong to whoever runs Antiphon",
    ),
)
