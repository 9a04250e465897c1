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
    """Return the signature of a thinking block with this text."""
    return base64.b64encode(b"signed " + hmac.digest(SECRET, thinking.encode(), hashlib.sha256)).decode()


def redacted_data(thinking: str) -> str:
    """Return the `data` of a redacted thinking block with this text."""
    text = thinking.encode()
    return base64.b64encode(hmac.digest(SECRET, b"sealed " + text, hashlib.sha256) + text).decode()


class IssuedThoughts:
    """The thoughts that one server has issued."""

    def __init__(self) -> None:
        self._scripted_signatures: set[tuple[str, str]] = set()
        self._scripted_data: set[str] = set()

    def issue(self, thinking: str, signature: str | None) -> str:
        """Return the signature of this text: the one of the script, else a computed one."""
        if signature is None:
            return signature_of(thinking)
        self._scripted_signatures.add((thinking, signature))
        return signature

    def issue_redacted(self, data: str) -> None:
        self._scripted_data.add(data)

    def is_issued(self, thinking: str, signature: str) -> bool:
        return signature == signature_of(thinking) or (thinking, signature) in self._scripted_signatures

    def is_issued_redacted(self, data: str) -> bool:
        return data in self._scripted_data or _has_valid_hash(data)


def _has_valid_hash(data: str) -> bool:
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return content[:HASH_SIZE] == hmac.digest(SECRET, b"sealed " + content[HASH_SIZE:], hashlib.sha256)


SECRET: Final = b"the secret of every fake server"
HASH_SIZE: Final = hashlib.sha256().digest_size
