"""How the tests of this dialect read answers: one request that offers every kind of tool, stamps that count, and what
was said."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.chat import EventsToHub, response_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.protocol.content import OutputText, ReasoningText, Refusal, SummaryText
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
        CustomTool(name="apply_patch"),
        NamespaceTool(name="files", tools=[FunctionToolParam(name="read"), CustomTool(name="edit")]),
    ],
)
INITIAL_RESPONSE = make_initial_response(REQUEST, id="resp_1", created_at=1_700_000_000)


class ReadResult(NamedTuple):
    events: list[StreamEvent]
    losses: Losses

    @property
    def response(self) -> Response:
        return fold_events(self.events)

    @property
    def summary(self) -> list[str]:
        return summary_of(self.response)


def reader(wire: ChatWire = ChatWire()) -> EventsToHub:  # noqa: B008
    return EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps(), wire)


def frames_of(data: bytes) -> list[sse.Frame]:
    decoder = sse.Decoder()
    return decoder.feed(data) + decoder.finish()


def read_frames(frames: list[sse.Frame], wire: ChatWire = ChatWire()) -> ReadResult:  # noqa: B008
    """A stream that ends after these frames."""
    to_hub = reader(wire)
    events = [event for frame in frames for event in to_hub.feed(frame)]
    return ReadResult(events + to_hub.finish(), to_hub.losses)


def read(*chunks: Any, wire: ChatWire = ChatWire()) -> ReadResult:  # noqa: B008
    """A stream of these chunks, bytes or values, that ends with a finish reason and `[DONE]`."""
    frames = [sse.Frame("", chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()) for chunk in chunks]
    return read_frames(
        [*frames, sse.Frame("", json.dumps(chunk(finish="stop")).encode()), sse.Frame("", sse.DONE)], wire
    )


def read_whole(body: bytes, wire: ChatWire = ChatWire()) -> tuple[Response, Losses]:  # noqa: B008
    return response_to_hub(body, REQUEST, INITIAL_RESPONSE, counting_stamps(), wire)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    """An entry of `tool_calls`."""
    members: dict[str, Any] = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in members.items() if value is not None}


def calls(*entries: dict[str, Any]) -> dict[str, Any]:
    return chunk(tool_calls=list(entries))


def summary_of(response: Response) -> list[str]:
    """What an answer says, a line for each part or call, and how it ended."""
    lines = [line for item in response.output for line in _lines(item)]
    reason = (
        response.incomplete_details.reason if response.incomplete_details else response.error and response.error.code
    )
    return [*lines, f"{response.status}: {reason}" if reason else response.status]


def _opened(sealed: str) -> str:
    """What the maker of sealed reasoning gets back, out of all its envelopes."""
    envelope = unseal_reasoning(sealed)
    if envelope is None:
        return sealed
    details = envelope.content.get("reasoning_details", ())
    kept = [detail.get("data") or detail.get("signature") for detail in details]
    return " ".join(_opened(each) for each in kept if each)


def _lines(item: Item) -> list[str]:
    end = "" if getattr(item, "status", None) == "completed" else f" ({getattr(item, 'status', None)})"
    match item:
        case Message() | Reasoning():
            parts = item.content if isinstance(item, Message) else [*item.summary, *(item.content or ())]
            lines = [f"{type(part).__name__}: {_text(part)}{end}" for part in parts]
            sealed = isinstance(item, Reasoning) and item.encrypted_content
            return [*lines, f"sealed: {_opened(sealed)}"] if sealed else lines
        case FunctionCall():
            place = f"{item.namespace}." if item.namespace else ""
            return [f"{item.call_id} = {place}{item.name}({item.arguments}){end}"]
        case CustomToolCall():
            place = f"{item.namespace}." if item.namespace else ""
            return [f"{item.call_id} = {place}{item.name}[{item.input}]{end}"]
        case _:
            return [type(item).__name__]


def _text(part: Any) -> str:
    match part:
        case OutputText(text=text) | ReasoningText(text=text) | SummaryText(text=text) | Refusal(refusal=text):
            return text
        case _:
            return repr(part)
