"""What memory costs: responses kept in SQLite and in PostgreSQL, long chains, work in the background, WebSockets that only wait.

    python bench/store.py [--parts cost,chain,background,sockets] [--stores sqlite,postgres] [--rounds 7] [--share 0.1] [--write]

Every round visits every store with every workload, with `store: false` and with `store: true` beside each other and the other way
round every other time. What counts is the ratio within a round, and of those the median. A database's own CPU is told apart.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import background, chains, report, workloads
from bench.processes import cpu_us, rss_kib, tree
from bench.servers import Cores, Server, pinned, running
from bench.targets import Target, antiphon
from bench.workloads import Workload
from msgspec import Struct
from msgspec.structs import replace

PARTS = ("cost", "chain", "background", "sockets")
STORES = ("sqlite", "postgres", "sqlite-2", "postgres-2")
SOCKETS = 10_000
WORK = 800  # responses in the background, at once: fewer than may wait
HOLD = 45.0  # seconds: long enough for every client to be asked for a sign of life
PATIENCE = 300.0

PLAIN = Workload(
    name="plain",
    what="a short question, no stream",
    model="mock-n16",
    stream=False,
    connections=32,
    requests=4000,
    body="plain",
)
COST = (
    PLAIN,
    replace(
        PLAIN, name="plain-stream", what="the same as a stream of 16 chunks in one write", stream=True, requests=3000
    ),
    Workload(name="json", what="20 KB, no stream", model="mock-n64", stream=False, connections=32, requests=2000),
    Workload(
        name="burst", what="20 KB, a stream of 64 chunks in one write", model="mock-n64", connections=32, requests=1500
    ),
)
ABOUT_COST = """\
32 clients, each of which asks again as soon as it is answered; the median of {rounds} rounds, and their range. CPU is that of the
gateway's processes for each request. Goals: at least 1,500 plain responses a second kept in SQLite, 800 in PostgreSQL; at most 2 ×
the CPU of not keeping.

"""
ABOUT_CHAIN = """\
CPU of the gateway for turn 10 and turn 1,000 of one chain, each a short question and a short answer, four at a time. “Continued” is
a turn with `previous_response_id` that is kept; “sent” is the same conversation sent whole by the client and not kept. What the
longer context itself costs is the difference between the two that are sent. Goal: turn 1,000 without it costs at most 3 × turn 10.

"""
ABOUT_BACKGROUND = """\
{count} responses that are asked for with `background: true` by {clients} clients, as fast as they are taken; made 16 at a time in
each process, with all their events kept; until the last has ended, and each was looked at. The median of {rounds} rounds, and
their range.

"""
ABOUT_COMMITS = """
What others must hear of bounds all gateways of one database together: PostgreSQL lets those who `NOTIFY` commit one after the
other. Rows of 1 KB a second from connections that do nothing else, while one listens, 3 s each, on the core of the load:

"""
ABOUT_SOCKETS = """\
Clients of one process that keeps responses in SQLite, for {hold} s, each asked for a sign of life every 30 s. Memory is resident.
Goal: at most 400 MB.

"""


class Visit(Struct, frozen=True, kw_only=True):
    """One server, one workload, kept or not, one round."""

    cpu_us: float  # of the gateway, for each request that was answered well
    database_us: float
    rate: float  # answers a second
    p50_ms: float
    p99_ms: float
    errors: int


Visits = dict[tuple[str, str, bool], list[Visit]]  # by server, workload and whether it is kept, one for each round


class Site(Struct, frozen=True):
    """A gateway, and the database it uses, if that is another process."""

    server: Server
    database: int | None

    @property
    def name(self) -> str:
        return self.server.target.name


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    _let_us_open(2 * SOCKETS)
    parts, stores = args.parts.split(","), args.stores.split(",")
    load_before = os.getloadavg()[0]
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, _sites(stores, Path(folder)) as sites:
        if "cost" in parts:
            found["Keeping responses"] = _cost_text(sites, _visit(sites, args.rounds, args.share), args.rounds)
        if "chain" in parts:
            alone = [site for site in sites if site.server.target.workers == 1]
            found["The thousandth turn of a chain"] = _chain_text(alone, args.rounds, args.share)
        if "background" in parts:
            found["Work in the background"] = _background_text(sites, args.rounds, args.share)
        if "sockets" in parts:
            found["WebSockets that only wait"] = _sockets_text(args.hold)
        circumstances = report.circumstances([site.server.target for site in sites], load_before)
    for title, text in found.items():
        text += "\n" + circumstances
        print(f"## {title}\n\n{text}")
        if args.write:
            report.write_section(title, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--stores", default=",".join(STORES), help="`-2`: with two workers, on both cores")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--share", type=float, default=1.0, help="of the requests of each workload, for a quick look")
    parser.add_argument("--hold", type=float, default=HOLD, help="seconds for which idle WebSockets are held")
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    return parser


def _let_us_open(files: int) -> None:
    """For us and all that is started here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(files, hard)), hard))


