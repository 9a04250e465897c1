"""What items and calls are found by, in every store.

An id that we gave means one item for ever, and is in the history of every later turn: the first response that has it is the one by
which it is found. An id that a client made up may mean another item each time, and the latest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

ITEM: Final = 0
CALL: Final = 1
ITEM_ONCE: Final = 2  # not a kind of its own: an item, unless it is found already


def kinds_and_ids(item_ids: Sequence[str], call_ids: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Kinds and ids."""
    for id in item_ids:
        yield (_kind_of(id) if len(id) <= LONGEST else ITEM), id
    for id in call_ids:
        yield CALL, id


@lru_cache(maxsize=1024)
def _kind_of(id: str) -> int:
    """A history has the same ids again and again."""
    return ITEM_ONCE if OURS.fullmatch(id) else ITEM


LONGEST: Final = 80  # of an id of ours
OURS: Final = re.compile("[a-z]+_[0-9a-f]{40}(?:x[0-9a-f]+)?")
