"""Decodes frames that the typed decode refuses.

Numbers in strings, non-finite numbers, invalid UTF-8 and lone surrogates are repaired. In texts that are streamed in
pieces, lone surrogates are kept, because the other half may follow.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from antiphon.dialects.chat.response_wire import Chunk
from antiphon.dialects.common.surrogates import SURROGATE, SURROGATE_LOSS
from antiphon.protocol.codec import check_nesting
from antiphon.protocol.losses import Losses


def decode_leniently(data: bytes, losses: Losses) -> Chunk | None:
    """Return the chunk in `data`, or None if it is no chunk."""
    text = data.decode("utf-8", "replace")
    try:
        check_nesting(data)
        value = _sanitize_value(json.loads(text), "", losses)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    if text.encode() != data:
        losses.add("stream", "invalid UTF-8", "it is replaced by U+FFFD")
    chunk = _convert_to_chunk(value)
    if chunk is None and value.pop("usage", None) is not None:
        chunk = _convert_to_chunk(value)
        losses.add("usage", "usage", "it has an unknown form")
    return chunk


def _convert_to_chunk(value: dict[str, Any]) -> Chunk | None:
    try:
        return msgspec.convert(value, Chunk, strict=False)
    except msgspec.ValidationError:
        return None


def _sanitize_value(value: Any, name: str, losses: Losses) -> Any:
    """Return `value`, which is the member `name`, without content that JSON or UTF-8 cannot represent."""
    match value:
        case str():
            return value if name in STREAMED_TEXT_MEMBERS else _replace_lone_surrogates(value, losses)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {
                _replace_lone_surrogates(key, losses): _sanitize_value(member, key, losses)
                for key, member in value.items()
            }
        case list():
            return [_sanitize_value(member, name, losses) for member in value]
        case _:
            return value


def _replace_lone_surrogates(text: str, losses: Losses) -> str:
    cleaned, count = SURROGATE.subn("\ufffd", text)
    if count:
        losses.add(*SURROGATE_LOSS)
    return cleaned


STREAMED_TEXT_MEMBERS: Final = frozenset(
    {"content", "text", "thinking", "reasoning_content", "reasoning", "refusal", "arguments", "input"}
)
