"""The trace folder: file names, atomic writes, and removal of old files.

Only files with the name of a trace are counted or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple


class TraceFile(NamedTuple):
    """A file with the name of a trace; sorts by time."""

    time: float
    id: str
    path: Path


def trace_file_name(id: str, time: float) -> str:
    """A file name that sorts by time. The id may come from a client, so it is sanitized."""
    stamp = datetime.fromtimestamp(time, UTC).strftime(TIME_FORMAT)
    return f"{stamp}-{file_id(id)}{TRACE_SUFFIX}"


def file_id(id: str) -> str:
    """An id with all unsafe characters replaced."""
    return UNSAFE_CHARACTER.sub("_", id)[:100] or "_"


def trace_files(folder: Path) -> list[TraceFile]:
    """Every trace in the folder, oldest first; none if there is no such folder."""
    return sorted(_trace_files(folder))


def write_file(folder: Path, name: str, lines: Iterable[bytes]) -> int:
    """Writes a private file atomically. Returns its size."""
    # An existing folder keeps its mode: others may use it.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part_path = folder / f".{name}.{os.getpid()}{PART_SUFFIX}"
    try:
        with open(os.open(part_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for line in lines:
                file.write(line)
                file.write(b"\n")
            size = file.tell()
        os.replace(part_path, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            part_path.unlink()
        raise
    return size


def remove_old_traces(folder: Path, *, now: float, max_bytes: int, max_seconds: float) -> int:
    """Removes traces that are too old, then the oldest ones above the size limit. Returns the remaining bytes.

    Above the limit, removes down to 7/8 of it, so that the next trace does not trigger another sweep.
    """
    files = [(file, size) for file in trace_files(folder) if (size := _file_size(file.path)) is not None]
    total = sum(size for _, size in files)
    target = max_bytes - max_bytes // 8 if total > max_bytes else max_bytes
    for file, size in files:
        if file.time < now - max_seconds or total > target:
            with contextlib.suppress(FileNotFoundError):  # another worker removed it
                file.path.unlink()
            total -= size
    _remove_leftovers(folder, now)
    return total


def _trace_files(folder: Path) -> Iterator[TraceFile]:
    for name in _file_names(folder):
        if match := TRACE_FILE_NAME.fullmatch(name):
            with contextlib.suppress(ValueError):  # digits that are not a time
                time = datetime.strptime(match["stamp"], TIME_FORMAT).replace(tzinfo=UTC).timestamp()
                yield TraceFile(time, match["id"], folder / name)


def _file_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _remove_leftovers(folder: Path, now: float) -> None:
    """Removes partial files of writers that died."""
    for name in _file_names(folder):
        if name.endswith(PART_SUFFIX) and TRACE_FILE_NAME.match(name[1:]):
            with contextlib.suppress(FileNotFoundError):
                path = folder / name
                if path.stat().st_mtime < now - MAX_PART_FILE_AGE:
                    path.unlink()


TRACE_SUFFIX: Final = ".trace.jsonl"
PART_SUFFIX: Final = ".part"
TIME_FORMAT: Final = "%Y%m%dT%H%M%S.%fZ"
UNSAFE_CHARACTER: Final = re.compile("[^A-Za-z0-9_-]")
TRACE_FILE_NAME: Final = re.compile(r"(?P<stamp>\d{8}T\d{6}\.\d{6}Z)-(?P<id>[A-Za-z0-9_-]{1,100})\.trace\.jsonl")
MAX_PART_FILE_AGE: Final = 3600.0
