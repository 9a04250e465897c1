"""Generates `docs/command-line.md` from the help of the commands (`python tools/command_line_page.py`).

A test compares the page with its source.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "command-line.md"
WIDTH = "100"
HEAD = """# Command line

This page lists the commands of `antiphon` with their options and exit codes. `tools/command_line_page.py` generates
it from `--help`.

```console
$ antiphon serve
$ antiphon ask "What is 2+2?"
```

Every command writes its result to standard output and everything else to standard error. In a pipe, `antiphon ask`
therefore outputs only the text of the answer; reasoning, tool calls, losses and usage appear on the terminal. A
refusal and an incomplete answer have exit code 1, like an error. Control characters in data from a model or a server
are removed; with `--json` they are kept, escaped.
"""


def page() -> str:
    """Returns the text of the page."""
    from antiphon.cli.entry import make_parser

    previous_columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        sections = [_section(command) for command in _commands(make_parser())]
    finally:
        os.environ.pop("COLUMNS")
        if previous_columns is not None:
            os.environ["COLUMNS"] = previous_columns
    return "\n".join([HEAD, *sections])


def _commands(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Returns the parser and the parsers of its commands, in the order of the help text."""
    parsers = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                parsers += _commands(subparser)
    return parsers


def _section(command: argparse.ArgumentParser) -> str:
    return f"## {command.prog}\n\n```text\n{command.format_help().strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
