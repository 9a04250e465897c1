"""Measures storage in SQLite and PostgreSQL: stored responses, long chains, background responses, idle WebSockets.

    python bench/store.py [--parts cost,chain,background,sockets] [--stores sqlite,postgres] [--rounds 7]
        [--share 0.1] [--against COMMIT [--sync-ms 4]] [--write]

Every round runs every workload on every store, with `store: false` and `store: true` next to each other and in reverse
order every other round. The result is the median of the ratios within a round. The CPU time of PostgreSQL is separate.

How much group commit helps depends on the time that the disk needs for a sync. With --sync-ms, every sync of the stores
takes so many milliseconds longer.
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
from collections.abc import Sequence
from pathlib import Path

from bench import background, chains, commits, report, workloads
from bench.processes import cpu_us, rss_kib
from bench.servers import Server, running, start_on_cores
from bench.store_gateways import (
    Gateway,
    Measurement,
    fresh_url,
    make_target,
    measure,
    require_listening,
    running_gateways,
)
from bench.targets import BIN, antiphon
from bench.workloads import Workload
from msgspec.structs import replace

PARTS = ("cost", "chain", "background", "sockets")
STORES = ("sqlite", "postgres", "sqlite-2", "postgres-2")
SOCKETS = 10_000
BACKGROUND_RESPONSES = 800  # fewer than the limit of queued responses
HOLD = 45.0  # seconds, longer than the interval between two pings

PLAIN = Workload(
    name="plain",
    description="a short question, no stream",
    model="mock-n16",
    stream=False,
    connections=32,
    requests=4000,
    body="plain",
)
COST_WORKLOADS = (
    PLAIN,
    replace(
        PLAIN,
        name="plain-stream",
        description="the same as a stream of 16 chunks in one write",
        stream=True,
        requests=3000,
    ),
    Workload(
        name="json", description="20 KB, no stream", model="mock-n64", stream=False, connections=32, requests=2000
    ),
    Workload(
        name="burst",
        description="20 KB, a stream of 64 chunks in one write",
        model="mock-n64",
        connections=32,
        requests=1500,
    ),
)
SOCKET_TURNS = {  # the last argument of bench.sockets
    "": "no turn",
    "stored": "after one stored turn",
    "not-stored": "after one turn that is not stored",
}
ABOUT_COST = """\
32 clients, each of which sends its next request as soon as the previous response is complete; the median of {rounds}
rounds, and their range. CPU is the CPU time of the gateway's processes per request. Goals: at least 1,500 stored plain
responses per second with SQLite and 800 with PostgreSQL; at most 1.5 × the CPU time of a response that is not stored.

"""
ABOUT_CHAIN = """\
CPU time of the gateway for turn 10 and turn 1,000 of one chain, each with a short question and a short answer, four
requests at a time. “Continued” is a stored turn with `previous_response_id`. “Sent” is the same conversation, sent as a
whole by the client and not stored. The difference between the two sent requests is the cost of the longer context.
Goal: turn 1,000 without this cost needs at most 3 × the CPU time of turn 10.

"""
ABOUT_BACKGROUND = """\
{clients} clients create {count} responses with `background: true` as fast as the gateway accepts them. Each process
runs 16 of them at a time and stores all their events. A run ends when the end of every response is committed. The
median of {rounds} rounds, and their range.

"""
ABOUT_COMPARISON = """\
{clients} clients create {count} responses with `background: true` as fast as the gateway accepts them, on the gateways
of two commits in every round. Ratios are those of one round; the median of {rounds} rounds, and their range. A sync of
this disk takes {sync_ms:.1f} ms.

"""
COMPARISON_TITLE = "Background responses against another commit"
SLOW_COMPARISON_TITLE = "Background responses against another commit, on a slower disk"
BACKGROUND_GOALS = {"sqlite": 2, "postgres": 4}  # times the rate before group commit
ABOUT_COMMITS = """
PostgreSQL serialises commits that `NOTIFY`, so notified throughput is limited per database, for all its gateways
together. Rows of 1 KB per second from connections that only write, while one connection listens, 3 s each, on the core
of the load generator:

"""
ABOUT_SOCKETS = """\
Idle clients of one process with SQLite, for {hold} s, with a ping every 30 s. Memory is resident memory. Goal: at most
400 MB.

