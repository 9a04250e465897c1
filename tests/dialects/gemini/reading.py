"""Test helpers that read answers: a request with every kind of tool, counting stamps, and a summary of the response."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.gemini import EventsToHub, response_to_hub
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol.base import Unknown
from antiphon.protocol.content import Content, OutputText, SummaryText
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool

REQUEST = Request(
    model="m",
    input="hi",
    tools=[
        FunctionToolParam(name="get_weather"),
        FunctionToolParam(name="get_time"),
        FunctionToolParam(name="2fast"),
        CustomTool(name="apply_patch"),
        NamespaceTool(name="files", tools=[FunctionToolParam(name="read"), CustomTool(name="edit")]),
    ],
)
INITIAL_RESPONSE = make_initial_response(REQUEST, id="resp_1", created_at=1_700_000_000)
STOP = {"candidates": [{"finishReason": "STOP", "index": 0}]}


class Reading(NamedTuple):
    events: list[StreamEvent]
    losses: Losses

    @property
    def response(self) -> Response:
        return fold_events(self.events)

    @property
    def summary(self) -> list[str]:
        return summary_of(self.response)


def reader(wire: GeminiWire = GeminiWire()) -> EventsToHub:  # noqa: B008
    return EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps(), wire)


def frames_of(data: bytes) -> list[sse.Frame]:
    decoder = sse.Decoder()
    return decoder.feed(data) + decoder.finish()


def read_frames(frames: list[sse.Frame], wire: GeminiWire = GeminiWire()) -> Reading:  # noqa: B008
    """A stream that ends after these frames."""
    to_hub = reader(wire)
    events = [event for frame in frames for event in to_hub.feed(frame)]
    return Reading(events + to_hub.finish(), to_hub.losses)


def read(*chunks: Any, wire: GeminiWire = GeminiWire()) -> Reading:  # noqa: B008
    """A stream of these chunks, bytes or values, and a finish reason."""
    return read_frames([*map(frame, chunks), frame(STOP)], wire)


def frame(chunk: Any) -> sse.Frame:
    return sse.Frame("", chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode())


def read_whole(body: bytes, wire: GeminiWire = GeminiWire()) -> tuple[Response, Losses]:  # noqa: B008
    return response_to_hub(body, REQUEST, INITIAL_RESPONSE, counting_stamps(), wire)


def parts(*found: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A chunk of these parts."""
    return {"candidates": [{"content": {"parts": list(found), "role": "model"}, "index": 0, **members}]}


def call(name: str, args: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args or {}, **members}}


def summary_of(response: Response) -> list[str]:
    """The content of an answer, one line for each part or call, and how it ended."""
    lines = [line for item in response.output for line in _lines(item)]
    reason = (
        response.incomplete_details.reason if response.incomplete_details else response.error and response.error.code
    )
    return [*lines, f"{response.status}: {reason}" if reason else response.status]


def _lines(item: Item) -> list[str]:
    end = "" if getattr(item, "status", None) == "completed" else f" ({getattr(item, 'status', None)})"
    match item:
        case Message():
            return [f"{_text(part)}{end}" for part in item.content]
        case Reasoning():
            lines = [f"thought: {_text(part)}{end}" for part in [*item.summary, *(item.content or ())]]
            return [*lines, *_sealed(item)]
        case FunctionCall():
            place = f"{item.namespace}." if item.namespace else ""
            return [f"{item.call_id} = {place}{item.name}({item.arguments}){end}"]
        case CustomToolCall():
            place = f"{item.namespace}." if item.namespace else ""
            return [f"{item.call_id} = {place}{item.name}[{item.input}]{end}"]
        case Unknown():
            return [item.kind]
        case _:
            return [repr(item)]


def _sealed(item: Reasoning) -> list[str]:
    envelope = unseal_reasoning(item.encrypted_content) if item.encrypted_content else None
    if envelope is None or "signature" not in envelope.content:
        return []
    return [f"signed by {envelope.maker}, on {envelope.content['on']}: {envelope.content['signature']}"]


def _text(part: Content) -> str:
    assert isinstance(part, OutputText | SummaryText)
    return part.text
