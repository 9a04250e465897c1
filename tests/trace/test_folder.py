"""`trace/folder`: names, complete files, and deletion."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.trace.folder import remove_old_traces, trace_file_name, trace_files, write_file

DAY = 86_400.0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(folder: Path, id: str, time: float, size: int = 10) -> Path:
    write_file(folder, trace_file_name(id, time), [b"x" * (size - 1)])
    return folder / trace_file_name(id, time)


def ids(folder: Path) -> list[str]:
    return [file.id for file in trace_files(folder)]


def test_trace_names_sort_by_time_and_contain_it(tmp_path: Path) -> None:
    put(tmp_path, "req_b", 1_760_000_000.25)
    put(tmp_path, "req_a", 1_760_000_000.5)
    put(tmp_path, "req_c", 99.0)
    assert [(file.id, file.time) for file in trace_files(tmp_path)] == [
        ("req_c", 99.0),
        ("req_b", 1_760_000_000.25),
        ("req_a", 1_760_000_000.5),
    ]


def test_trace_id_cannot_escape_the_folder(tmp_path: Path) -> None:
    path = put(tmp_path, "../../etc/passwd\x00" + "x" * 500, 1.0)
    assert path.parent == tmp_path
    assert os.listdir(tmp_path) == [path.name]
    assert trace_file_name("", 1.0).endswith("-_.trace.jsonl")


def test_trace_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    path = put(tmp_path / "new" / "traces", "req_1", 1.0)
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


def test_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    put(tmp_path, "req_1", 1.0)
    assert mode(tmp_path) == 0o755


def test_incomplete_trace_is_never_listed(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"one"
        assert trace_files(tmp_path) == []
        yield b"two"

    assert write_file(tmp_path, trace_file_name("req_1", 1.0), lines()) == 8
    assert (tmp_path / trace_file_name("req_1", 1.0)).read_bytes() == b"one\ntwo\n"


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"one"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path, trace_file_name("req_1", 1.0), lines())
    assert os.listdir(tmp_path) == []


def test_remove_old_traces_deletes_the_oldest_below_the_limit(tmp_path: Path) -> None:
    for number in range(10):
        put(tmp_path, f"req_{number}", float(number), size=100)
    assert remove_old_traces(tmp_path, now=10.0, max_bytes=900, max_seconds=DAY) == 700
    assert ids(tmp_path) == [f"req_{number}" for number in range(3, 10)]
    assert remove_old_traces(tmp_path, now=10.0, max_bytes=700, max_seconds=DAY) == 700, "what fits is left alone"


def test_remove_old_traces_deletes_expired_traces(tmp_path: Path) -> None:
    put(tmp_path, "req_old", 10 * DAY)
    put(tmp_path, "req_new", 12 * DAY)
    assert remove_old_traces(tmp_path, now=13 * DAY, max_bytes=10_000, max_seconds=2 * DAY) == 10
    assert ids(tmp_path) == ["req_new"]


def test_remove_old_traces_ignores_other_files(tmp_path: Path) -> None:
    others = ["notes.txt", "20260101T000000.000000Z-x.jsonl", "20261301T000000.000000Z-x.trace.jsonl", ".other.part"]
    for name in others:
        (tmp_path / name).write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (0, 0))
    assert remove_old_traces(tmp_path, now=1e10, max_bytes=1, max_seconds=1.0) == 0
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_partial_files_are_removed_after_an_hour(tmp_path: Path) -> None:
    half = tmp_path / f".{trace_file_name('req_1', 1.0)}.123.part"
    half.write_bytes(b"half")
    os.utime(half, (10_000, 10_000))
    remove_old_traces(tmp_path, now=11_000.0, max_bytes=1000, max_seconds=DAY)
    assert half.exists(), "it may still be written"
    remove_old_traces(tmp_path, now=14_000.0, max_bytes=1000, max_seconds=DAY)
    assert not half.exists()


def test_remove_old_traces_ignores_files_removed_meanwhile(tmp_path: Path) -> None:
    (tmp_path / trace_file_name("req_1", 1.0)).symlink_to(tmp_path / "gone")
    assert remove_old_traces(tmp_path, now=2.0, max_bytes=1000, max_seconds=DAY) == 0


def test_missing_folder_has_no_traces(tmp_path: Path) -> None:
    assert trace_files(tmp_path / "none") == []
    assert remove_old_traces(tmp_path / "none", now=1.0, max_bytes=1, max_seconds=1.0) == 0
