"""Decodes events that the typed decoder refused, after repairing them.

It replaces invalid UTF-8, non-finite numbers and lone surrogates, and joins surrogate pairs that two pieces of one text
split. Once a stream needed it, it decodes the rest of the stream.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, TypeVar

import msgspec

from antiphon.dialects.common.surrogates import SURROGATE, SURROGATE_LOSS, SurrogateJoiner
from antiphon.dialects.messages.response_wire import DeltaIn
from antiphon.protocol.codec import check_nesting
from antiphon.protocol.losses import Losses

T = TypeVar("T")


class LenientDecoder:
    """Decodes damaged events."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._surrogates = SurrogateJoiner()

    def decode(self, data: bytes, type: type[T]) -> T | None:
        """Decode `data` as `type`; None if that is impossible."""
        value = self._decode_repaired(data)
        if value is None:
            return None
        decoded = _decode_typed(value, type)
        if decoded is None:
            without_usage = _without_usage(value)
            decoded = _decode_typed(without_usage, type)
            if decoded is not None:
                self._losses.add("usage", "usage", "it has an unknown form")
        return decoded

    def _decode_repaired(self, data: bytes) -> dict[str, Any] | None:
        """The JSON object in `data`, repaired so that it can be encoded."""
        text = data.decode("utf-8", "replace")
        try:
            check_nesting(data)
            value = json.loads(text)
            if not isinstance(value, dict):
                return None
            if text.encode() != data:
                self._losses.add("stream", "invalid UTF-8", "it is replaced by U+FFFD")
            match value:
                case {"type": "content_block_delta", "delta": dict() as delta}:
                    value = {**value, "delta": self._join_surrogates(value.get("index", 0), delta)}
            repaired: dict[str, Any] = self._repair_value(value)
        except ValueError:
            return None
        return repaired

    def flush(self, index: int) -> DeltaIn | None:
        """The replacement for pending surrogates at the end of a block."""
        pending = {name: rest for name in TEXT_MEMBERS if (rest := self._surrogates.flush((index, name)))}
        if not pending:
            return None
        self._losses.add(*SURROGATE_LOSS)
        return msgspec.convert(pending, DeltaIn)

    def _join_surrogates(self, index: Any, delta: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._surrogates.join((index, name), value)
            if name in TEXT_MEMBERS and isinstance(value, str)
            else value
            for name, value in delta.items()
        }

    def _repair_value(self, value: Any) -> Any:
        match value:
            case str():
                repaired_text, count = SURROGATE.subn("\ufffd", value)
                if count:
                    self._losses.add(*SURROGATE_LOSS)
                return repaired_text
            case float():
                return value if math.isfinite(value) else None
            case dict():
                return {self._repair_value(name): self._repair_value(member) for name, member in value.items()}
            case list():
                return [self._repair_value(member) for member in value]
            case _:
                return value


def _decode_typed(value: dict[str, Any], type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=type, strict=False)
    except msgspec.ValidationError:
        return None


def _without_usage(value: dict[str, Any]) -> dict[str, Any]:
    """Remove usage at the top and in the message."""
    rest = {name: member for name, member in value.items() if name != "usage"}
    message = rest.get("message")
    return {**rest, "message": _without_usage(message)} if isinstance(message, dict) else rest


TEXT_MEMBERS: Final = ("text", "thinking", "partial_json")
