"""Ids as an index of PostgreSQL takes them."""

from __future__ import annotations

from hashlib import sha256
from typing import Final


def index_key(id: str) -> bytes:
    """What an item or a call is found by. An index takes no more than 2,700 bytes, so what is too long keeps its beginning, and a
    digest stands for the rest; none that is short is as long as this."""
    found = id.encode()
    return found if len(found) < LONGEST_KEY else found[: LONGEST_KEY - 32] + sha256(found).digest()


LONGEST_KEY: Final = 512
