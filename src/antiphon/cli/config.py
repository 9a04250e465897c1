"""`antiphon config check`: check a configuration and print what it means."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from antiphon.cli.exits import EXIT_CODES, OK
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.store import describe_retention
from antiphon.cli.terminal import printable
from antiphon.config import default_config, describe_config, find_config, load_config


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "config", help=summary, description="Checks configurations.", epilog=EXIT_CODES, **HELP_FORMAT
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="check a configuration and summarise it",
        description="Reads a configuration as `antiphon serve` would, reports errors, and prints a summary. It starts "
        "nothing.",
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


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> int:
    del err  # errors are raised
    file = find_config(args.file, environ, cwd or Path.cwd())
    config = load_config(file, environ) if file else default_config(environ)
    summary_lines = [*describe_config(config), describe_retention(config.store, environ)]
    out.write(printable(f"{file or 'default configuration (no file)'}: valid\n"))
    out.write(f"  listens on {config.server.host}, port {config.server.port}\n")
    out.writelines(f"  {printable(line)}\n" for line in summary_lines)
    return OK


EPILOG: Final = f"""examples:
  antiphon config check antiphon.toml
  antiphon config check && antiphon serve

{EXIT_CODES}"""
