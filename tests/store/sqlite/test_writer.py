"""`store/sqlite/writer`: which callers get the error of a write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from antiphon.store.sqlite.file import connect, fetch, prepare_file
from antiphon.store.sqlite.writer import BatchedWrite, WriterThread


def run_with_writer(path: Path, scenario: Callable[[WriterThread], Awaitable[None]]) -> None:
    prepare_file(path, 10.0)

    async def go() -> None:
        writer = WriterThread(partial(connect, path), asyncio.get_running_loop(), lock_timeout=10.0)
        await scenario(writer)
        await writer.stop()

    asyncio.run(go())


def count_tables(cursor: apsw.Cursor) -> int:
    ((count,),) = fetch(cursor, "SELECT count(*) FROM sqlite_schema WHERE name IN ('first', 'second')")
    return int(count)


class BrokenBatch(BatchedWrite):
    """A write that works alone, and whose batch has a programming error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, cursor: apsw.Cursor) -> Any:
        cursor.execute("CREATE TABLE second (a)")

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, writes: Sequence[Any]) -> list[Any]:
        cursor.execute("CREATE TABLE first (a)")
        raise writes[0].error


def test_internal_error_of_one_write_is_handed_to_its_caller_alone(tmp_path: Path) -> None:
    error = KeyError("of the program")

    def create_first(cursor: apsw.Cursor) -> None:
        cursor.execute("CREATE TABLE first (a)")

    def create_second_and_fail(cursor: apsw.Cursor) -> None:
        cursor.execute("CREATE TABLE second (a)")
        raise error

    async def scenario(writer: WriterThread) -> None:
        writes = [writer.run_write(create_first), writer.run_write(create_second_and_fail)]
        assert await asyncio.gather(*writes, return_exceptions=True) == [None, error]
        assert await writer.run_write(count_tables) == 1

    run_with_writer(tmp_path / "a.db", scenario)


def test_internal_error_of_a_batch_is_handed_to_its_callers(tmp_path: Path) -> None:
    error = KeyError("of the program")

    async def scenario(writer: WriterThread) -> None:
        with pytest.raises(KeyError) as caught:
            await writer.run_write(BrokenBatch(error))
        assert caught.value is error
        assert await writer.run_write(count_tables) == 0

    run_with_writer(tmp_path / "a.db", scenario)
