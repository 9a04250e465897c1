"""Notices that the file of a database was deleted, replaced or truncated while it is open.

SQLite would go on writing to the deleted file: responses would be acknowledged and lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from antiphon.errors import StorageUnavailable

CHECK_INTERVAL: Final = 0.5  # seconds between two looks at the file
#: A file that is shorter than its header says was truncated, unless a checkpoint of another process is writing it. With
#: the two seconds between two checks of an idle store, a truncated file is noticed within five seconds.
MAX_CHECKPOINT_SECONDS: Final = 1.5
HEADER: Final = b"SQLite format 3\0"


class FileWatch:
    """Compares the file with the one that was opened. Any thread may call it."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._now = now
        self._identity = _identity(os.stat(path))
        self._looked_at = now()
        self._short_since: float | None = None
        self._problem: str | None = None

    def check(self) -> None:
        """Raises if the file is not the one that was opened. Looks at it at most twice a second, so that it costs
        nothing to call it often."""
        if self._now() - self._looked_at >= CHECK_INTERVAL:
            self.look()
        if self._problem is not None:
            raise StorageUnavailable(self._problem)

    def look(self) -> str | None:
        """Looks at the file now, and returns its problem."""
        self._looked_at = self._now()
        self._problem = self._find_problem()
        return self._problem

    def _find_problem(self) -> str | None:
        try:
            status = os.stat(self._path)
            if _identity(status) != self._identity:
                return REPLACED
            expected_size = _size_in_header(self._path) if status.st_size else None
        except FileNotFoundError:
            return DELETED
        except OSError:
            return UNREADABLE
        if expected_size is None:
            return TRUNCATED
        if status.st_size >= expected_size:
            self._short_since = None
            return None
        self._short_since = self._looked_at if self._short_since is None else self._short_since
        return TRUNCATED if self._looked_at - self._short_since >= MAX_CHECKPOINT_SECONDS else None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _size_in_header(path: Path) -> int | None:
    """The size that the file must have at least; None if it has no header."""
    with open(path, "rb") as file:
        header = file.read(32)
    if len(header) < 32 or not header.startswith(HEADER):
        return None
    page_size = int.from_bytes(header[16:18], "big")
    return (65536 if page_size == 1 else page_size) * int.from_bytes(header[28:32], "big")


RESTART: Final = "restore the file if it is needed, then restart the gateway"
DELETED: Final = f"the database file was deleted while the gateway runs; {RESTART}"
REPLACED: Final = f"the database file was replaced while the gateway runs; {RESTART}"
TRUNCATED: Final = f"the database file was truncated while the gateway runs; {RESTART}"
UNREADABLE: Final = "the database file cannot be read"
