"""Thought signatures: issue them with calls and texts, and verify those that clients send back.

A signature is a keyed hash of the call, so that one that was changed, moved to another call or issued by another server
is detected. Signatures of a script are kept in a set.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Final

import msgspec

from antiphon.rules.gemini.shapes import from_base64
from antiphon.testing.gemini.errors import GeminiRequestRefused


class Signatures:
    def __init__(self, secret: bytes = b"fake") -> None:
        self._secret = secret
        self._given: set[bytes] = set()

    def make_for(self, part: dict[str, Any]) -> str:
        """Make a signature for this part. The texts of an answer share one: they may come back in other pieces."""
        return base64.b64encode(self._hash(part)).decode()

    def given(self, signature: str) -> str:
        """Return a signature of a script in its wire form: base64, unless it is base64 already."""
        wire = signature if from_base64(signature) is not None else base64.b64encode(signature.encode()).decode()
        self._given.add(from_base64(wire) or b"")
        return wire

    def check(self, part: dict[str, Any]) -> None:
        """Raise if the signature of a part is invalid. A part without a signature passes."""
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
        # It says "Corrupted thought signature.": one of another model family, of another provider, or changed on the
        # way.
        raise GeminiRequestRefused("Corrupted thought signature.")

    def _hash(self, part: dict[str, Any]) -> bytes:
        call = part.get("functionCall")
        signed = [call.get("name"), call.get("args") or {}] if call else ["text"]
        return hmac.digest(self._secret, msgspec.json.encode(signed, order="sorted"), hashlib.sha256)


#: The documented placeholders for missing signatures.
DUMMIES: Final = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
BYTES_OF_DUMMIES: Final = tuple(dummy.encode() for dummy in DUMMIES)
