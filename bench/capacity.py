"""Measures what a core of a gateway and of PostgreSQL can do, and writes the capacity tables of docs/scaling.md.

    python bench/capacity.py [--rounds 3] [--share 1.0] [--write]

The first table is measured on this machine. The second is computed from it, up to 1,000 machines.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import background, report
from bench.store_gateways import (
    Gateway,
    database_bytes,
    make_target,
    measure,
    running_gateways,
)
from bench.workloads import WORKLOADS, Workload
from msgspec import Struct
from msgspec.structs import replace

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- capacity: begin -->", "<!-- capacity: end -->"
PLAIN: Final = Workload(
    name="plain", description="", model="mock-n16", stream=False, connections=32, requests=3000, body="plain"
)
BURST: Final = Workload(name="burst", description="", model="mock-n64", connections=32, requests=1000)
TOKENS_PER_SECOND: Final = 50
TOKENS_OF_PACED: Final = 64
MACHINES: Final = (1, 10, 100, 1000)
CORES_PER_MACHINE: Final = 4  # one gateway process each
UTILIZATION: Final = 0.5  # of the cores of gateways and databases
CONNECTIONS_PER_PROCESS: Final = 5
DATABASE_CORES: Final = 32  # of one PostgreSQL server
DATABASE_CONNECTIONS: Final = 2000  # of one PostgreSQL server, through a pooler in session mode
DATABASE_MB_PER_SECOND: Final = 100  # of new rows in one PostgreSQL server; its log and vacuum write as much again


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of one unit of work: medians of the rounds."""

    gateway_us: float
    database_us: float = 0.0
    stored_bytes: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    load_before = os.getloadavg()[0]
    target = make_target("postgres")
    with tempfile.TemporaryDirectory() as folder, running_gateways([target], Path(folder)) as (gateway,):
        costs = _measure_costs(gateway, args.rounds, args.share)
    text = _render_costs(costs) + "\n" + _render_scales(costs["stored stream of 20 KB"])
    text += "\n" + report.render_circumstances([target], load_before)
    print(text)
    if args.write:
        write_between_markers(PAGE, text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="share of each workload's requests, for a quick run")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/scaling.md")
    return parser


def _measure_costs(gateway: Gateway, rounds: int, share: float) -> dict[str, Cost]:
    paced, tokens = WORKLOADS["paced-200"], TOKENS_PER_SECOND / TOKENS_OF_PACED
    return {
        "short request": _cost(lambda: _measure_requests(gateway, PLAIN, share), rounds),
        "stored short request": _cost(lambda: _measure_requests(gateway, _stored(PLAIN), share), rounds),
        "stream of 20 KB": _cost(lambda: _measure_requests(gateway, BURST, share), rounds),
        "stored stream of 20 KB": _cost(lambda: _measure_requests(gateway, _stored(BURST), share), rounds),
        "background response, short": _cost(lambda: _measure_background(gateway, "plain", share), rounds),
        "background response, 20 KB": _cost(lambda: _measure_background(gateway, "burst", share), rounds),
        SLOW_STREAM: _cost(lambda: _measure_requests(gateway, paced, share), rounds, tokens),
    }


def _stored(workload: Workload) -> Workload:
    return replace(workload, name=f"{workload.name}-stored", store=True)


def _cost(run: Callable[[], Cost], rounds: int, factor: float = 1.0) -> Cost:
    """The medians of some rounds after a warm-up, times `factor`."""
    costs = [run() for _ in range(rounds + 1)][1:]
    return Cost(
        gateway_us=statistics.median(cost.gateway_us for cost in costs) * factor,
        database_us=statistics.median(cost.database_us for cost in costs) * factor,
        stored_bytes=statistics.median(cost.stored_bytes for cost in costs) * factor,
    )


def _measure_requests(gateway: Gateway, workload: Workload, share: float) -> Cost:
    count = max(workload.connections, round(workload.requests * share))
    size = database_bytes(gateway)
    measurement = measure(gateway, workload, share)
    return Cost(
        gateway_us=measurement.cpu_us,
        database_us=measurement.database_us if workload.store else 0.0,
        stored_bytes=(database_bytes(gateway) - size) / count if workload.store else 0.0,
    )


def _measure_background(gateway: Gateway, name: str, share: float) -> Cost:
    count = max(background.CLIENTS, round(600 * share))
    size = database_bytes(gateway)
    run = background.run_responses(gateway.server, gateway.database, name, count)
    return Cost(
        gateway_us=run.cpu_us, database_us=run.database_us, stored_bytes=(database_bytes(gateway) - size) / count
    )


def _render_costs(costs: dict[str, Cost]) -> str:
    rows = []
    for name, cost in costs.items():
        unit = "streams" if name == SLOW_STREAM else "/s"
        rows.append(
            [
                name,
                _format_time(cost.gateway_us),
                f"{1e6 / cost.gateway_us:,.0f} {unit}".replace(" /s", "/s"),
                _format_time(cost.database_us) if cost.database_us else "–",
                f"{1e6 / cost.database_us:,.0f}/s" if cost.database_us else "–",
                f"{cost.stored_bytes / 1000:,.1f} KB" if cost.stored_bytes else "–",
            ]
        )
    head = ["work", "gateway CPU", "a gateway core", "database CPU", "a database core", "stored, with indexes"]
    return report.render_table(head, rows)


def _format_time(microseconds: float) -> str:
    return f"{microseconds / 1000:.2f} ms"


def _render_scales(cost: Cost) -> str:
    """What stored streams of 20 KB need if gateways and databases are used to `UTILIZATION`."""
    rows = []
    for machines in MACHINES:
        rate = machines * CORES_PER_MACHINE * UTILIZATION * 1e6 / cost.gateway_us
        needs = {
            "cores": rate * cost.database_us / 1e6 / UTILIZATION / DATABASE_CORES,
            "connections": machines * CORES_PER_MACHINE * CONNECTIONS_PER_PROCESS / DATABASE_CONNECTIONS,
            "writes": rate * cost.stored_bytes / 1e6 / DATABASE_MB_PER_SECOND,
        }
        bound = max(needs, key=lambda name: needs[name])
        rows.append(
            [
                f"{machines:,}",
                f"{rate:,.0f}",
                f"{rate * cost.database_us / 1e6 / UTILIZATION:,.1f}",
                f"{machines * CORES_PER_MACHINE * CONNECTIONS_PER_PROCESS:,}",
                f"{rate * cost.stored_bytes / 1e6:,.1f}",
                f"{rate * cost.stored_bytes * 86_400 / 1e12:,.2f}",
                f"{max(1, math.ceil(needs[bound]))} ({bound})",
            ]
        )
    head = ["machines", "streams/s", "database cores", "connections", "MB/s", "TB a day", "databases (bound)"]
    return report.render_table(head, rows)


def write_between_markers(path: Path, text: str) -> None:
    """Replaces what stands between the markers of a page."""
    page = path.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"{path.name} must have {BEGIN} and, after it, {END}, once each")
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    path.write_text(f"{before}\n\n{text.strip()}\n\n{after}", encoding="utf-8")


SLOW_STREAM: Final = f"open stream of {TOKENS_PER_SECOND} tokens/s"

if __name__ == "__main__":
    sys.exit(main())
