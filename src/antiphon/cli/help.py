"""How help looks: descriptions fit the terminal, examples and tables stay as they are written."""

from __future__ import annotations

import argparse
from typing import Any, Final


class Help(argparse.HelpFormatter):
    """Wraps what is one paragraph, and leaves alone what has lines of its own."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        # argparse measures commands without their indentation: the longest would stand on a line of its own.
        self._action_max_length = LONGEST_COMMAND

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-o, --output FILE`, as Python has it from 3.13 on; before, the value stands after each name."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


LONGEST_COMMAND: Final = len("    translate")
# For every parser. Options are not abbreviated: a script that does it would break when another option comes.
HELP_FORMAT: Final[dict[str, Any]] = {"formatter_class": Help, "allow_abbrev": False}
