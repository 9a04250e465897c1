"""Names of tools over sockets, between any client and any strict server that takes a forced call: the client gets its own names back, whole and
streamed, and may send the call and its result in the next turn (REQ-8)."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from tests.running import one_upstream, running

from antiphon import sse
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, ResponsesServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

SERVERS: dict[str, tuple[Any, str]] = {
    "chat": (ChatServer, "chat"),
    "responses": (ResponsesServer, "openai"),
    "messages": (MessagesServer, "anthropic"),
    "gemini": (GeminiServer, "google"),
}
LONG = "mcp__a_server_with_a_long_name__" + "n" * 95
NAMES = ["a.b", "ns:tool", "größe", LONG + "1", LONG + "2", "n" * 64]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
MODEL = "m"


def request_of(client: str, name: str, items: list[Any]) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request that offers all tools and forces one."""
    functions: list[Any] = [{"name": offered, "description": "A tool.", "parameters": SCHEMA} for offered in NAMES]
    choice: dict[str, Any]
    body: dict[str, Any]
    tools: list[Any]
    match client:
        case "chat":
            choice = {"type": "function", "function": {"name": name}}
            tools = [{"type": "function", "function": function} for function in functions]
            body = {"model": MODEL, "messages": items, "tools": tools, "tool_choice": choice}
            return "/v1/chat/completions", body
        case "responses":
            tools = [{"type": "function", "strict": False, **function} for function in functions]
            choice = {"type": "function", "name": name}
            return "/v1/responses", {"model": MODEL, "input": items, "tools": tools, "tool_choice": choice}
        case "messages":
            tools = [{"name": offered, "description": "A tool.", "input_schema": SCHEMA} for offered in NAMES]
            choice = {"type": "tool", "name": name}
            body = {"model": MODEL, "max_tokens": 100, "messages": items, "tools": tools, "tool_choice": choice}
            return "/v1/messages", body
        case _:
            config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
            body = {"contents": items, "tools": [{"functionDeclarations": functions}], "toolConfig": config}
            return f"/v1beta/models/{MODEL}:generateContent", body


def asked(client: str) -> list[Any]:
    return [{"role": "user", "parts": [{"text": "Go"}]}] if client == "gemini" else [{"role": "user", "content": "Go"}]


def answer_and_result(client: str, answer: dict[str, Any]) -> tuple[str, list[Any]]:
    """The name of the call in an answer, and the items with which the next turn continues."""
    match client:
        case "chat":
            message = answer["choices"][0]["message"]
            [call] = message["tool_calls"]
            return call["function"]["name"], [message, {"role": "tool", "tool_call_id": call["id"], "content": "ok"}]
        case "responses":
            [call] = [item for item in answer["output"] if item["type"] == "function_call"]
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
            return call["name"], [*answer["output"], output]
        case "messages":
            [call] = [block for block in answer["content"] if block["type"] == "tool_use"]
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}
            blocks = [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]
            return call["name"], blocks
        case _:
            content = answer["candidates"][0]["content"]
            [call] = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            result = {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "ok"}}}
            return call["name"], [content, {"role": "user", "parts": [result]}]


def names_in_stream(client: str, content: bytes) -> list[str]:
    frames = [json.loads(frame.data) for frame in sse.Decoder().feed(content) if frame.data != sse.DONE]
    match client:
        case "chat":
            deltas = [
                call
                for frame in frames
                for choice in frame["choices"]
                for call in choice["delta"].get("tool_calls") or ()
            ]
            return [call["function"]["name"] for call in deltas if call["function"].get("name")]
        case "responses":
            added = [frame["item"] for frame in frames if frame["type"] == "response.output_item.added"]
            return [item["name"] for item in added if item["type"] == "function_call"]
        case "messages":
            blocks = [frame["content_block"] for frame in frames if frame["type"] == "content_block_start"]
            return [block["name"] for block in blocks if block["type"] == "tool_use"]
        case _:
            parts = [part for frame in frames for part in frame["candidates"][0].get("content", {}).get("parts", ())]
            return [part["functionCall"]["name"] for part in parts if "functionCall" in part]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", ["chat", "responses", "messages", "gemini"])
def test_client_gets_its_own_names_in_every_turn(client: str, server: str) -> None:
    make_server, profile = SERVERS[server]
    with make_server() as upstream:
        config = one_upstream(upstream.base_url, dialect=server, profile=profile)
        with running(config) as gateway:
            for name in NAMES:
                path, body = request_of(client, name, asked(client))
                whole = gateway.post(body, path)
                assert whole.status_code == 200, whole.text
                called, continuation = answer_and_result(client, whole.json())
                assert called == name
                if client == "gemini":
                    stream_path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
                    streamed = gateway.post(body, stream_path)
                else:
                    streamed = gateway.post({**body, "stream": True}, path)
                assert streamed.status_code == 200, streamed.text
                assert names_in_stream(client, streamed.content) == [name]
                path, body = request_of(client, name, [*asked(client), *continuation])
                after = gateway.post(body, path)
                assert after.status_code == 200, after.text


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # What the tools look like around a function, and the members of a choice.
    "custom": ({"type": "custom"}, {"type": "custom"}),
    "namespace": ({"type": "function", "parameters": SCHEMA}, {"type": "function", "namespace": "my.tools"}),
    "allowed": ({"type": "function", "parameters": SCHEMA}, {"type": "function"}),
}

#: OpenAI's server has namespaces of its own, which its fake does not know.
SHAPED_PAIRS = [pair for pair in product(SHAPES, SERVERS) if pair != ("namespace", "responses")]


def shaped_request(shape: str, name: str, items: list[Any]) -> dict[str, Any]:
    """A request of a Responses client that allows one call of a tool."""
    form, choice = SHAPES[shape]
    tools: list[Any] = [{**form, "name": offered, "description": "A tool."} for offered in NAMES]
    if shape == "namespace":
        tools = [{"type": "namespace", "name": "my.tools", "description": "Tools.", "tools": tools}]
    named: dict[str, Any] = {**choice, "name": name}
    if shape == "allowed":
        named = {"type": "allowed_tools", "mode": "required", "tools": [named]}
    return {"model": MODEL, "input": items, "tools": tools, "tool_choice": named}


@pytest.mark.parametrize(("shape", "server"), SHAPED_PAIRS)
def test_custom_and_grouped_tools_keep_their_names(shape: str, server: str) -> None:
    make_server, profile = SERVERS[server]
    with make_server() as upstream:
        with running(one_upstream(upstream.base_url, dialect=server, profile=profile)) as gateway:
            for name in NAMES:
                whole = gateway.post(shaped_request(shape, name, asked("responses")))
                assert whole.status_code == 200, whole.text
                [call] = [item for item in whole.json()["output"] if item["type"].endswith("_call")]
                assert (call["name"], call.get("namespace")) == (name, "my.tools" if shape == "namespace" else None)
                streamed = gateway.post({**shaped_request(shape, name, asked("responses")), "stream": True})
                events = [json.loads(frame.data) for frame in sse.Decoder().feed(streamed.content) if frame.event]
                assert [item["name"] for item in events[-1]["response"]["output"] if "name" in item] == [name]
                output = {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "ok"}
                items = [*asked("responses"), *whole.json()["output"], output]
                after = gateway.post(shaped_request(shape, name, items))
                assert after.status_code == 200, after.text
        assert not upstream.refusals
