"""`store/sqlite/file_watch`: a file that is deleted, replaced or truncated under an open store is noticed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.stores import record

from antiphon.errors import StorageUnavailable
from antiphon.store.sqlite.file import prepare_file
from antiphon.store.sqlite.file_watch import FileWatch
from antiphon.store.sqlite.store import SqliteStore


def replace_file(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)


def make_unreadable(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "was deleted"),
    (replace_file, "was replaced"),
    (lambda path: os.truncate(path, 0), "was truncated"),
    (lambda path: os.truncate(path, 20), "was truncated"),
    (lambda path: path.write_bytes(b"x" * 10_000), "was truncated"),
    (make_unreadable, "cannot be read"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_store_refuses_reads_and_writes_after_damage(
    tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    path = tmp_path / "a.db"

    async def go() -> None:
        store = await SqliteStore.open(path)
        await store.save("anna", record("resp_1"), [], [])
        assert await store.health() is None
        damage(path)
        problem = await store.health()
        assert problem is not None
        assert words in problem
        for question in (store.get("anna", "resp_1"), store.save("anna", record("resp_2"), [], [])):
            with pytest.raises(StorageUnavailable, match=words):
                await question
        await store.close()

    asyncio.run(go())


def test_check_looks_at_the_file_twice_a_second(tmp_path: Path) -> None:
    path, now = tmp_path / "a.db", [100.0]
    prepare_file(path, 1.0)
    watch = FileWatch(path, lambda: now[0])
    path.rename(tmp_path / "b.db")
    now[0] += 0.4
    watch.check()
    now[0] += 0.1
    with pytest.raises(StorageUnavailable, match="was deleted"):
        watch.check()
    (tmp_path / "b.db").rename(path)
    now[0] += 0.5
    watch.check()


def test_shorter_file_is_a_problem_after_the_time_of_a_checkpoint(tmp_path: Path) -> None:
    path, now = tmp_path / "a.db", [100.0]
    prepare_file(path, 1.0)
    size = path.stat().st_size
    watch = FileWatch(path, lambda: now[0])
    os.truncate(path, size - 4096)
    assert watch.look() is None
    os.truncate(path, size)
    now[0] += 10
    assert watch.look() is None
    os.truncate(path, size - 4096)
    assert watch.look() is None
    now[0] += 2.0  # an idle store is checked so often: it is noticed by the second check, within 5 s
    assert "was truncated" in str(watch.look())


def test_size_of_large_pages_is_read_from_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    header = bytearray(b"SQLite format 3\0".ljust(32, b"\0"))
    header[16:18] = (1).to_bytes(2, "big")
    header[28:32] = (2).to_bytes(4, "big")
    path.write_bytes(header.ljust(131_072, b"\0"))
    watch = FileWatch(path, lambda: 0.0)
    assert watch.look() is None
    os.truncate(path, 131_071)
    watch.look()
    assert watch._short_since == 0.0
