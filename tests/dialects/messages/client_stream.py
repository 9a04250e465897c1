"""Reads streams as a Messages client does, asserts every rule of the API, and builds the message.

The official SDK's accumulator is more lenient; it reads a stream that passes here to the same message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.dialects.recording_writer import RecordingWriter
from tests.generate.events import CALLED_TOOLS

from antiphon import sse
from antiphon.dialects.messages.stream_out import EventsFromHub
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage

# Offers the tools that the generated responses call.
REQUEST = Request(
    model="m",
    tools=CALLED_TOOLS,
)
USAGE = Usage(
    input_tokens=10,
    output_tokens=4,
    total_tokens=14,
    input_tokens_details=InputTokensDetails(cached_tokens=7),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
)


class ClientStream(NamedTuple):
    frames: list[sse.Frame]
    from_hub: EventsFromHub

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in self.frames]

    @property
    def message(self) -> dict[str, Any]:
        return read_message(self.events)

    @property
    def lost(self) -> list[str]:
        return [loss.path for loss in self.from_hub.losses]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


def stream_to_client(events: Sequence[StreamEvent], request: Request = REQUEST) -> ClientStream:
    from_hub = EventsFromHub(request)
    data = b"".join(map(from_hub.feed, events)) + from_hub.finish()
    return ClientStream(frames_of(data), from_hub)


class MessagesWriter(RecordingWriter[ClientStream]):
    """A writer whose stream is that of a Messages client."""

    default_request = REQUEST
    encode_stream = staticmethod(stream_to_client)


def frames_of(data: bytes) -> list[sse.Frame]:
    decoder = sse.Decoder()
    frames = decoder.feed(data) + decoder.finish()
    assert all(frame.event == json.loads(frame.data)["type"] for frame in frames)
    return frames


def read_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message. Every rule of the event order is asserted. An error ends it."""
    first = events[0]
    if first["type"] == "error":
        assert len(events) == 1
        return {"content": [], "error": first["error"]}
    assert first["type"] == "message_start", "a stream begins with its message"
    message: dict[str, Any] = {**first["message"]}
    assert (message["content"], message["stop_reason"]) == ([], None)
    open_block: dict[str, Any] | None = None
    json_text = ""
    for at, event in enumerate(events[1:], 1):
        match event:
            case {"type": "ping"}:
                assert at == 1
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert open_block is None, "one block after the other"
                assert index == len(message["content"]), "indices rise by one"
                open_block, json_text = block, ""
                message["content"].append(open_block)
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert open_block is not None, "a delta is of an open block"
                assert index == len(message["content"]) - 1
                json_text += _add(open_block, delta)
            case {"type": "content_block_stop", "index": index}:
                assert open_block is not None
                assert index == len(message["content"]) - 1
                if open_block["type"] == "tool_use" and json_text:
                    open_block["input"] = _parsed(json_text)
                open_block = None
            case {"type": "message_delta", "delta": end, "usage": usage}:
                assert open_block is None
                message |= end
                message["usage"] = usage
                assert [later["type"] for later in events[at + 1 :]] == ["message_stop"]
            case {"type": "message_stop"}:
                assert at == len(events) - 1
                assert message["stop_reason"]
            case {"type": "error", "error": error}:
                assert at == len(events) - 1, "nothing follows an error"
                message["error"] = error
            case _:
                raise AssertionError(f"no event of this API: {event}")
    return message


def _add(block: dict[str, Any], delta: dict[str, Any]) -> str:
    """Add a piece to its block, which must be of its kind. Returns pieces of JSON."""
    match block["type"], delta:
        case "text", {"type": "text_delta", "text": str(text)}:
            block["text"] += text
        case "text", {"type": "citations_delta", "citation": citation}:
            block.setdefault("citations", []).append(citation)
        case "thinking", {"type": "thinking_delta", "thinking": str(text)}:
            assert not block["signature"], "the signature comes last"
            block["thinking"] += text
        case "thinking", {"type": "signature_delta", "signature": str(signature)}:
            block["signature"] = signature
        case "tool_use", {"type": "input_json_delta", "partial_json": str(piece)}:
            return piece
        case _:
            raise AssertionError(f"{delta} is no piece of a {block['type']} block")
    return ""


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}
