"""What waits at the same time is written to PostgreSQL by one statement, which is one transaction and one round trip. Each is
acknowledged after the commit of its own, and one that does not fit takes no other along."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from antiphon.errors import StorageUnavailable
from antiphon.store.postgres.faults import ENTRY_ERRORS, FAILURES, storage_unavailable


class BatchEntry(Protocol):
    """What is to be written."""

    @property
    def name(self) -> Hashable:
        """Of the row: one statement cannot write a row twice."""
        ...

    @property
    def size(self) -> int:
        """In bytes, about."""
        ...


E = TypeVar("E", bound=BatchEntry)
T = TypeVar("T")


class BatchWriter(Generic[E, T]):
    """Writes one batch after the other, as long as anything waits."""

    def __init__(self, write: Callable[[Sequence[E]], Awaitable[Sequence[T]]]) -> None:
        """`write` returns what came of each, and raises what went wrong as it is."""
        self._write = write
        self._waiting: deque[_Asked[E, T]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, entry: E) -> T:
        """What came of it. It is written also when whoever asked has left."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(entry, done))
        if self._task is None:
            self._task = asyncio.create_task(self._write_what_waits())
        return await done

    async def stop(self) -> None:
        """Ends when everything that was asked has been answered."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _write_what_waits(self) -> None:
        batch: list[_Asked[E, T]] = []
        try:
            while self._waiting:
                batch = _next_batch(self._waiting)
                await self._write_batch(batch)
        finally:
            self._task = None
            # Nobody waits for a writer that fell over.
            for asked in (*batch, *self._waiting):
                if not asked.done.done():
                    asked.done.set_exception(StorageUnavailable("the response could not be kept"))
            self._waiting.clear()

    async def _write_batch(self, batch: list[_Asked[E, T]]) -> None:
        try:
            outcomes = await self._write([asked.entry for asked in batch])
        except FAILURES as error:
            if len(batch) > 1 and isinstance(error, ENTRY_ERRORS):
                for asked in batch:
                    await self._write_batch([asked])
                return
            for asked in batch:
                if not asked.done.done():
                    asked.done.set_exception(storage_unavailable(error))
        else:
            for asked, outcome in zip(batch, outcomes, strict=True):
                if not asked.done.done():  # or whoever asked has left
                    asked.done.set_result(outcome)


class _Asked(NamedTuple, Generic[E, T]):
    entry: E
    done: asyncio.Future[T]


def _next_batch(waiting: deque[_Asked[E, T]]) -> list[_Asked[E, T]]:
    """The first that wait, as many as are written at once; and no row twice."""
    batch: list[_Asked[E, T]] = []
    names: set[Hashable] = set()
    size = 0
    while waiting and len(batch) < MAX_BATCH_ENTRIES and size < MAX_BATCH_BYTES and waiting[0].entry.name not in names:
        asked = waiting.popleft()
        batch.append(asked)
        names.add(asked.entry.name)
        size += asked.entry.size
    return batch


MAX_BATCH_ENTRIES: Final = 64
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024  # once reached, nothing more is added
