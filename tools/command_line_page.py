"""Makes `docs/command-line.md` from the help of the commands (`python tools/command_line_page.py`). A test holds the two equal."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"
WIDTH = "100"
HEAD = """# The command line

Every command explains itself with `--help`; this page is made from that.

What a command was asked for goes to standard output, everything about it to standard error. So `antiphon ask` can stand in a
pipe: the text of the answer comes out of it, while reasoning, calls of tools, losses and usage stay on the terminal. A refusal or
an answer that was cut ends with 1, as an error does. Control characters that a model or a server sends are left out; `--json`
keeps them, escaped.
"""


def page() -> str:
    """The whole page."""
    from antiphon.cli.entry import make_parser

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        sections = [_section(command) for command in _commands(make_parser())]
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "\n".join([HEAD, *sections])


def _commands(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser and those of its commands, in the order in which help names them."""
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found += _commands(inner)
    return found


def _section(command: argparse.ArgumentParser) -> str:
    return f"## {command.prog}\n\n```text\n{command.format_help().strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
