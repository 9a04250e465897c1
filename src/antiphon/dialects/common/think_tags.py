"""Reasoning inside the text: `<think>…</think>`, taken out of a stream whose pieces may cut a tag anywhere.

White space before a tag that opens the text and after any tag belongs to the tag, so that an empty block leaves nothing behind.
Once there is nothing more to look for, `is_settled` says so, and the text needs to come this way no longer.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
MAX_PENDING: Final = 4096  # characters of white space before the text, in which a tag may still follow

ThinkTags = Literal["leading", "anywhere", "implied", "off"]


class TextPiece(NamedTuple):
    is_reasoning: bool
    text: str


class ThinkSplitter:
    """Text in, pieces of text and of reasoning out.

    `leading` looks for one block at the beginning of the text; `anywhere` for any number of them; `implied` begins inside a
    block, whether its tag is there or was a part of the prompt; `off` looks for nothing.
    """

    def __init__(self, tags: ThinkTags) -> None:
        self._tags = tags
        self._state: Literal["beginning", "thinking", "talking"] = "beginning"
        self._pending = ""
        self._after_tag = False
        self.is_settled = tags == "off"
        self.has_found_tag = False  # whether there was a tag

    def feed(self, text: str) -> list[TextPiece]:
        """What `text` makes certain."""
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
        """Something else comes, or nothing: what was held back, as it stands. A tag that was only begun was none."""
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
        if (
            OPEN.startswith(stripped) and len(text) <= MAX_PENDING
        ):  # not to be told yet; white space alone comes here too
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
        """Gives out what stands before the next tag, and returns what follows it."""
        at = text.find(tag)
        if at < 0:
            at = len(text) - _partial_tag_length(tag, text)
            self._pending = text[at:]
            self._give(text[:at], pieces)
            return ""
        self._give(text[:at], pieces)
        self._enter("talking" if tag == CLOSE else "thinking")
        return text[at + len(tag) :]

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
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
