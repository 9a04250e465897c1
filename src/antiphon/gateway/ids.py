"""Ids, the clock and padding for `Stamps` and `Policy`, outside tests."""

from __future__ import annotations

import os
import secrets
import time
from typing import Final


def new_id(prefix: str) -> str:
    """An unguessable id: 128 random bits, after the time. The time keeps related rows together in indexes: with random
    ids, storing a response costs two and a half times as much."""
    return f"{prefix}_{int(time.time()):08x}{_random_bits.take()}"


class _RandomBits:
    """A pool of random bits from the system, since one large read is cheaper than many small ones. No bits are used
    twice."""

    def __init__(self) -> None:
        self._remaining: list[str] = []
        os.register_at_fork(after_in_child=self._remaining.clear)

    def take(self) -> str:
        if not self._remaining:
            bits = secrets.token_hex(16 * POOL_BYTES)
            self._remaining += [bits[position : position + 32] for position in range(0, len(bits), 32)]
        return self._remaining.pop()


def now() -> int:
    return int(time.time())


def random_padding(length: int) -> str:
    """STR-13: random padding that hides the length of a delta."""
    return secrets.token_urlsafe(64)[: 16 - length % 16 + secrets.randbelow(16)]


POOL_BYTES: Final = 128
_random_bits: Final = _RandomBits()
