"""Ids and names of calls over sockets: ids that a server cannot take, ids of other servers, and calls in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.askers import CHAT, GEMINI, MESSAGES
from tests.api.test_tool_names import names_in_stream
from tests.running import one_upstream, running

from antiphon import sse, testing
from antiphon.config import Config, StoreConfig, UpstreamConfig
from antiphon.testing import ChatServer, GeminiServer, ResponsesServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

LONG_ID = "call_" + "x" * 85
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
USER = {"type": "message", "role": "user", "content": "Hi"}


def upstreams(folder: Path, **servers: ResponsesServer) -> Config:
    """Servers of OpenAI, by the names of their models."""
    return Config(
        store=StoreConfig(url=f"sqlite:///{folder}/antiphon.db"),
        upstreams=[
            UpstreamConfig(name=model, dialect="responses", profile="openai", base_url=server.base_url, models=[model])
            for model, server in servers.items()
        ],
    )


def response_of(content: bytes) -> Any:
    """The response in the last event of a stream."""
    return json.loads([frame.data for frame in sse.Decoder().feed(content) if frame.data != sse.DONE][-1])["response"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_long_call_id_is_mapped_for_openai_and_stays_the_clients(is_stream: bool, tmp_path: Path) -> None:
    """REQ-8: the strict server takes at most 64 characters. The id of the client is stored."""
    call = {"type": "function_call", "call_id": LONG_ID, "name": "get_weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": LONG_ID, "output": "sunny"}
    hello = turn(testing.text("Sunny."))
    with ResponsesServer([hello, hello]) as server:
        with running(upstreams(tmp_path, b=server)) as gateway:
            asked = {"model": "b", "tools": [TOOL], "stream": is_stream}
            answer = gateway.post({**asked, "input": [USER, call, output]})
            assert answer.status_code == 200, answer.text
            response = response_of(answer.content) if is_stream else answer.json()
            listed = gateway.get(f"/v1/responses/{response['id']}/input_items").json()["data"]
            last = gateway.post({**asked, "input": "And now?", "previous_response_id": response["id"]})
            assert last.status_code == 200, last.text
        call_ids = [
            item["call_id"] for received in server.received for item in received.json["input"] if "call_id" in item
        ]
    assert [item["call_id"] for item in listed if "call_id" in item] == [LONG_ID, LONG_ID]
    assert len(call_ids) == 4
    assert len(set(call_ids)) == 1
    assert len(call_ids[0]) <= 64


def test_chain_that_goes_on_at_another_server_takes_no_ids_along(tmp_path: Path) -> None:
    """The gateway makes the ids of a chat server's items. The server of OpenAI did not issue them."""
    called = turn(testing.reasoning("Hm."), testing.text("Wait."), testing.tool_call("call_1", "get_weather", "{}"))
    with ChatServer([called]) as first, ResponsesServer([turn(testing.text("Sunny."))]) as second:
        elsewhere = UpstreamConfig(name="a", dialect="chat", base_url=first.base_url, models=["a"])
        config = upstreams(tmp_path, b=second)
        with running(replace(config, upstreams=[elsewhere, *config.upstreams])) as gateway:
            response = gateway.post({"model": "a", "input": [USER], "tools": [TOOL]}).json()
            output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
            chain = {"previous_response_id": response["id"], "input": [output], "tools": [TOOL]}
            answer = gateway.post({"model": "b", **chain})
            assert answer.status_code == 200, answer.text
        [received] = second.received
    assert [item["type"] for item in received.json["input"] if "id" in item] == []
    assert [item["type"] for item in received.json["input"]][-2:] == ["function_call", "function_call_output"]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
