"""Events that one typed decode refuses: read again, leniently, or given up.

Bytes that are no UTF-8, numbers that are none and characters cut in two by the server are mended here; the halves of a character
that stand in two pieces of one text are put together. Once a stream needed this, all the rest of it comes this way.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, TypeVar

import msgspec

from antiphon.dialects.common.surrogates import SURROGATE, SURROGATE_LOSS, SurrogateJoiner
from antiphon.dialects.messages.answers import DeltaIn
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import check_nesting

T = TypeVar("T")


class LenientDecoder:
    """Bytes in, sound JSON out."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._halves = SurrogateJoiner()

    def decode(self, data: bytes, type: type[T]) -> T | None:
        """The event or the message in `data`; None if there is none in it."""
        value = self._sound(data)
        if value is None:
            return None
        found = _typed(value, type)
        if found is None:
            usage_less = _without_usage(value)
            found = _typed(usage_less, type)
            if found is not None:
                self._losses.add("usage", "it has a form that nobody knows")
        return found

    def _sound(self, data: bytes) -> dict[str, Any] | None:
        """The object in `data`, fit to be encoded."""
        text = data.decode("utf-8", "replace")
        try:
            check_nesting(data)
            value = json.loads(text)
            if not isinstance(value, dict):
                return None
            if text.encode() != data:
                self._losses.add("stream", "bytes that are no UTF-8 were replaced by U+FFFD")
            match value:
                case {"type": "content_block_delta", "delta": dict() as delta}:
                    value = {**value, "delta": self._pieces(value.get("index", 0), delta)}
            mended: dict[str, Any] = self._mended(value)
        except ValueError:
            return None
        return mended

    def flush(self, index: int) -> DeltaIn | None:
        """A block is over: what stands for the halves that are still held back."""
        held = {name: rest for name in PIECES if (rest := self._halves.flush((index, name)))}
        if not held:
            return None
        self._losses.add(*SURROGATE_LOSS)
        return msgspec.convert(held, DeltaIn)

    def _pieces(self, index: Any, delta: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._halves.join((index, name), value) if name in PIECES and isinstance(value, str) else value
            for name, value in delta.items()
        }

    def _mended(self, value: Any) -> Any:
        match value:
            case str():
                whole, alone = SURROGATE.subn("\ufffd", value)
                if alone:
                    self._losses.add(*SURROGATE_LOSS)
                return whole
            case float():
                return value if math.isfinite(value) else None
            case dict():
                return {self._mended(name): self._mended(member) for name, member in value.items()}
            case list():
                return [self._mended(member) for member in value]
            case _:
                return value


def _typed(value: dict[str, Any], type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=type, strict=False)
    except msgspec.ValidationError:
        return None


def _without_usage(value: dict[str, Any]) -> dict[str, Any]:
    """Usage stands at the top, or in the message there."""
    rest = {name: member for name, member in value.items() if name != "usage"}
    message = rest.get("message")
    return {**rest, "message": _without_usage(message)} if isinstance(message, dict) else rest


PIECES: Final = ("text", "thinking", "partial_json")
