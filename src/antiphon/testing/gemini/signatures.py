"""Thought signatures: what the server gives with a call or a text, and whether what comes back is what it gave.

A signature that the server makes is a keyed hash of the call, so that one which was changed, moved to another call or given by
another server is known. Of those that a script gives it keeps a list.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Final

import msgspec

from antiphon.testing.gemini.errors import GeminiRequestRefused
from antiphon.testing.gemini.wire_shapes import from_base64


class Signatures:
    def __init__(self, secret: bytes = b"fake") -> None:
        self._secret = secret
        self._given: set[bytes] = set()

    def make_for(self, part: dict[str, Any]) -> str:
        """A signature for this part. The texts of an answer share one: they may come back in other pieces."""
        return base64.b64encode(self._hash(part)).decode()

    def given(self, signature: str) -> str:
        """A signature from a script, as it stands on the wire: base64, unless it is that already."""
        wire = signature if from_base64(signature) is not None else base64.b64encode(signature.encode()).decode()
        self._given.add(from_base64(wire) or b"")
        return wire

    def check(self, part: dict[str, Any]) -> None:
        """Whether the signature of a part, if it has one, is good."""
        text = part.get("thoughtSignature")
        if not text or text in DUMMIES:
            return
        signature = from_base64(text) or b""
        if (
            signature in self._given
            or signature in BYTES_OF_DUMMIES
            or hmac.compare_digest(signature, self._hash(part))
        ):
            return
        # It says "Corrupted thought signature.": one of another model family, of another provider, or changed on the way.
        raise GeminiRequestRefused("Corrupted thought signature.")

    def _hash(self, part: dict[str, Any]) -> bytes:
        call = part.get("functionCall")
        signed = [call.get("name"), call.get("args") or {}] if call else ["text"]
        return hmac.digest(self._secret, msgspec.json.encode(signed, order="sorted"), hashlib.sha256)


#: What the documentation offers to who has lost a signature, or never had one.
DUMMIES: Final = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
BYTES_OF_DUMMIES: Final = tuple(dummy.encode() for dummy in DUMMIES)
