"""The index keys of items and calls, the same in every store.

An id that the gateway generated means one item for ever and is repeated in every later turn: the index names the first
response that has it. An id that a client chose may mean another item each time: the index names the latest response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

ITEM: Final = 0
CALL: Final = 1
ITEM_ONCE: Final = 2  # stored as ITEM, unless the id is indexed already


def kinds_and_ids(item_ids: Sequence[str], call_ids: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields the kind and id of each index key."""
    for id in item_ids:
        yield (_kind_of(id) if len(id) <= MAX_GENERATED_LENGTH else ITEM), id
    for id in call_ids:
        yield CALL, id


@lru_cache(maxsize=1024)
def _kind_of(id: str) -> int:
    """The kind of an item id. Cached, because every turn repeats the ids of its history."""
    return ITEM_ONCE if GENERATED_ID.fullmatch(id) else ITEM


MAX_GENERATED_LENGTH: Final = 80  # of an id that the gateway generates
GENERATED_ID: Final = re.compile("[a-z]+_[0-9a-f]{40}(?:x[0-9a-f]+)?")