# What is measured


@contextmanager
def _sites(stores: Sequence[str], folder: Path) -> Iterator[list[Site]]:
    database = _postgres() if any(name.startswith("postgres") for name in stores) else None
    targets = [_target(name, _fresh_url() if name.startswith("postgres") else "") for name in stores]
    with running(targets, folder) as servers:
        for server in servers:
            if not server.wait_until_it_listens():
                said = (server.folder / "output.log").read_text(errors="replace")[-2000:]
                raise SystemExit(f"{server.target.name} did not start; it said:\n{said}")
        yield [Site(server, database if server.target.name.startswith("postgres") else None) for server in servers]


def _target(name: str, url: str) -> Target:
    workers = 2 if name.endswith("-2") else 1
    where = "one process on one core, everything else on the other" if workers == 1 else "two processes on both cores"
    if not url:
        return antiphon(name, f"SQLite; {where}", workers=workers)
    return antiphon(
        name, f"PostgreSQL {_postgres_version()}, on the core of the load; {where}", workers=workers, store=url
    )


def _postgres() -> int:
    """The pid of a PostgreSQL, which shares the core of the mock and the load generator."""
    from tests.store import postgres_server

    pid = postgres_server.pid()
    for member in tree(pid):
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.sched_setaffinity(member, {Cores.here().load})
    return pid


def _postgres_version() -> str:
    from tests.store import postgres_server

    return postgres_server.sql("SHOW server_version")


def _fresh_url() -> str:
    from tests.store import postgres_server

    return postgres_server.fresh_url()


# What keeping costs


def _visit(sites: list[Site], rounds: int, share: float) -> Visits:
    visits: Visits = defaultdict(list)
    for site in sites:
        for workload in COST:
            for store in (False, True):
                workloads.run(site.server, _kept(workload, store), share=64 / workload.requests)
    for number in range(rounds):
        for workload in COST:
            for site in sites[:: -1 if number % 2 else 1]:
                for store in (False, True) if number % 2 else (True, False):
                    visits[site.name, workload.name, store].append(_measured(site, _kept(workload, store), share))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return visits


def _kept(workload: Workload, store: bool) -> Workload:
    return replace(workload, name=f"{workload.name}-{store}", store=store)


def _measured(site: Site, workload: Workload, share: float = 1.0) -> Visit:
    before, database_before = cpu_us(site.server.pid), cpu_us(site.database) if site.database else 0.0
    load = workloads.run(site.server, workload, share=share)
    spent = cpu_us(site.server.pid) - before
    database = cpu_us(site.database) - database_before if site.database else 0.0
    ok = load.ok or float("nan")
    return Visit(
        cpu_us=spent / ok,
        database_us=database / ok,
        rate=load.ok / load.elapsed,
        p50_ms=load.total_us.p50 / 1000,
        p99_ms=load.total_us.p99 / 1000,
        errors=load.errors,
    )


def _cost_text(sites: list[Site], visits: Visits, rounds: int) -> str:
    rows = []
    for site in sites:
        for workload in COST:
            without, kept = visits[site.name, workload.name, False], visits[site.name, workload.name, True]
            rows.append(
                [
                    f"{site.name}, {workload.name}",
                    *(_middle(without, "rate"), _with_range([visit.rate for visit in kept], ",.0f")),
                    *(_middle(without, "cpu_us"), _middle(kept, "cpu_us")),
                    *(_middle(kept, "database_us") if site.database else "", _ratio(kept, without)),
                    *(
                        _middle(without, "p50_ms", ".1f"),
                        _middle(kept, "p50_ms", ".1f"),
                        _middle(kept, "p99_ms", ".1f"),
                    ),
                    str(sum(visit.errors for visit in (*without, *kept))),
                ]
            )
    head = [
        *(
            "store, workload",
            "not kept/s",
            "kept/s",
            "CPU µs, not kept",
            "CPU µs, kept",
            "database's CPU µs",
            "kept : not kept",
        ),
        *("p50 ms, not kept", "p50 ms, kept", "p99 ms, kept", "errors"),
    ]
    text = ABOUT_COST.format(rounds=rounds)
    text += "".join(f"- {workload.name}: {workload.what}\n" for workload in COST)
    return text + "\n" + report.table(head, rows)


def _middle(visits: list[Visit], name: str, form: str = ",.0f") -> str:
    return f"{statistics.median(getattr(visit, name) for visit in visits):{form}}"


def _ratio(above: list[Visit], below: list[Visit]) -> str:
    return _with_range([one.cpu_us / other.cpu_us for one, other in zip(above, below, strict=True)], ".2f")


def _with_range(values: list[float], form: str) -> str:
    return f"**{statistics.median(values):{form}}** ({min(values):{form}}–{max(values):{form}})"


# What the length of a chain costs


