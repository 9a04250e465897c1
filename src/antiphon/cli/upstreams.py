"""`antiphon upstreams`: show the health of the targets of a running gateway."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any, Final, TextIO

import msgspec

from antiphon.cli.exits import EXIT_CODES, OK
from antiphon.cli.gateway_address import add_url, gateway_url
from antiphon.cli.gateway_client import call_gateway
from antiphon.cli.gateway_metadata import request_metadata
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import StatusLine, one_line, printable_json
from antiphon.client import AsyncClient
from antiphon.gateway.route_plan import TargetHealth, UpstreamList
from antiphon.upstream.transport import Transport


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "upstreams",
        help=summary,
        description="Shows the targets that one process of a running gateway has asked since its start: attempts, "
        "failures, requests in flight, and whether they rest.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    add_url(parser)
    parser.add_argument("--json", action="store_true", help="print the list as one JSON object on one line")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
) -> int:
    url = gateway_url(args.url, environ)

    async def show(client: AsyncClient) -> None:
        with StatusLine(err, environ).show(f"asking {url} for the health of its upstreams"):
            answer = await request_metadata(client, "GET", "/upstreams")
        targets = msgspec.json.decode(answer, type=UpstreamList).data
        if args.json:
            out.write(f"{printable_json(answer)}\n")
        elif targets:
            out.writelines(f"{row}\n" for row in _table(targets))
        else:
            err.write("the gateway has asked no upstream yet\n")

    call_gateway(show, url, environ, transport)
    return OK


def _table(targets: list[TargetHealth]) -> list[str]:
    rows = [HEADINGS, *map(_cells, targets)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(target: TargetHealth) -> tuple[str, ...]:
    rest = f" {target.rest_seconds:.0f} s" if target.health == "resting" else ""
    counts = (str(target.attempts), str(target.failures), str(target.in_flight))
    return (one_line(target.upstream), one_line(target.model), f"{target.health}{rest}", *counts)


HEADINGS: Final = ("UPSTREAM", "MODEL", "HEALTH", "ATTEMPTS", "FAILURES", "IN FLIGHT")
EPILOG: Final = f"""examples:
  antiphon upstreams
  antiphon upstreams --json | jq '.data[] | select(.health != "healthy")'

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one

{EXIT_CODES}"""
