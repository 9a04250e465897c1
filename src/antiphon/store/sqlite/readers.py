"""Threads that read an SQLite file, beside the writer and unhindered by it. A connection that met a fault is replaced."""

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
Question = Callable[[apsw.Cursor], T]


class ReaderThreads:
    """Answers questions off the event loop, a few at a time."""

    def __init__(self, connect: Callable[[], apsw.Connection], loop: asyncio.AbstractEventLoop) -> None:
        self._connect = connect
        self._loop = loop
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._ended: list[asyncio.Future[None]] = []
        for number in range(THREADS):
            threading.Thread(target=self._run, args=(number,), name=f"antiphon-store-reader-{number}", daemon=True).start()

    def run(self, question: Question[T]) -> asyncio.Future[T]:
        """What `question` finds."""
        if self._ended:
            raise StorageUnavailable("the storage is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Asked(question, future))
        return future

    async def stop(self) -> None:
        """Ends when everything that was asked has been answered."""
        if not self._ended:
            self._ended = [self._loop.create_future() for _ in range(THREADS)]
            for _ in self._ended:
                self._queue.put(None)
        await asyncio.shield(asyncio.gather(*self._ended))

    # In the threads

    def _run(self, number: int) -> None:
        db: apsw.Connection | None = None
        while (asked := self._queue.get()) is not None:
            try:
                db = db or self._connect()
                answer = asked.question(db.cursor())
            except Exception as error:
                _close(db)
                db, answer = None, storage_error(error)  # told to whoever asked
            self._tell(asked.future, answer)
        _close(db)
        self._tell(self._ended[number], None)

    def _tell(self, future: asyncio.Future[Any], answer: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it everybody who waits
            self._loop.call_soon_threadsafe(_settle, future, answer)


class _Asked(NamedTuple):
    question: Question[Any]
    future: asyncio.Future[Any]


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():
        return  # nobody waits for it any more
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _close(db: apsw.Connection | None) -> None:
    if db is not None:
        with contextlib.suppress(apsw.Error):  # what it had to say was said by what failed
            db.close(True)


THREADS: Final = 2  # so that a long chain does not keep a short answer waiting
