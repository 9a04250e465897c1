"""Entries that wait together are written together, and each submitter gets its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg  # type: ignore[import-untyped]
import pytest
from msgspec import Struct

from antiphon.errors import StorageUnavailable
from antiphon.store.postgres.batch_writer import MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, BatchWriter, expire_future


class Entry(Struct, frozen=True):
    row_key: str
    size: int = 1


class Database:
    """Writes the batches that it is allowed to write."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.batches: list[list[str]] = []
        self.failure: Exception | None = None

    async def write(self, entries: Sequence[Entry]) -> list[str]:
        self.batches.append([entry.row_key for entry in entries])
        await self.open.wait()
        if self.failure and any(entry.row_key == "bad" for entry in entries):
            raise self.failure
        return [f"{entry.row_key} is kept" for entry in entries]


def test_batch_writer_writes_entries_that_arrive_meanwhile_as_the_next_batch() -> None:
    async def go() -> None:
        database = Database()
        batches = BatchWriter(database.write)
        names = ["first", *map(str, range(MAX_BATCH_ENTRIES + 1)), "7", "8"]
        submissions = [asyncio.create_task(batches.submit(Entry(name))) for name in names]
        await asyncio.sleep(0)
        database.open.set()
        assert await asyncio.gather(*submissions) == [f"{name} is kept" for name in names]
        assert [len(batch) for batch in database.batches] == [
            MAX_BATCH_ENTRIES,
            4,
        ]  # all of them submitted before the first was written
        await batches.wait_until_written()
        assert await batches.submit(Entry("later")) == "later is kept"

    asyncio.run(go())


def test_batch_writer_writes_no_row_twice_in_one_batch() -> None:
    async def go() -> None:
        database = Database()
        database.open.set()
        batches = BatchWriter(database.write)
        await asyncio.gather(*(batches.submit(Entry(name)) for name in "aabba"))
        assert database.batches == [["a"], ["a", "b"], ["b", "a"]]

    asyncio.run(go())


def test_batch_writer_limits_the_bytes_of_a_batch() -> None:
    async def go() -> None:
        database = Database()
        database.open.set()
        batches = BatchWriter(database.write)
        await asyncio.gather(*(batches.submit(Entry(name, MAX_BATCH_BYTES // 2)) for name in "abcde"))
        assert database.batches == [["a", "b"], ["c", "d"], ["e"]]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("failure", "spared"), [(asyncpg.DataError("too large"), True), (asyncpg.PostgresConnectionError("gone"), False)]
)
def test_batch_writer_isolates_invalid_entries_and_fails_all_on_other_errors(failure: Exception, spared: bool) -> None:
    async def go() -> None:
        database = Database()
        database.failure = failure
        batches = BatchWriter(database.write)
        submissions = [asyncio.create_task(batches.submit(Entry(name))) for name in ("good", "bad", "left", "fine")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        submissions[2].cancel()
        database.open.set()
        outcomes = await asyncio.gather(*submissions, return_exceptions=True)
        assert isinstance(outcomes[1], StorageUnavailable)
        assert outcomes[1].__cause__ is failure
        assert isinstance(outcomes[2], asyncio.CancelledError)
        assert [isinstance(outcomes[number], str) for number in (0, 3)] == [spared, spared]

    asyncio.run(go())


def test_timeout_does_not_change_an_entry_that_was_written_in_the_same_step() -> None:
    async def go() -> None:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.set_result("written")
        expire_future(future)
        assert await future == "written"

    asyncio.run(go())
