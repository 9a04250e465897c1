"""`OllamaServer`: its stream and its plain answer have the same content, and it answers its other paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from tests.generate.events import counting_stamps
from tests.testing.requests import make_request, send_request
from tests.testing.turns import turns

from antiphon import sse
from antiphon.dialects import ollama
from antiphon.protocol import codec
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.testing import OllamaServer, custom_call, end, finish, ollama_error, raw, reasoning, text, tool_call, turn
from antiphon.testing.improvise import OfferedTool, Prompt
from antiphon.testing.ollama.server import OllamaBehavior, make_prompt
from antiphon.testing.script import End, ScriptedTurn

pytestmark = pytest.mark.without_coverage
USER = {"role": "user", "content": "What's the weather in Rome?"}
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
REQUEST = Request(model="m", input="hi")


def body(*messages: Any, **settings: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages) or [USER], **settings}


def lines(said: ScriptedTurn, **settings: Any) -> list[bytes]:
    steps = OllamaBehavior().render_stream(said, make_request(body(**settings)))
    return b"".join(step for step in steps if isinstance(step, bytes)).splitlines()


def read_stream(data: list[bytes]) -> Response:
    to_hub = ollama.EventsToHub(REQUEST, make_initial_response(REQUEST, id="r", created_at=1), counting_stamps())
    events = [event for line in data for event in to_hub.feed(sse.Frame("", line))] + to_hub.finish()
    assert find_violations(events) == []
    return fold_events(events)


def read_body(data: bytes) -> Response:
    initial_response = make_initial_response(REQUEST, id="r", created_at=1)
    return ollama.response_to_hub(data, REQUEST, initial_response, counting_stamps())[0]


def content(response: Response) -> list[Any]:
    """The items without what the order of the stream decides: one message holds all text, one item all thinking."""
    texts: dict[str, str] = {}
    calls: list[Any] = []
    for item in json.loads(codec.encode(response.output)):
        if item["type"] == "function_call":
            calls.append((item["call_id"], item["name"], json.loads(item["arguments"])))
        else:
            texts[item["type"]] = texts.get(item["type"], "") + "".join(part["text"] for part in item["content"])
    return [sorted(texts.items()), calls, response.status, response.usage]


@settings(max_examples=40)
@given(turns())
def test_stream_and_body_have_the_same_content(said: ScriptedTurn) -> None:
    if any(isinstance(element, End) for element in said.elements) or said.omit:
        return
    whole = OllamaBehavior().render_body(said, make_request(body(stream=False)))
    assert content(read_stream(lines(said))) == content(read_body(whole))


def test_stream_has_one_line_for_each_piece() -> None:
    said = turn(reasoning("Hm", "."), text("Hel", "lo."), tool_call("c1", "f", '{"a":', "1}"), finish("length"))
    read = [json.loads(line) for line in lines(said)]
    assert [line["message"].get("thinking") for line in read[:2]] == ["Hm", "."]
    assert [line["message"]["content"] for line in read[2:4]] == ["Hel", "lo."]
    call = {"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}
    assert read[4]["message"]["tool_calls"] == [call]
    assert (read[5]["done"], read[5]["done_reason"]) == (True, "length")


def test_stream_can_be_broken() -> None:
    said = turn(text("Hi"), raw(b'{"error":"x"}\n'), end("rst"), omit=["finish"])
    steps = OllamaBehavior().render_stream(said, make_request(body()))
    assert steps[1:] == [b'{"error":"x"}\n', End("rst")]


def test_counts_and_reason_can_be_left_out() -> None:
    assert "eval_count" not in json.loads(lines(turn(text("Hi"), omit=["usage"]))[-1])
    whole = OllamaBehavior().render_body(turn(text("Hi"), omit=["finish"]), make_request(body()))
    assert json.loads(whole)["done"] is False


def test_custom_call_has_one_string() -> None:
    [line, _] = lines(turn(custom_call("c1", "patch", "+ ", "a")))
    assert json.loads(line)["message"]["tool_calls"][0]["function"]["arguments"] == {"input": "+ a"}


@pytest.mark.parametrize("tops", [0, 2])
def test_logprobs_are_sent_on_request(tops: int) -> None:
    [line, _] = lines(turn(text("Hi")), logprobs=True, top_logprobs=tops)
    [token] = json.loads(line)["logprobs"]
    assert (token["token"], len(token.get("top_logprobs", ()))) == ("Hi", tops)


def test_prompt_of_a_request() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", "arguments": {}}}]}
    result = {"role": "tool", "tool_name": "get_weather", "content": "Rain."}
    settings = {"tools": [TOOL], "format": SCHEMA, "think": True, "options": {"num_predict": 9}}
    assert make_prompt(body({**USER, "images": ["AAAA"]}, call, result, {"role": "tool"}, **settings)) == Prompt(
        text="What's the weather in Rome?",
        media=1,
        results=(("get_weather", "Rain."), ("the tool", "")),
        calls_before=1,
        tools=(OfferedTool("get_weather", SCHEMA),),
        schema=SCHEMA,
        thinks=True,
        max_pieces=9,
    )
    assert make_prompt({"prompt": "Why?", "format": "json"}) == Prompt(text="Why?", schema={})
    assert make_prompt(body({"role": "system"}, options={"num_predict": -1})) == Prompt(text="")


@pytest.mark.io
def test_server_answers_its_paths() -> None:
    with OllamaServer([turn(text("Hi.")), ollama_error(503, "busy")], models=["m"]) as server:
        answer = send_request(server, "/api/chat", body())
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert send_request(server, "/api/chat", body()).json == {"error": "busy"}
        assert [model["model"] for model in send_request(server, "/api/tags", method="GET").json["models"]] == ["m"]
        assert send_request(server, "/api/show", {"name": "m"}).json["capabilities"] == ["completion", "tools"]
        assert send_request(server, "/api/show", {"model": "n"}).status == 404
        assert send_request(server, "/api/show", []).status == 400
        assert "version" in send_request(server, "/api/version", method="GET").json
        assert send_request(server, "/v1/models", method="GET").status == 404
        assert server.base_url == server.origin


@pytest.mark.io
def test_server_without_a_script_echoes_and_calls_tools() -> None:
    with OllamaServer() as server:
        said = send_request(server, "/api/generate", {"model": "m", "prompt": "Hello", "stream": False}).json
        assert "Hello" in said["response"]
        called = send_request(
            server, "/api/chat", body({**USER, "content": "call get_weather"}, tools=[TOOL], stream=False)
        )
        assert called.json["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
