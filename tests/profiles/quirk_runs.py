"""Runs a quirk on a request as a client writes it, and shows the request as a server would see it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from antiphon.profiles.profile import Quirk
from antiphon.profiles.quirks import QUIRKS
from antiphon.protocol.codec import decode_request, encode
from antiphon.protocol.losses import Losses


def run_quirk(name: str, options: Struct | None = None, **request: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The JSON that comes out, and what was lost by its path."""
    quirk = Quirk(name, QUIRKS[name].options() if options is None else options)
    losses = Losses()
    changed = quirk.apply(decode_request(msgspec.json.encode(request)), losses)
    sent: dict[str, Any] = msgspec.json.decode(encode(changed))
    return sent, {loss.path: loss.what for loss in losses}
