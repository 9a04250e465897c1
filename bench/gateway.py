"""What the gateway costs on the wire: CPU of its process tree per request, beside nginx and the usual stack, interleaved.

    python bench/gateway.py [--peers | --dialects | --against COMMIT] [--rounds 7] [--targets a,b] [--workloads a,b] [--share 0.1]
        [--write]

Every round visits every target with every workload, in reversed order every other round, so that what else happens on the machine
falls on all of them alike. What counts is the ratio to nginx of the same round, and of those the median; between servers of several
dialects it is the ratio to the gateway before a server of chat, and between two commits the ratio to the other commit.
"""

from __future__ import annotations

import argparse
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
from bench.targets import CORE, DIALECTS, LEFT_OUT, PEERS, TARGETS, Target, antiphon
from bench.workloads import WORKLOADS, Workload
from msgspec import Struct

FLOOR = "nginx"
OURS = "antiphon"
USUAL = "naive"
FAST_ONLY = ("paced-200",)  # some peers would need a minute for it


class Visit(Struct, frozen=True):
    """One target, one workload, one round."""

    cpu_us: float  # for each request that was answered well
    errors: int
    ttfb_us: float


class Comparison(Struct, frozen=True, kw_only=True):
    """What is measured in one run; the first target is what the others are compared with."""

    title: str  # of its section in the results
    targets: list[Target]
    workloads: list[str]
    goal: float | None = None  # of the ratios of all streams, in place of the workloads' own
    has_goals: bool = True
    note: str = ""


Visits = dict[tuple[str, str], list[Visit]]  # by target and workload, one for each round


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    with commits.checked_out(args.against) if args.against else nullcontext() as other:
        compared = _between_commits(other) if other is not None else _comparison(args)
        return _compare(compared, args)


def _comparison(args: argparse.Namespace) -> Comparison:
    return BESIDE_PEERS if args.peers else OF_DIALECTS if args.dialects else OF_THE_GATEWAY


def _between_commits(other: commits.Checkout) -> Comparison:
    here = commits.working_tree()
    return Comparison(
        title="Against another commit",
        targets=[
            antiphon(f"antiphon-{other.id}", other.subject, source=other.source, commit=other.id),
            antiphon(OURS, here.subject, source=here.source, commit=here.id),
        ],
        workloads=[name for name in WORKLOADS if name not in FAST_ONLY],
        has_goals=False,
    )


