"""Requests of the Gemini endpoint that counts tokens, of clients and to servers."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from antiphon.dialects.gemini.models import model_resource_name
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json


def turn_to_count(body: bytes) -> bytes:
    """Removes the `generateContentRequest` object around a turn, if there is one."""
    try:
        members = decode_json(body, type=dict[str, Raw])
        inner = decode_json(members.get("generateContentRequest", b""), type=dict[str, Raw])
    except ValueError:
        return body
    return codec.encode({name: value for name, value in inner.items() if name != "model"})


def count_request(body: bytes, model: str) -> bytes:
    """Puts a turn into `generateContentRequest`: otherwise the endpoint counts the contents only."""
    members: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Raw])
    return codec.encode({"generateContentRequest": {"model": model_resource_name(model), **members}})
