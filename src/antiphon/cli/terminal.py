"""Text for terminals: colours if the terminal supports them, and no control characters.

Escape sequences in the output of models and servers never reach the terminal. Characters that change the direction of
text are escaped, because with them a text can look like another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TextIO

from antiphon.ops.line_width import cut_text, terminal_width, text_width

TextStyle = Literal["dim", "bold", "red", "yellow"]


class TextStyler:
    """Styles text for terminals that support colours; for other streams the text is unchanged."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._has_colours = stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def has_colours(self) -> bool:
        return self._has_colours

    def __call__(self, style: TextStyle, text: str) -> str:
        # Each text ends its own style, so that an interruption cannot leave the terminal styled.
        return f"\x1b[{STYLE_CODES[style]}m{text}\x1b[0m" if self._has_colours and text else text


class StatusLine:
    """A line on a terminal with what is being done. It is erased before output follows, with spaces, which every
    terminal has. On other streams nothing is written."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self._paint = TextStyler(stream, environ)
        self._is_enabled = stream.isatty()
        self._width = 0  # of the line that is shown

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> StatusLine:
        """Write the line, in place of the last one. A longer text than the terminal is wide is cut."""
        if self._is_enabled:
            self.clear()
            line = cut_text(f"{one_line(text)} …", terminal_width(self._stream) - 1)
            self._stream.write(self._paint("dim", line))
            self._stream.flush()
            self._width = text_width(line)
        return self

    def clear(self) -> None:
        """Erase the line."""
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()
            self._width = 0


def printable(text: str) -> str:
    """Return `text` without control characters, except line ends and tabs. Direction characters are escaped."""
    return DIRECTION_CHARACTERS.sub(_escape, CONTROL_CHARACTERS.sub("", text))


def one_line(text: str) -> str:
    """Return `text` as `printable` does, on one line."""
    return " ".join(printable(text).split())


def printable_json(raw: bytes) -> str:
    """Return equivalent JSON on one line, with all control and direction characters escaped: JSON may contain DEL and
    C1 controls."""
    text = raw.decode("utf-8", "replace").replace("\r", " ").replace("\n", " ")
    return DIRECTION_CHARACTERS.sub(_escape, CONTROL_CHARACTERS.sub(_escape, text))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


STYLE_CODES: Final[dict[TextStyle, str]] = {"dim": "2", "bold": "1", "red": "31", "yellow": "33"}
CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Characters that change the direction of text, or end a line where a terminal does not.
DIRECTION_CHARACTERS: Final = re.compile(r"[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
