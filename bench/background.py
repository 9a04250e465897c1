"""Work in the background: how much of it is asked for, made and kept in a second; and how many commits a second of those who tell
others of it PostgreSQL takes, which bounds it over all gateways of one database."""

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
UNDER_WAY: Final = ("queued", "in_progress")


class Made(Struct, frozen=True, kw_only=True):
    """Some work, from the first question to the last end."""

    rate: float  # responses a second
    cpu_us: float  # of the gateway, for each
    database_us: float
    failed: int


def make(server: Server, database: int | None, name: str, count: int) -> Made:
    """Asks for so much at once as fast as it is taken, and waits until all of it has ended."""
    before, database_before = cpu_us(server.pid), cpu_us(database) if database else 0.0
    begun = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as clients:
        shares = [count // CLIENTS + (number < count % CLIENTS) for number in range(CLIENTS)]
        ids = [id for asked in clients.map(lambda share: _asked(server, name, share), shares) for id in asked]
    statuses = _ended(server, ids)
    elapsed = time.perf_counter() - begun
    return Made(
        rate=count / elapsed,
        cpu_us=(cpu_us(server.pid) - before) / count,
        database_us=(cpu_us(database) - database_before) / count if database else 0.0,
        failed=sum(status != "completed" for status in statuses),
    )


def _asked(server: Server, name: str, count: int) -> list[str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = msgspec.json.encode({**_body(name), "background": True, "store": True})
    ids = []
    for _ in range(count):
        response = _answer(server, connection, "POST", server.target.path, body)
        ids.append(response["id"])
    connection.close()
    return ids


def _body(name: str) -> dict[str, Any]:
    whole = (
        payloads.plain_body(MODELS[name], stream=False, store=True)
        if name == "plain"
        else payloads.responses_body(stream=False)
    )
    return {**msgspec.json.decode(whole, type=dict[str, Any]), "model": MODELS[name]}


def _ended(server: Server, ids: Sequence[str]) -> list[str]:
    """How each ended. The last that was asked for is looked at first: whoever it waits for is about to be done when it is."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    statuses = []
    for id in reversed(ids):
        while (status := _answer(server, connection, "GET", f"{server.target.path}/{id}")["status"]) in UNDER_WAY:
            time.sleep(0.05)
        statuses.append(status)
    connection.close()
    return statuses


def _answer(
    server: Server, connection: HTTPConnection, method: str, path: str, body: bytes | None = None
) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    told: dict[str, Any] = msgspec.json.decode(answer.read())
    if answer.status != 200:
        raise SystemExit(f"{method} {path} failed: {told}")
    return told


class Commits(Struct, frozen=True, kw_only=True):
    """What PostgreSQL takes in a second from `connections` that do nothing else."""

    connections: int
    silent: float  # rows of 1 KB, one commit each
    told: float  # the same, each of which tells whoever listens
    told_together: float  # rows, 64 in a commit, each of which is told


def commits(url: str, seconds: float = 3.0, connections: Sequence[int] = (1, 4, 16)) -> list[Commits]:
    """With one connection that listens."""
    return [asyncio.run(_commits(url, seconds, count)) for count in connections]


async def _commits(url: str, seconds: float, count: int) -> Commits:
    listener = await asyncpg.connect(url)
    await listener.add_listener("bench", lambda *_: None)
    await listener.execute("CREATE TABLE IF NOT EXISTS bench_rows (content bytea NOT NULL)")
    writers = [await asyncpg.connect(url) for _ in range(count)]

    async def rate(statement: str, rows: int) -> float:
        end = time.perf_counter() + seconds

        async def write(connection: Any) -> int:
            done = 0
            while time.perf_counter() < end:
                await connection.fetch(statement, bytes(1024))
                done += rows
            return done

        return sum(await asyncio.gather(*map(write, writers))) / seconds

    try:
        return Commits(
            connections=count,
            silent=await rate(ROW, 1),
            told=await rate(TELL.format(ROW), 1),
            told_together=await rate(TELL.format(ROWS), TOGETHER),
        )
    finally:
        for connection in (listener, *writers):
            await connection.close()


TOGETHER: Final = 64
ROW: Final = "INSERT INTO bench_rows VALUES ($1) RETURNING 1 AS number"
ROWS: Final = (
    f"INSERT INTO bench_rows SELECT $1 FROM generate_series(1, {TOGETHER}) RETURNING (random() * 1e9)::bigint AS number"
)
TELL: Final = "WITH kept AS ({}) SELECT pg_notify('bench', lpad(number::text, 80, 'x')) FROM kept"
