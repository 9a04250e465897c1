"""Measures the rate of background responses, and the rate of PostgreSQL commits with and without NOTIFY.

Commits with NOTIFY limit the background responses of all gateways of one database together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import msgspec
from bench import payloads
from bench.processes import cpu_us
from bench.servers import Server
from msgspec import Struct

CLIENTS: Final = 16
MODELS: Final = {"plain": "mock-n16", "burst": "mock-n64"}
UNFINISHED_STATUSES: Final = ("queued", "in_progress")


class BackgroundRun(Struct, frozen=True, kw_only=True):
    """The figures of one run, from the first request until the last response has ended."""

    rate: float  # responses per second
    cpu_us: float  # CPU time of the gateway per response
    database_us: float  # CPU time of the database per response
    failures: int


def run_responses(server: Server, database: int | None, name: str, count: int) -> BackgroundRun:
    """Creates `count` background responses as fast as the gateway accepts them, and waits until all have ended."""
    cpu_before, database_before = cpu_us(server.pid), cpu_us(database) if database else 0.0
    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        counts = [count // CLIENTS + (number < count % CLIENTS) for number in range(CLIENTS)]
        created = clients.map(lambda client_count: _create_responses(server, name, client_count), counts)
        ids = [id for client_ids in created for id in client_ids]
    statuses = _wait_for_ends(server, ids)
    elapsed = time.perf_counter() - start
    return BackgroundRun(
        rate=count / elapsed,
        cpu_us=(cpu_us(server.pid) - cpu_before) / count,
        database_us=(cpu_us(database) - database_before) / count if database else 0.0,
        failures=sum(status != "completed" for status in statuses),
    )


def _create_responses(server: Server, name: str, count: int) -> list[str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = msgspec.json.encode({**_body(name), "background": True, "store": True})
    ids = []
    for _ in range(count):
        response = _send_request(server, connection, "POST", server.target.path, body)
        ids.append(response["id"])
    connection.close()
    return ids


def _body(name: str) -> dict[str, Any]:
    encoded = (
        payloads.plain_body(MODELS[name], stream=False, store=True)
        if name == "plain"
        else payloads.responses_body(stream=False)
    )
    return {**msgspec.json.decode(encoded, type=dict[str, Any]), "model": MODELS[name]}


def _wait_for_ends(server: Server, ids: Sequence[str]) -> list[str]:
    """Returns the final statuses. Polls the newest response first: when it has ended, most others have ended too."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    statuses = []
    for id in reversed(ids):
        while (
            status := _send_request(server, connection, "GET", f"{server.target.path}/{id}")["status"]
        ) in UNFINISHED_STATUSES:
            time.sleep(0.05)
        statuses.append(status)
    connection.close()
    return statuses


def _send_request(
    server: Server, connection: HTTPConnection, method: str, path: str, body: bytes | None = None
) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    connection.request(method, path, body, headers)
    http_response = connection.getresponse()
    response: dict[str, Any] = msgspec.json.decode(http_response.read())
    if http_response.status != 200:
        raise SystemExit(f"{method} {path} failed: {response}")
    return response


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
