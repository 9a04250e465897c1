"""Test helpers that read answers of Ollama servers: a request with every kind of tool, and a summary of the
response."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.common.json_lines import JsonLinesDecoder
from antiphon.dialects.ollama import EventsToHub, response_to_hub
from antiphon.protocol.content import OutputText, ReasoningText
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
        CustomTool(name="apply_patch"),
        NamespaceTool(name="files", tools=[FunctionToolParam(name="read"), CustomTool(name="edit")]),
    ],
)
INITIAL_RESPONSE = make_initial_response(REQUEST, id="resp_1", created_at=1_700_000_000)
DONE = {"message": {"content": ""}, "done": True, "done_reason": "stop"}


class Reading(NamedTuple):
    events: list[StreamEvent]
    losses: Losses

    @property
    def response(self) -> Response:
        return fold_events(self.events)

    @property
    def summary(self) -> list[str]:
        return summary_of(self.response)


def frames_of(data: bytes) -> list[sse.Frame]:
    decoder = JsonLinesDecoder()
    return decoder.feed(data) + decoder.finish()


def read_frames(frames: list[sse.Frame]) -> Reading:
    """A stream that ends after these lines."""
    to_hub = EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps())
    events = [event for frame in frames for event in to_hub.feed(frame)]
    return Reading(events + to_hub.finish(), to_hub.losses)


def read(*lines: Any) -> Reading:
    """A stream of these lines and the last line."""
    return read_frames([sse.Frame("", json.dumps(line).encode()) for line in (*lines, DONE)])


def read_whole(body: bytes) -> tuple[Response, Losses]:
    return response_to_hub(body, REQUEST, INITIAL_RESPONSE, counting_stamps())


def summary_of(response: Response) -> list[str]:
    """The items, the status and the usage, one line each."""
    usage = response.usage
    return [
        *map(_item, response.output),
        response.status,
        *([response.incomplete_details.reason] if response.incomplete_details else []),
        *([response.error.code] if response.error else []),
        *([f"{usage.input_tokens}+{usage.output_tokens}"] if usage else []),
    ]


def _item(item: Item) -> str:
    match item:
        case Message(content=[OutputText(text=text)]):
            return f"text {text}"
        case Reasoning(content=[ReasoningText(text=text)]):
            return f"thinking {text}"
        case FunctionCall():
            space = f"{item.namespace}." if item.namespace else ""
            return f"call {space}{item.name} {item.arguments}"
        case CustomToolCall():
            space = f"{item.namespace}." if item.namespace else ""
            return f"custom {space}{item.name} {item.input}"
        case _:
            raise AssertionError(item)
