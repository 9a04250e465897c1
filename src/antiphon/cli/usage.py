"""`antiphon usage`: print the usage of all owners as a table with bars. It reads the store; no gateway is needed."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from antiphon.cli.exits import OK
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.store import with_store
from antiphon.cli.terminal import TextStyler, one_line, printable_json
from antiphon.config import default_config, find_config, load_config
from antiphon.ops.line_width import cut_text, terminal_width
from antiphon.store.interface import Store
from antiphon.store.usage import COUNTER_NAMES
from antiphon.store.usage_sums import FIRST_DAY, GROUPINGS, sum_usage, total_tokens

DEFAULT_DAYS: Final = 30


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "usage",
        help=summary,
        description="Shows the usage of all owners, summed by model, key, upstream or day (UTC). A running gateway "
        "stores its usage every few seconds.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument(
        "--by", choices=tuple(GROUPINGS), default="model", help="how to group the sums (default: model)"
    )
    parser.add_argument(
        "--since",
        metavar="DAY",
        type=_parse_since,
        default=f"{DEFAULT_DAYS}d",
        help="the first day, such as 2026-01-31, or a number of days, such as 7d (default: 30d)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    parser.add_argument(
        "--config", metavar="F", type=Path, help="the configuration file (default: the one that `serve` would use)"
    )


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    now: Callable[[], float] = time.time,
) -> int:
    file = find_config(args.config, environ, cwd or Path.cwd())
    config = (load_config(file, environ) if file else default_config(environ)).store
    until = datetime.fromtimestamp(now(), UTC).date()
    since = args.since if isinstance(args.since, date) else until - timedelta(days=args.since - 1)

    async def print_usage(store: Store) -> int:
        rows = await store.get_usage(since=(since - FIRST_DAY).days, until=(until - FIRST_DAY).days)
        sums = sum_usage(rows, args.by)
        if args.json:
            out.write(f"{_usage_to_json(sums, args.by, since, until)}\n")
        elif sums:
            columns = terminal_width(out) if out.isatty() else None
            out.writelines(_usage_table(sums, args.by, TextStyler(out, environ), columns))
        else:
            err.write(f"no usage since {since.isoformat()}\n")
        return OK

    return asyncio.run(with_store(config, environ, print_usage))


def _usage_to_json(sums: dict[str, list[int]], by: str, since: date, until: date) -> str:
    data = [{by: name, **dict(zip(COUNTER_NAMES, counts, strict=True))} for name, counts in sums.items()]
    report = {"by": by, "since": since.isoformat(), "until": until.isoformat(), "data": data}
    return printable_json(msgspec.json.encode(report))


def _usage_table(sums: dict[str, list[int]], by: str, paint: TextStyler, columns: int | None) -> list[str]:
    """The lines of the table. Bars, then names, are shortened to the columns of a terminal."""
    max_tokens = max(map(total_tokens, sums.values())) or 1
    total = [sum(column) for column in zip(*sums.values(), strict=True)]
    rows = [(one_line(name) or "-", counts) for name, counts in sums.items()]
    cells = [
        [by.upper(), *HEADINGS],
        *([name, *map(_format_number, counts)] for name, counts in [*rows, ("total", total)]),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    bar_width = MAX_BAR_WIDTH
    if columns is not None:
        other_width = sum(widths[1:]) + 2 * len(widths[1:])
        widths[0] = max(min(widths[0], columns - other_width), MIN_NAME_WIDTH)
        bar_width = max(min(bar_width, columns - other_width - widths[0] - 2), 0)
    bars = ["", *(_bar(total_tokens(counts), max_tokens, bar_width) for _, counts in rows), ""]
    return [
        f"{_align_row(row, widths)}  {paint('dim', bar)}".rstrip() + "\n" for row, bar in zip(cells, bars, strict=True)
    ]


def _align_row(row: list[str], widths: list[int]) -> str:
    name, *numbers = row
    return "  ".join(
        [
            cut_text(name, widths[0]).ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)),
        ]
    )


def _format_number(count: int) -> str:
    return f"{count:,}"


def _bar(tokens: int, max_tokens: int, width: int) -> str:
    """Return a bar in proportion to the maximum, with at least one block if any token was used."""
    return "█" * min(max(round(tokens / max_tokens * width), 1 if tokens else 0), width)


def _parse_since(text: str) -> date | int:
    """Parse a day, or a number of days."""
    days = text.removesuffix("d")
    if text.endswith("d") and days.isascii() and days.isdecimal() and 1 <= int(days) <= MAX_DAYS:
        return int(days)
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"invalid day {text!r}: expected a day such as 2026-01-31, or a number of days such as 7d"
        ) from None


MAX_DAYS: Final = 36_500
MAX_BAR_WIDTH: Final = 24
MIN_NAME_WIDTH: Final = 8
HEADINGS: Final = ("REQUESTS", "ERRORS", "INPUT", "CACHED", "OUTPUT", "REASONING", "LOSSES")
EPILOG: Final = """examples:
  antiphon usage
  antiphon usage --by day --since 7d
  antiphon usage --by key --since 2026-01-01 --json

exit codes:
  0    success
  1    the store cannot be reached
  2    the command line or the configuration is invalid, or the store is disabled; nothing was done"""
