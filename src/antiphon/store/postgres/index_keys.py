"""Shortens ids to the length that an index of PostgreSQL accepts."""

from __future__ import annotations

from hashlib import sha256
from typing import Final


def index_key(id: str) -> bytes:
    """The index key of an item or call id. An index accepts at most 2,700 bytes, so a long id is cut and a digest is
    appended. A key that was not cut is always shorter than one that was."""
    key = id.encode()
    return key if len(key) < MAX_KEY_LENGTH else key[: MAX_KEY_LENGTH - 32] + sha256(key).digest()


MAX_KEY_LENGTH: Final = 512
