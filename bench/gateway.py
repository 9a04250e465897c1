"""Measures the CPU time of a gateway's process tree per request, compared with nginx and a typical Python stack.

    python bench/gateway.py [--peers | --dialects | --against COMMIT] [--rounds 7] [--targets a,b] [--workloads a,b]
        [--share 0.1] [--write]

Every round runs every workload on every target, in reverse order every other round, so that other load on the machine
affects all targets alike. The result is the median of the ratios to the first target in the same round: to nginx, to
the gateway with a chat server (--dialects), or to the other commit (--against). With --against, every round starts both
gateways anew, because two processes of the same code differ by up to 5 %.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from bench import commits, report, workloads
from bench.processes import cpu_us, rss_kib
from bench.servers import Server, running
from bench.targets import CORE, DIALECTS, OMITTED_GATEWAYS, PEERS, TARGETS, Target, antiphon
from bench.workloads import WORKLOADS, Workload
from msgspec import Struct

ANTIPHON = "antiphon"
NAIVE = "naive"
SLOW_WORKLOADS = ("paced-200",)  # some other gateways need a minute for them


class Measurement(Struct, frozen=True):
    """The figures of one target with one workload in one round."""

    cpu_us: float  # per successful request; NaN if there was none
    errors: int


class Comparison(Struct, frozen=True, kw_only=True):
    """The targets and workloads of one run. The other targets are compared with the first one."""

    title: str  # title of the section in the results
    targets: list[Target]
    workloads: list[str]
    stream_goal: float | None = None  # goal for the ratio of every stream, instead of the goals of the workloads
    has_goals: bool = True
    has_restarts: bool = False  # whether every round starts the targets anew
    note: str = ""


Measurements = dict[tuple[str, str], list[Measurement]]  # by target and workload, one per round


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    with commits.checked_out(args.against) if args.against else nullcontext() as other:
        comparison = _commit_comparison(other) if other is not None else _chosen_comparison(args)
        return _compare(comparison, args)


def _chosen_comparison(args: argparse.Namespace) -> Comparison:
    return PEER_COMPARISON if args.peers else DIALECT_COMPARISON if args.dialects else GATEWAY_COMPARISON


def _commit_comparison(other: commits.Checkout) -> Comparison:
    current = commits.working_tree()
    return Comparison(
        title="Against another commit",
        targets=[
            antiphon(f"antiphon-{other.id}", other.subject, source=other.source, commit=other.id),
            antiphon(ANTIPHON, current.subject, source=current.source, commit=current.id),
        ],
        workloads=[name for name in WORKLOADS if name not in SLOW_WORKLOADS],
        has_goals=False,
        has_restarts=True,
    )


def _compare(comparison: Comparison, args: argparse.Namespace) -> int:
    targets = [TARGETS[name] for name in args.targets.split(",")] if args.targets else comparison.targets
    names = args.workloads.split(",") if args.workloads else comparison.workloads
    chosen_workloads = [WORKLOADS[name] for name in names]
    not_measured = {target.name: "not installed" for target in targets if not target.is_installed}
    load_before = os.getloadavg()[0]
    measurements: Measurements = defaultdict(list)
    for first_round in range(0, args.rounds, 1 if comparison.has_restarts else args.rounds):
        with (
            tempfile.TemporaryDirectory() as folder,
            running([target for target in targets if target.is_installed], Path(folder)) as servers,
        ):
            started = [server for server in servers if server.wait_until_listening()]
            not_measured |= {server.target.name: start_failure(server) for server in servers if server not in started}
            idle_kib = {server.target.name: rss_kib(server.pid) for server in started}
            _warm_up(started, chosen_workloads)
            rounds = range(first_round, first_round + 1 if comparison.has_restarts else args.rounds)
            for number in rounds:
                _measure_round(started, chosen_workloads, number, args.share, measurements)
                print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    measured = [server.target for server in started]
    if not measured:
        raise SystemExit(render_not_measured(not_measured))
    text = _render_results(measured, chosen_workloads, measurements, idle_kib, args.rounds, comparison)
    text += render_not_measured(not_measured)
    text += "\n" + report.render_circumstances(measured, load_before)
    text += f"\n{comparison.note}\n" if comparison.note else ""
    print(text)
    if args.write:
        report.write_section(comparison.title, text)
    return 1 if any(measurement.errors for measurement in _measurements_of(measurements, ANTIPHON)) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    comparison = parser.add_mutually_exclusive_group()
    comparison.add_argument("--peers", action="store_true", help="measure other gateways too")
    comparison.add_argument(
        "--dialects", action="store_true", help="measure this gateway with servers of several dialects"
    )
    comparison.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare with another commit of this gateway, with the same interpreter and packages",
    )
    parser.add_argument(
        "--targets", help=f"some of {', '.join(TARGETS)}; the others are compared with the first of them"
    )
    parser.add_argument("--workloads", help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument("--share", type=float, default=1.0, help="share of each workload's requests, for a quick run")
    parser.add_argument("--write", action="store_true", help="write the results to bench/RESULTS.md")
    return parser


def start_failure(server: Server) -> str:
    """Returns why a server did not start: the last line of its log, without local folders, because it is published.

    Prints more of the log to stderr.
    """
    log = server.read_log()
    print(f"{server.target.name} did not start. Its log ends with:\n{log[-2000:]}", file=sys.stderr)
    lines = log.replace(f"{server.folder}/", "").replace(f"{commits.REPOSITORY}/", "").split("\n")
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
    return f"did not start: {last_line}"


def render_not_measured(reasons: dict[str, str]) -> str:
    """Renders the targets that were not measured, with the reason for each."""
    if not reasons:
        return ""
    return "\nNot measured:\n\n" + "".join(f"- **{name}**: {reason}\n" for name, reason in reasons.items())


def _warm_up(servers: list[Server], chosen_workloads: list[Workload]) -> None:
    for server in servers:
        for workload in chosen_workloads:
            if _supports(server, workload):
                workloads.run(server, workload, share=16 / workload.requests)


def _measure_round(
    servers: list[Server], chosen_workloads: list[Workload], number: int, share: float, measurements: Measurements
) -> None:
    for workload in chosen_workloads:
        for server in servers[:: -1 if number % 2 else 1]:
            if _supports(server, workload):
                measurements[server.target.name, workload.name].append(_measure(server, workload, share))


def _supports(server: Server, workload: Workload) -> bool:
    return workload.stream or not server.target.streams_only


def _measure(server: Server, workload: Workload, share: float) -> Measurement:
    cpu_before = cpu_us(server.pid)
    load = workloads.run(server, workload, share=share * server.target.share)
    cpu_time = cpu_us(server.pid) - cpu_before
    return Measurement(cpu_time / load.ok if load.ok else float("nan"), load.errors)


def _render_results(
    targets: list[Target],
    chosen_workloads: list[Workload],
    measurements: Measurements,
    idle_kib: dict[str, int],
    rounds: int,
    comparison: Comparison,
) -> str:
    text = (
        f"CPU time of the process tree per request, in multiples of {targets[0].name} in the same round; "
        f"the median of {rounds} rounds.\n\n"
    )
    text += _render_ratios(targets, chosen_workloads, measurements, comparison) + "\n"
    text += "Absolute CPU time, errors if there were any, and idle memory before the first request:\n\n"
    return text + _render_absolutes(targets, chosen_workloads, measurements, idle_kib)


def _render_ratios(
    targets: list[Target], chosen_workloads: list[Workload], measurements: Measurements, comparison: Comparison
) -> str:
    baseline, names = targets[0].name, [target.name for target in targets[1:]]
    has_naive = ANTIPHON in names and NAIVE in names
    rows = []
    for workload in chosen_workloads:
        row = [f"{workload.name}: {workload.description}"]
        row += [
            _format_ratio(measurements[name, workload.name], measurements[baseline, workload.name]) for name in names
        ]
        if comparison.has_goals:
            goal = _goal(workload, comparison)
            row.append(f"≤ {goal:g}" if goal else "")
        if has_naive:
            row.append(_format_factor(measurements[NAIVE, workload.name], measurements[ANTIPHON, workload.name]))
            row.append(f"≥ {workload.naive_goal:g}" if workload.naive_goal else "")
        rows.append(row)
    head = ["workload", *names]
    if comparison.has_goals:
        head.append("goal" if comparison.stream_goal else f"goal of {ANTIPHON}")
    return report.render_table(head + ([f"{NAIVE} : {ANTIPHON}", "goal"] if has_naive else []), rows)


def _goal(workload: Workload, comparison: Comparison) -> float | None:
    if comparison.stream_goal is None:
        return workload.goal
    return comparison.stream_goal if workload.stream else None


def _render_absolutes(
    targets: list[Target], chosen_workloads: list[Workload], measurements: Measurements, idle_kib: dict[str, int]
) -> str:
    rows = [
        [
            target.name,
            *(_format_absolute(measurements[target.name, workload.name]) for workload in chosen_workloads),
            f"{idle_kib[target.name] / 1024:.0f} MiB",
        ]
        for target in targets
    ]
    return report.render_table(["µs per request", *(workload.name for workload in chosen_workloads), "idle"], rows)


def _format_ratio(measurements: list[Measurement], baseline: list[Measurement]) -> str:
    ratios = _cpu_ratios(measurements, baseline)
    if not ratios:
        return "—"
    digits = 1 if max(ratios) >= 10 else 2
    return f"**{statistics.median(ratios):.{digits}f}** ({min(ratios):.{digits}f}–{max(ratios):.{digits}f})"


def _format_factor(slower: list[Measurement], faster: list[Measurement]) -> str:
    ratios = _cpu_ratios(slower, faster)
    return f"{statistics.median(ratios):.1f} ×" if ratios else "—"


def _cpu_ratios(numerators: list[Measurement], denominators: list[Measurement]) -> list[float]:
    """Returns the ratio of each round, without the rounds in which no request succeeded."""
    pairs = zip(numerators, denominators, strict=False)
    ratios = (numerator.cpu_us / denominator.cpu_us for numerator, denominator in pairs)
    return [ratio for ratio in ratios if not math.isnan(ratio)]


def _format_absolute(measurements: list[Measurement]) -> str:
    costs = [measurement.cpu_us for measurement in measurements if not math.isnan(measurement.cpu_us)]
    errors = sum(measurement.errors for measurement in measurements)
    return (f"{statistics.median(costs):.0f}" if costs else "—") + (f" ({errors} errors)" if errors else "")


def _measurements_of(measurements: Measurements, name: str) -> list[Measurement]:
    return [measurement for (target, _), rounds in measurements.items() if target == name for measurement in rounds]


GATEWAY_COMPARISON = Comparison(title="The gateway", targets=CORE, workloads=list(WORKLOADS))
PEER_COMPARISON = Comparison(
    title="Other gateways",
    targets=[*CORE, *PEERS],
    workloads=[name for name in WORKLOADS if name not in SLOW_WORKLOADS],
    note=OMITTED_GATEWAYS,
)
DIALECT_COMPARISON = Comparison(
    title="Servers of other dialects",
    targets=[TARGETS[ANTIPHON], *DIALECTS],
    workloads=["burst-new", "json-new", "paced"],
    stream_goal=1.3,
)

if __name__ == "__main__":
    sys.exit(main())
