"""Separates reasoning in `<think>…</think>` from the text of a stream whose pieces may split a tag.

White space before a leading tag and after any tag is removed, so that an empty block leaves nothing. `is_settled` is
true when no more tags are expected and the text need not be fed any more.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
MAX_PENDING: Final = 4096  # characters of leading white space that may precede a tag

ThinkTags = Literal["leading", "anywhere", "implied", "off"]


class TextPiece(NamedTuple):
    is_reasoning: bool
    text: str


class ThinkSplitter:
    """Takes text and returns pieces of text and of reasoning.

    `leading` looks for one block at the beginning of the text; `anywhere` for any number of them; `implied` begins
    inside a block, whether its tag is there or was a part of the prompt; `off` looks for nothing.
    """

    def __init__(self, tags: ThinkTags) -> None:
        self._tags = tags
        self._state: Literal["beginning", "thinking", "talking"] = "beginning"
        self._pending = ""
        self._after_tag = False
        self.is_settled = tags == "off"
        self.has_found_tag = False  # whether the text had a tag

    def feed(self, text: str) -> list[TextPiece]:
        """The pieces that are certain after `text`."""
        text, self._pending = self._pending + text, ""
        pieces: list[TextPiece] = []
        while text and not self.is_settled:
            if self._state == "beginning":
                text = self._begin(text)
            elif self._state == "thinking":
                text = self._until(CLOSE, text, pieces)
            else:
                text = self._talk(text, pieces)
        self._give(text, pieces)
        return pieces

    def flush(self) -> list[TextPiece]:
        """Returns the pending text at the end of the text. An incomplete tag is text."""
        pieces: list[TextPiece] = []
        if self._pending:
            if self._state == "beginning":
                self._begin_without_tag()
            self._give(self._pending, pieces)
            self._pending = ""
        return pieces

    def _begin(self, text: str) -> str:
        stripped = text.lstrip()
        if stripped.startswith(OPEN):
            self._enter("thinking")
            return stripped[len(OPEN) :]
        if OPEN.startswith(stripped) and len(text) <= MAX_PENDING:  # undecided; also for white space alone
            self._pending = text
            return ""
        self._begin_without_tag()
        return text

    def _begin_without_tag(self) -> None:
        self._state = "thinking" if self._tags == "implied" else "talking"
        self.is_settled = self._tags == "leading"

    def _talk(self, text: str, pieces: list[TextPiece]) -> str:
        if self._tags == "anywhere":
            return self._until(OPEN, text, pieces)
        self._give(text, pieces)
        self.is_settled = not self._after_tag
        return ""

    def _until(self, tag: str, text: str, pieces: list[TextPiece]) -> str:
        """Adds the text before the next tag to `pieces`, and returns the text after it."""
        index = text.find(tag)
        if index < 0:
            index = len(text) - _partial_tag_length(tag, text)
            self._pending = text[index:]
            self._give(text[:index], pieces)
            return ""
        self._give(text[:index], pieces)
        self._enter("talking" if tag == CLOSE else "thinking")
        return text[index + len(tag) :]

    def _enter(self, state: Literal["thinking", "talking"]) -> None:
        self._state = state
        self._after_tag = self.has_found_tag = True

    def _give(self, text: str, pieces: list[TextPiece]) -> None:
        if self._after_tag:
            text = text.lstrip()
            self._after_tag = not text
        if text:
            pieces.append(TextPiece(self._state == "thinking", text))


def _partial_tag_length(tag: str, text: str) -> int:
    """The number of characters at the end of `text` that may start `tag`."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
