"""Signatures of thoughts, with which a fake server of the Messages API recognises thoughts that it issued.

A signature is a keyed hash of the thoughts. All fake servers share the key, so each accepts the signatures of the
others. Signatures of a script are valid only on the server that issued them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final


def signature_of(thinking: str) -> str:
    """The signature of a thinking block with these words."""
    return base64.b64encode(b"signed " + hmac.digest(SECRET, thinking.encode(), hashlib.sha256)).decode()


def sealed(thinking: str) -> str:
    """These words as the `data` of a redacted thinking block."""
    words = thinking.encode()
    return base64.b64encode(hmac.digest(SECRET, b"sealed " + words, hashlib.sha256) + words).decode()


class IssuedThoughts:
    """The thoughts that one server has given out."""

    def __init__(self) -> None:
        self._signed: set[tuple[str, str]] = set()
        self._sealed: set[str] = set()

    def give(self, thinking: str, signature: str | None) -> str:
        """The signature to give with these words: the one that is wanted, else a true one."""
        if signature is None:
            return signature_of(thinking)
        self._signed.add((thinking, signature))
        return signature

    def give_sealed(self, data: str) -> None:
        self._sealed.add(data)

    def knows(self, thinking: str, signature: str) -> bool:
        return signature == signature_of(thinking) or (thinking, signature) in self._signed

    def knows_sealed(self, data: str) -> bool:
        return data in self._sealed or _is_sealed(data)


def _is_sealed(data: str) -> bool:
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return content[:SIZE] == hmac.digest(SECRET, b"sealed " + content[SIZE:], hashlib.sha256)


SECRET: Final = b"the secret of every fake server"
SIZE: Final = hashlib.sha256().digest_size
