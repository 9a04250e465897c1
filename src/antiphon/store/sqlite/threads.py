"""The threads that access an SQLite file: one writes, with group commit, and a few read concurrently with it.

All queued writes go into one transaction. A write is acknowledged after its COMMIT has returned. The event loop is
called once for each transaction. Each call into SQLite releases the GIL and has to get it back, which is slow while the
event loop is busy. So frequent writes of one kind are executed together, and one by one only if that fails; and new
writes are queued together, when the event loop has nothing else to do, or after some milliseconds.
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
Operation = Callable[[apsw.Cursor], T]


class BatchedWrite(ABC):
    """A write that can be executed together with others of its kind."""

    def __call__(self, cursor: apsw.Cursor) -> Any:
        """Executes this write alone."""
        [outcome] = self.write_batch(cursor, [self])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @classmethod
    @abstractmethod
    def write_batch(cls, cursor: apsw.Cursor, writes: Sequence[Any]) -> list[Any]:
        """Executes all writes in a few statements, and returns the result or exception of each. If this raises, the
        transaction is undone, and each of its writes is executed alone."""


class WriterThread:
    """Executes writes in the order of `run_write`, in its own thread."""

    def __init__(
        self,
        connect: Callable[[float], apsw.Connection],
        loop: asyncio.AbstractEventLoop,
        *,
        lock_timeout: float,
        check_file: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lock_timeout` is how many seconds a write waits at most for the lock of another process. `check_file` raises
        if nothing may be written. `now` is called in any thread."""
        self._check_file = check_file
        self._now = now
        self._connect = connect
        self._loop = loop
        self._lock_timeout = lock_timeout
        self._new_writes: list[_QueuedWrite] = []  # not queued yet
        self._queue: SimpleQueue[Sequence[_QueuedWrite] | None] = SimpleQueue()
        self._db: apsw.Connection | None = None
        self._must_truncate_log = False
        self._transaction_count = 0
        self._thread_end: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._run_thread, name="antiphon-store-writer", daemon=True)
        self._thread.start()

    def run_write(self, operation: Operation[T], *, is_deletion: bool = False) -> asyncio.Future[T]:
        """Returns the result of `operation` once it is on disk. If it deletes something and its result is true, the log
        is truncated too."""
        if self._thread_end is not None:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._new_writes:
            self._loop.call_soon(self._queue_when_idle, -math.inf)
        self._new_writes.append(_QueuedWrite(operation, is_deletion, future, self._now()))
        return future

    async def stop(self) -> None:
        """Stops the thread after all queued writes are finished."""
        if self._thread_end is None:
            self._thread_end = self._loop.create_future()
            self._queue_new_writes()
            self._queue.put(None)
        await asyncio.shield(self._thread_end)

    def _queue_when_idle(self, last_pass: float) -> None:
        """Queues the new writes if the event loop did nothing else since `last_pass`, or if they have waited long
        enough; else looks again in the next pass. A busy loop has more writes soon, and shares its core or at least the
        GIL with the thread."""
        if not self._new_writes:
            return  # `stop` has queued them
        now = self._now()
        if (
            now - last_pass < IDLE_PASS_SECONDS
            or now - self._new_writes[0].queued_at >= MAX_GATHERING_SECONDS
            or len(self._new_writes) >= MAX_TRANSACTION_SIZE
        ):
            self._queue_new_writes()
        else:
            self._loop.call_soon(self._queue_when_idle, now)

    def _queue_new_writes(self) -> None:
        new_writes, self._new_writes = self._new_writes, []
        for writes in _split_sequence(new_writes, MAX_TRANSACTION_SIZE):  # none if `stop` has queued them
            self._queue.put(writes)

    # In the thread

    def _run_thread(self) -> None:
        pending_writes: list[_QueuedWrite] = []
        while self._collect_writes(pending_writes):
            pending_writes = self._write_batch(pending_writes)
        while pending_writes:
            pending_writes = self._write_batch(pending_writes)
        self._disconnect()
        assert self._thread_end is not None  # set by `stop`
        self._send_outcomes([(self._thread_end, None)])

    def _collect_writes(self, pending_writes: list[_QueuedWrite]) -> bool:
        """Moves queued writes to `pending_writes`; blocks if there is none. Returns false after `stop`."""
        try:
            queued = self._queue.get(block=not pending_writes)
            while queued is not None:
                pending_writes += queued
                if len(pending_writes) >= MAX_TRANSACTION_SIZE:
                    return True
                queued = self._queue.get_nowait()
        except Empty:
            return True
        return False

    def _write_batch(self, batch: list[_QueuedWrite]) -> list[_QueuedWrite]:
        """Executes a batch. Returns the writes that must wait for the lock of another process."""
        try:
            outcomes = self._run_transaction(batch)
        except Exception as error:
            # The callers get the error, unchanged if it is not an error of SQLite. The next batch uses a new
            # connection, which recovers from errors of this one.
            self._disconnect()
            expiry_time = self._now() - self._lock_timeout if isinstance(error, apsw.BusyError) else math.inf
            expired_writes = list(itertools.takewhile(lambda queued: queued.queued_at <= expiry_time, batch))
            self._send_outcomes([(queued.future, error) for queued in expired_writes])
            return batch[len(expired_writes) :]
        self._send_outcomes([(queued.future, outcome) for queued, outcome in zip(batch, outcomes, strict=True)])
        return []

    def _run_transaction(self, batch: list[_QueuedWrite]) -> list[Any]:
        """Returns the result or exception of each write. If this raises, nothing was written."""
        self._check_file()
        lock_timeout = batch[0].queued_at + self._lock_timeout - self._now()
        if self._db is None:
            self._db = self._connect(lock_timeout)
        set_lock_timeout(self._db, lock_timeout)
        cursor = self._db.cursor()
        operations = [queued.operation for queued in batch]
        cursor.execute("BEGIN IMMEDIATE")
        try:
            outcomes = _write_all(cursor, operations)
        except _FailedWrite as failed:
            if not self._db.in_transaction:
                raise failed.error from None  # SQLite has undone the transaction
            # Savepoints would prevent this repetition, but with one, SQLite copies each page before it changes it.
            cursor.execute("ROLLBACK")
            cursor.execute("BEGIN IMMEDIATE")
            outcomes = [_write_alone(cursor, operation) for operation in operations]
        cursor.execute("COMMIT")
        self._must_truncate_log |= any(
            queued.is_deletion and outcome for queued, outcome in zip(batch, outcomes, strict=True)
        )
        if self._must_truncate_log and self._queue.empty():
            self._truncate_log(self._db)
        if self._holds_large_statements(self._db):
            self._disconnect()  # cached statements keep their last values; the next batch opens a new connection
        return outcomes

    def _holds_large_statements(self, db: apsw.Connection) -> bool:
        """Whether cached statements need much memory. Their size is found by a walk through all of them, which takes
        longer than a small transaction, so it is looked at from time to time, and if SQLite needs much memory."""
        self._transaction_count += 1
        if self._transaction_count % MEASURED_TRANSACTIONS and apsw.memory_used() < LARGE_MEMORY:
            return False
        return db.status(apsw.SQLITE_DBSTATUS_STMT_USED)[0] > MAX_STATEMENT_BYTES

    def _truncate_log(self, db: apsw.Connection) -> None:
        """Truncates the log, which still has deleted content."""
        set_lock_timeout(db, 0)
        with contextlib.suppress(apsw.Error):  # a reader is active, or the disk failed; the next write tries again
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._must_truncate_log = False

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        _close_connection(db)

    def _send_outcomes(self, outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the outcome
            self._loop.call_soon_threadsafe(_resolve_futures, outcomes)


class _QueuedWrite(NamedTuple):
    operation: Operation[Any]
    is_deletion: bool
    future: asyncio.Future[Any]
    queued_at: float


class ReaderThreads:
    """Runs read queries in threads, a few at a time. A connection that failed is replaced."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        loop: asyncio.AbstractEventLoop,
        check_file: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_file` raises if nothing may be read."""
        self._connect = connect
        self._check_file = check_file
        self._loop = loop
        self._queue: SimpleQueue[_QueuedQuery | None] = SimpleQueue()
        self._thread_ends: list[asyncio.Future[None]] = []
        for number in range(READER_COUNT):
            threading.Thread(
                target=self._run_thread, args=(number,), name=f"antiphon-store-reader-{number}", daemon=True
            ).start()

    def run_query(self, query: Operation[T]) -> asyncio.Future[T]:
        """Runs a query and returns its result."""
        if self._thread_ends:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_QueuedQuery(query, future))
        return future

    async def stop(self) -> None:
        """Stops the threads after all queued queries are finished."""
        if not self._thread_ends:
            self._thread_ends = [self._loop.create_future() for _ in range(READER_COUNT)]
            for _ in self._thread_ends:
                self._queue.put(None)
        await asyncio.shield(asyncio.gather(*self._thread_ends))

    # In the threads

    def _run_thread(self, number: int) -> None:
        db: apsw.Connection | None = None
        while (queued := self._queue.get()) is not None:
            try:
                self._check_file()
                db = db or self._connect()
                result = queued.query(db.cursor())
            except Exception as error:  # the caller gets it, unchanged if it is not an error of SQLite
                _close_connection(db)
                db, result = None, error
            self._send_result(queued.future, result)
        _close_connection(db)
        self._send_result(self._thread_ends[number], None)

    def _send_result(self, future: asyncio.Future[Any], result: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            self._loop.call_soon_threadsafe(_resolve_futures, [(future, result)])


class _QueuedQuery(NamedTuple):
    query: Operation[Any]
    future: asyncio.Future[Any]


def _resolve_futures(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # cancelled
        if isinstance(outcome, Exception):
            future.set_exception(storage_error(outcome))
        else:
            future.set_result(outcome)


def _close_connection(db: apsw.Connection | None) -> None:
    if db is not None:
        with contextlib.suppress(apsw.Error):  # the error that caused the close is reported already
            db.close(True)


def insert_rows(
    cursor: apsw.Cursor, statement: str, row_values: str, rows: Sequence[tuple[Any, ...]], statement_end: str = ""
) -> None:
    """Inserts many rows in few statements. `statement_end` is appended to each statement."""
    for row_group in _split_sequence(rows, MAX_STATEMENT_ROWS):
        cursor.execute(
            statement + ", ".join([row_values] * len(row_group)) + statement_end,
            tuple(itertools.chain.from_iterable(row_group)),
        )


def _write_all(cursor: apsw.Cursor, operations: Sequence[Operation[Any]]) -> list[Any]:
    """Executes writes in their order, those of one kind that come one after another together. Returns the result or
    exception of each. After a `_FailedWrite` the transaction must be undone."""
    outcomes: list[Any] = []
    for kind, writes in itertools.groupby(operations, type):
        if issubclass(kind, BatchedWrite):
            for batch in _split_sequence(list(writes), MAX_STATEMENT_ROWS):
                try:
                    outcomes += kind.write_batch(cursor, batch)
                except (apsw.Error, OverflowError, ValueError) as error:  # a write has values that SQLite refuses
                    raise _FailedWrite(error) from error
        else:
            for write in writes:
                try:
                    outcomes.append(write(cursor))
                except Exception as error:  # the caller of this write gets it
                    raise _FailedWrite(error) from error
    return outcomes


class _FailedWrite(Exception):
    """A write failed, and the others of its transaction probably do not."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _write_alone(cursor: apsw.Cursor, operation: Operation[Any]) -> Any:
    """Executes one write in a savepoint, so that its error affects no other write. Returns its result or exception."""
    cursor.execute("SAVEPOINT alone")
    try:
        outcome = operation(cursor)
    except Exception as error:  # the caller of this write gets it
        if not cursor.connection.in_transaction:
            raise
        cursor.execute("ROLLBACK TO alone")
        outcome = error
    cursor.execute("RELEASE alone")
    return outcome


def _split_sequence(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (values[start : start + size] for start in range(0, len(values), size))


IDLE_PASS_SECONDS: Final = 0.0001  # a pass of the event loop that takes less does no work of a request
MAX_GATHERING_SECONDS: Final = 0.01  # for which a write waits at most until the event loop is idle
MAX_TRANSACTION_SIZE: Final = 512  # writes; a limit, so that no caller waits for ever while more are queued
MAX_STATEMENT_ROWS: Final = 64  # each number of rows is a separate statement in the statement cache
MAX_STATEMENT_BYTES: Final = 16 * 1024 * 1024  # bytes of cached statements with their values
MEASURED_TRANSACTIONS: Final = 64  # every so many transactions their size is looked at
LARGE_MEMORY: Final = 48 * 1024 * 1024  # bytes that all connections of the process use, with their page caches
READER_COUNT: Final = 2  # a long query does not delay a short one
