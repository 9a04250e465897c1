"""Test helpers that read answers: a request with every kind of tool, counting stamps, and a summary of the response."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.messages import EventsToHub, response_to_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol.content import OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning, UnknownItem
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
        CustomTool(name="apply_patch"),
        NamespaceTool(name="files", tools=[FunctionToolParam(name="read"), CustomTool(name="edit")]),
    ],
)
INITIAL_RESPONSE = make_initial_response(REQUEST, id="resp_1", created_at=1_700_000_000)


class Reading(NamedTuple):
    events: list[StreamEvent]
    losses: Losses

    @property
    def response(self) -> Response:
        return fold_events(self.events)

    @property
    def summary(self) -> list[str]:
        return summary_of(self.response)

    @property
    def lost(self) -> list[str]:
        return [loss.path for loss in self.losses]


def reader(wire: MessagesWire = MessagesWire()) -> EventsToHub:  # noqa: B008
    return EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps(), wire)


def frames_of(data: bytes) -> list[sse.Frame]:
    decoder = sse.Decoder()
    return decoder.feed(data) + decoder.finish()


def read_frames(frames: list[sse.Frame], wire: MessagesWire = MessagesWire()) -> Reading:  # noqa: B008
    """A stream that ends after these frames."""
    to_hub = reader(wire)
    events = [event for frame in frames for event in to_hub.feed(frame)]
    return Reading(events + to_hub.finish(), to_hub.losses)


def frame(event: Any) -> sse.Frame:
    """An event, as bytes or as a value."""
    return sse.Frame("", event if isinstance(event, bytes) else json.dumps(event).encode())


def read(*events: Any, stop: str = "end_turn", wire: MessagesWire = MessagesWire()) -> Reading:  # noqa: B008
    """A stream of these events that ends with a stop reason and `message_stop`."""
    ending = [{"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"}]
    return read_frames([frame(event) for event in (*events, *ending)], wire)


def read_whole(body: Any, wire: MessagesWire = MessagesWire()) -> tuple[Response, Losses]:  # noqa: B008
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return response_to_hub(data, REQUEST, INITIAL_RESPONSE, counting_stamps(), wire)


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": members}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return [
        begin(index, type="text", text=""),
        *(delta(index, type="text_delta", text=piece) for piece in pieces),
        stop(index),
    ]


def summary_of(response: Response) -> list[str]:
    """The content of an answer, one line for each part or call, and how it ended."""
    lines = [line for item in response.output for line in _lines(item)]
    reason = (
        response.incomplete_details.reason if response.incomplete_details else response.error and response.error.code
    )
    return [*lines, f"{response.status}: {reason}" if reason else response.status]


def _lines(item: Item) -> list[str]:
    end = "" if getattr(item, "status", "completed") == "completed" else f" ({getattr(item, 'status', None)})"
    match item:
        case Message() | Reasoning():
            parts = item.content if isinstance(item, Message) else [*item.summary, *(item.content or ())]
            lines = [f"{type(part).__name__}: {_text(part)}{end}" for part in parts]
            return (
                [*lines, f"sealed: {_opened(item.encrypted_content)}"]
                if isinstance(item, Reasoning) and item.encrypted_content
                else lines
            )
        case FunctionCall():
            place = f"{item.namespace}." if item.namespace else ""
            return [f"{item.call_id} = {place}{item.name}({item.arguments}){end}"]
        case CustomToolCall():
            place = f"{item.namespace}." if item.namespace else ""
            return [f"{item.call_id} = {place}{item.name}[{item.input}]{end}"]
        case UnknownItem():
            return [f"{item.kind} {bytes(item.raw_members()['block']).decode()}"]
        case _:
            return [type(item).__name__]


def _opened(sealed: str) -> str:
    envelope = unseal_reasoning(sealed)
    assert envelope is not None
    return f"{envelope.maker} {envelope.content}"


def _text(part: Any) -> str:
    match part:
        case OutputText(text=text) | ReasoningText(text=text) | SummaryText(text=text) | Refusal(refusal=text):
            return text
        case _:
            return repr(part)
