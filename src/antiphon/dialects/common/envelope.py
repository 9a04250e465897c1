"""Reasoning that only its maker can read, on its way through clients (RSN-2, RSN-3): one envelope inside `encrypted_content`.

A server's signatures, redacted blocks and sealed thoughts go into an envelope that names their maker. It comes back with the
history, is opened for that maker, and is foreign to everybody else. What an envelope holds is its dialect's own affair. Nothing
here is secret: makers check their own signatures.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from msgspec import Struct

from antiphon.protocol import codec
from antiphon.protocol.nesting import decode_json


class Envelope(Struct, frozen=True):
    """Who made a piece of reasoning, and what its maker must be given back."""

    maker: str
    content: dict[str, Any]


def seal_reasoning(maker: str, content: dict[str, Any]) -> str:
    """The text that stands in `encrypted_content`. A maker's name is the `maker` of a profile's wire options."""
    return f"{ENVELOPE_PREFIX}{maker}.{base64.urlsafe_b64encode(codec.encode(content)).decode()}"


def unseal_reasoning(text: str) -> Envelope | None:
    """The envelope in `text`; None if it is none of ours, but what a server gave to a client without us."""
    form = FORM.fullmatch(text)
    if form is None:
        return None
    try:
        content = decode_json(base64.urlsafe_b64decode(form[2]))
    except (binascii.Error, ValueError):
        return None
    return Envelope(form[1], content) if isinstance(content, dict) else None


ENVELOPE_PREFIX: Final = "antiphon.reasoning."
FORM: Final = re.compile(re.escape(ENVELOPE_PREFIX) + r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*={0,2})")
