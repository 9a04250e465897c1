"""An answer that has only calls of tools that the request does not allow, in every client dialect, over sockets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.api.askers import CHAT, GEMINI, MESSAGES
from tests.running import one_upstream, running

from antiphon import sse, testing
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, ResponsesServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

SERVERS: dict[str, Any] = {
    "chat": ChatServer,
    "messages": MessagesServer,
    "responses": ResponsesServer,
    "gemini": GeminiServer,
}
CALL = turn(testing.tool_call("call_1", "get_time", "{}"), testing.usage(5, 2))
CHAT_ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}
CHAT_TOOLS = [{"type": "function", "function": {"name": name}} for name in ("get_weather", "get_time")]
RESPONSES_TOOLS = [{"type": "function", "name": name} for name in ("get_weather", "get_time")]
RESPONSES_ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": RESPONSES_TOOLS[:1]}
MESSAGES_TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("get_weather", "get_time")]
GEMINI_TOOLS = [{"functionDeclarations": [{"name": name} for name in ("get_weather", "get_time")]}]
VALIDATED = {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["get_weather"]}}
REQUESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "responses": (
        "/v1/responses",
        "/v1/responses",
        {"model": "mock-1", "input": "Hi", "tools": RESPONSES_TOOLS, "tool_choice": RESPONSES_ALLOWED},
    ),
    "chat": (
        CHAT.path,
        CHAT.path,
        {**CHAT.asked, "tools": CHAT_TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": CHAT_ALLOWED}},
    ),
    "messages": (
        MESSAGES.path,
        MESSAGES.path,
        {**MESSAGES.asked, "tools": MESSAGES_TOOLS, "tool_choice": {"type": "none"}},
    ),
    "gemini": (GEMINI.path, GEMINI.stream_path, {**GEMINI.asked, "tools": GEMINI_TOOLS, "toolConfig": VALIDATED}),
}


def end_of(dialect: str, body: Any) -> Any:
    """The reason why an answer, or a frame of a stream, ends."""
    match dialect:
        case "responses":
            response = body.get("response", body)
            return response["incomplete_details"]["reason"] if response.get("status") == "incomplete" else None
        case "chat":
            return next((choice["finish_reason"] for choice in body["choices"]), None)
        case "messages":
            return body.get("stop_reason") or body.get("delta", {}).get("stop_reason")
        case _:
            return next((candidate.get("finishReason") for candidate in body["candidates"]), None)


ENDS = {"responses": "tool_not_allowed", "chat": "length", "messages": "max_tokens", "gemini": "UNEXPECTED_TOOL_CALL"}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", REQUESTS)
def test_answer_with_only_forbidden_calls_is_incomplete(client: str, server: str) -> None:
    """TOOL-3: status 200, all tools are sent, the call is not delivered, and the answer is not complete."""
    path, stream_path, body = REQUESTS[client]
    with SERVERS[server](lambda _: CALL, strict=False) as upstream:
        with running(one_upstream(upstream.base_url, dialect=server)) as gateway:
            answer = gateway.post(body, path)
            stream = gateway.post(body if client == "gemini" else {**body, "stream": True}, stream_path)
        received = [str(request.json) for request in upstream.received]
    assert (answer.status_code, stream.status_code) == (200, 200)
    assert all("get_weather" in text and "get_time" in text for text in received)
    frames = [msgspec.json.decode(frame.data) for frame in sse.Decoder().feed(stream.content) if frame.data != sse.DONE]
    ends = [end for frame in frames if (end := end_of(client, frame)) is not None]
    assert (end_of(client, answer.json()), ends) == (ENDS[client], [ENDS[client]])
    if client != "responses":  # its answers repeat the tools
        assert "get_time" not in answer.text + stream.text
    else:
        assert answer.json()["output"] == frames[-1]["response"]["output"] == []