def _chain_text(sites: list[Site], rounds: int, share: float) -> str:
    rows = []
    for site in sites:
        bodies = chains.bodies(site.server)
        costs: dict[str, list[Visit]] = defaultdict(list)
        for number in range(rounds + 1):  # the first is not counted
            for name in chains.NAMES[:: -1 if number % 2 else 1]:
                visit = _measured(site, chains.workload(name, bodies[name]), share)
                if number:
                    costs[name].append(visit)
        turn_10, sent_10, turn_1000, sent_1000 = (costs[name] for name in chains.NAMES)
        ratios = [
            (long.cpu_us - (sent_long.cpu_us - sent.cpu_us)) / short.cpu_us
            for long, sent_long, sent, short in zip(turn_1000, sent_1000, sent_10, turn_10, strict=True)
        ]
        rows.append(
            [
                site.name,
                *(_middle(visits, "cpu_us") for visits in (sent_10, turn_10, sent_1000, turn_1000)),
                *(_middle(turn_1000, "database_us") if site.database else "", _ratio(turn_1000, sent_1000)),
                _with_range(ratios, ".2f"),
                str(sum(visit.errors for visits in costs.values() for visit in visits)),
            ]
        )
    head = [
        *("store", "10 sent, µs", "10 continued, µs", "1,000 sent, µs", "1,000 continued, µs", "database's µs, 1,000"),
        *("1,000: continued : sent", "1,000 without the context : 10", "errors"),
    ]
    return ABOUT_CHAIN + report.table(head, rows)


# Work in the background


def _background_text(sites: list[Site], rounds: int, share: float) -> str:
    count = max(background.CLIENTS, round(WORK * share))
    made: dict[tuple[str, str], list[background.Made]] = defaultdict(list)
    for number in range(rounds + 1):  # the first is not counted
        for site in sites[:: -1 if number % 2 else 1]:
            for name in background.MODELS:
                one = background.make(site.server, site.database, name, count)
                if number:
                    made[site.name, name].append(one)
    rows = [
        [
            f"{site.name}, {name}",
            _with_range([one.rate for one in made[site.name, name]], ",.0f"),
            f"{statistics.median(one.cpu_us for one in made[site.name, name]):,.0f}",
            f"{statistics.median(one.database_us for one in made[site.name, name]):,.0f}" if site.database else "",
            str(sum(one.failed for one in made[site.name, name])),
        ]
        for site in sites
        for name in background.MODELS
    ]
    head = ["store, workload", "made/s", "CPU µs", "database's CPU µs", "failed"]
    text = ABOUT_BACKGROUND.format(count=count, clients=background.CLIENTS, rounds=rounds) + report.table(head, rows)
    return text + _commits_text() if any(site.database for site in sites) else text


def _commits_text() -> str:
    found = background.commits(_fresh_url())
    rows = [
        [str(one.connections), f"{one.silent:,.0f}", f"{one.told:,.0f}", f"{one.told_together:,.0f}"] for one in found
    ]
    head = ["connections", "told nobody", "told, one a commit", f"told, {background.TOGETHER} a commit"]
    return ABOUT_COMMITS + report.table(head, rows)


# WebSockets that only wait


def _sockets_text(hold: float) -> str:
    rows = []
    for what in ("", "kept", "forgotten"):
        with tempfile.TemporaryDirectory() as folder, running([antiphon("antiphon", "")], Path(folder)) as (server,):
            if not server.wait_until_it_listens():
                raise SystemExit("antiphon did not start")
            rows.append([f"after one turn, {what}" if what else "opened", *_waiting(server, what, hold)])
    head = [
        f"{SOCKETS:,} WebSockets",
        "MB before",
        "MB with them",
        "KiB each",
        "CPU of one core while they wait",
        "gone meanwhile",
    ]
    return ABOUT_SOCKETS.format(hold=round(hold)) + report.table(head, rows)


def _waiting(server: Server, what: str, hold: float) -> list[str]:
    before = rss_kib(server.pid)
    command = [sys.executable, "-m", "bench.sockets", str(server.port), str(SOCKETS), *([what] if what else [])]
    environ = {**os.environ, "BENCH_KEY": server.key}
    with pinned(command, server.cores.load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as client:
        assert client.stdin
        assert client.stdout
        try:
            told = client.stdout.readline()
            if told.strip() != b"open":
                raise SystemExit("the WebSockets could not be opened")
            begun = cpu_us(server.pid)
            time.sleep(hold)
            spent = cpu_us(server.pid) - begun
            during = rss_kib(server.pid)
            client.stdin.close()
            gone = int(client.stdout.readline())
        finally:
            client.kill()
    each = (during - before) / SOCKETS
    return [
        *(f"{before * 1.024 / 1000:.0f}", f"**{during * 1.024 / 1000:.0f}**", f"{each:.1f}"),
        *(f"{spent / hold / 1e6:.1%}", str(gone)),
    ]


if __name__ == "__main__":
    sys.exit(main())
