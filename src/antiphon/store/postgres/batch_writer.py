"""Writes queued entries to PostgreSQL together, in one statement, which is one transaction and one round trip. An
entry is acknowledged after its commit. An entry that fails does not affect the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from antiphon.errors import StorageUnavailable
from antiphon.store.postgres.connections import extra_seconds
from antiphon.store.postgres.faults import ENTRY_ERRORS, FAILURES, storage_unavailable


class BatchEntry(Protocol):
    """An entry that is to be written."""

    @property
    def row_key(self) -> Hashable:
        """Identifies the row: one statement cannot write a row twice."""
        ...

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        ...


E = TypeVar("E", bound=BatchEntry)
T = TypeVar("T")


class BatchWriter(Generic[E, T]):
    """Writes one batch after the other while entries are queued."""

    def __init__(self, write: Callable[[Sequence[E]], Awaitable[Sequence[T]]], *, timeout: float | None = None) -> None:
        """`write` returns the result of each entry. It raises errors of PostgreSQL unchanged. `timeout` is how many
        seconds a caller waits, also for the batches before its own; a large entry has more time."""
        self._timeout = timeout
        self._write_entries = write
        self._queue: deque[_QueuedEntry[E, T]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, entry: E) -> T:
        """Writes an entry and returns its result. It is written even if the caller is cancelled or waits too long."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append(_QueuedEntry(entry, future))
        if self._task is None:
            self._task = loop.create_task(self._drain_queue())
        if self._timeout is None:
            return await future
        # A timer costs less than `asyncio.timeout`, and this runs for every response.
        timer = loop.call_later(self._timeout + extra_seconds(entry.size), expire_future, future)
        try:
            return await future
        finally:
            timer.cancel()

    async def wait_until_written(self) -> None:
        """Waits until all entries are written."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _drain_queue(self) -> None:
        batch: list[_QueuedEntry[E, T]] = []
        try:
            while self._queue:
                batch = _take_batch(self._queue)
                await self._write_batch(batch)
        finally:
            self._task = None
            # If the writer failed, no caller may wait for ever.
            for queued in (*batch, *self._queue):
                if not queued.future.done():
                    queued.future.set_exception(StorageUnavailable("the response could not be stored"))
            self._queue.clear()

    async def _write_batch(self, batch: list[_QueuedEntry[E, T]]) -> None:
        try:
            outcomes = await self._write_entries([queued.entry for queued in batch])
        except FAILURES as error:
            if len(batch) > 1 and isinstance(error, ENTRY_ERRORS):
                for queued in batch:
                    await self._write_batch([queued])
                return
            for queued in batch:
                if not queued.future.done():
                    queued.future.set_exception(storage_unavailable(error))
        else:
            for queued, outcome in zip(batch, outcomes, strict=True):
                if not queued.future.done():  # else the caller was cancelled
                    queued.future.set_result(outcome)


def expire_future(future: asyncio.Future[Any]) -> None:
    """Fails an entry that has waited too long, unless it was written in the same step of the event loop."""
    if not future.done():
        future.set_exception(storage_unavailable(TimeoutError()))


class _QueuedEntry(NamedTuple, Generic[E, T]):
    entry: E
    future: asyncio.Future[T]


def _take_batch(queue: deque[_QueuedEntry[E, T]]) -> list[_QueuedEntry[E, T]]:
    """Takes the first queued entries, up to the limits, without two entries of one row."""
    batch: list[_QueuedEntry[E, T]] = []
    row_keys: set[Hashable] = set()
    size = 0
    while (
        queue and len(batch) < MAX_BATCH_ENTRIES and size < MAX_BATCH_BYTES and queue[0].entry.row_key not in row_keys
    ):
        queued = queue.popleft()
        batch.append(queued)
        row_keys.add(queued.entry.row_key)
        size += queued.entry.size
    return batch


MAX_BATCH_ENTRIES: Final = 64
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024  # a batch that has reached this gets no more entries
