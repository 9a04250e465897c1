"""Separates the messages of one answer by a blank line, for clients that get all of them as one text."""

from __future__ import annotations

from typing import Final

from antiphon.protocol.content import Content, OutputText


class MessageSeparator:
    """The text between the messages of one answer."""

    def __init__(self) -> None:
        self._last_index: int | None = None  # output index of the last message with text

    def before_part(self, index: int, part: Content) -> str:
        """Return a blank line if `part` is the first text of another message than the last text, else nothing."""
        if not isinstance(part, OutputText):
            return ""
        last, self._last_index = self._last_index, index
        return "" if last is None or last == index else BLANK_LINE

    def end_text(self) -> None:
        """Something else than text was written, which separates the texts before and after it."""
        self._last_index = None


BLANK_LINE: Final = "\n\n"
