"""The reader threads of `store/sqlite/threads`: callers get the errors of their queries, and the threads continue."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import apsw
import pytest

from antiphon.errors import StorageUnavailable
from antiphon.store.sqlite.file import connect, fetch, prepare_file
from antiphon.store.sqlite.threads import READER_COUNT, ReaderThreads


def test_caller_gets_the_error_of_its_query(tmp_path: Path) -> None:
    prepare_file(tmp_path / "a.db", 10.0)
    error = KeyError("of the program")

    def fail(_: apsw.Cursor) -> None:
        raise error

    async def go() -> None:
        readers = ReaderThreads(partial(connect, tmp_path / "a.db", 10.0), asyncio.get_running_loop())
        for _ in range(READER_COUNT + 1):
            with pytest.raises(KeyError) as caught:
                await readers.run_query(fail)
            assert caught.value is error
        with pytest.raises(StorageUnavailable) as unavailable:
            await readers.run_query(lambda cursor: fetch(cursor, "SELECT * FROM missing"))
        assert isinstance(unavailable.value.__cause__, apsw.SQLError)
        assert await readers.run_query(lambda cursor: fetch(cursor, "SELECT 1")) == [(1,)]
        await readers.stop()

    asyncio.run(go())
