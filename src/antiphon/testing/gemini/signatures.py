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
        self._scripted_signatures: set[bytes] = set()

    def make_signature(self, part: dict[str, Any]) -> str:
        """Make a signature for this part. The texts of an answer share one: they may come back in other pieces."""
        return base64.b64encode(self._hash(part)).decode()

    def accept_scripted(self, signature: str) -> str:
        """Return a signature of a script in its wire form: base64, unless it is base64 already."""
        encoded_signature = (
            signature if from_base64(signature) is not None else base64.b64encode(signature.encode()).decode()
        )
        self._scripted_signatures.add(from_base64(encoded_signature) or b"")
        return encoded_signature

    def check_part(self, part: dict[str, Any]) -> None:
        """Raise if the signature of a part is invalid. A part without a signature passes."""
        text = part.get("thoughtSignature")
        if not text or text in PLACEHOLDERS:
            return
        signature = from_base64(text) or b""
        if (
            signature in self._scripted_signatures
            or signature in PLACEHOLDER_BYTES
            or hmac.compare_digest(signature, self._hash(part))
        ):
            return
        # The signature is of another model family or of another provider, or it was changed.
        raise GeminiRequestRefused("Corrupted thought signature.")

    def _hash(self, part: dict[str, Any]) -> bytes:
        call = part.get("functionCall")
        signed_content = [call.get("name"), call.get("args") or {}] if call else ["text"]
        return hmac.digest(self._secret, msgspec.json.encode(signed_content, order="sorted"), hashlib.sha256)


#: The documented placeholders for missing signatures.
PLACEHOLDERS: Final = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
PLACEHOLDER_BYTES: Final = tuple(placeholder.encode() for placeholder in PLACEHOLDERS)
