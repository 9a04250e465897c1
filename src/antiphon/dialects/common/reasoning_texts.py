"""The texts of a reasoning item, each with a key of its part, and the paragraphs of the one text that clients show.

Clients of other dialects show all reasoning as one text: reasoning texts are joined, each summary part is a new
paragraph.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from antiphon.protocol.content import Content, ReasoningText, SummaryText
from antiphon.protocol.items import Reasoning


def reasoning_texts(index: int, item: Reasoning, lose: Callable[[int, Content], None]) -> list[tuple[str, Hashable]]:
    """The texts of the item at this output index. Parts of other kinds are passed to `lose`."""
    texts: list[tuple[str, Hashable]] = []
    for number, part in enumerate([*item.summary, *(item.content or ())]):
        match part:
            case SummaryText(text=text):
                texts.append((text, (index, number)))
            case ReasoningText(text=text):
                texts.append((text, TEXT_PART))
            case _:
                lose(index, part)
    return texts


class ReasoningParagraphs:
    """Separates the texts of different parts by a blank line."""

    def __init__(self) -> None:
        self._last_part: Hashable = None

    def separate(self, text: str, part: Hashable) -> str:
        """Return `text`, after a blank line if another part was written before."""
        last, self._last_part = self._last_part, part
        return f"\n\n{text}" if last is not None and last != part else text


TEXT_PART: Final = "text"  # the common part of all reasoning texts
