"""Frames that one typed decode refuses: read again, leniently, or given up.

Numbers in strings, numbers that are none, bytes that are no UTF-8 and characters cut in two by the server are mended here; halves
of characters are left in the texts that come in pieces, where the other half may follow.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from antiphon.dialects.chat.answers import Chunk
from antiphon.dialects.common.surrogates import SURROGATE, SURROGATE_LOSS
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import check_nesting


def decode_leniently(data: bytes, losses: Losses) -> Chunk | None:
    """The chunk in `data`, None if there is none in it."""
    text = data.decode("utf-8", "replace")
    try:
        check_nesting(data)
        value = _mended(json.loads(text), "", losses)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if text.encode() != data:
        losses.add("stream", "bytes that are no UTF-8 were replaced by U+FFFD")
    chunk = _convert(value)
    if chunk is None and value.pop("usage", None) is not None:
        chunk = _convert(value)
        losses.add("usage", "it has a form that nobody knows")
    return chunk


def _convert(value: dict[str, Any]) -> Chunk | None:
    try:
        return msgspec.convert(value, Chunk, strict=False)
    except msgspec.ValidationError:
        return None


def _mended(value: Any, name: str, losses: Losses) -> Any:
    """`value`, the member `name` of something, without what JSON or UTF-8 cannot hold."""
    match value:
        case str():
            return value if name in TEXTS_IN_PIECES else _whole(value, losses)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_whole(key, losses): _mended(member, key, losses) for key, member in value.items()}
        case list():
            return [_mended(member, name, losses) for member in value]
        case _:
            return value


def _whole(text: str, losses: Losses) -> str:
    mended, alone = SURROGATE.subn("\ufffd", text)
    if alone:
        losses.add(*SURROGATE_LOSS)
    return mended


TEXTS_IN_PIECES: Final = frozenset(
    {"content", "text", "thinking", "reasoning_content", "reasoning", "refusal", "arguments", "input"}
)
