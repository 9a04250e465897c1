"""`run_tools`: Python functions that a model calls (B-9, TOOL-1)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.client.conversing import asked, client_of

from antiphon import testing
from antiphon.client import AsyncClient, ToolRun
from antiphon.errors import ClientFault
from antiphon.protocol.events import StreamEvent
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, ResponsesServer, turn

pytestmark = pytest.mark.io
SERVERS: dict[str, type[Any]] = {
    "chat": ChatServer,
    "responses": ResponsesServer,
    "messages": MessagesServer,
    "gemini": GeminiServer,
}
DONE = turn(testing.text("It is 5."))


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def both(*calls: Any) -> Any:
    return turn(testing.interleaved(*calls), testing.finish("tool_calls"))


def outputs(server: Any, at: int) -> list[str]:
    """The outputs that a responses server received."""
    return [item["output"] for item in server.received[at].json["input"] if item["type"] == "function_call_output"]


@pytest.mark.parametrize("dialect", SERVERS)
def test_run_tools_calls_the_function_and_returns_the_answer(dialect: str) -> None:
    """B-9: with a server of any dialect, with reasoning that is returned to it."""
    thought = [testing.reasoning("Adding…")] if dialect != "responses" else []
    with SERVERS[dialect]([turn(*thought, testing.tool_call("call_1", "add", '{"a": 2, ', '"b": 3}')), DONE]) as server:
        with client_of(server.origin, dialect=dialect, key="k") as client:
            run = client.run_tools("What is 2 + 3?", [add], max_output_tokens=2000)
        assert not server.refusals
    assert run.response.output_text == "It is 5."
    assert [(call.name, call.output, call.failed) for call in run.calls] == [("add", "5", False)]
    assert [type(item).__name__ for item in run.history if type(item).__name__ != "ReasoningParam"] == [
        "MessageParam",
        "FunctionCallParam",
        "FunctionCallOutputParam",
        "MessageParam",
    ]


def test_run_tools_runs_the_calls_of_one_response_concurrently() -> None:
    """B-9: async functions and blocking functions."""
    meeting, barrier = asyncio.Event(), threading.Barrier(2, timeout=60)

    async def early() -> str:
        await asyncio.wait_for(meeting.wait(), 60)
        return "early"

    async def late() -> str:
        meeting.set()
        return "late"

    def left() -> str:
        barrier.wait()
        return "left"

    def right() -> str:
        barrier.wait()
        return "right"

    async def work(client: AsyncClient) -> ToolRun:
        return await client.run_tools("Go.", [early, late, left, right])

    calls = [testing.tool_call(f"call_{name}", name, "{}") for name in ("early", "late", "left", "right")]
    with ResponsesServer([both(*calls), DONE]) as server:
        run = asked(server.base_url, work)
        assert outputs(server, 1) == ["early", "late", "left", "right"]
    assert len(run.calls) == 4


def test_run_tools_sends_function_errors_to_the_model() -> None:
    """B-9: exceptions, invalid arguments, an unknown tool name."""

    def broken() -> None:
        raise LookupError("no such city")

    calls = [
        testing.tool_call("call_1", "broken", "{}"),
        testing.tool_call("call_2", "add", '{"a": "two", "b": 3}'),
        testing.tool_call("call_3", "add", '{"a": 2'),
        testing.tool_call("call_4", "subtract", "{}"),
    ]
    with ResponsesServer([both(*calls), DONE]) as server:
        with client_of(server.base_url) as client:
            run = client.run_tools("Go.", [broken, add])
        results = outputs(server, 1)
    assert results[0] == "LookupError: no such city"
    assert results[1].startswith("ValidationError: Expected `int`")
    assert results[2].startswith("DecodeError")
    assert results[3] == "unknown tool 'subtract'; expected one of broken, add"
    assert all(call.failed for call in run.calls)


def test_run_tools_sets_tool_choice_none_after_the_last_allowed_call() -> None:
    """B-9: `max_tool_calls`."""
    calls = [testing.tool_call(f"call_{n}", "add", '{"a": 1, "b": 2}') for n in range(3)]
    with ResponsesServer([both(*calls), DONE]) as server, client_of(server.base_url) as client:
        run = client.run_tools("Go.", [add], max_tool_calls=2)
        assert outputs(server, 1) == ["3", "3", "not called: the limit of 2 calls is reached"]
        assert [received.json.get("tool_choice") for received in server.received] == [None, "none"]
    assert len(run.calls) == 2


def test_run_tools_stops_at_the_call_limit() -> None:
    one = turn(testing.tool_call("call_1", "add", '{"a": 1, "b": 2}'))
    two = turn(testing.tool_call("call_2", "add", '{"a": 1, "b": 2}'))
    with ResponsesServer([one, two]) as server, client_of(server.base_url) as client:
        run = client.run_tools("Go.", [add], max_tool_calls=1)
    assert (len(run.calls), run.response.output_text) == (1, "")
    with client_of(server.base_url) as client, pytest.raises(ClientFault) as caught:
        client.run_tools("Go.", [add], max_tool_calls=0)
    assert caught.value.param == "max_tool_calls"


def test_run_tools_does_not_run_an_incomplete_call() -> None:
    with ResponsesServer([turn(testing.tool_call("call_1", "add", '{"a": 1'), testing.finish("length"))]) as server:
        with client_of(server.base_url) as client:
            run = client.run_tools("Go.", [add])
    assert (run.calls, run.response.status) == ([], "incomplete")


def test_run_tools_returns_calls_of_other_tools_to_the_caller() -> None:
    other = {"type": "function", "name": "elsewhere", "parameters": {"type": "object", "properties": {}}}
    calls = both(testing.tool_call("call_1", "add", '{"a": 1, "b": 2}'), testing.tool_call("call_2", "elsewhere", "{}"))
    with ResponsesServer([calls]) as server, client_of(server.base_url) as client:
        run = client.run_tools("Go.", [add], tools=[other])
    assert [call.name for call in run.calls] == ["add"]
    assert [item.call_id for item in run.history if type(item).__name__ == "FunctionCallOutputParam"] == ["call_1"]  # type: ignore[union-attr]


def test_run_tools_passes_events_to_the_callback() -> None:
    events: list[StreamEvent] = []
    with ResponsesServer([turn(testing.tool_call("call_1", "add", '{"a": 2, "b": 3}')), DONE]) as server:
        with client_of(server.base_url) as client:
            run = client.run_tools("Go.", [add], on_event=events.append)
        assert [received.json["stream"] for received in server.received] == [True, True]
        assert server.received[0].json["store"] is False
    assert run.response.output_text == "It is 5."
    assert sum(type(event).__name__ == "ResponseCompleted" for event in events) == 2


def test_run_tools_refuses_functions_with_the_same_name() -> None:
    with client_of("http://127.0.0.1:9") as client, pytest.raises(ClientFault, match="same name"):
        client.run_tools("Go.", [add, add])
