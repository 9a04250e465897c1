"""Starts gateways with a store, and PostgreSQL, and measures the CPU time of both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import commits, workloads
from bench.processes import cpu_us, tree
from bench.servers import Cores, Server, running
from bench.targets import SQLITE, Target, antiphon
from bench.workloads import Workload
from msgspec import Struct


class Measurement(Struct, frozen=True, kw_only=True):
    """The figures of one gateway with one workload in one round."""

    cpu_us: float  # CPU time of the gateway per successful request
    database_us: float  # CPU time of the database per successful request
    rate: float  # responses per second
    p50_ms: float
    p99_ms: float
    errors: int


class Gateway(Struct, frozen=True):
    """A running gateway, and the process id of its database if the database is a separate process."""

    server: Server
    database: int | None

    @property
    def name(self) -> str:
        return self.server.target.name


@contextmanager
def running_gateways(targets: list[Target], folder: Path) -> Iterator[list[Gateway]]:
    database = _start_postgres() if any(map(_uses_postgres, targets)) else None
    with running(targets, folder) as servers:
        for server in servers:
            require_listening(server)
        yield [Gateway(server, database if _uses_postgres(server.target) else None) for server in servers]


def _uses_postgres(target: Target) -> bool:
    return target.name.startswith("postgres")


def require_listening(server: Server) -> None:
    if not server.wait_until_listening():
        raise SystemExit(f"{server.target.name} did not start. Its log ends with:\n{server.read_log()[-2000:]}")


def make_target(name: str, checkout: commits.Checkout | None = None) -> Target:
    """The gateway with a store; with a checkout, the gateway of that commit."""
    workers = 2 if name.endswith("-2") else 1
    cores = "one process on one core, everything else on the other" if workers == 1 else "two processes on both cores"
    if name.startswith("postgres"):
        store, description = (
            fresh_url(),
            f"PostgreSQL {_postgres_version()}, on the core of the load generator; {cores}",
        )
    else:
        store, description = SQLITE, f"SQLite; {cores}"
    if checkout is None:
        return antiphon(name, description, workers=workers, store=store)
    return antiphon(
        f"{name}-{checkout.id}",
        f"{description}; {checkout.subject}",
        workers=workers,
        store=store,
        source=checkout.source,
        commit=checkout.id,
    )


def _start_postgres() -> int:
    """Starts PostgreSQL on the core of the mock and the load generator, and returns its process id."""
    from tests.store import postgres_server

    postgres_pid = postgres_server.pid()
    for pid in tree(postgres_pid):
        with suppress(ProcessLookupError):  # the process has ended
            os.sched_setaffinity(pid, {Cores.available().load})
    return postgres_pid


def _postgres_version() -> str:
    from tests.store import postgres_server

    return postgres_server.sql("SHOW server_version")


def fresh_url() -> str:
    from tests.store import postgres_server

    return postgres_server.fresh_durable_url()


def measure(gateway: Gateway, workload: Workload, share: float) -> Measurement:
    cpu_before, database_before = cpu_us(gateway.server.pid), cpu_us(gateway.database) if gateway.database else 0.0
    load = workloads.run(gateway.server, workload, share=share)
    cpu_time = cpu_us(gateway.server.pid) - cpu_before
    database_time = cpu_us(gateway.database) - database_before if gateway.database else 0.0
    ok = load.ok or float("nan")
    return Measurement(
        cpu_us=cpu_time / ok,
        database_us=database_time / ok,
        rate=load.ok / load.elapsed,
        p50_ms=load.total_us.p50 / 1000,
        p99_ms=load.total_us.p99 / 1000,
        errors=load.errors,
    )


def database_bytes(gateway: Gateway) -> int:
    """The size of the tables of a gateway with PostgreSQL, with their indexes."""
    from tests.store import postgres_server

    url = gateway.server.target.files["antiphon.toml"].partition('url = "')[2].partition('"')[0]
    statement = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
        "WHERE relkind = 'r' AND relname LIKE 'antiphon%'"
    )
    return int(postgres_server.sql(statement, url))