def _compare(compared: Comparison, args: argparse.Namespace) -> int:
    targets = [TARGETS[name] for name in args.targets.split(",")] if args.targets else compared.targets
    asked = [WORKLOADS[name] for name in (args.workloads.split(",") if args.workloads else compared.workloads)]
    missing = [target.name for target in targets if not target.is_installed]
    targets = [target for target in targets if target.is_installed]
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        with running(targets, Path(folder)) as servers:
            alive = [server for server in servers if _is_up(server)]
            missing += [server.target.name for server in servers if server not in alive]
            idle = {server.target.name: rss_kib(server.pid) for server in alive}
            _warm_up(alive, asked)
            visits = _visit(alive, asked, args.rounds, args.share)
    measured = [server.target for server in alive]
    text = _text(measured, asked, visits, idle, missing, args.rounds, compared)
    text += "\n" + report.circumstances(measured, load_before) + (f"\n{compared.note}\n" if compared.note else "")
    print(text)
    if args.write:
        report.write_section(compared.title, text)
    return 1 if any(visit.errors for visit in _of(visits, OURS)) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--peers", action="store_true", help="other gateways too")
    what.add_argument("--dialects", action="store_true", help="this gateway before servers of several dialects")
    what.add_argument(
        "--against", metavar="COMMIT", help="another commit of this gateway, with the same interpreter and packages"
    )
    parser.add_argument("--targets", help=f"of {', '.join(TARGETS)}; the first is what the others are compared with")
    parser.add_argument("--workloads", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--share", type=float, default=1.0, help="of the requests of each workload, for a quick look")
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    return parser


def _is_up(server: Server) -> bool:
    if server.wait_until_it_listens():
        return True
    said = (server.folder / "output.log").read_text(errors="replace")[-2000:]
    print(f"{server.target.name} did not start; it said:\n{said}", file=sys.stderr)
    return False


def _warm_up(servers: list[Server], asked: list[Workload]) -> None:
    for server in servers:
        for workload in asked:
            if _takes(server, workload):
                workloads.run(server, workload, share=16 / workload.requests)


def _visit(servers: list[Server], asked: list[Workload], rounds: int, share: float) -> Visits:
    visits: Visits = defaultdict(list)
    for number in range(rounds):
        for workload in asked:
            for server in servers[:: -1 if number % 2 else 1]:
                if _takes(server, workload):
                    visits[server.target.name, workload.name].append(_measured(server, workload, share))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return visits


def _takes(server: Server, workload: Workload) -> bool:
    return workload.stream or not server.target.streams_only


def _measured(server: Server, workload: Workload, share: float) -> Visit:
    before = cpu_us(server.pid)
    load = workloads.run(server, workload, share=share * server.target.share)
    spent = cpu_us(server.pid) - before
    return Visit(spent / load.ok if load.ok else float("nan"), load.errors, load.ttfb_us.p50)


def _text(
    targets: list[Target],
    asked: list[Workload],
    visits: Visits,
    idle: dict[str, int],
    missing: list[str],
    rounds: int,
    compared: Comparison,
) -> str:
    floor = targets[0].name
    text = f"CPU of the process tree per request, in multiples of {floor} in the same round; the median of {rounds} rounds.\n\n"
    text += _ratios(targets, asked, visits, compared) + "\n"
    text += "Absolute, with errors if there were any, and idle memory before the first request:\n\n"
    text += _absolutes(targets, asked, visits, idle)
    if missing:
        text += f"\nNot measured, because not installed or not started here: {', '.join(missing)}.\n"
    return text


def _ratios(targets: list[Target], asked: list[Workload], visits: Visits, compared: Comparison) -> str:
    floor, names, goal = targets[0].name, [target.name for target in targets[1:]], compared.goal
    cheaper = OURS in names and USUAL in names
    rows = []
    for workload in asked:
        row = [f"{workload.name}: {workload.what}"]
        row += [_ratio(visits[name, workload.name], visits[floor, workload.name]) for name in names]
        wanted = workload.goal if goal is None else goal if workload.stream else None
        if compared.has_goals:
            row.append(f"≤ {wanted:g}" if wanted else "")
        if cheaper:
            row.append(_times(visits[USUAL, workload.name], visits[OURS, workload.name]))
            row.append(f"≥ {workload.goal_naive:g}" if workload.goal_naive else "")
        rows.append(row)
    head = ["workload", *names]
    if compared.has_goals:
        head.append("goal" if goal else f"goal of {OURS}")
    return report.table(head + ([f"{USUAL} : {OURS}", "goal"] if cheaper else []), rows)


def _absolutes(targets: list[Target], asked: list[Workload], visits: Visits, idle: dict[str, int]) -> str:
    rows = [
        [
            target.name,
            *(_absolute(visits[target.name, workload.name]) for workload in asked),
            f"{idle[target.name] / 1024:.0f} MiB",
        ]
        for target in targets
    ]
    return report.table(["µs per request", *(workload.name for workload in asked), "idle"], rows)


def _ratio(visits: list[Visit], floor: list[Visit]) -> str:
    ratios = _in_pairs(visits, floor)
    if not ratios:
        return "—"
    digits = 1 if max(ratios) >= 10 else 2
    return f"**{statistics.median(ratios):.{digits}f}** ({min(ratios):.{digits}f}–{max(ratios):.{digits}f})"


def _times(dear: list[Visit], cheap: list[Visit]) -> str:
    ratios = _in_pairs(dear, cheap)
    return f"{statistics.median(ratios):.1f} ×" if ratios else "—"


def _in_pairs(above: list[Visit], below: list[Visit]) -> list[float]:
    """Round by round; rounds without an answer do not count."""
    ratios = (one.cpu_us / other.cpu_us for one, other in zip(above, below, strict=False))
    return [ratio for ratio in ratios if ratio == ratio]


def _absolute(visits: list[Visit]) -> str:
    costs = [visit.cpu_us for visit in visits if visit.cpu_us == visit.cpu_us]
    errors = sum(visit.errors for visit in visits)
    return (f"{statistics.median(costs):.0f}" if costs else "—") + (f" ({errors} errors)" if errors else "")


def _of(visits: Visits, name: str) -> list[Visit]:
    return [visit for (target, _), found in visits.items() if target == name for visit in found]


OF_THE_GATEWAY = Comparison(title="The gateway", targets=CORE, workloads=list(WORKLOADS))
BESIDE_PEERS = Comparison(
    title="Beside its peers",
    targets=[*CORE, *PEERS],
    workloads=[name for name in WORKLOADS if name not in FAST_ONLY],
    note=LEFT_OUT,
)
OF_DIALECTS = Comparison(
    title="Servers of other dialects",
    targets=[TARGETS[OURS], *DIALECTS],
    workloads=["burst-new", "json-new", "paced"],
    goal=1.3,
)

if __name__ == "__main__":
    sys.exit(main())
