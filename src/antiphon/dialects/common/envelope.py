"""Carries opaque reasoning of a server through clients, in an envelope inside `encrypted_content` (RSN-2, RSN-3).

A server's signatures, redacted blocks and encrypted thoughts go into an envelope with the name of their maker. When the
envelope comes back with the history, it is opened only for that maker. Each dialect defines the content. The envelope
itself is not encrypted: makers check their own signatures.

A client may also send reasoning that never passed a gateway. Its maker is unknown, but it was made for the client's
dialect: its envelope has the maker of `client_maker`, and every server of that dialect gets it back.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from msgspec import Struct, UnsetType

from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json


class Envelope(Struct, frozen=True):
    """The maker of a piece of reasoning, and the content that the maker must get back."""

    maker: str
    content: dict[str, Any]

    def is_for(self, maker: str, dialect: str) -> bool:
        """Whether a server of `dialect` with this maker gets the content back."""
        return self.maker in (maker, client_maker(dialect))


def client_maker(dialect: str) -> str:
    """The maker of reasoning that clients of `dialect` send without an envelope."""
    return f"any-{dialect}"


def seal_reasoning(maker: str, content: dict[str, Any]) -> str:
    """The text for `encrypted_content`. `maker` is the `maker` of a profile's wire options."""
    return f"{ENVELOPE_PREFIX}{maker}.{base64.urlsafe_b64encode(codec.encode(content)).decode()}"


def unseal_reasoning(text: str | None | UnsetType) -> Envelope | None:
    """The envelope in `text`; None if `text` is absent or was not made by `seal_reasoning`."""
    form = FORM.fullmatch(text) if text else None
    if form is None:
        return None
    try:
        content = decode_json(base64.urlsafe_b64decode(form[2]))
    except (binascii.Error, ValueError):
        return None
    return Envelope(form[1], content) if isinstance(content, dict) else None


def has_more_than_text(sealed: str) -> bool:
    """Whether sealed reasoning has more than the text of a thought, which a client without seals gets too."""
    envelope = unseal_reasoning(sealed)
    return envelope is None or any(value for name, value in envelope.content.items() if name not in TEXT_MEMBERS)


#: Members of envelopes, in the several dialects: the text of a thought, and that it is a thought.
TEXT_MEMBERS: Final = frozenset({"thinking", "reasoning_content", "text", "on"})
ENVELOPE_PREFIX: Final = "antiphon.reasoning."
FORM: Final = re.compile(re.escape(ENVELOPE_PREFIX) + r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*={0,2})")
