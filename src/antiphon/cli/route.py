"""`antiphon route explain`: print how a running gateway would route a request. No upstream is asked."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlencode

import msgspec

from antiphon.cli.exits import EXIT_CODES, OK, CommandFailed, InvalidUsage
from antiphon.cli.gateway_address import add_url, gateway_url
from antiphon.cli.gateway_client import call_gateway, suggested_model
from antiphon.cli.gateway_metadata import request_metadata
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import StatusLine, one_line, printable, printable_json
from antiphon.client import AsyncClient
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.gateway.route_plan import PlannedTarget, RoutePlan
from antiphon.upstream.transport import Transport


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "route", help=summary, description="Explains routes.", epilog=EXIT_CODES, **HELP_FORMAT
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    explain = actions.add_parser(
        "explain",
        help="print the targets of a request in order, and why",
        description="Prints how a running gateway would route a request: the targets in order and why, what each would "
        "lose, and its health. No upstream is asked.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    explain.add_argument("file", nargs="?", metavar="F", help="the body of the request; - reads standard input")
    explain.add_argument("--model", metavar="M", help="the model (default: the one in the body)")
    explain.add_argument(
        "--dialect", choices=tuple(CLIENT_DIALECTS), default="responses", help="of the body (default: responses)"
    )
    explain.add_argument("--json", action="store_true", help="print the plan as one JSON object on one line")
    add_url(explain)


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    transport: Transport | None = None,
    stdin: TextIO = sys.stdin,
) -> int:
    body = _read_body(args.file, args.model, stdin)
    query = urlencode({"dialect": args.dialect, **({"model": args.model} if args.model else {})})

    url = gateway_url(args.url, environ)

    async def explain(client: AsyncClient) -> None:
        with StatusLine(err, environ).show(f"asking {url} for the route"):
            async with suggested_model(client, args.model or ""):
                answer = await request_metadata(client, "POST", f"/route?{query}", body)
        if args.json:
            out.write(f"{printable_json(answer)}\n")
        else:
            out.writelines(f"{printable(line)}\n" for line in _lines(msgspec.json.decode(answer, type=RoutePlan)))

    call_gateway(explain, url, environ, transport)
    return OK


def _read_body(file: str | None, model: str | None, stdin: TextIO) -> bytes:
    """The body of the file with the model; a minimal request without a file."""
    if file is None:
        if model is None:
            raise InvalidUsage("expected --model M, a file with a request, or both")
        return msgspec.json.encode({"model": model, "input": "Hello."})
    try:
        text = stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        body = msgspec.json.decode(text)
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{file}: cannot read a JSON object: {error}") from None
    if model is not None and isinstance(body, dict) and "contents" not in body:
        body = {**body, "model": model}
    return msgspec.json.encode(body)


def _lines(plan: RoutePlan) -> list[str]:
    rounds = f"{plan.rounds} round{'s' if plan.rounds > 1 else ''}"
    lines = [f"{plan.model}: {plan.strategy}, {rounds}, attempts begin within {plan.deadline:g} s"]
    for number, target in enumerate(plan.targets, 1):
        lines += _target_lines(number, target)
    for reason, labels in (("context length", plan.on_context_length), ("refusal", plan.on_refusal)):
        if labels:
            lines.append(f"on {reason}: {', '.join(map(one_line, labels))}")
    return lines + [f"not offered: {one_line(str(loss))}" for loss in plan.not_offered]


def _target_lines(number: int, target: PlannedTarget) -> list[str]:
    keys = f", {target.keys} keys, {target.resting_keys} resting" if target.keys > 1 else ""
    lines = [f"{number}. {target.upstream}/{target.model}: {'; '.join(target.why)} ({target.health}{keys})"]
    if target.error is not None:
        lines.append(f"   cannot be asked: {one_line(target.error)}")
    lines += [f"   loses {one_line(str(loss))}" for loss in target.losses]
    return lines


EPILOG: Final = f"""examples:
  antiphon route explain --model coder
  antiphon route explain request.json
  antiphon route explain --dialect chat --json request.json

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one

{EXIT_CODES}"""
