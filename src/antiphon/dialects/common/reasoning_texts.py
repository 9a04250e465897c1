"""The words of a reasoning item that was not told piece by piece, each with the part that it belongs to.

Clients of other dialects read all reasoning as one text: texts follow each other, each part of a summary is a paragraph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from antiphon.protocol.content import Content, ReasoningText, SummaryText
from antiphon.protocol.items import Reasoning


def reasoning_texts(index: int, item: Reasoning, lose: Callable[[int, Content], None]) -> list[tuple[str, Hashable]]:
    """The texts of the item at this place of the output; a part that is no thought is given to `lose`."""
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


TEXT_PART: Final = "text"  # the part of all reasoning that is no summary
