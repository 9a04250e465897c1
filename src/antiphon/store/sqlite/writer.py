"""The thread that writes to an SQLite file, with group commit: all queued writes go into one transaction.

A write is acknowledged after its COMMIT has returned. The event loop is called once for each transaction. Each call
into SQLite releases the GIL and has to get it back, which is slow while the event loop is busy. So frequent writes of
one kind are executed together, and one by one only if that fails.
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
    """A write that can be executed together with others of its kind."""

    @abstractmethod
    def __call__(self, cursor: apsw.Cursor) -> Any:
        """Executes this write alone."""

    @classmethod
    @abstractmethod
    def write_batch(cls, cursor: apsw.Cursor, writes: Sequence[Any]) -> list[Any]:
        """Executes all writes in a few statements. If this raises, each is executed alone, so it must leave nothing
        behind that prevents that."""


class WriterThread:
    """Executes writes in the order of `run`, in its own thread."""

    def __init__(
        self, connect: Callable[[float], apsw.Connection], loop: asyncio.AbstractEventLoop, *, lock_timeout: float
    ) -> None:
        """`lock_timeout` is how many seconds a write waits at most for the lock of another process."""
        self._connect = connect
        self._loop = loop
        self._lock_timeout = lock_timeout
        self._queue: SimpleQueue[_QueuedWrite | None] = SimpleQueue()
        self._db: apsw.Connection | None = None
        self._must_wipe = False
        self._thread_end: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="antiphon-store-writer", daemon=True)
        self._thread.start()

    def run(self, work: Work[T], *, deletes: bool = False) -> asyncio.Future[T]:
        """Returns the result of `work` once it is on disk. If it `deletes` and its result is true, the log is truncated
        too."""
        if self._thread_end is not None:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_QueuedWrite(work, deletes, future, time.monotonic()))
        return future

    async def stop(self) -> None:
        """Stops the thread after all queued writes are finished."""
        if self._thread_end is None:
            self._thread_end = self._loop.create_future()
            self._queue.put(None)
        await asyncio.shield(self._thread_end)

    # In the thread

    def _run(self) -> None:
        waiting: list[_QueuedWrite] = []
        while self._collect(waiting):
            waiting = self._write(waiting)
        while waiting:
            waiting = self._write(waiting)
        self._disconnect()
        assert self._thread_end is not None  # set by `stop`
        self._send_outcomes([(self._thread_end, None)])

    def _collect(self, waiting: list[_QueuedWrite]) -> bool:
        """Moves queued writes to `waiting`; blocks if there is none. Returns false after `stop`."""
        try:
            queued = self._queue.get(block=not waiting)
            while queued is not None:
                waiting.append(queued)
                if len(waiting) >= MAX_TRANSACTION_SIZE:
                    return True
                queued = self._queue.get_nowait()
        except Empty:
            return True
        return False

    def _write(self, batch: list[_QueuedWrite]) -> list[_QueuedWrite]:
        """Executes a batch. Returns the writes that must wait for the lock of another process."""
        try:
            outcomes = self._transact(batch)
        except Exception as error:
            # The callers get the error. The next batch uses a new connection, which recovers from errors of this one.
            self._disconnect()
            end = time.monotonic() - self._lock_timeout if isinstance(error, apsw.BusyError) else math.inf
            late = list(itertools.takewhile(lambda queued: queued.since <= end, batch))
            self._send_outcomes([(queued.future, error) for queued in late])
            return batch[len(late) :]
        self._send_outcomes([(queued.future, outcome) for queued, outcome in zip(batch, outcomes, strict=True)])
        return []

    def _transact(self, batch: list[_QueuedWrite]) -> list[Any]:
        """Returns the result or exception of each write. If this raises, nothing was written."""
        lock_timeout = batch[0].since + self._lock_timeout - time.monotonic()
        if self._db is None:
            self._db = self._connect(lock_timeout)
        set_lock_timeout(self._db, lock_timeout)
        cursor = self._db.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        outcomes: list[Any] = []
        for kind, run in itertools.groupby((queued.work for queued in batch), type):
            if issubclass(kind, BatchedWrite):
                for writes in _pieces(list(run), MAX_STATEMENT_ROWS):
                    outcomes += _write_together(cursor, kind, writes)
            else:
                outcomes += [_write_alone(cursor, work) for work in run]
        cursor.execute("COMMIT")
        self._must_wipe |= any(queued.deletes and outcome for queued, outcome in zip(batch, outcomes, strict=True))
        if self._must_wipe and self._queue.empty():
            self._wipe(self._db)
        return outcomes

    def _wipe(self, db: apsw.Connection) -> None:
        """Truncates the log, which still has deleted content."""
        set_lock_timeout(db, 0)
        with contextlib.suppress(apsw.Error):  # a reader is active, or the disk failed; the next write tries again
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._must_wipe = False

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(apsw.Error):  # the error that caused the close is reported already
                db.close(True)

    def _send_outcomes(self, outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the outcome
            self._loop.call_soon_threadsafe(_settle, outcomes)


class _QueuedWrite(NamedTuple):
    work: Work[Any]
    deletes: bool
    future: asyncio.Future[Any]
    since: float


def _settle(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # cancelled
        if isinstance(outcome, Exception):
            future.set_exception(storage_error(outcome))
        else:
            future.set_result(outcome)


def insert_rows(cursor: apsw.Cursor, statement: str, row: str, rows: Sequence[tuple[Any, ...]], end: str = "") -> None:
    """Inserts many rows in few statements. `end` is appended to each statement."""
    for piece in _pieces(rows, MAX_STATEMENT_ROWS):
        cursor.execute(statement + ", ".join([row] * len(piece)) + end, tuple(itertools.chain.from_iterable(piece)))


def _write_together(cursor: apsw.Cursor, kind: type[BatchedWrite], writes: Sequence[Any]) -> list[Any]:
    try:
        return kind.write_batch(cursor, writes)
    except Exception:
        if not cursor.connection.in_transaction:
            raise  # SQLite rolled back the whole transaction
        return [_write_alone(cursor, work) for work in writes]


def _write_alone(cursor: apsw.Cursor, work: Work[Any]) -> Any:
    """Executes one write in a savepoint, so that its error affects no other write. Returns its result or exception."""
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


MAX_TRANSACTION_SIZE: Final = 512  # writes; a limit, so that no caller waits for ever while more are queued
MAX_STATEMENT_ROWS: Final = 64  # each number of rows is a separate statement in the statement cache
