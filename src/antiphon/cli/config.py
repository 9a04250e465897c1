"""`antiphon config`: check a configuration and print what it means, or print the schema of configurations."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from antiphon.cli.exits import EXIT_CODES, FAILED, OK
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.store import describe_retention
from antiphon.cli.terminal import TextStyler, printable
from antiphon.config import Config, default_config, describe_config, find_config, find_warnings, load_config
from antiphon.config.json_schema import config_schema
from antiphon.config.loading import locate_problem


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "config", help=summary, description="Checks configurations.", epilog=EXIT_CODES, **HELP_FORMAT
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="check a configuration and summarise it",
        description="Reads a configuration as `antiphon serve` would, reports all errors, and prints a summary and "
        "warnings: upstreams without their keys, and models that an earlier upstream takes. It starts nothing.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    check.add_argument(
        "file",
        nargs="?",
        metavar="F",
        type=Path,
        help="the configuration file (default: the one that `serve` would use)",
    )
    check.add_argument(
        "--live", action="store_true", help="also ask each upstream for its models, and connect to PostgreSQL"
    )
    actions.add_parser(
        "schema",
        help="print the JSON Schema of configurations",
        description="Prints the JSON Schema of antiphon.toml, for editors. The line `#:schema FILE` at the start of a "
        "configuration names it.",
        epilog=EXIT_CODES,
        **HELP_FORMAT,
    )


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> int:
    if args.action == "schema":
        out.write(json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n")
        return OK
    file = find_config(args.file, environ, cwd or Path.cwd())
    config = load_config(file, environ) if file else default_config(environ)
    summary_lines = [*describe_config(config), describe_retention(config.store, environ)]
    out.write(printable(f"{file or 'default configuration (no file)'}: valid\n"))
    out.write(f"  listens on {config.server.host}, port {config.server.port}\n")
    out.writelines(f"  {printable(line)}\n" for line in summary_lines)
    warnings = [locate_problem(file, warning) if file else str(warning) for warning in find_warnings(config, environ)]
    out.writelines(f"warning: {printable(warning)}\n" for warning in warnings)
    return _check_live(config, out, err, environ) if args.live else OK


def _check_live(config: Config, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> int:
    from antiphon.cli.live_check import check_store, check_upstreams, describe_results  # the client's import is slow

    err.write("asking the upstreams for their models\n")
    err.flush()
    store = check_store(config.store)
    results = [*check_upstreams(config, environ), *([store] if store else [])]
    out.writelines(f"  {line}\n" for line in describe_results(results, TextStyler(out, environ)))
    return FAILED if any(result.error for result in results) else OK


EPILOG: Final = f"""examples:
  antiphon config check antiphon.toml
  antiphon config check --live
  antiphon config schema > antiphon.schema.json

{EXIT_CODES}"""
