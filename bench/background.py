"""Measures the rate of background responses, and the rate of PostgreSQL commits with and without NOTIFY.

Commits with NOTIFY limit the background responses of all gateways of one database together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import msgspec
from bench import payloads, workloads
from bench.processes import cpu_us
from bench.servers import Server
from bench.workloads import Workload
from msgspec import Struct

CLIENTS: Final = 16
MODELS: Final = {"plain": "mock-n16", "burst": "mock-n64"}
LOG_MARKER: Final = b'"BACKGROUND"'
ERROR_MARKER: Final = b'"error"'
RUN_TIMEOUT: Final = 120.0  # seconds


class BackgroundRun(Struct, frozen=True, kw_only=True):
    """The figures of one run, from the first request until the last response has ended."""

    rate: float  # responses per second
    cpu_us: float  # CPU time of the gateway per response
    database_us: float  # CPU time of the database per response
    failures: int


def run_responses(server: Server, database: int | None, name: str, count: int) -> BackgroundRun:
    """Creates `count` background responses as fast as the gateway accepts them, and waits until all have ended."""
    log_size = server.log_path.stat().st_size
    cpu_before, database_before = cpu_us(server.pid), cpu_us(database) if database else 0.0
    start = time.perf_counter()
    load = workloads.run(server, _workload(name, count))
    failures = _wait_for_log_entries(server, log_size, load.ok)
    elapsed = time.perf_counter() - start
    return BackgroundRun(
        rate=count / elapsed,
        cpu_us=(cpu_us(server.pid) - cpu_before) / count,
        database_us=(cpu_us(database) - database_before) / count if database else 0.0,
        failures=load.errors + failures,
    )


def _workload(name: str, count: int) -> Workload:
    model = MODELS[name]
    make_body = payloads.plain_body if name == "plain" else payloads.responses_body
    body = msgspec.json.decode(make_body(model, stream=False, store=True), type=dict[str, Any])
    return Workload(
        name=f"background-{name}",
        description="",
        model=model,
        stream=False,
        connections=CLIENTS,
        requests=count,
        body=msgspec.json.encode({**body, "background": True}),
        end_marker='"queued"',
    )


def _wait_for_log_entries(server: Server, log_size: int, count: int) -> int:
    """Waits until the log, after its first `log_size` bytes, has the entries of `count` background responses. Each is
    logged when its end is committed. Reading the log costs the gateway nothing. Returns how many failed."""
    deadline = time.monotonic() + RUN_TIMEOUT
    while time.monotonic() < deadline:
        with server.log_path.open("rb") as log:
            log.seek(log_size)
            entries = [line for line in log if LOG_MARKER in line]
        if len(entries) >= count:
            return sum(ERROR_MARKER in entry for entry in entries)
        time.sleep(0.01)
    raise SystemExit(f"{count} background responses have not ended after {RUN_TIMEOUT:.0f} s")


class CommitRates(Struct, frozen=True, kw_only=True):
    """Rows of 1 KB that PostgreSQL commits per second when `connections` connections only write."""

    connections: int
    without_notify: float  # one row per commit
    with_notify: float  # one row and one NOTIFY per commit
    batched_notify: float  # ROWS_PER_COMMIT rows per commit, one NOTIFY per row


def measure_commits(url: str, seconds: float = 3.0, connections: Sequence[int] = (1, 4, 16)) -> list[CommitRates]:
    """Measures the commit rates for each number of connections, while one other connection listens."""
    return [asyncio.run(_measure_commits(url, seconds, count)) for count in connections]


async def _measure_commits(url: str, seconds: float, count: int) -> CommitRates:
    listener = await asyncpg.connect(url)
    await listener.add_listener("bench", lambda *_: None)
    await listener.execute("CREATE TABLE IF NOT EXISTS bench_rows (content bytea NOT NULL)")
    writers = [await asyncpg.connect(url) for _ in range(count)]

    async def measure_rate(statement: str, rows: int) -> float:
        end = time.perf_counter() + seconds

        async def write(connection: Any) -> int:
            count = 0
            while time.perf_counter() < end:
                await connection.fetch(statement, bytes(1024))
                count += rows
            return count

        return sum(await asyncio.gather(*map(write, writers))) / seconds

    try:
        return CommitRates(
            connections=count,
            without_notify=await measure_rate(INSERT_ROW, 1),
            with_notify=await measure_rate(NOTIFY.format(INSERT_ROW), 1),
            batched_notify=await measure_rate(NOTIFY.format(INSERT_ROWS), ROWS_PER_COMMIT),
        )
    finally:
        for connection in (listener, *writers):
            await connection.close()


ROWS_PER_COMMIT: Final = 64
INSERT_ROW: Final = "INSERT INTO bench_rows VALUES ($1) RETURNING 1 AS number"
INSERT_ROWS: Final = (
    f"INSERT INTO bench_rows SELECT $1 FROM generate_series(1, {ROWS_PER_COMMIT}) "
    "RETURNING (random() * 1e9)::bigint AS number"
)
NOTIFY: Final = "WITH inserted AS ({}) SELECT pg_notify('bench', lpad(number::text, 80, 'x')) FROM inserted"
