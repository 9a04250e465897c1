"""`antiphon models`: list the models of a gateway, each with its upstream."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any, Final, TextIO

import msgspec

from antiphon.cli.exits import EXIT_CODES, OK
from antiphon.cli.gateway_address import add_url, gateway_url
from antiphon.cli.gateway_client import call_gateway
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.model_choice import describe_patterns, list_models
from antiphon.cli.terminal import StatusLine, TextStyler, one_line, printable_json
from antiphon.client import AsyncClient, Model
from antiphon.upstream.transport import Transport


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "models",
        help=summary,
        description="Lists the models of a running gateway and the upstream of each. Patterns of other names that it "
        "serves go to standard error.",
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
        with StatusLine(err, environ).show(f"asking {url} for its models"):
            served = await list_models(client)
        models = served.models
        if args.json:
            members = {"object": "list", "data": models, "patterns": served.patterns}
            out.write(f"{printable_json(msgspec.json.encode(members))}\n")
            return
        if models:
            out.writelines(f"{row}\n" for row in _table(models, TextStyler(out, environ), with_heading=out.isatty()))
        else:
            err.write(f"the gateway lists no models; {describe_patterns(served)}\n")
        if models and served.patterns:
            err.write(f"other names are served if they match: {', '.join(map(one_line, served.patterns))}\n")

    call_gateway(show, url, environ, transport)
    return OK


def _table(models: list[Model], paint: TextStyler, *, with_heading: bool) -> list[str]:
    """Return the rows of two columns. The heading is only for terminals, so that scripts need not skip it."""
    cells = [(one_line(model.id), one_line(model.owned_by)) for model in models]
    width = max(len("MODEL"), *(len(name) for name, _ in cells))
    heading = [paint("bold", f"{'MODEL':{width}}  UPSTREAM")] if with_heading else []
    return heading + [f"{name:{width}}  {upstream}".rstrip() for name, upstream in cells]


EPILOG: Final = f"""examples:
  antiphon models
  antiphon models --url http://gateway.example:8080
  antiphon models --json | jq -r '.data[].id'

environment:
  ANTIPHON_URL      the URL of the gateway
  ANTIPHON_API_KEY  the key for the gateway, if it requires one

{EXIT_CODES}"""
