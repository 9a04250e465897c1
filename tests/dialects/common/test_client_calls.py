"""Calls of functions in an answer, as the calls of the client's tools that they stand for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects import chat
from antiphon.dialects.common.client_calls import ConvertedEvents
from antiphon.dialects.common.client_tools import ClientTools
from antiphon.dialects.dialect import EventsToHub
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCompleted, StreamEvent, UnknownEvent
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response

FIND = {"type": "function", "name": "find", "defer_loading": True}
TOOLS = [
    {"type": "shell"},
    {"type": "apply_patch"},
    {"type": "local_shell"},
    {"type": "tool_search"},
    FIND,
    {"type": "namespace", "name": "crm", "tools": [{**FIND, "name": "list"}]},
    {"type": "custom", "name": "raw", "defer_loading": True},
    {"type": "function", "name": "plain"},
]
ARGUMENTS = {
    "shell": '{"commands":["ls"]}',
    "apply_patch": '{"type":"delete_file","path":"a"}',
    "local_shell": '{"command":["ls"]}',
    "find": "{}",
    "crm__list": "{}",
    "raw": '{"input":"x"}',
    "plain": "{}",
}


def request(tools: Any = TOOLS) -> Request:
    return codec.decode_request(json.dumps({"model": "m", "input": "hi", "tools": tools}).encode())


def streamed(calls: list[tuple[str, str]], finish: str = "tool_calls", text: str = "") -> list[StreamEvent]:
    """The events of a chat server that streams these calls, each in two pieces, all open at the same time."""
    deltas: list[dict[str, Any]] = [{"content": text}] if text else []
    for index, (name, _) in enumerate(calls):
        deltas.append({"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": name}}]})
    for half in (0, 1):
        for index, (_, arguments) in enumerate(calls):
            piece = arguments[: len(arguments) // 2] if half == 0 else arguments[len(arguments) // 2 :]
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    frames = [sse.Frame("", json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()) for delta in deltas]
    frames.append(sse.Frame("", json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}).encode()))
    reader = reader_of(request())
    reader.limit_output(OutputLimits())
    return [event for frame in frames for event in reader.feed(frame)] + reader.finish()


def reader_of(asked: Request) -> EventsToHub:
    server = SERVER_DIALECTS["chat"]
    return server.events_to_hub(asked, initial(asked), counting_stamps(), server.wire_type())


def initial(asked: Request) -> Response:
    return make_initial_response(asked, id="resp_1", created_at=1)


def whole(calls: list[tuple[str, str]]) -> Response:
    tool_calls = [
        {"id": f"c{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "tool_calls": tool_calls}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()
    server, asked = SERVER_DIALECTS["chat"], request()
    return server.response_to_hub(body, asked, initial(asked), counting_stamps(), server.wire_type())[0]


def kinds(response: Response) -> list[str]:
    return [str(item.__struct_config__.tag) for item in response.output]


@given(st.lists(st.sampled_from(sorted(ARGUMENTS)), min_size=1, max_size=6), st.sampled_from(["", "So: "]))
def test_stream_and_whole_answer_agree_for_any_calls(names: list[str], text: str) -> None:
    """TOOL-8, TOOL-9, STR-14: the events obey the grammar, and a search comes once before each deferred tool."""
    calls = [(name, ARGUMENTS[name]) for name in names]
    events = streamed(calls, text=text)
    assert find_violations(events) == []
    assert [event.sequence_number for event in events] == list(range(len(events)))
    folded = fold_events(events)
    last = events[-1]
    assert isinstance(last, ResponseCompleted)
    assert folded.output == last.response.output
    assert kinds(folded)[bool(text) :] == kinds(whole(calls))
    deferred = {name for name in names if name in ("find", "crm__list", "raw")}
    assert kinds(folded).count("tool_search_output") == len(deferred)


def test_call_with_other_arguments_stays_a_function_call() -> None:
    """TOOL-8, F-4: the client sees what the model wrote, and a loss."""
    reader = reader_of(request())
    body = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "shell", "arguments": "{}"}}]}
    events = reader.feed(sse.Frame("", json.dumps({"choices": [{"delta": body, "finish_reason": "stop"}]}).encode()))
    events += reader.finish()
    assert find_violations(events) == []
    assert kinds(fold_events(events)) == ["function_call"]
    assert [loss.path for loss in reader.losses] == ["output[0]"]
    assert kinds(whole([("shell", "{}")])) == ["function_call"]


def test_truncated_call_stays_an_incomplete_function_call() -> None:
    """ITEM-3."""
    events = streamed([("shell", '{"commands":["l')], finish="length")
    assert find_violations(events) == []
    folded = fold_events(events)
    assert (kinds(folded), folded.status) == (["function_call"], "incomplete")


def test_failed_stream_ends_with_its_error() -> None:
    """STR-8."""
    reader = reader_of(request())
    body = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "shell", "arguments": '{"commands":["ls"]}'}}]}
    events = reader.feed(sse.Frame("", json.dumps({"choices": [{"delta": body}]}).encode()))
    events += reader.finish(UpstreamFault("cut"))
    assert find_violations(events) == []
    assert reader.error is not None
    assert fold_events(events).status == "failed"


def test_answer_that_exceeds_its_limits_ends_as_incomplete() -> None:
    reader = reader_of(request())
    events = reader.end_incomplete("max_output_tokens")
    assert fold_events(events).status == "incomplete"


class _Reader:
    """A reader of an upstream that sends events of unknown types."""

    def __init__(self, events: list[StreamEvent]) -> None:
        self._events = events
        self.error: ApiError | None = None
        self.losses = Losses()

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        del frame
        return self._events

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        del error
        return []

    def limit_output(self, limits: OutputLimits) -> None:
        del limits

    def end_incomplete(self, reason: str) -> list[StreamEvent]:
        del reason
        return []


@pytest.mark.parametrize("members", [{"output_index": 0}, {"output_index": None}, {}])
def test_events_of_unknown_types_are_renumbered(members: dict[str, Any]) -> None:
    """ITEM-5, STR-5."""
    tools = ClientTools.of_request(request())
    assert tools is not None
    calls = [event for event in whole_events() if event.__struct_config__.tag == "response.output_item.added"]
    raw = codec.encode({"type": "acme:x", "sequence_number": 1, **members})
    unknown = UnknownEvent(kind="acme:x", raw=Raw(raw), sequence_number=1)
    reader = ConvertedEvents(_Reader([calls[0], unknown]), tools, counting_stamps())
    events = reader.feed(sse.Frame("", b""))
    last = events[-1]
    assert isinstance(last, UnknownEvent)
    sent = json.loads(bytes(last.raw))
    assert sent["sequence_number"] == last.sequence_number == 5
    assert sent.get("output_index") == (2 if members.get("output_index") == 0 else None)


def whole_events() -> list[StreamEvent]:
    asked = request([FIND])
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "find", "arguments": "{}"}}]}
    body = json.dumps({"choices": [{"message": message}]}).encode()
    response, _ = chat.response_to_hub(body, asked, initial(asked), counting_stamps())
    return replay_response(response)


def test_search_of_the_client_comes_back_as_its_item() -> None:
    """TOOL-8."""
    asked = request([{"type": "tool_search", "execution": "client"}])
    message = {"tool_calls": [{"id": "c", "function": {"name": "tool_search", "arguments": '{"query":"x"}'}}]}
    body = json.dumps({"choices": [{"message": {"role": "assistant", **message}}]}).encode()
    server = SERVER_DIALECTS["chat"]
    response, _ = server.response_to_hub(body, asked, initial(asked), counting_stamps(), server.wire_type())
    assert json.loads(codec.encode(response.output)) == [
        {
            "type": "tool_search_call",
            "arguments": {"query": "x"},
            "execution": "client",
            "call_id": "c",
            "id": "tsc_2",
            "status": "completed",
        }
    ]
