"""Threads that read an SQLite file, concurrently with the writer. A connection that failed is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

import apsw

from antiphon.errors import StorageUnavailable
from antiphon.store.sqlite.file import storage_error

T = TypeVar("T")
Query = Callable[[apsw.Cursor], T]


class ReaderThreads:
    """Runs read queries in threads, a few at a time."""

    def __init__(self, connect: Callable[[], apsw.Connection], loop: asyncio.AbstractEventLoop) -> None:
        self._connect = connect
        self._loop = loop
        self._queue: SimpleQueue[_QueuedQuery | None] = SimpleQueue()
        self._thread_ends: list[asyncio.Future[None]] = []
        for number in range(THREAD_COUNT):
            threading.Thread(
                target=self._run_thread, args=(number,), name=f"antiphon-store-reader-{number}", daemon=True
            ).start()

    def run_query(self, query: Query[T]) -> asyncio.Future[T]:
        """Runs a query and returns its result."""
        if self._thread_ends:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_QueuedQuery(query, future))
        return future

    async def stop(self) -> None:
        """Stops the threads after all queued queries are finished."""
        if not self._thread_ends:
            self._thread_ends = [self._loop.create_future() for _ in range(THREAD_COUNT)]
            for _ in self._thread_ends:
                self._queue.put(None)
        await asyncio.shield(asyncio.gather(*self._thread_ends))

    # In the threads

    def _run_thread(self, number: int) -> None:
        db: apsw.Connection | None = None
        while (queued := self._queue.get()) is not None:
            try:
                db = db or self._connect()
                result = queued.query(db.cursor())
            except Exception as error:  # the caller gets it, unchanged if it is not an error of SQLite
                _close_connection(db)
                db, result = None, storage_error(error)
            self._send_result(queued.future, result)
        _close_connection(db)
        self._send_result(self._thread_ends[number], None)

    def _send_result(self, future: asyncio.Future[Any], result: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            self._loop.call_soon_threadsafe(_resolve_future, future, result)


class _QueuedQuery(NamedTuple):
    query: Query[Any]
    future: asyncio.Future[Any]


def _resolve_future(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return  # cancelled
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _close_connection(db: apsw.Connection | None) -> None:
    if db is not None:
        with contextlib.suppress(apsw.Error):  # the error that caused the close is reported already
            db.close(True)


THREAD_COUNT: Final = 2  # a long query does not delay a short one
