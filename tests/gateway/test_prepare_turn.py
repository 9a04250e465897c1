"""`gateway/prepare_turn`, `gateway/turn_data` and `gateway/remote_preparation`: large bodies and large histories are
read, resolved and prepared in another process, with the same results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.running import Running, one_upstream, running, until
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.config import StoreConfig, TraceConfig
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.testing import ChatServer, ResponsesServer, turn

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

LARGE = "x" * (LARGE_INPUT + 1)
HELLO = turn(testing.text("Hello."), testing.usage(5, 2))
#: Functions that read, resolve and prepare. None may be called in the gateway's process for a large body.
WORK = {"read_client_body", "prepare_request", "_decode_value", "_request_with_tools", "input_with_ids"}
TURNS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": LARGE},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": LARGE}]},
    "/v1/messages": {"max_tokens": 16, "messages": [{"role": "user", "content": LARGE}]},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": LARGE}]}]},
    "/api/chat": {"stream": False, "messages": [{"role": "user", "content": LARGE}]},
    "/v1/vscode/chat": {"stream": False, "messages": [{"role": 1, "content": [{"kind": "text", "value": LARGE}]}]},
    "/v1/responses/input_tokens": {"input": LARGE},
}


@contextmanager
def recorded_work() -> Iterator[list[str]]:
    """The names of the functions in `WORK` that threads call which are started inside the block."""
    calls: list[str] = []

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name in WORK:
            calls.append(frame.f_code.co_name)

    threading.setprofile(record)
    try:
        yield calls
    finally:
        threading.setprofile(None)


@contextmanager
def stored_gateway(folder: Path, server: Any, dialect: str = "chat", **settings: Any) -> Iterator[Running]:
    config = replace(one_upstream(server.base_url, dialect=dialect), store=StoreConfig(url=f"sqlite:///{folder}/a.db"))
    with running(replace(config, **settings)) as gateway:
        yield gateway


@pytest.mark.parametrize("path", TURNS)
def test_large_body_is_prepared_in_another_process(path: str) -> None:
    with ChatServer(lambda _: HELLO) as server, recorded_work() as calls:
        with running(one_upstream(server.base_url)) as gateway:
            answer = gateway.post({"model": "m", **TURNS[path]}, path)
            calls_of_small_body = len(calls)
            gateway.post({"model": "m", "input": "Hi"})
    assert answer.status_code == 200, answer.text[:500]
    assert calls_of_small_body == 0
    assert calls  # the recorder works
    for request in server.received:
        assert len(request.body) > LARGE_INPUT or b'"Hi"' in request.body


@pytest.mark.parametrize(("count", "is_local"), [(100, True), (20_000, False)])
def test_body_with_many_values_is_prepared_in_another_process(count: int, is_local: bool) -> None:
    """It is below the limit of the size, and each of its parts takes time."""
    text = "x" * (200_000 // count)
    parts = [{"type": "input_text", "text": text}] * count
    body = {"model": "m", "input": [{"role": "user", "content": parts}]}
    assert len(msgspec.json.encode(body)) < LARGE_INPUT
    with (
        ChatServer(lambda _: HELLO) as server,
        recorded_work() as calls,
        running(one_upstream(server.base_url)) as gateway,
    ):
        assert gateway.post(body).status_code == 200
    assert ("prepare_request" in calls) is is_local


def large_tools() -> list[dict[str, Any]]:
    properties = {f"p{number}": {"type": "string"} for number in range(1000)}
    schema = {"type": "object", "properties": properties}
    return [{"type": "function", "name": f"f{number}", "parameters": schema} for number in range(60)]


@pytest.mark.parametrize("options", [{}, {"stream": True}, {"background": True}, {"truncation": "auto"}])
def test_tools_of_a_large_body_are_echoed_and_not_decoded_in_the_gateway(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    tools = large_tools()
    with ChatServer(lambda _: HELLO) as server, recorded_work() as calls, stored_gateway(tmp_path, server) as gateway:
        answer = gateway.post({"model": "m", "input": "Hi", "tools": tools, **options})
        assert answer.status_code == 200, answer.text[:500]
        id = answer.text.partition('"id":"')[2].partition('"')[0]
        until(lambda: gateway.get(f"/v1/responses/{id}").json()["status"] == "completed")
        stored = gateway.get(f"/v1/responses/{id}").json()
    response = stored if options.get("stream") else answer.json()
    assert answer.text.count('"f59"') == (3 if options.get("stream") else 1)
    for echoed in (response["tools"], stored["tools"]):
        assert [(tool["name"], tool["parameters"]) for tool in echoed] == [
            (tool["name"], tool["parameters"]) for tool in tools
        ]
    assert [tool["function"]["parameters"] for tool in server.received[-1].json["tools"]] == [
        tool["parameters"] for tool in tools
    ]
    assert calls == []


def test_call_of_a_tool_of_a_large_body_has_its_names(tmp_path: Path) -> None:
    """A custom tool in a namespace: the server has a flat function, and the client gets its own tool back."""
    namespace = {"type": "namespace", "name": "files", "tools": [{"type": "custom", "name": "write"}]}
    called = turn(testing.tool_call("call_1", "files__write", '{"input": "text"}'), testing.usage(5, 2))
    with ChatServer([called]) as server, stored_gateway(tmp_path, server) as gateway:
        answer = gateway.post({"model": "m", "input": "Hi", "tools": [*large_tools(), namespace]}).json()
    [call] = answer["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("custom_tool_call", "files", "write")
    assert call["input"] == "text"


def test_large_bodies_of_other_endpoints_are_read_in_another_process(tmp_path: Path) -> None:
    with ChatServer() as server, recorded_work() as calls, stored_gateway(tmp_path, server) as gateway:
        conversation = gateway.post({}, "/v1/conversations").json()
        calls.clear()
        assert gateway.post({"model": "m", "x": LARGE}, "/api/show").status_code == 200
        assert gateway.post({"model": "m", "prompt": LARGE}, "/v1/completions").status_code == 200
        path = f"/v1/conversations/{conversation['id']}"
        assert gateway.post({"metadata": {"a": "b"}, "x": LARGE}, path).json()["metadata"] == {"a": "b"}
    assert calls == []


@pytest.mark.parametrize("path", [path for path in TURNS if "gemini" not in path])
def test_large_body_that_is_refused_is_refused_in_another_process(path: str) -> None:
    with ChatServer() as server, recorded_work() as calls, running(one_upstream(server.base_url)) as gateway:
        answer = gateway.post(b'{"model": 5, "x": "' + LARGE.encode() + b'"', path)
    assert answer.status_code == 400
    assert calls == []


def test_large_body_is_stored_and_continued(tmp_path: Path) -> None:
    """The recorded input and the resolved history are prepared in another process too."""
    with ChatServer(lambda _: HELLO) as server, recorded_work() as calls, stored_gateway(tmp_path, server) as gateway:
        first = gateway.post({"model": "m", "input": LARGE}).json()
        second = gateway.post({"model": "m", "input": "Go on.", "previous_response_id": first["id"]})
        items = gateway.get(f"/v1/responses/{first['id']}/input_items").json()["data"]
    assert second.status_code == 200, second.text[:500]
    contents = [message["content"] for message in server.received[-1].json["messages"]]
    assert contents == [LARGE, "Hello.", "Go on."]
    assert items[0]["content"][0]["text"] == LARGE
    assert "prepare_request" not in calls


def test_large_message_of_a_websocket_is_prepared_in_another_process() -> None:
    with (
        ChatServer(lambda _: HELLO) as server,
        recorded_work() as calls,
        running(one_upstream(server.base_url)) as gateway,
    ):
        with open_websocket(gateway.port, "/v1/responses") as client:
            client.send({"type": "response.create", "model": "m", "input": LARGE, "store": False})
            events: list[dict[str, Any]] = []
            while not events or events[-1]["type"] != "response.completed":
                events.append(client.receive_json())
            previous = events[-1]["response"]["id"]
            small = {"type": "response.create", "model": "m", "input": "Go on.", "store": False}
            client.send({**small, "previous_response_id": previous})  # only this connection has the large history
            until(lambda: client.receive_json()["type"] == "response.completed")
            client.send({"type": "response.create", "model": "m", "previous_response_id": previous, "input": [LARGE]})
            assert client.receive_json()["type"] == "error"
    assert [message["content"] for message in server.received[1].json["messages"]] == [LARGE, "Hello.", "Go on."]
    assert "prepare_request" not in calls


def test_large_background_request_is_prepared_in_another_process(tmp_path: Path) -> None:
    with ChatServer(lambda _: HELLO) as server, recorded_work() as calls, stored_gateway(tmp_path, server) as gateway:
        id = gateway.post({"model": "m", "input": LARGE, "background": True}).json()["id"]
        until(lambda: gateway.get(f"/v1/responses/{id}").json()["status"] == "completed")
    assert server.received[0].json["messages"][0]["content"] == LARGE
    assert not {"prepare_request", "read_client_body"}.intersection(calls)


def test_large_request_is_retried_without_refused_reasoning(tmp_path: Path) -> None:
    """RSN-3, in another process. The server refuses reasoning that it did not seal."""
    history = [
        {"type": "message", "role": "user", "content": LARGE},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "content": "Hello."},
        {"type": "message", "role": "user", "content": "Go on."},
    ]
    with ResponsesServer([HELLO]) as server, recorded_work() as calls:
        with stored_gateway(tmp_path, server, "responses") as gateway:
            answer = gateway.post({"model": "m", "input": history})
    assert answer.status_code == 200, answer.text[:500]
    assert [b"gAAA" in request.body for request in server.received] == [True, False]
    assert "prepare_request" not in calls


def test_large_request_is_traced(tmp_path: Path) -> None:
    with ChatServer(lambda _: HELLO) as server:
        with stored_gateway(tmp_path, server, trace=TraceConfig(dir=str(tmp_path / "traces"))) as gateway:
            assert gateway.post({"model": "m", "input": LARGE}).status_code == 200
    recorded = b"".join(path.read_bytes() for path in (tmp_path / "traces").rglob("*") if path.is_file())
    assert recorded


def test_references_of_a_large_body_are_looked_up(tmp_path: Path) -> None:
    with ChatServer(lambda _: HELLO) as server, stored_gateway(tmp_path, server) as gateway:
        stored = {"type": "message", "id": "msg_stored", "role": "user", "content": "Remember me."}
        gateway.post({"model": "m", "input": [stored]})
        reference = {"type": "item_reference", "id": "msg_stored"}
        large = {"type": "message", "role": "user", "content": LARGE}
        answer = gateway.post({"model": "m", "input": [reference, large]})
        missing = gateway.post({"model": "m", "input": [{**reference, "id": "msg_none"}, large]})
    assert answer.status_code == 200, answer.text[:500]
    assert [message["content"] for message in server.received[-1].json["messages"]] == ["Remember me.", LARGE]
    assert missing.status_code == 400
    assert missing.json()["error"]["param"] == "input[0].id"


def test_references_to_a_large_stored_item_are_resolved(tmp_path: Path) -> None:
    """The request is small, but what it refers to is large."""
    with ChatServer(lambda _: HELLO) as server, recorded_work() as calls, stored_gateway(tmp_path, server) as gateway:
        stored = {"type": "message", "id": "msg_stored", "role": "user", "content": LARGE}
        gateway.post({"model": "m", "input": [stored]})
        answer = gateway.post({"model": "m", "input": [{"type": "item_reference", "id": "msg_stored"}]})
    assert answer.status_code == 200, answer.text[:500]
    assert server.received[-1].json["messages"][0]["content"] == LARGE
    assert "prepare_request" not in calls


def test_large_conversation_is_truncated_and_joined(tmp_path: Path) -> None:
    with ChatServer(lambda _: HELLO) as server, stored_gateway(tmp_path, server) as gateway:
        id = gateway.post({}, "/v1/conversations").json()["id"]
        body = {"model": "m", "conversation": id, "truncation": "auto"}
        assert gateway.post({**body, "input": LARGE}).status_code == 200
        answer = gateway.post({**body, "input": "Go on."})
    assert answer.status_code == 200, answer.text[:500]
    assert len(server.received[-1].json["messages"]) == 3


def test_items_and_tools_over_the_limit_are_a_400() -> None:
    with ChatServer() as server, running(one_upstream(server.base_url)) as gateway:
        items = gateway.post({"model": "m", "input": [{"role": "user", "content": "Hi"}] * 10_001})
        calls = [{"role": "user", "content": "Hi"}] * 10_001
        messages = gateway.post({"model": "m", "messages": calls}, "/v1/chat/completions")
        tools = gateway.post({"model": "m", "input": "Hi", "tools": [{"type": "web_search"}] * 513})
    for answer, param in ((items, "input"), (messages, "messages"), (tools, "tools")):
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("invalid_value", param)
    assert not server.received


def test_message_of_the_limits_says_what_is_allowed() -> None:
    with ChatServer() as server, running(one_upstream(server.base_url)) as gateway:
        answer = gateway.post({"model": "m", "input": [{"role": "user", "content": "Hi"}] * 10_001})
    assert msgspec.json.decode(answer.content)["error"]["message"] == (
        "input: expected at most 10000 items in one request, got 10001"
    )
