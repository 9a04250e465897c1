"""Measures stored requests while retention deletes many old responses.

    python bench/retention.py [--stores sqlite,postgres] [--rows 1000000] [--seconds 240] [--write]

The store gets `--rows` responses of two months ago and one of today. Then the gateway starts, and with it a sweep.
Clients send requests that are stored until the sweep has ended, or for `--seconds`, and then some without a sweep.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import asyncpg  # type: ignore[import-untyped]
from bench import report, workloads
from bench.servers import Server, running
from bench.targets import Target, antiphon
from bench.workloads import Load, Workload
from msgspec import Struct

from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore

STORES: Final = ("sqlite", "postgres")
AGE: Final = 60 * 86_400  # seconds; twice the default of `retention_days`
ROWS_PER_INSERT: Final = 50_000
LOAD = Workload(
    name="retention",
    description="a short question, no stream, stored",
    model="mock-n16",
    stream=False,
    connections=8,
    requests=1000,
    body="plain",
    store=True,
)
TITLE: Final = "Retention under load"
ABOUT: Final = """\
The gateway deletes {rows:,} responses of two months ago while {connections} clients send short requests that are
stored, each as soon as the previous one is answered. The worst p99 is that of {requests:,} requests in a row. Goal:
under 100 ms.

"""


class Sweep(Struct, frozen=True, kw_only=True):
    """The figures of one store."""

    rows: int  # deleted
    seconds: float
    loads: list[Load]  # during the sweep
    calm: list[Load]  # afterwards


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    load_before = os.getloadavg()[0]
    sweeps: dict[str, Sweep] = {}
    targets: list[Target] = []
    for name in args.stores.split(","):
        with tempfile.TemporaryDirectory() as folder:
            url, count_old = _create_store(name, Path(folder), args.rows)
            target = antiphon(name, f"{name}, one process on one core, everything else on the other", store=url)
            with running([target], Path(folder)) as (server,):
                if not server.wait_until_listening():
                    raise SystemExit(f"{name} did not start. Its log ends with:\n{server.read_log()[-2000:]}")
                sweeps[name] = _measure(server, count_old, args.rows, args.seconds)
            targets.append(target)
    text = ABOUT.format(rows=args.rows, connections=LOAD.connections, requests=LOAD.requests) + _render(sweeps)
    text += "\n" + report.render_circumstances(targets, load_before)
    print(f"## {TITLE}\n\n{text}")
    if args.write:
        report.write_section(TITLE, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=240.0, help="the longest measurement of a sweep")
    parser.add_argument("--write", action="store_true", help="write the results to bench/RESULTS.md")
    return parser


def _create_store(name: str, folder: Path, rows: int) -> tuple[str, Callable[[], int]]:
    """Returns the address of a store with old responses, and a function that counts those that are left."""
    if name == "sqlite":
        path = folder / "retention.db"
        fill_sqlite(path, rows)
        return f"sqlite:///{path}", lambda: _count_sqlite(path)
    from tests.store import postgres_server

    url = postgres_server.fresh_durable_url()
    fill_postgres(url, rows)
    return url, lambda: int(postgres_server.sql(f"SELECT count(*) FROM antiphon_responses WHERE {IS_OLD}", url))


def fill_sqlite(path: Path, rows: int) -> None:
    """Creates a database with old responses and one of today."""

    async def create() -> None:
        await (await SqliteStore.open(path)).close()

    asyncio.run(create())
    with contextlib.closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA synchronous = off")
        for first in range(1, rows + 1, ROWS_PER_INSERT):
            bindings = (first, min(first + ROWS_PER_INSERT - 1, rows), int(time.time()) - AGE)
            for statement in FILL_SQLITE:
                db.execute(statement, bindings)
        now = int(time.time())
        for statement in FILL_SQLITE:
            db.execute(statement, (rows + 1, rows + 1, now))


def fill_postgres(url: str, rows: int) -> None:
    """The same in an empty database of PostgreSQL."""

    async def fill() -> None:
        await (await PostgresStore.open(url)).close()
        connection = await asyncpg.connect(url)
        for first in range(1, rows + 1, ROWS_PER_INSERT):
            last = min(first + ROWS_PER_INSERT - 1, rows)
            await connection.execute(FILL_POSTGRES, first, last, int(time.time()) - AGE, timeout=600)
        await connection.execute(FILL_POSTGRES, rows + 1, rows + 1, int(time.time()))
        await connection.execute("VACUUM ANALYZE antiphon_responses, antiphon_found_by", timeout=600)
        await connection.close()

    asyncio.run(fill())


def _count_sqlite(path: Path) -> int:
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        count: Any = db.execute(f"SELECT count(*) FROM responses WHERE {IS_OLD}").fetchall()[0][0]
        return int(count)


def _measure(server: Server, count_old: Callable[[], int], rows: int, seconds: float) -> Sweep:
    start = time.monotonic()
    loads: list[Load] = []
    left = rows
    while left and time.monotonic() - start < seconds:
        loads.append(workloads.run(server, LOAD))
        left = count_old()
        print(f"{server.target.name}: {left:,} left, p99 {loads[-1].total_us.p99 / 1000:.1f} ms", file=sys.stderr)
    elapsed = time.monotonic() - start
    calm = [] if left else [workloads.run(server, LOAD) for _ in range(5)]
    return Sweep(rows=rows - left, seconds=elapsed, loads=loads, calm=calm)


def _render(sweeps: dict[str, Sweep]) -> str:
    rows = []
    for name, sweep in sweeps.items():
        p99 = [load.total_us.p99 / 1000 for load in sweep.loads]
        rows.append(
            [
                name,
                f"{sweep.rows:,}",
                f"{sweep.seconds:.0f}",
                f"{sweep.rows / sweep.seconds:,.0f}",
                f"{sum(load.ok for load in sweep.loads) / sweep.seconds:,.0f}",
                f"{statistics.median(load.total_us.p50 for load in sweep.loads) / 1000:.1f}",
                f"{statistics.median(p99):.1f}",
                f"**{max(p99):.1f}**",
                f"{max((load.total_us.p99 for load in sweep.calm), default=float('nan')) / 1000:.1f}",
                str(sum(load.errors for load in sweep.loads)),
            ]
        )
    head = ["store", "deleted", "seconds", "deleted/s", "requests/s", "p50 ms", "p99 ms, median", "p99 ms, worst"]
    return report.render_table([*head, "p99 ms, worst without a sweep", "errors"], rows)


IS_OLD: Final = f"created_at < {int(time.time()) - AGE // 2}"
# Responses of about 1 KB with one index key each.
NUMBERS: Final = "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)"
FILL_SQLITE: Final = (
    f"INSERT INTO responses (seq, owner, id, previous, created_at, status, head) {NUMBERS} "
    "SELECT i, CAST('bench' AS BLOB), CAST('resp_' || i AS BLOB), NULL, ?3, CAST('completed' AS BLOB), "
    "zeroblob(600) FROM n",
    f"INSERT INTO turns (seq, before, input, output) {NUMBERS} SELECT i, 0, zeroblob(100), zeroblob(300) FROM n "
    "WHERE ?3 > 0",
    f"INSERT INTO found_by (owner, kind, id, seq) {NUMBERS} SELECT CAST('bench' AS BLOB), 0, "
    "CAST('msg_' || i AS BLOB), i FROM n WHERE ?3 > 0",
)
FILL_POSTGRES: Final = """
WITH saved AS (
    INSERT INTO antiphon_responses (owner, id, previous, created_at, status, head, input, output)
    SELECT 'bench', ('resp_' || i)::bytea, NULL, $3::bigint, 'completed', decode(repeat('20', 600), 'hex'),
        decode(repeat('20', 100), 'hex'), decode(repeat('20', 300), 'hex')
    FROM generate_series($1::bigint, $2::bigint) AS i
    RETURNING seq, id
)
INSERT INTO antiphon_found_by (seq, owner, kind, id) SELECT seq, 'bench', 0, sha256(id) FROM saved
"""

if __name__ == "__main__":
    sys.exit(main())
