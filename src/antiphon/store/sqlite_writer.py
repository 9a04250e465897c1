"""The one thread that writes to an SQLite file. Everything that waits when it comes by is one transaction: one write to the disk.

What was asked is acknowledged when its COMMIT has returned, and never before. The event loop is told once for each transaction.
Every call into SQLite lets go of the interpreter and must wait for it afterwards, which a busy event loop makes long; so the
responses of a transaction go in together, and one by one only if that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar, cast

import apsw
from msgspec import Struct

from antiphon.errors import StorageUnavailable
from antiphon.store.sqlite_file import fault, wait_for

T = TypeVar("T")
Work = Callable[[apsw.Cursor], T]


class Save(Struct, frozen=True):
    """A response as a row, and the kinds and ids that it can be found by. Called, it takes the place of an earlier one."""

    row: tuple[bytes, bytes, bytes | None, int, bytes, bytes, bytes, bytes]
    keys: tuple[tuple[int, bytes], ...]

    def __call__(self, cursor: apsw.Cursor) -> None:
        seq = cursor.execute(REPLACE, self.row).fetchall()[0][0]
        cursor.execute("DELETE FROM found_by WHERE seq = ?", (seq,))
        _insert(cursor, FIND, FIND_ROW, [(self.row[0], *key, seq) for key in self.keys])


class Writer:
    """Does what it is asked, in that order, off the event loop."""

    def __init__(self, connect: Callable[[float], apsw.Connection], loop: asyncio.AbstractEventLoop, *, patience: float) -> None:
        """`patience` is how many seconds anything that is asked waits at most while another process holds the file."""
        self._connect = connect
        self._loop = loop
        self._patience = patience
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._db: apsw.Connection | None = None
        self._must_wipe = False
        self._ended: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="antiphon-store-writer", daemon=True)
        self._thread.start()

    def ask(self, work: Work[T]) -> asyncio.Future[T]:
        """What `work` returns, once it is on disk."""
        if self._ended is not None:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Asked(work, future, time.monotonic()))
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
            end = time.monotonic() - self._patience if isinstance(error, apsw.BusyError) else math.inf
            late = list(itertools.takewhile(lambda asked: asked.since <= end, batch))
            self._tell([(asked.future, error) for asked in late])
            return batch[len(late) :]
        self._tell([(asked.future, outcome) for asked, outcome in zip(batch, outcomes, strict=True)])
        return []

    def _transact(self, batch: list[_Asked]) -> list[Any]:
        """What came of each, a value or an exception. If this raises, nothing of it was written."""
        patience = batch[0].since + self._patience - time.monotonic()
        if self._db is None:
            self._db = self._connect(patience)
        wait_for(self._db, patience)
        cursor = self._db.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        outcomes: list[Any] = []
        for kind, run in itertools.groupby((asked.work for asked in batch), type):
            if kind is Save:
                for saves in _pieces(cast(list[Save], list(run)), ROWS):
                    outcomes += _save_together(cursor, saves)
            else:
                done = [_alone(cursor, work) for work in run]
                self._must_wipe |= any(done)  # they say whether there was anything to delete
                outcomes += done
        cursor.execute("COMMIT")
        if self._must_wipe and self._queue.empty():
            self._wipe(self._db)
        return outcomes

    def _wipe(self, db: apsw.Connection) -> None:
        """What was deleted is still in the log, until that is written back and emptied."""
        wait_for(db, 0)
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
    future: asyncio.Future[Any]
    since: float


def _settle(told: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in told:
        if future.done():
            continue  # nobody waits for it any more
        if isinstance(outcome, Exception):
            future.set_exception(fault(outcome))
        else:
            future.set_result(outcome)


def _save_together(cursor: apsw.Cursor, saves: Sequence[Save]) -> list[Any]:
    """All of them in two statements. If that fails, each by itself: most often one of them takes the place of another."""
    try:
        _insert(cursor, NEW, NEW_ROW, [save.row for save in saves])
        # They were given numbers that follow each other, since nobody else writes meanwhile.
        first = cursor.connection.last_insert_rowid() - len(saves) + 1
        keys = [(save.row[0], *key, seq) for seq, save in enumerate(saves, first) for key in save.keys]
        _insert(cursor, FIND, FIND_ROW, keys)
    except Exception:
        if not cursor.connection.in_transaction:
            raise  # SQLite has taken back everything before this as well
        return [_alone(cursor, save) for save in saves]
    return [None] * len(saves)


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


def _insert(cursor: apsw.Cursor, statement: str, row: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for piece in _pieces(rows, ROWS):
        cursor.execute(statement + ", ".join([row] * len(piece)), tuple(itertools.chain.from_iterable(piece)))


def _pieces(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


AT_ONCE: Final = 512  # in one transaction, so that nobody waits for ever while more is asked
ROWS: Final = 64  # in one statement; each number of rows is a statement of its own, which the connection keeps
COLUMNS: Final = ("previous", "created_at", "status", "input", "output", "head")
NEW: Final = f"INSERT INTO responses (owner, id, {', '.join(COLUMNS)}) VALUES "
NEW_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"
REPLACE: Final = (
    f"{NEW}{NEW_ROW} ON CONFLICT (owner, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in COLUMNS)
    + " RETURNING seq"
)
FIND: Final = "INSERT OR IGNORE INTO found_by (owner, kind, id, seq) VALUES "
FIND_ROW: Final = "(?, ?, ?, ?)"
