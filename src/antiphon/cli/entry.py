"""The entry point: parse the command line, run the command, print its error and return the exit code.

Only the module of the command that runs is imported. Unexpected exceptions are not caught: the traceback helps to fix
them, and Python exits with 1 as well.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any, Final, Protocol, TextIO, cast

from antiphon import __version__
from antiphon.cli import restore_interrupt
from antiphon.cli.exits import EXIT_CODES, FAILED, INTERRUPTED, INVALID_USAGE, InvalidUsage
from antiphon.cli.help import HELP_FORMAT, CommandParser
from antiphon.cli.terminal import StatusLine, TextStyler, printable
from antiphon.errors import AntiphonError, ConfigError, ProfileError


class Command(Protocol):
    """The interface of every command's module."""

    def add_parser(self, subparsers: Any, summary: str) -> None:
        """Add the command's parser. `summary` is its line in the list of commands."""
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
        args = parse_arguments(sys.argv[1:] if argv is None else argv)
        command = import_command(args.command) if args.command else None
    except SystemExit as exit_request:
        return int(exit_request.code or 0)
    if command is None:
        err.write(make_parser([]).format_help())
        return INVALID_USAGE
    try:
        restore_interrupt()
        code = command.run(args, out, err)
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


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. For commands that start another program, `passed` has the arguments after `--`."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    command = next((name for name in arguments if name in COMMANDS), None)
    if command:
        with StatusLine(sys.stderr, os.environ).show(f"antiphon {command}"):
            import_command(command)  # takes up to 0.3 s
    own, passed = arguments, list[str]()
    if command in STARTERS and "--" in arguments:
        end = list(arguments).index("--")
        own, passed = arguments[:end], list(arguments[end + 1 :])
    parser = make_parser([command] if command else [])
    _refuse_unknown_command(parser, own)
    args, unknown = parser.parse_known_args(own)
    if unknown:
        _refuse_unknown_arguments(parser, own, unknown)
    args.passed = passed
    return args


def _refuse_unknown_command(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """End with the nearest command, instead of argparse's list of all."""
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        from difflib import get_close_matches  # imported here, because it is rarely needed

        suggestions = get_close_matches(word, COMMANDS, n=1)
        hint = f"did you mean {suggestions[0]}?" if suggestions else "antiphon --help lists the commands"
        parser.error(f"unknown command {printable(word)!r}: {hint}")


def _refuse_unknown_arguments(
    parser: argparse.ArgumentParser, arguments: Sequence[str], unknown: Sequence[str]
) -> None:
    """End with the usage of the command and its nearest option."""
    from difflib import get_close_matches  # imported here, because it is rarely needed

    for word in arguments:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
    options = [name for action in parser._actions for name in action.option_strings]
    suggestions = get_close_matches(unknown[0].partition("=")[0], options, n=1)
    hint = f"; did you mean {suggestions[0]}?" if suggestions else ""
    parser.error(f"unrecognized arguments: {printable(' '.join(unknown))}{hint}")


def make_parser(complete_commands: Collection[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line. The other commands than `complete_commands` have a summary only."""
    parser = CommandParser(
        prog="antiphon",
        description="Connects any LLM client to any LLM server through Open Responses.",
        epilog=EPILOG,
        **HELP_FORMAT,
    )
    parser.add_argument("-V", "--version", action="version", version=f"antiphon {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        if complete_commands is None or name in complete_commands:
            import_command(name).add_parser(subparsers, summary)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def import_command(name: str) -> Command:
    """Import the module of a command."""
    return cast(Command, import_module(f"antiphon.cli.{name}"))


def _report_error(error: AntiphonError, out: TextIO, err: TextIO) -> int:
    out.flush()  # output is written before the error
    err.write(f"{TextStyler(err, os.environ)('red', 'antiphon:')} {printable(str(error))}\n")
    return INVALID_USAGE if isinstance(error, InvalidUsage | ConfigError | ProfileError) else FAILED


# Commands that start another program, whose arguments follow `--`.
STARTERS: Final = ("run",)
# Each command, whose module has the same name → its summary.
COMMANDS: Final = {
    "init": "write a configuration for what is found on this machine",
    "serve": "start the gateway",
    "reload": "load the changed configuration of a running gateway",
    "ask": "ask a model through a running gateway",
    "chat": "talk to a model in the terminal",
    "run": "start an agent, such as Claude Code or Codex, on a gateway",
    "setup": "connect an agent to a gateway permanently",
    "models": "list the models of a running gateway",
    "upstreams": "show the health of the upstreams of a running gateway",
    "route": "explain how a running gateway would route a request",
    "config": "check a configuration, or print its schema",
    "trace": "list, show and replay traces of requests",
    "store": "inspect, prune, verify, back up and restore the store",
    "usage": "show usage: tokens, requests, errors, losses",
    "check": "test whether a server conforms to Open Responses",
    "probe": "find out what a server accepts, and write its profile",
    "translate": "translate a request, a response or a recorded stream to another dialect",
    "explain": "explain why a server refuses a request, and how to fix it",
    "bridge": "turn an agent's JSON lines into a stream of events",
    "completion": "print the completion script of a shell",
}
EPILOG: Final = f"""examples:
  antiphon serve                          start the gateway with the embedded model
  antiphon ask "What is 2+2?"             ask the model
  antiphon COMMAND --help                 show the help of a command

{EXIT_CODES}"""
