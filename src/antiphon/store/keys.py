"""The kinds of the index keys of items and calls, the same in every store.

An id that the gateway generated means one item for ever and is repeated in every later turn: the index names the first
response that has it. An id that a client chose may mean another item each time: the index names the latest response.
"""

from __future__ import annotations

import re
from typing import Final

ITEM: Final = 0
CALL: Final = 1
ITEM_ONCE: Final = 2  # stored as ITEM, unless the id is indexed already

GENERATED_ID: Final = re.compile("[a-z]+_[0-9a-f]{40}(?:x[0-9a-f]+)?")
is_generated_id: Final = GENERATED_ID.fullmatch  # called for every item of a response
