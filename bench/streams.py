"""Measures many slow streams on one process: up to 1,000 streams of 50 tokens per second, memory, delay of each token.

    python bench/streams.py [--targets nginx,antiphon] [--levels 100,1000] [--seconds 5] [--write]

The delay of a token is the time from the mock's write to the client's read. The figures of nginx show how much of the
delay comes from the mock, the client and the machine.
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
from bench.processes import count_accepted_connections, cpu_us, rss_kib
from bench.servers import Server, running
from bench.targets import TARGETS
from bench.workloads import WORKLOADS, Load, Workload
from msgspec import Struct

TOKENS_PER_SECOND = 50
GOALS = (
    "Goals for 1,000 streams: no error, at most 100 KiB per stream, a delay of at most 150 ms at the 99th percentile; "
    "at most 60 MB when idle."
)


class StreamsMeasurement(Struct, frozen=True, kw_only=True):
    """The figures of one target with one number of streams."""

    target: str
    streams: int
    load: Load
    cpu_share: float  # share of one core
    cpu_us: float  # CPU time per token
    peak_streams: int  # highest number of accepted connections
    idle_kib: int  # before the first request
    warm_kib: int  # after the warm-up requests
    peak_kib: int

    def row(self) -> list[str]:
        delay = self.load.delay_us
        kib_per_stream = (self.peak_kib - self.warm_kib) / max(self.peak_streams, 1)
        tokens_per_second = delay.n / self.load.elapsed
        return [
            self.target,
            *(f"{self.streams:,}", f"{self.peak_streams:,}", str(self.load.errors), f"{tokens_per_second:,.0f}"),
            *(f"{self.cpu_share:.2f}", f"{self.cpu_us:.1f}", f"{self.load.ttfb_us.p99 / 1000:,.0f}"),
            *(f"{delay.p50 / 1000:.1f}", f"{delay.p99 / 1000:.1f}"),
            *(f"{self.idle_kib / 1024:.0f}", f"{kib_per_stream:.0f}"),
        ]


HEAD = [
    *("target", "streams", "concurrent", "errors", "tokens/s", "cores", "CPU µs/token", "first byte p99 ms"),
    *("token p50 ms", "token p99 ms", "idle MiB", "KiB per stream"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    targets = [TARGETS[name] for name in args.targets.split(",")]
    load_before = os.getloadavg()[0]
    measurements: list[StreamsMeasurement] = []
    for target in targets:
        for level in map(int, args.levels.split(",")):  # each on a new server
            with tempfile.TemporaryDirectory() as folder, running([target], Path(folder)) as (server,):
                if not server.wait_until_listening():
                    print(
                        f"{target.name} did not start. Its log ends with:\n{server.read_log()[-2000:]}", file=sys.stderr
                    )
                    return 1
                measurements.append(_measure_streams(server, level, args.seconds))
    text = (
        f"Streams of {TOKENS_PER_SECOND} tokens per second for {args.seconds} s, started within one second, "
        f"on one process. {GOALS}\n\n"
    )
    text += report.render_table(HEAD, [measurement.row() for measurement in measurements])
    text += "\n" + report.render_circumstances(targets, load_before)
    print(text)
    if args.write:
        report.write_section("Many slow streams", text)
    return 1 if any(measurement.load.errors for measurement in measurements) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", default="nginx,antiphon")
    parser.add_argument("--levels", default="100,500,1000", help="numbers of concurrent streams")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the results to bench/RESULTS.md")
    return parser


def _measure_streams(server: Server, streams: int, seconds: int) -> StreamsMeasurement:
    model = f"mock-n{TOKENS_PER_SECOND * seconds}-g{1_000_000 // TOKENS_PER_SECOND}-s"
    workload = Workload(name="streams", description="", model=model, connections=streams, requests=streams)
    idle_kib = rss_kib(server.pid)
    workloads.run(server, WORKLOADS["burst-new"], share=0.04)
    warm_kib = rss_kib(server.pid)
    cpu_before, peak_kib, peak_streams = cpu_us(server.pid), warm_kib, 0
    with workloads.start_load(server, workload, ramp_ms=1000) as process:
        while process.poll() is None:
            peak_kib = max(peak_kib, rss_kib(server.pid))
            peak_streams = max(peak_streams, count_accepted_connections(server.port))
            time.sleep(0.1)
        load = workloads.read_load(process, workload, timeout=10.0)
    cpu_time = cpu_us(server.pid) - cpu_before
    return StreamsMeasurement(
        target=server.target.name,
        streams=streams,
        load=load,
        cpu_share=cpu_time / 1e6 / load.elapsed,
        cpu_us=cpu_time / max(load.delay_us.n, 1),
        peak_streams=peak_streams,
        idle_kib=idle_kib,
        warm_kib=warm_kib,
        peak_kib=peak_kib,
    )


if __name__ == "__main__":
    sys.exit(main())