"""


Measurements = dict[tuple[str, str, bool], list[Measurement]]  # by gateway, workload and `store`, one per round


BackgroundRuns = dict[tuple[str, str], list[background.BackgroundRun]]  # by gateway and workload, one per round


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    _raise_open_files_limit(2 * SOCKETS)
    parts, stores = args.parts.split(","), args.stores.split(",")
    if args.against:
        return _compare_background(stores, args)
    load_before = os.getloadavg()[0]
    sections: dict[str, str] = {}
    targets = [make_target(name) for name in stores]
    with tempfile.TemporaryDirectory() as folder, running_gateways(targets, Path(folder)) as gateways:
        if "cost" in parts:
            measurements = _measure_costs(gateways, args.rounds, args.share)
            sections["Stored responses"] = _render_costs(gateways, measurements, args.rounds, args.share)
        if "chain" in parts:
            single = [gateway for gateway in gateways if gateway.server.target.workers == 1]
            sections["The thousandth turn of a chain"] = _measure_chains(single, args.rounds, args.share)
        if "background" in parts:
            sections["Background responses"] = _measure_background(gateways, args.rounds, args.share)
        if "sockets" in parts:
            sections["Idle WebSockets"] = _measure_sockets(args.hold)
        circumstances = report.render_circumstances([gateway.server.target for gateway in gateways], load_before)
    for title, text in sections.items():
        text += "\n" + circumstances
        print(f"## {title}\n\n{text}")
        if args.write:
            report.write_section(title, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--stores", default=",".join(STORES), help="`-2` has two workers, on both cores")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--share", type=float, default=1.0, help="share of each workload's requests, for a quick run")
    parser.add_argument("--hold", type=float, default=HOLD, help="seconds for which idle WebSockets stay open")
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare background responses with another commit; other parts are skipped"
    )
    parser.add_argument("--sync-ms", type=float, default=0.0, help="milliseconds by which a sync takes longer")
    parser.add_argument("--write", action="store_true", help="write the results to bench/RESULTS.md")
    return parser


def _raise_open_files_limit(files: int) -> None:
    """Raises the limit of open files for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(files, hard)), hard))


# The cost of storing a response


def _measure_costs(gateways: list[Gateway], rounds: int, share: float) -> Measurements:
    measurements: Measurements = defaultdict(list)
    for gateway in gateways:
        for workload in COST_WORKLOADS:
            for store in (False, True):
                workloads.run(gateway.server, _with_store(workload, store), share=64 / workload.requests)
    for number in range(rounds):
        for workload in COST_WORKLOADS:
            for gateway in gateways[:: -1 if number % 2 else 1]:
                for store in (False, True) if number % 2 else (True, False):
                    measurement = measure(gateway, _with_store(workload, store), share)
                    measurements[gateway.name, workload.name, store].append(measurement)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return measurements


def _with_store(workload: Workload, store: bool) -> Workload:
    return replace(workload, name=f"{workload.name}-{store}", store=store)


def _render_costs(gateways: list[Gateway], measurements: Measurements, rounds: int, share: float) -> str:
    rows = []
    for gateway in gateways:
        for workload in COST_WORKLOADS:
            unstored = measurements[gateway.name, workload.name, False]
            stored = measurements[gateway.name, workload.name, True]
            rows.append(
                [
                    f"{gateway.name}, {workload.name}",
                    *(_format_median(unstored, "rate"), _format_range([one.rate for one in stored], ",.0f")),
                    *(_format_median(unstored, "cpu_us"), _format_median(stored, "cpu_us")),
                    *(
                        _format_median(stored, "database_us") if gateway.database else "",
                        _format_ratio(stored, unstored),
                    ),
                    *(
                        _format_median(unstored, "p50_ms", ".1f"),
                        _format_median(stored, "p50_ms", ".1f"),
                        _format_median(stored, "p99_ms", ".1f"),
                    ),
                    str(sum(measurement.errors for measurement in (*unstored, *stored))),
                ]
            )
    head = [
        *(
            "store, workload",
            "not stored/s",
            "stored/s",
            "CPU µs, not stored",
            "CPU µs, stored",
            "database CPU µs",
            "stored : not stored",
        ),
        *("p50 ms, not stored", "p50 ms, stored", "p99 ms, stored", "errors"),
    ]
    text = ABOUT_COST.format(rounds=rounds)
    text += "".join(
        f"- {workload.name}: {workload.description}; {workload.requests * share:,.0f} requests in a round\n"
        for workload in COST_WORKLOADS
    )
    return text + "\n" + report.render_table(head, rows)


