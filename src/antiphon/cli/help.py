"""The parser of commands, and the format of help: descriptions are wrapped, examples and tables are not."""

from __future__ import annotations

import argparse
from typing import Any, Final


class HelpFormatter(argparse.HelpFormatter):
    """Wraps texts of one paragraph; texts with line breaks stay unchanged."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        # argparse measures commands without their indentation, so the longest would get its own line.
        self._action_max_length = MAX_COMMAND_WIDTH

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Format `-o, --output FILE` as Python 3.13 does; older versions repeat the value after each name."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class CommandParser(argparse.ArgumentParser):
    """A parser whose error about a value that is not allowed has the nearest one."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from difflib import get_close_matches  # imported here, because it is rarely needed

            choices = [str(choice) for choice in action.choices]
            suggestions = get_close_matches(str(value), choices, n=1)
            hint = f"did you mean {suggestions[0]}?" if suggestions else f"expected one of {', '.join(choices)}"
            raise argparse.ArgumentError(action, f"invalid value {value!r}: {hint}")


MAX_COMMAND_WIDTH: Final = len("    completion")
# For every parser. Options cannot be abbreviated: a new option could break scripts that do.
HELP_FORMAT: Final[dict[str, Any]] = {"formatter_class": HelpFormatter, "allow_abbrev": False}