def test_chain_between_two_servers_of_openai_takes_no_ids_along(
    is_stored: bool, is_stream: bool, tmp_path: Path
) -> None:
    """The second server did not issue the ids, although they have the form of its own."""
    called = turn(testing.reasoning("Hm."), testing.text("Wait."), testing.tool_call("call_1", "get_weather", "{}"))
    hello = turn(testing.text("Sunny."))
    with ResponsesServer([called]) as first, ResponsesServer([hello]) as second:
        with running(upstreams(tmp_path, a=first, b=second)) as gateway:
            settings = {"tools": [TOOL], "store": is_stored, "stream": is_stream}
            answer = gateway.post({"model": "a", "input": [USER], **settings})
            response = response_of(answer.content) if is_stream else answer.json()
            assert [item["id"].partition("_")[0] for item in response["output"]] == ["rs", "msg", "fc"]
            output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
            if is_stored:
                chain = {"previous_response_id": response["id"], "input": [output]}
            else:
                chain = {"input": [USER, *response["output"], output]}
            answer = gateway.post({"model": "b", **chain, **settings})
            assert answer.status_code == 200, answer.text
        [received] = second.received
        assert not second.refusals
    assert [item for item in received.json["input"] if "id" in item] == []
    assert [item["type"] for item in received.json["input"]][-2:] == ["function_call", "function_call_output"]


def test_only_server_of_openai_gets_the_ids_that_it_issued(tmp_path: Path) -> None:
    """Within a dialect nothing changes: the history of a client that sends it whole."""
    called = turn(testing.reasoning("Hm."), testing.tool_call("call_1", "get_weather", "{}"))
    with ResponsesServer([called, turn(testing.text("Sunny."))]) as server:
        with running(upstreams(tmp_path, a=server)) as gateway:
            include = ["reasoning.encrypted_content"]
            settings = {"model": "a", "tools": [TOOL], "store": False, "include": include}
            response = gateway.post({"input": [USER], **settings}).json()
            output = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
            assert gateway.post({"input": [USER, *response["output"], output], **settings}).status_code == 200
        sent_items = server.received[1].json["input"]
    assert [item["id"] for item in sent_items if "id" in item] == [item["id"] for item in response["output"]]


def chat_frame(*calls: Any, **choice: Any) -> bytes:
    delta = {"tool_calls": list(calls)} if calls else {}
    return _frame({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]})


def chat_piece(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": 0, "id": "call_1", "type": "function", "function": function}


def gemini_frame(*parts: Any, **members: Any) -> bytes:
    return _frame({"candidates": [{"index": 0, "content": {"role": "model", "parts": list(parts)}, **members}]})


def _frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


GEMINI_CALL = {"functionCall": {"id": "call_1", "name": "get_weather", "args": {"city": "Rome"}}}
ARGUMENTS = '{"city":"Rome"}'
CHAT_END = chat_frame(finish_reason="tool_calls") + b"data: [DONE]\n\n"
STREAMS: dict[str, tuple[Any, str, bytes]] = {
    "chat, sent again": (
        ChatServer,
        "chat",
        chat_frame(chat_piece("get_weather", ARGUMENTS)) * 2 + CHAT_END,
    ),
    "chat, a name in two pieces": (
        ChatServer,
        "chat",
        chat_frame(chat_piece("get_", "")) + chat_frame(chat_piece("weather", ARGUMENTS)) + CHAT_END,
    ),
    "chat, a name repeated": (
        ChatServer,
        "chat",
        chat_frame(chat_piece("get_weather", "")) + chat_frame(chat_piece("get_weather", ARGUMENTS)) + CHAT_END,
    ),
    "gemini, sent again": (
        GeminiServer,
        "gemini",
        gemini_frame(GEMINI_CALL) + gemini_frame(GEMINI_CALL, finishReason="STOP"),
    ),
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("client", ["responses", "chat", "messages", "gemini"])
def test_call_in_pieces_or_sent_again_is_one_call(client: str, stream: str) -> None:
    """STR-9: of every client."""
    make_server, dialect, content = STREAMS[stream]
    asker = {"chat": CHAT, "messages": MESSAGES, "gemini": GEMINI}.get(client)
    if asker is None:
        path, body = "/v1/responses", {"model": "mock-1", "input": "Hi", "tools": [TOOL], "stream": True}
    else:
        path, body = asker.stream_path, {**asker.streamed, **asker.tools}
    with make_server([testing.exactly(testing.SSE_HEAD, content, testing.end("fin"))]) as server:
        with running(one_upstream(server.base_url, dialect=dialect)) as gateway:
            answer = gateway.post(body, path)
    assert answer.status_code == 200, answer.text
    assert names_in_stream(client, answer.content) == ["get_weather"]
