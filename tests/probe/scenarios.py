"""What a client then asks through the gateway: the scenarios of everyday, each a few turns of the hub's own API."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from tests.running import Running

Body = dict[str, Any]
#: What a server can be made to write, whatever its model would.
Writes = Literal["JSON by a schema", "any JSON", "text"]


def play(gateway: Running, writes: Writes) -> None:
    """Every scenario. Where the server writes no JSON, the client is told so."""
    for body in PLAIN.values():
        _answered(gateway, body)
    _streamed(gateway, PLAIN["conversation"])
    _tool_loop(gateway)
    answer = gateway.post({**STRUCTURED, "model": "mock-1"})
    if writes != "text":
        value = json.loads(_text(answer.json()))
        assert isinstance(value, dict)
        assert writes == "any JSON" or value.keys() == {"name", "age"}
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")


def _answered(gateway: Running, body: Body) -> Body:
    answer = gateway.post({"model": "mock-1", **body})
    response: Body = answer.json()
    assert (answer.status_code, response.get("status")) == (200, "completed"), (body, response)
    return response


def _streamed(gateway: Running, body: Body) -> None:
    answer = gateway.post({"model": "mock-1", "stream": True, **body})
    assert answer.status_code == 200
    assert "event: response.completed" in answer.text


def _tool_loop(gateway: Running) -> None:
    """Two calls at once, and their outputs."""
    conversation: list[Body] = [{"type": "message", "role": "user", "content": TWICE}]
    calls = [
        item
        for item in _answered(gateway, {"input": conversation, "tools": [TOOL]})["output"]
        if item["type"] == "function_call"
    ]
    assert [json.loads(call["arguments"]) for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]
    outputs = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"sunny in {number}"}
        for number, call in enumerate(calls)
    ]
    final = _answered(gateway, {"input": [*conversation, *calls, *outputs], "tools": [TOOL]})
    assert "sunny in 1" in _text(final)


def _text(response: Body) -> str:
    parts = [part for item in response["output"] for part in item.get("content") or ()]
    return "".join(part.get("text", "") for part in parts)


def _user(*parts: Body) -> Body:
    return {"type": "message", "role": "user", "content": [*parts]}


def _said(text: str) -> Body:
    return {"type": "input_text", "text": text}


CITY: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Final[Body] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": CITY,
    "strict": True,
}
TWICE: Final = 'Please call get_weather {"city":"Paris"} and call get_weather {"city":"Rome"}'
PERSON: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
STRUCTURED: Final[Body] = {
    "input": "Alice is 30, as JSON.",
    "text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}},
}
ANSWER: Final[Body] = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "phase": "final_answer",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Good day.", "annotations": []}],
}
PLAIN: Final[dict[str, Body]] = {
    "text": {"input": "Say hello."},
    "parts": {"input": [_user(_said("Say hello."))]},
    "conversation": {
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "system", "content": "Be kind."},
            _user(_said("Hi.")),
            ANSWER,
            {"type": "message", "role": "developer", "content": "Be honest."},
            {"type": "message", "role": "user", "content": "And again."},
        ],
    },
    "tools": {"input": "The weather in Oslo?", "tools": [TOOL]},
    "image": {
        "input": [
            _user(_said("What is it?"), {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="})
        ]
    },
    "file": {
        "input": [
            _user(
                _said("What is it?"),
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            )
        ]
    },
    "effort": {"input": "Think.", "reasoning": {"effort": "xhigh"}},
    "thoughts": {
        "input": [
            _user(_said("Hi.")),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "They greet."}]},
            ANSWER,
            _user(_said("And again.")),
        ]
    },
    "a refusal": {
        "input": [
            _user(_said("Hi.")),
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            _user(_said("And again.")),
        ]
    },
    "settings": {
        "input": "Say hello.",
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 0.1,
        "top_logprobs": 2,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "safety_identifier": "x",
        "user": "x",
        "store": False,
        "max_output_tokens": 200,
        "include": ["reasoning.encrypted_content"],
        "parallel_tool_calls": True,
    },
    "custom tool": {
        "input": [
            _user(_said("Say hello.")),
            {"type": "custom_tool_call", "call_id": "call_9", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "call_9", "output": "a.py"},
            _user(_said("Thanks.")),
        ],
        "tools": [{"type": "custom", "name": "shell", "description": "Runs a command."}],
    },
    "hint about caching": {"input": [_user({**_said("Say hello."), "cache_control": {"type": "ephemeral"}})]},
    "what nobody knows": {"input": [{"type": "acme:note", "text": "x"}, _user(_said("Say hello."))]},
}
