"""Lists the literal content of Messages events and whole messages, for the relay to Messages clients.

Clients depend on the order of events: one start, blocks that are numbered and end before the next begins, a stop
reason, one stop. Events in another order are not relayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from antiphon import sse
from antiphon.dialects.common.relay import (
    ANY_TEXT,
    FINISH,
    UNREADABLE,
    ContentLevel,
    LiteralContent,
    Piece,
    add_missing,
    call_piece,
    replace_model,
    text_piece,
)
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


class _Position(NamedTuple):
    """The number of complete blocks, and whether another one is open."""

    block_count: int
    has_open_block: bool


class _Continuation:
    """Fits the translated rest of a stream to the events before it."""

    def __init__(self, position: _Position) -> None:
        self._next_index = position.block_count
        self._has_open_block = position.has_open_block

    def feed(self, translation: bytes) -> bytes:
        events = [msgspec.json.decode(frame.data) for frame in sse.Decoder().feed(translation)]
        return b"".join([self._encode(fitted) for event in events for fitted in self._fit(event)])

    def _fit(self, event: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = event["type"]
        is_inside_block = kind in ("content_block_delta", "content_block_stop")
        if is_inside_block and not self._has_open_block:
            return  # the server ended this block already
        if self._has_open_block and not is_inside_block and kind != "error":
            yield {"type": "content_block_stop", "index": self._next_index}
            self._close_block()
        yield {**event, "index": self._next_index} if "index" in event else event
        if kind == "content_block_start":
            self._has_open_block = True
        elif kind == "content_block_stop":
            self._close_block()

    def _close_block(self) -> None:
        self._has_open_block = False
        self._next_index += 1

    def _encode(self, event: dict[str, Any]) -> bytes:
        return sse.encode_frame(event["type"], msgspec.json.encode(event))


class AnswerContent(LiteralContent):
    """The content of one answer."""

    levels = (ContentLevel(frozenset({"type", "role", "content", "stop_reason", "stop_sequence"})),)
    last_frame = sse.Frame("message_stop", b'{"type":"message_stop"}')
    names_events_by_type = True

    def __init__(self, request: Request, wire: MessagesWire, response: Response, model: str | None) -> None:
        del request, wire
        self._response = response
        self._model = model
        self._has_started = False
        self._has_stop_reason = False
        self._block_count = 0
        self._open_block: dict[str, Any] | None = None
        self._call_count = 0
        self._has_arguments = False  # of the open block, in deltas
        self._continuation: _Continuation | None = None

    def pieces(self, value: Any) -> list[Piece]:
        kind = value.get("type")
        if kind == "message":
            return self._message_pieces(value)
        if (kind == "message_start") is self._has_started:
            return [UNREADABLE]
        match kind:
            case "message_start":
                self._has_started = True
                return self._message_pieces(value["message"])
            case "content_block_start" if self._open_block is None and value["index"] == self._block_count:
                return [self._start_block(value["content_block"])]
            case "content_block_delta" if self._is_open(value["index"]):
                return [self._delta_piece(value["delta"])]
            case "content_block_stop" if self._is_open(value["index"]):
                return list(self._stop_block())
            case "message_delta" if self._open_block is None:
                return self._stop_pieces(value["delta"])
            case "message_stop" if self._has_stop_reason:
                return []
            case "content_block_start" | "content_block_delta" | "content_block_stop" | "message_delta":
                return [UNREADABLE]
            case "message_stop" | "error" | None:
                return [UNREADABLE]
            case _:
                return []

    def complete(self, value: Any) -> bool:
        match value["type"]:
            case "message_start":
                return self._complete_message(value["message"])
            case "message":
                return self._complete_message(value)
            case "message_delta":
                has_changed = add_missing(value, {"usage": {}})
                return add_missing(value["usage"], {"output_tokens": 0}) or has_changed
            case _:
                return False

    def position(self) -> _Position:
        return _Position(self._block_count, self._open_block is not None)

    def continue_from(self, position: _Position, translation: bytes) -> bytes:
        """Numbers the blocks of the translation after those that were sent, and ends a block that it does not
        continue."""
        if self._continuation is None:
            self._continuation = _Continuation(position)
        return self._continuation.feed(translation)

    def _complete_message(self, message: dict[str, Any]) -> bool:
        has_model = replace_model(message, "model", self._model)
        required: dict[str, Any] = {
            "id": self._response.id,
            "type": "message",
            "role": "assistant",
            "model": self._response.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return add_missing(message, required) or has_model

    def _message_pieces(self, message: dict[str, Any]) -> list[Piece]:
        pieces: list[Piece] = []
        for block in message.get("content") or ():
            pieces += [self._start_block(block), *self._stop_block()]
        return [*pieces, *self._stop_pieces(message)]

    def _is_open(self, index: Any) -> bool:
        return self._open_block is not None and index == self._block_count

    def _start_block(self, block: dict[str, Any]) -> Piece:
        self._open_block, self._has_arguments = block, False
        match block["type"]:
            case "text":
                return text_piece("text", block.get("text"))
            case "thinking":
                return text_piece("reasoning", block.get("thinking"))
            case "tool_use":
                return call_piece(self._call_count, block["id"], block["name"])
            case _:
                return Piece("text")

    def _delta_piece(self, delta: dict[str, Any]) -> Piece:
        kind = self._open_block["type"] if self._open_block else ""
        match delta:
            case {"type": "text_delta", "text": text}:
                return text_piece("text", text) if kind == "text" else UNREADABLE
            case {"type": "thinking_delta", "thinking": text}:
                return text_piece("reasoning", text) if kind == "thinking" else UNREADABLE
            case {"type": "input_json_delta", "partial_json": text} if kind == "tool_use":
                self._has_arguments = self._has_arguments or bool(text)
                return text_piece("arguments", text, self._call_count)
            case _:
                return Piece("text")

    def _stop_block(self) -> Iterator[Piece]:
        """The arguments of a call without deltas are the input at its start."""
        assert self._open_block is not None
        if self._open_block["type"] == "tool_use":
            if not self._has_arguments:
                yield Piece("arguments", ANY_TEXT, self._call_count)
            self._call_count += 1
        self._open_block = None
        self._block_count += 1

    def _stop_pieces(self, message: dict[str, Any]) -> list[Piece]:
        if not message.get("stop_reason"):
            return []
        self._has_stop_reason = True
        explanation = (message.get("stop_details") or {}).get("explanation")
        return [text_piece("refusal", explanation if message["stop_reason"] == "refusal" else None), FINISH]
