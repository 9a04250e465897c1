"""Keeps cache marks within the limits of the Messages API: their number, and the order of their lifetimes (E-4).

Servers refuse more than four marks, and a mark for an hour after one for five minutes. Other APIs allow both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import UnsetType

from antiphon.dialects.common.cache_marks import CACHE_CONTROL
from antiphon.dialects.messages.history_out import SystemAndMessages
from antiphon.protocol.losses import Losses


def limit_cache_marks(history: SystemAndMessages, request_mark: dict[str, Any] | UnsetType, losses: Losses) -> None:
    """Remove or change marks of the history in place. The last ones are kept, because they cover the most.

    `request_mark`, the mark of the whole request, counts as the last one.
    """
    marked = [*_marked_blocks(history.system)]
    for message in history.messages:
        marked += _marked_blocks(message.content)
    if request_mark:
        marked.append({CACHE_CONTROL: request_mark})
    for block in marked[:-MAX_MARKS]:
        losses.add("input", "a cache mark", f"the API accepts at most {MAX_MARKS}; the last ones are kept")
        del block[CACHE_CONTROL]
    has_short_mark = False
    for block in marked[-MAX_MARKS:]:
        mark = block[CACHE_CONTROL]
        if mark.get("ttl") != LONG_LIFETIME:
            has_short_mark = True
        elif has_short_mark:
            losses.add("input", "the lifetime of a cache mark", "an earlier mark has a shorter lifetime")
            del mark["ttl"]


def _marked_blocks(blocks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The blocks with a mark, in the order of the prompt. A block with a mark is always a dict."""
    for block in blocks:
        content = block.get("content") if isinstance(block, dict) else getattr(block, "content", None)
        if isinstance(content, list):
            yield from _marked_blocks(content)
        if isinstance(block, dict) and isinstance(block.get(CACHE_CONTROL), dict):
            yield block


MAX_MARKS: Final = 4
LONG_LIFETIME: Final = "1h"
