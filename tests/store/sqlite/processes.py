"""Processes that use an SQLite file beside the test."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.store.sqlite import file as sqlite_file

HEAD = """
import asyncio, os, sys
from pathlib import Path
from antiphon.errors import AntiphonError
from antiphon.store.sqlite.store import SqliteStore
from tests.store.stores import record
path = Path(sys.argv[1])
"""


def child(code: str, *argv: object) -> subprocess.Popen[str]:
    """Another process that opens a store at `path`."""
    repo = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", HEAD + textwrap.dedent(code), *map(str, argv)]
    environ = os.environ | {"PYTHONPATH": f"{repo / 'src'}{os.pathsep}{repo}"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)


def output_of(code: str, *argv: object) -> list[str]:
    process = child(code, *argv)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.splitlines()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process holds the write lock of the file for as long."""
    process = child(
        "import apsw; db = apsw.Connection(str(path)); db.set_busy_timeout(10_000); "
        "db.execute('BEGIN IMMEDIATE'); print('held', flush=True); input()",
        path,
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate("\n", timeout=30)


def commits_in_log(path: Path) -> int:
    """The number of transactions in the log: the last page of each has the file size after it."""
    log = Path(f"{path}-wal").read_bytes()
    salt, step = log[16:24], 24 + sqlite_file.PAGE_SIZE
    heads = [log[start : start + 24] for start in range(32, len(log), step)]
    return sum(1 for head in heads if head[8:16] == salt and struct.unpack(">I", head[4:8])[0])


def path_of_new_store(path: Path) -> Path:
    sqlite_file.prepare_file(path, 1.0)
    return path
