"""`antiphon store`: count the stored responses, remove old ones, verify the store, and back it up."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from antiphon.cli.exits import FAILED, OK, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import one_line, printable
from antiphon.config import StoreConfig, default_config, find_config, load_config
from antiphon.store.interface import Store, StoreStats
from antiphon.store.work import QueueStats


def add_parser(subparsers: Any, summary: str) -> None:
    parser = subparsers.add_parser(
        "store",
        help=summary,
        description="Inspects, prunes, verifies and backs up the store of responses. The gateway may be running, "
        "except for `restore`.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    stats = _add_action(actions, "stats", "show how much is stored")
    stats.add_argument(
        "--json", action="store_true", help="print one JSON object on one line; times are seconds since 1970"
    )
    prune = _add_action(actions, "prune", "remove old responses, except those that a newer response continues")
    prune.add_argument(
        "--days",
        metavar="N",
        type=_parse_days,
        help="remove responses older than this (default: retention_days in the configuration)",
    )
    prune.add_argument(
        "--keep",
        metavar="N",
        type=_parse_count,
        help="keep at most this many responses (default: max_responses in the configuration)",
    )
    _add_action(actions, "verify", "check the integrity of everything that is stored")
    backup = _add_action(actions, "backup", "write a consistent copy of an SQLite store to a new private file")
    backup.add_argument("file", metavar="FILE", type=Path, help="the new file")
    restore = _add_action(actions, "restore", "replace an SQLite store with a backup; stop the gateway first")
    restore.add_argument("file", metavar="FILE", type=Path, help="a file that `backup` has written")


def run(
    args: argparse.Namespace,
    out: TextIO,
    err: TextIO,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    now: Callable[[], float] = time.time,
) -> int:
    del err  # errors are raised
    file = find_config(args.config, environ, cwd or Path.cwd())
    config = (load_config(file, environ) if file else default_config(environ)).store
    if args.action in ("backup", "restore"):
        return _copy_store(args.action, (cwd or Path.cwd()) / args.file, config, environ, out)

    async def run_action(store: Store) -> int:
        match args.action:
            case "stats":
                stats, queue = await store.stats(), await store.queue_stats()
                out.writelines([_stats_to_json(stats, queue)] if args.json else _stats_table(stats, queue))
                return OK
            case "prune":
                count = await _prune(store, config, args.days, args.keep, now())
                out.write(f"removed {_format_count(count, 'response')}\n")
                return OK
            case _:
                problems = await store.verify()
                out.writelines(f"{one_line(line)}\n" for line in problems or ["no problems found"])
                return FAILED if problems else OK

    return asyncio.run(with_store(config, environ, run_action))


def describe_retention(config: StoreConfig, environ: Mapping[str, str]) -> str:
    """Describe in one line where responses are stored and for how long."""
    from antiphon.store.opening import describe_location  # loading SQLite is slow, and other commands do not need it

    location = describe_location(config, environ)
    if location is None:
        return "responses: not stored, because [store] url is off"
    limit = "" if config.max_responses is None else f", at most {config.max_responses:,}"
    unit = "day" if config.retention_days == 1 else "days"
    return f"responses: stored for {config.retention_days:g} {unit}{limit}, in {location}"


async def with_store(config: StoreConfig, environ: Mapping[str, str], run_action: Callable[[Store], Any]) -> int:
    """Open the store, run `run_action` with it, and return its exit code."""
    from antiphon.store.opening import open_store

    store = await open_store(config, environ)
    if store is None:
        raise InvalidUsage(DISABLED_STORE)
    try:
        code: int = await run_action(store)
        return code
    finally:
        await store.close()


def _copy_store(action: str, file: Path, config: StoreConfig, environ: Mapping[str, str], out: TextIO) -> int:
    from antiphon.store.opening import describe_location, sqlite_path
    from antiphon.store.sqlite.backup import back_up, restore

    path = sqlite_path(config, environ)
    if path is None:
        if describe_location(config, environ) is None:
            raise InvalidUsage(DISABLED_STORE)
        command = "pg_dump --format=custom" if action == "backup" else "pg_restore"
        raise InvalidUsage(f"the store is PostgreSQL: use its own tool, {command}; see docs/state.md")
    if action == "backup":
        size = back_up(path, file)
        out.write(printable(f"{path}: backed up to {file}, {size / 2**20:,.1f} MiB\n"))
        return OK
    previous_path = restore(file, path)
    out.write(printable(f"{path}: restored from {file}\n"))
    if previous_path is not None:
        out.write(printable(f"the previous database is now {previous_path}\n"))
    return OK


async def _prune(store: Store, config: StoreConfig, days: float | None, keep: int | None, now: float) -> int:
    created_before = math.floor(now - (config.retention_days if days is None else days) * 86_400)
    total = 0
    while count := await store.prune(before=created_before, keep=config.max_responses if keep is None else keep):
        total += count
    return total


def _stats_to_json(stats: StoreStats, queue: QueueStats) -> str:
    members = msgspec.structs.asdict(stats) | {"queue": queue}
    return f"{msgspec.json.encode(members).decode()}\n"


def _stats_table(stats: StoreStats, queue: QueueStats) -> list[str]:
    oldest_text = "" if queue.oldest_waiting is None else f", the oldest since {_format_time(queue.oldest_waiting)}"
    rows = {
        "responses": f"{stats.responses:,}",
        "owners": f"{stats.owners:,}",
        "ids": f"{stats.items:,}",  # ids of items
        "conversations": f"{stats.conversations:,}",
        "events": f"{stats.events:,}",
        "size": f"{stats.bytes / 2**20:,.1f} MiB",
        "oldest": _format_time(stats.oldest),
        "newest": _format_time(stats.newest),
        "queue": f"{queue.waiting:,} waiting, {queue.running:,} running{oldest_text}",
    }
    return [f"{name:13}  {value}\n" for name, value in rows.items()]


def _format_time(seconds: int | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _format_count(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _add_action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=EPILOG, **HELP_FORMAT
    )
    action.add_argument(
        "--config", metavar="F", type=Path, help="the configuration file (default: the one that `serve` would use)"
    )
    return action


def _parse_days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"invalid number of days {text!r}: expected 0–{MAX_DAYS}")
    return days


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"invalid number of responses {text!r}: expected 0 or more")
    return int(text)


DISABLED_STORE: Final = "the store is disabled: [store] url is off in the configuration"
MAX_DAYS: Final = 36_500
EPILOG: Final = """examples:
  antiphon store stats
  antiphon store prune --days 7
  antiphon store verify && echo ok
  antiphon store backup antiphon-2026-11-17.db

exit codes:
  0    success
  1    the store cannot be reached, or `verify` found a problem
  2    the command line or the configuration is invalid; nothing was done"""
