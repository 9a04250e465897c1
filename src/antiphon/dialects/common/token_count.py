"""Builds the body of a request that counts the tokens of a turn."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from antiphon.protocol import codec


def count_request_with(*names: str) -> Callable[[bytes, str], bytes]:
    """Keeps only these fields of the turn: the counting endpoint accepts only fields that are part of the prompt."""

    def count_request(body: bytes, model: str) -> bytes:
        del model
        members = msgspec.json.decode(body, type=dict[str, Raw])
        return codec.encode({name: value for name, value in members.items() if name in names})

    return count_request
