"""The entry point: parse the command line, run the command, print its error and return the exit code.

Unexpected exceptions are not caught: the traceback helps to fix them, and Python exits with 1 as well.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, Protocol, TextIO

from antiphon import __version__
from antiphon.cli import ask, bridge, check, config, explain, models, probe, serve, store, trace, translate, usage
from antiphon.cli.exits import EXIT_CODES, FAILED, INTERRUPTED, INVALID_USAGE, InvalidUsage
from antiphon.cli.help import HELP_FORMAT
from antiphon.cli.terminal import TextStyler, printable
from antiphon.errors import AntiphonError, ConfigError, ProfileError


class Command(Protocol):
    """The interface of every command's module."""

    def add(self, subparsers: Any) -> None:
        """Add the command's parser."""
        ...

    def run(self, args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
        """Run the command and return the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names and return its exit code."""
    out, err = sys.stdout, sys.stderr
    for stream in (out, err):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal's encoding lacks are replaced
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if args.command is None:
        err.write(make_parser().format_help())
        return INVALID_USAGE
    try:
        code = COMMANDS[args.command].run(args, out, err)
        out.flush()
    except AntiphonError as error:
        return _report_error(error, out, err)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does: print no error, and prevent Python's own at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="antiphon",
        description="Connects any LLM client to any LLM server through Open Responses.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    top.add_argument("--version", action="version", version=f"antiphon {__version__}")
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS.values():
        command.add(subparsers)
    return top


def _report_error(error: AntiphonError, out: TextIO, err: TextIO) -> int:
    out.flush()  # output is written before the error
    err.write(f"{TextStyler(err, os.environ)('red', 'antiphon:')} {printable(str(error))}\n")
    return INVALID_USAGE if isinstance(error, InvalidUsage | ConfigError | ProfileError) else FAILED


COMMANDS: Final[dict[str, Command]] = {
    "serve": serve,
    "ask": ask,
    "models": models,
    "config": config,
    "trace": trace,
    "store": store,
    "usage": usage,
    "check": check,
    "probe": probe,
    "translate": translate,
    "explain": explain,
    "bridge": bridge,
}
EPILOG: Final = f"""examples:
  antiphon serve                          start the gateway with the embedded model
  antiphon ask "What is 2+2?"             ask the model
  antiphon COMMAND --help                 show the help of a command

{EXIT_CODES}"""
