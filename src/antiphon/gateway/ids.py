"""Ids, the clock and padding of a gateway: what `Stamps` and `Policy` are given outside tests."""

from __future__ import annotations

import os
import secrets
import time
from typing import Final


def new_id(prefix: str) -> str:
    """An id that nobody can guess: 128 random bits. The time stands before them, so that what is kept together lies together: with
    ids in no order at all, keeping a response costs two and a half times as much."""
    return f"{prefix}_{int(time.time()):08x}{_random_bits.take()}"


class _RandomBits:
    """The system's random bits, asked for many at a time: asking costs more than the bits do. None is given twice."""

    def __init__(self) -> None:
        self._left: list[str] = []
        os.register_at_fork(after_in_child=self._left.clear)

    def take(self) -> str:
        if not self._left:
            bits = secrets.token_hex(16 * POOLED)
            self._left += [bits[at : at + 32] for at in range(0, len(bits), 32)]
        return self._left.pop()


def now() -> int:
    return int(time.time())


def random_padding(length: int) -> str:
    """STR-13: so much that the length of a delta on the wire says little about its text."""
    return secrets.token_urlsafe(64)[: 16 - length % 16 + secrets.randbelow(16)]


POOLED: Final = 128
_random_bits: Final = _RandomBits()
