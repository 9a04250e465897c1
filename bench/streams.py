"""How many slow streams one process holds: a thousand at 50 tokens a second, its memory, and how late each token is.

    python bench/streams.py [--targets nginx,antiphon] [--levels 100,1000] [--seconds 5] [--write]

A token's delay is the time from the mock's write to the client's read; nginx beside it shows how much of that is the mock, the
client and the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import report, workloads
from bench.processes import clients, cpu_us, rss_kib
from bench.servers import Server, running
from bench.targets import TARGETS
from bench.workloads import WORKLOADS, Load, Workload
from msgspec import Struct

TOKENS_A_SECOND = 50
GOALS = "Goals for 1,000 streams: no error, at most 100 KiB each, a 99th percentile of at most 150 ms; at most 60 MB when idle."


class Held(Struct, frozen=True, kw_only=True):
    """One level of one target."""

    target: str
    streams: int
    load: Load
    cpu: float  # of one core
    cpu_us: float  # for each token
    at_once: int  # most that were accepted at one time
    idle_kib: int  # before the first request
    warm_kib: int  # after a few
    peak_kib: int

    def row(self) -> list[str]:
        delay = self.load.delay_us
        each = (self.peak_kib - self.warm_kib) / max(self.at_once, 1)
        return [
            self.target,
            *(f"{self.streams:,}", f"{self.at_once:,}", str(self.load.errors), f"{delay.n / self.load.elapsed:,.0f}"),
            *(f"{self.cpu:.2f}", f"{self.cpu_us:.1f}", f"{self.load.ttfb_us.p99 / 1000:,.0f}"),
            *(f"{delay.p50 / 1000:.1f}", f"{delay.p99 / 1000:.1f}"),
            *(f"{self.idle_kib / 1024:.0f}", f"{each:.0f}"),
        ]


HEAD = [
    *("target", "streams", "at once", "errors", "tokens/s", "cores", "CPU µs/token", "first byte p99 ms"),
    *("token p50 ms", "token p99 ms", "idle MiB", "KiB each"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    targets = [TARGETS[name] for name in args.targets.split(",")]
    load_before = os.getloadavg()[0]
    rows: list[Held] = []
    for target in targets:
        for level in map(int, args.levels.split(",")):  # each on a server that has held nothing before
            with tempfile.TemporaryDirectory() as folder, running([target], Path(folder)) as (server,):
                if not server.wait_until_it_listens():
                    print(f"{target.name} did not start", file=sys.stderr)
                    return 1
                rows.append(_held(server, level, args.seconds))
    text = f"Streams of {TOKENS_A_SECOND} tokens a second for {args.seconds} s, begun within one second, on one process. {GOALS}\n\n"
    text += report.table(HEAD, [row.row() for row in rows])
    text += "\n" + report.circumstances(targets, load_before)
    print(text)
    if args.write:
        report.write_section("Many slow streams", text)
    return 1 if any(row.load.errors for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", default="nginx,antiphon")
    parser.add_argument("--levels", default="100,500,1000", help="how many streams side by side")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="into bench/RESULTS.md")
    return parser


def _held(server: Server, streams: int, seconds: int) -> Held:
    model = f"mock-n{TOKENS_A_SECOND * seconds}-g{1_000_000 // TOKENS_A_SECOND}-s"
    workload = Workload(name="streams", what="", model=model, connections=streams, requests=streams)
    idle = rss_kib(server.pid)
    workloads.run(server, WORKLOADS["burst-new"], share=0.04)
    warm = rss_kib(server.pid)
    before, peak, at_once = cpu_us(server.pid), warm, 0
    with workloads.start(server, workload, ramp_ms=1000) as process:
        while process.poll() is None:
            peak, at_once = max(peak, rss_kib(server.pid)), max(at_once, clients(server.port))
            time.sleep(0.1)
        load = workloads.read(process, workload, timeout=10.0)
    spent = cpu_us(server.pid) - before
    return Held(
        target=server.target.name,
        streams=streams,
        load=load,
        cpu=spent / 1e6 / load.elapsed,
        cpu_us=spent / max(load.delay_us.n, 1),
        at_once=at_once,
        idle_kib=idle,
        warm_kib=warm,
        peak_kib=peak,
    )


if __name__ == "__main__":
    sys.exit(main())
