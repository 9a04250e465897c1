"""The one thread that writes to an SQLite file. Everything that waits when it comes by is one transaction: one write to the disk.

What was asked is acknowledged when its COMMIT has returned, and never before. The event loop is told once for each transaction.
Every call into SQLite lets go of the interpreter and must wait for it afterwards, which a busy event loop makes long; so what
comes often goes in together, all of its kind that a transaction has, and one by one only if that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

import apsw

from antiphon.errors import StorageUnavailable
from antiphon.store.sqlite.file import set_lock_timeout, storage_error

T = TypeVar("T")
Work = Callable[[apsw.Cursor], T]


class BatchedWrite(ABC):
    """Work that goes in together with others of its kind."""

    @abstractmethod
    def __call__(self, cursor: apsw.Cursor) -> Any:
        """Does it alone."""

    @classmethod
    @abstractmethod
    def write_batch(cls, cursor: apsw.Cursor, several: Sequence[Any]) -> list[Any]:
        """Does all of them in a few statements. If this raises, each is done alone, so it may leave nothing behind that is in the
        way of that."""


class WriterThread:
    """Does what it is asked, in that order, off the event loop."""

    def __init__(
        self, connect: Callable[[float], apsw.Connection], loop: asyncio.AbstractEventLoop, *, lock_timeout: float
    ) -> None:
        """`lock_timeout` is how many seconds anything that is asked waits at most while another process holds the file."""
        self._connect = connect
        self._loop = loop
        self._lock_timeout = lock_timeout
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._db: apsw.Connection | None = None
        self._must_wipe = False
        self._ended: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="antiphon-store-writer", daemon=True)
        self._thread.start()

    def run(self, work: Work[T], *, deletes: bool = False) -> asyncio.Future[T]:
        """What `work` returns, once it is on disk. If it `deletes`, and returns anything, no file has any of it afterwards."""
        if self._ended is not None:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Asked(work, deletes, future, time.monotonic()))
        return future

    async def stop(self) -> None:
        """Ends when everything that was asked has been answered."""
        if self._ended is None:
            self._ended = self._loop.create_future()
            self._queue.put(None)
        await asyncio.shield(self._ended)

    # In the thread

    def _run(self) -> None:
        waiting: list[_Asked] = []
        while self._take(waiting):
            waiting = self._write(waiting)
        while waiting:
            waiting = self._write(waiting)
        self._disconnect()
        assert self._ended is not None  # the end was asked for
        self._tell([(self._ended, None)])

    def _take(self, waiting: list[_Asked]) -> bool:
        """Adds what is asked, and waits for it if there is nothing to do. False at the end."""
        try:
            asked = self._queue.get(block=not waiting)
            while asked is not None:
                waiting.append(asked)
                if len(waiting) >= AT_ONCE:
                    return True
                asked = self._queue.get_nowait()
        except Empty:
            return True
        return False

    def _write(self, batch: list[_Asked]) -> list[_Asked]:
        """Returns those that have to wait for another process."""
        try:
            outcomes = self._transact(batch)
        except Exception as error:
            # Whoever asked is told. A new connection knows nothing of what this one met: so it heals by itself.
            self._disconnect()
            end = time.monotonic() - self._lock_timeout if isinstance(error, apsw.BusyError) else math.inf
            late = list(itertools.takewhile(lambda asked: asked.since <= end, batch))
            self._tell([(asked.future, error) for asked in late])
            return batch[len(late) :]
        self._tell([(asked.future, outcome) for asked, outcome in zip(batch, outcomes, strict=True)])
        return []

    def _transact(self, batch: list[_Asked]) -> list[Any]:
        """What came of each, a value or an exception. If this raises, nothing of it was written."""
        lock_timeout = batch[0].since + self._lock_timeout - time.monotonic()
        if self._db is None:
            self._db = self._connect(lock_timeout)
        set_lock_timeout(self._db, lock_timeout)
        cursor = self._db.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        outcomes: list[Any] = []
        for kind, run in itertools.groupby((asked.work for asked in batch), type):
            if issubclass(kind, BatchedWrite):
                for several in _pieces(list(run), ROWS):
                    outcomes += _together(cursor, kind, several)
            else:
                outcomes += [_alone(cursor, work) for work in run]
        cursor.execute("COMMIT")
        self._must_wipe |= any(asked.deletes and outcome for asked, outcome in zip(batch, outcomes, strict=True))
        if self._must_wipe and self._queue.empty():
            self._wipe(self._db)
        return outcomes

    def _wipe(self, db: apsw.Connection) -> None:
        """What was deleted is still in the log, until that is written back and emptied."""
        set_lock_timeout(db, 0)
        with contextlib.suppress(apsw.Error):  # somebody reads, or the disk is ill; the next write comes by here again
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._must_wipe = False

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(apsw.Error):  # what it had to say was said by what failed
                db.close(True)

    def _tell(self, told: list[tuple[asyncio.Future[Any], Any]]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it everybody who waits
            self._loop.call_soon_threadsafe(_settle, told)


class _Asked(NamedTuple):
    work: Work[Any]
    deletes: bool
    future: asyncio.Future[Any]
    since: float


def _settle(told: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in told:
        if future.done():
            continue  # nobody waits for it any more
        if isinstance(outcome, Exception):
            future.set_exception(storage_error(outcome))
        else:
            future.set_result(outcome)


def insert_rows(cursor: apsw.Cursor, statement: str, row: str, rows: Sequence[tuple[Any, ...]], end: str = "") -> None:
    """Many rows in few statements; `end` stands behind them."""
    for piece in _pieces(rows, ROWS):
        cursor.execute(statement + ", ".join([row] * len(piece)) + end, tuple(itertools.chain.from_iterable(piece)))


def _together(cursor: apsw.Cursor, kind: type[BatchedWrite], several: Sequence[Any]) -> list[Any]:
    try:
        return kind.write_batch(cursor, several)
    except Exception:
        if not cursor.connection.in_transaction:
            raise  # SQLite has taken back everything before this as well
        return [_alone(cursor, work) for work in several]


def _alone(cursor: apsw.Cursor, work: Work[Any]) -> Any:
    """What comes of it, so that whatever is wrong with it is told to whoever asked and to nobody else."""
    cursor.execute("SAVEPOINT alone")
    try:
        outcome = work(cursor)
    except Exception as error:
        if not cursor.connection.in_transaction:
            raise
        cursor.execute("ROLLBACK TO alone")
        outcome = error
    cursor.execute("RELEASE alone")
    return outcome


def _pieces(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


AT_ONCE: Final = 512  # in one transaction, so that nobody waits for ever while more is asked
ROWS: Final = 64  # in one statement; each number of rows is a statement of its own, which the connection keeps
