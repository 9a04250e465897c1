"""How help looks: descriptions fit the terminal, examples and tables stay as they are written."""

from __future__ import annotations

import argparse
from typing import Any, Final


class Help(argparse.HelpFormatter):
    """Wraps what is one paragraph, and leaves alone what has lines of its own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


# For every parser. Options are not abbreviated: a script that does it would break when another option comes.
FORMAT: Final[dict[str, Any]] = {"formatter_class": Help, "allow_abbrev": False}