def _format_median(measurements: list[Measurement], attribute: str, format: str = ",.0f") -> str:
    return f"{statistics.median(getattr(measurement, attribute) for measurement in measurements):{format}}"


def _format_ratio(numerators: list[Measurement], denominators: list[Measurement]) -> str:
    pairs = zip(numerators, denominators, strict=True)
    return _format_range([numerator.cpu_us / denominator.cpu_us for numerator, denominator in pairs], ".2f")


def _format_range(values: list[float], format: str) -> str:
    return f"**{statistics.median(values):{format}}** ({min(values):{format}}–{max(values):{format}})"


# The cost of a long chain


def _measure_chains(gateways: list[Gateway], rounds: int, share: float) -> str:
    rows = []
    for gateway in gateways:
        bodies = chains.create_chain(gateway.server)
        costs: dict[str, list[Measurement]] = defaultdict(list)
        for number in range(rounds + 1):  # the first round is a warm-up
            for name in chains.NAMES[:: -1 if number % 2 else 1]:
                measurement = measure(gateway, chains.chain_workload(name, bodies[name]), share)
                if number:
                    costs[name].append(measurement)
        continued_10, sent_10, continued_1000, sent_1000 = (costs[name] for name in chains.NAMES)
        ratios = [
            (long.cpu_us - (sent_long.cpu_us - sent_short.cpu_us)) / short.cpu_us
            for long, sent_long, sent_short, short in zip(continued_1000, sent_1000, sent_10, continued_10, strict=True)
        ]
        rows.append(
            [
                gateway.name,
                *(_format_median(costs, "cpu_us") for costs in (sent_10, continued_10, sent_1000, continued_1000)),
                _format_median(continued_1000, "database_us") if gateway.database else "",
                _format_ratio(continued_1000, sent_1000),
                _format_range(ratios, ".2f"),
                str(sum(measurement.errors for measurements in costs.values() for measurement in measurements)),
            ]
        )
    head = [
        *("store", "10 sent, µs", "10 continued, µs", "1,000 sent, µs", "1,000 continued, µs", "database µs, 1,000"),
        *("1,000: continued : sent", "1,000 without the context : 10", "errors"),
    ]
    return ABOUT_CHAIN + report.render_table(head, rows)


# Background responses


def _measure_background(gateways: list[Gateway], rounds: int, share: float) -> str:
    count = _background_count(share)
    runs = _run_background(gateways, rounds, count)
    text = ABOUT_BACKGROUND.format(count=count, clients=background.CLIENTS, rounds=rounds)
    text += _render_background(gateways, runs)
    return text + _measure_commits() if any(gateway.database for gateway in gateways) else text


def _background_count(share: float) -> int:
    return max(background.CLIENTS, round(BACKGROUND_RESPONSES * share))


def _run_background(gateways: list[Gateway], rounds: int, count: int) -> BackgroundRuns:
    runs: BackgroundRuns = defaultdict(list)
    for number in range(rounds + 1):  # the first round is a warm-up
        for name in background.MODELS:
            for gateway in gateways[:: -1 if number % 2 else 1]:
                run = background.run_responses(gateway.server, gateway.database, name, count)
                if number:
                    runs[gateway.name, name].append(run)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return runs


def _render_background(gateways: list[Gateway], runs: BackgroundRuns) -> str:
    rows = [
        [
            f"{gateway.name}, {name}",
            _format_range([run.rate for run in runs[gateway.name, name]], ",.0f"),
            f"{statistics.median(run.cpu_us for run in runs[gateway.name, name]):,.0f}",
            f"{statistics.median(run.database_us for run in runs[gateway.name, name]):,.0f}"
            if gateway.database
            else "",
            str(sum(run.failures for run in runs[gateway.name, name])),
        ]
        for gateway in gateways
        for name in background.MODELS
    ]
    return report.render_table(["store, workload", "responses/s", "CPU µs", "database CPU µs", "failures"], rows)


