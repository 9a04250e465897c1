"""Turns with a strict server that checks its own signatures: its content returns through the hub in a valid form."""

from __future__ import annotations

import itertools

import pytest
from tests.dialects.gemini.reading import frames_of, summary_of
from tests.generate.events import counting_stamps
from tests.testing.requests import send_request as post

from antiphon.dialects.gemini import EventsToHub, error_to_hub, request_from_hub, response_to_hub
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.profiles import load_profile
from antiphon.protocol import codec
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.tools import FunctionToolParam
from antiphon.testing import GeminiServer, reasoning, text, tool_call, turn

pytestmark = pytest.mark.io
WEATHER = FunctionToolParam(
    name="get_weather",
    parameters={"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    strict=False,
)
REPLIES = [
    turn(
        reasoning("Two places."),
        text("Let me look."),
        tool_call("a", "get_weather", '{"place":"Rome"}'),
        tool_call("b", "get_weather", '{"place":"Oslo"}'),
    ),
    turn(reasoning("One more."), tool_call("c", "get_weather", '{"place":"Rome"}')),
    turn(text("Rain, ", "snow.")),
]


def google() -> GeminiWire:
    wire = load_profile("google").wire
    assert isinstance(wire, GeminiWire)
    return wire


def send_request(server: GeminiServer, request: Request, wire: GeminiWire, *, stream: bool) -> Response:
    body, _ = request_from_hub(request, wire)
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    status, headers, data = post(server, f"/v1beta/models/{request.model}:{method}", body)
    if status != 200:
        raise error_to_hub(status, headers, data)
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    if not stream:
        return response_to_hub(data, request, initial_response, counting_stamps(), wire)[0]
    to_hub = EventsToHub(request, initial_response, counting_stamps(), wire)
    events = [event for frame in frames_of(data) for event in to_hub.feed(frame)] + to_hub.finish()
    last: Response = events[-1].response  # type: ignore[union-attr]
    return last


@pytest.mark.parametrize("gives_ids", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["gemini-3-pro-preview", "gemini-2.5-flash"])
def test_tool_loop_runs_to_the_final_answer(model: str, stream: bool, gives_ids: bool) -> None:
    """RSN-2, issue 7, points 3 and 4: thoughts, text and parallel calls of one name, another step, then the answer."""
    history: list[ItemParam] = [MessageParam(role="user", content="Weather in Rome and Oslo?")]
    received: list[str] = []
    with GeminiServer(REPLIES, gives_ids=gives_ids) as server:
        for _ in itertools.repeat(None, len(REPLIES)):
            request = Request(
                model=model, input=history, tools=[WEATHER], reasoning=ReasoningConfigParam(effort="high")
            )
            response = send_request(server, request, google(), stream=stream)
            received += [line for line in summary_of(response) if not line.startswith("signed")]
            items = [codec.decode_item_param(codec.encode(item)) for item in response.output]
            calls = [item for item in items if isinstance(item, FunctionCallParam)]
            history = [
                *history,
                *items,
                *(FunctionCallOutputParam(call_id=call.call_id, output="wet") for call in calls),
            ]
    called = [line.partition(" = ")[2] or line for line in received]
    assert called == [
        "thought: Two places.",
        "Let me look.",
        'get_weather({"place":"Rome"})',
        'get_weather({"place":"Oslo"})',
        "completed",
        "thought: One more.",
        'get_weather({"place":"Rome"})',
        "completed",
        "Rain, snow.",
        "completed",
    ]


def test_history_of_another_server_is_accepted_with_placeholder_signature() -> None:
    """RSN-3: no reasoning of other servers, and calls that a strict model accepts."""
    history: list[ItemParam] = [
        MessageParam(role="user", content="Weather in Rome?"),
        FunctionCallParam(call_id="x", name="get_weather", arguments='{"place":"Rome"}'),
        FunctionCallOutputParam(call_id="x", output="wet"),
    ]
    with GeminiServer([turn(text("Rain."))]) as server:
        request = Request(model="gemini-3-pro-preview", input=history, tools=[WEATHER])
        assert summary_of(send_request(server, request, google(), stream=True))[0] == "Rain."
