"""What may be written to a terminal: colours if it takes them, and nothing that would steer it.

What a model or a server says is text and stays text: no escape sequence of theirs reaches a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TextIO

TextStyle = Literal["dim", "bold", "red", "yellow"]


class TextStyler:
    """Gives text a look, on streams that are terminals and take colours; elsewhere it stays as it is."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._is_on = stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def is_on(self) -> bool:
        return self._is_on

    def __call__(self, look: TextStyle, text: str) -> str:
        # Every piece is closed by itself, so that an interruption cannot leave the terminal painted.
        return f"\x1b[{CODES[look]}m{text}\x1b[0m" if self._is_on and text else text


def printable(text: str) -> str:
    """`text` without control characters; line ends and tabs stay."""
    return CONTROLS.sub("", text)


def one_line(text: str) -> str:
    """`text` without control characters, on one line."""
    return " ".join(printable(text).split())


def printable_json(raw: bytes) -> str:
    """JSON on one line that means the same and steers no terminal: JSON may hold DEL and the C1 controls unescaped."""
    text = raw.decode("utf-8", "replace").replace("\r", " ").replace("\n", " ")
    return UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


CODES: Final[dict[TextStyle, str]] = {"dim": "2", "bold": "1", "red": "31", "yellow": "33"}
CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
UNESCAPED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