def _compare_background(stores: Sequence[str], args: argparse.Namespace) -> int:
    """Compares the rate of background responses with that of another commit, in the same rounds."""
    count, load_before = _background_count(args.share), os.getloadavg()[0]
    title = COMPARISON_TITLE
    if args.sync_ms:
        title = SLOW_COMPARISON_TITLE
        os.environ |= {"LD_PRELOAD": str(BIN / "slow_sync.so"), "SLOW_SYNC_US": f"{args.sync_ms * 1000:.0f}"}
    with commits.checked_out(args.against) as other, tempfile.TemporaryDirectory() as folder:
        checkouts = (other, commits.working_tree())
        targets = [make_target(name, checkout) for name in stores for checkout in checkouts]
        with running_gateways(targets, Path(folder)) as gateways:
            runs = _run_background(gateways, args.rounds, count)
            sync_ms = _measure_sync(Path(folder)) + args.sync_ms
            text = ABOUT_COMPARISON.format(count=count, clients=background.CLIENTS, rounds=args.rounds, sync_ms=sync_ms)
            text += _render_factors(gateways, runs) + "\n" + _render_background(gateways, runs)
            text += "\n" + report.render_circumstances(targets, load_before)
    print(f"## {title}\n\n{text}")
    if args.write:
        report.write_section(title, text)
    return 0


def _measure_sync(folder: Path) -> float:
    """The milliseconds of a sync after a write of 4 KiB, the median of 50."""
    times = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def _render_factors(gateways: list[Gateway], runs: BackgroundRuns) -> str:
    rows = []
    for before, after in zip(gateways[::2], gateways[1::2], strict=True):
        for name in background.MODELS:
            pairs = list(zip(runs[before.name, name], runs[after.name, name], strict=True))
            rates = _format_range([new.rate / old.rate for old, new in pairs], ".2f")
            costs = _format_range([new.cpu_us / old.cpu_us for old, new in pairs], ".2f")
            goal = BACKGROUND_GOALS["postgres" if after.database else "sqlite"]
            rows.append([f"{after.name}, {name}", rates, f"≥ {goal}", costs])
    return report.render_table(["store, workload", "rate : rate before", "goal", "CPU : CPU before"], rows)


def _measure_commits() -> str:
    rows = [
        [
            str(rates.connections),
            f"{rates.without_notify:,.0f}",
            f"{rates.with_notify:,.0f}",
            f"{rates.batched_notify:,.0f}",
        ]
        for rates in background.measure_commits(fresh_url())
    ]
    head = [
        "connections",
        "no `NOTIFY`",
        "`NOTIFY`, one row per commit",
        f"`NOTIFY`, {background.ROWS_PER_COMMIT} rows per commit",
    ]
    return ABOUT_COMMITS + report.render_table(head, rows)


# Idle WebSockets


def _measure_sockets(hold: float) -> str:
    rows = []
    for turn, description in SOCKET_TURNS.items():
        with tempfile.TemporaryDirectory() as folder, running([antiphon("antiphon", "")], Path(folder)) as (server,):
            require_listening(server)
            rows.append([description, *_measure_idle_sockets(server, turn, hold)])
    head = [
        f"{SOCKETS:,} WebSockets",
        "MB before",
        "MB with them",
        "KiB per WebSocket",
        "CPU of one core while idle",
        "closed",
    ]
    return ABOUT_SOCKETS.format(hold=round(hold)) + report.render_table(head, rows)


def _measure_idle_sockets(server: Server, turn: str, hold: float) -> list[str]:
    kib_before = rss_kib(server.pid)
    command = [sys.executable, "-m", "bench.sockets", str(server.port), str(SOCKETS), *([turn] if turn else [])]
    environ = {**os.environ, "BENCH_KEY": server.key}
    with start_on_cores(
        command, server.cores.load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as client:
        assert client.stdin
        assert client.stdout
        try:
            if client.stdout.readline().strip() != b"open":
                raise SystemExit("the WebSockets could not be opened")
            cpu_before = cpu_us(server.pid)
            time.sleep(hold)
            cpu_time = cpu_us(server.pid) - cpu_before
            kib_during = rss_kib(server.pid)
            client.stdin.close()
            closed_count = int(client.stdout.readline())
        finally:
            client.kill()
    kib_per_socket = (kib_during - kib_before) / SOCKETS
    return [
        *(f"{kib_before * 1.024 / 1000:.0f}", f"**{kib_during * 1.024 / 1000:.0f}**", f"{kib_per_socket:.1f}"),
        *(f"{cpu_time / hold / 1e6:.1%}", str(closed_count)),
    ]


if __name__ == "__main__":
    sys.exit(main())
