"""Each rule with a request that it refuses and one, as near as can be, that it takes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.generate.conversations import requests
from tests.testing.requests import error_of, make_request

from antiphon.dialects.chat import error_to_hub, request_from_hub
from antiphon.errors import ApiError
from antiphon.protocol.request import Request
from antiphon.rules.chat import FIELDS
from antiphon.testing.chat.server import ChatBehavior
from antiphon.testing.rules import ServerLimits

pytestmark = pytest.mark.without_coverage
PNG = "data:image/png;base64,AAAA"
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SECOND = {**CALL, "id": "c2"}
CUSTOM = {"id": "c3", "type": "custom", "custom": {"name": "patch", "input": "+"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CUSTOM_TOOL = {"type": "custom", "custom": {"name": "patch"}}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}


def body_with(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


def content(role: str, *parts: Any) -> dict[str, Any]:
    return body_with(USER, {"role": role, "content": list(parts)})


def calls(call: Any) -> dict[str, Any]:
    return body_with(USER, {**CALLED, "tool_calls": [call]}, RESULT)


def tool(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", **function}}]}


def format(**members: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, **members}}}


def number(count: int) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": f"f{at}"}} for at in range(count)]


# (what is wrong, the param of the error, the same done right); a value of ... leaves the field out.
RULES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "no model": ({"model": ...}, "model", {"model": "m"}),
    "a model that is no string": ({"model": 3}, "model", {"model": "3"}),
    "no messages": ({"messages": ...}, "messages", body_with(USER)),
    "empty messages": (body_with(), "messages", body_with(USER)),
    "messages that are no list": ({"messages": "hi"}, "messages", body_with(USER)),
    "a message that is no object": (body_with("hi"), "messages[0]", body_with(USER)),
    "no role": (body_with({"content": "hi"}), "messages[0].role", body_with(USER)),
    "an unknown role": (
        body_with({"role": "bot", "content": "hi"}),
        "messages[0].role",
        body_with({"role": "developer", "content": "hi"}),
    ),
    "the role of old": (
        body_with({"role": "function", "name": "f", "content": ""}),
        "messages[0].role",
        body_with(USER),
    ),
    "a name with a space": (body_with({**USER, "name": "a b"}), "messages[0].name", body_with({**USER, "name": "a_b"})),
    "a name that is no string": (body_with({**USER, "name": 1}), "messages[0].name", body_with({**USER, "name": None})),
    "a result without a call": (body_with(USER, RESULT), "messages[1].tool_call_id", body_with(USER, CALLED, RESULT)),
    "a result of another call": (
        body_with(USER, CALLED, {**RESULT, "tool_call_id": "c9"}),
        "messages[2].tool_call_id",
        body_with(USER, CALLED, RESULT),
    ),
    "a result that says of no call": (
        body_with(USER, CALLED, {"role": "tool", "content": "ok"}),
        "messages[2].tool_call_id",
        body_with(USER, CALLED, RESULT),
    ),
    "two results of one call": (
        body_with(USER, CALLED, RESULT, RESULT),
        "messages[3].tool_call_id",
        body_with(USER, CALLED, RESULT),
    ),
    "a result after something else": (
        body_with(USER, CALLED, RESULT, USER, RESULT),
        "messages[4].tool_call_id",
        body_with(USER, CALLED, RESULT, CALLED, RESULT),
    ),
    "a result without content": (
        body_with(USER, CALLED, {"role": "tool", "tool_call_id": "c1"}),
        "messages[2].content",
        body_with(USER, CALLED, {**RESULT, "content": ""}),
    ),
    "a call not answered before the next message": (
        body_with(USER, CALLED, USER),
        "messages[2]",
        body_with(USER, CALLED, RESULT, USER),
    ),
    "a call not answered at the end": (body_with(USER, CALLED), "messages[1]", body_with(USER, CALLED, RESULT)),
    "one call of two answered": (
        body_with(USER, {**CALLED, "tool_calls": [CALL, SECOND]}, RESULT, USER),
        "messages[3]",
        body_with(USER, {**CALLED, "tool_calls": [CALL, SECOND]}, {**RESULT, "tool_call_id": "c2"}, RESULT),
    ),
    "an assistant who says nothing": (
        body_with(USER, {"role": "assistant", "content": ""}),
        "messages[1].content",
        body_with(USER, {"role": "assistant", "content": " "}),
    ),
    "an assistant without content": (
        body_with(USER, {"role": "assistant"}),
        "messages[1].content",
        body_with(USER, {"role": "assistant", "refusal": "no"}),
    ),
    "no calls in tool_calls": (
        body_with(USER, {"role": "assistant", "content": "a", "tool_calls": []}),
        "messages[1].tool_calls",
        body_with(USER, {"role": "assistant", "content": "a", "tool_calls": None}),
    ),
    "two calls of one id": (
        body_with(USER, {**CALLED, "tool_calls": [CALL, CALL]}, RESULT),
        "messages[1].tool_calls",
        body_with(USER, {**CALLED, "tool_calls": [CALL, SECOND]}, RESULT, {**RESULT, "tool_call_id": "c2"}),
    ),
    "arguments as an object": (
        calls({**CALL, "function": {"name": "f", "arguments": {}}}),
        "messages[1].tool_calls[0]",
        calls({**CALL, "function": {"name": "f", "arguments": '{"a": 1}'}}),
    ),
    "arguments that are no JSON": (
        calls({**CALL, "function": {"name": "f", "arguments": "{"}}),
        "messages[1].tool_calls[0].function.arguments",
        calls(CALL),
    ),
    "arguments that are no object": (
        calls({**CALL, "function": {"name": "f", "arguments": "[]"}}),
        "messages[1].tool_calls[0].function.arguments",
        calls(CALL),
    ),
    "a call without an id": (calls({**CALL, "id": ""}), "messages[1].tool_calls[0]", calls(CALL)),
    "a call without a type": (
        calls({"id": "c1", "function": CALL["function"]}),
        "messages[1].tool_calls[0]",
        calls(CALL),
    ),
    "a call of a bad name": (
        calls({**CALL, "function": {"name": "f.g", "arguments": "{}"}}),
        "messages[1].tool_calls[0].function.name",
        calls(CALL),
    ),
    "a custom call of a bad name": (
        calls({**CUSTOM, "custom": {"name": "", "input": ""}}),
        "messages[1].tool_calls[0].custom.name",
        body_with(USER, {**CALLED, "tool_calls": [CUSTOM]}, {**RESULT, "tool_call_id": "c3"}),
    ),
    "content that is null": (
        body_with({"role": "user", "content": None}),
        "messages[0].content",
        body_with({"role": "user", "content": ""}),
    ),
    "content without parts": (content("user"), "messages[1].content", content("user", {"type": "text", "text": ""})),
    "an unknown part": (content("user", {"type": "input_text", "text": ""}), "messages[1].content[0]", body_with(USER)),
    "a part that is no object": (content("user", "a"), "messages[1].content[0]", body_with(USER)),
    "an image from the assistant": (
        content("assistant", {"type": "image_url", "image_url": {"url": PNG}}),
        "messages[1].content[0]",
        content("user", {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}),
    ),
    "an image in a system message": (
        content("system", {"type": "image_url", "image_url": {"url": PNG}}),
        "messages[1].content[0]",
        content("system", {"type": "text", "text": "a"}),
    ),
    "an image in a result": (
        body_with(USER, CALLED, {**RESULT, "content": [{"type": "image_url", "image_url": {"url": PNG}}]}),
        "messages[2].content[0]",
        body_with(USER, CALLED, {**RESULT, "content": [{"type": "text", "text": "a"}]}),
    ),
    "a refusal from the user": (
        content("user", {"type": "refusal", "refusal": "no"}),
        "messages[1].content[0]",
        content("assistant", {"type": "refusal", "refusal": "no"}),
    ),
    "a text that is none": (content("user", {"type": "text", "text": None}), "messages[1].content[0]", body_with(USER)),
    "an image by no address": (
        content("user", {"type": "image_url", "image_url": {"url": "cat.png"}}),
        "messages[1].content[0]",
        content("user", {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}),
    ),
    "an image in bare form": (
        content("user", {"type": "image_url", "image_url": PNG}),
        "messages[1].content[0]",
        content("user", {"type": "image_url", "image_url": {"url": PNG}}),
    ),
    "an image of unknown detail": (
        content("user", {"type": "image_url", "image_url": {"url": PNG, "detail": "most"}}),
        "messages[1].content[0]",
        content("user", {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}),
    ),
    "sound in an unknown form": (
        content("user", {"type": "input_audio", "input_audio": {"data": "", "format": "ogg"}}),
        "messages[1].content[0]",
        content("user", {"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}}),
    ),
    "a file without data": (
        content("user", {"type": "file", "file": {"filename": "a"}}),
        "messages[1].content[0]",
        content("user", {"type": "file", "file": {"file_data": "", "filename": "a"}}),
    ),
    "no tools in tools": ({"tools": []}, "tools", {"tools": [TOOL, CUSTOM_TOOL]}),
    "too many tools": ({"tools": number(129)}, "tools", {"tools": number(128)}),
    "tools in flat form": ({"tools": [{"type": "function", "name": "f"}]}, "tools[0].function", {"tools": [TOOL]}),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "tools", {"tools": [TOOL]}),
    "a tool with a bad name": (tool(name="a b"), "tools[0].function.name", tool(name="a-b_C9")),
    "a tool with a long name": (tool(name="a" * 65), "tools[0].function.name", tool(name="a" * 64)),
    "a custom tool without a name": (
        {"tools": [{"type": "custom", "custom": {}}]},
        "tools[0].custom.name",
        {"tools": [CUSTOM_TOOL]},
    ),
    "a description that is no string": (tool(description=1), "tools[0].function.description", tool(description="d")),
    "parameters that are no object": (
        tool(parameters={"type": "string"}),
        "tools[0].function.parameters",
        tool(parameters=OPEN),
    ),
    "a strict tool with an open schema": (
        tool(parameters=OPEN, strict=True),
        "tools[0].function.parameters",
        tool(parameters=CLOSED, strict=True),
    ),
    "a strict that is no boolean": (tool(strict="yes"), "tools[0].function.parameters", tool(strict=False)),
    "a strict schema with an optional property": (
        tool(parameters={**CLOSED, "required": []}, strict=True),
        "tools[0].function.parameters",
        tool(parameters={**CLOSED, "required": []}, strict=False),
    ),
    "a strict schema whose required properties are no names": (
        tool(parameters={**CLOSED, "required": [["a"]]}, strict=True),
        "tools[0].function.parameters",
        tool(parameters={**CLOSED, "required": []}, strict=False),
    ),
    "a strict schema that is open deep inside": (
        tool(parameters={**CLOSED, "properties": {"a": {"type": "array", "items": {"anyOf": [OPEN]}}}}, strict=True),
        "tools[0].function.parameters",
        tool(parameters={**CLOSED, "properties": {"a": {"type": "array", "items": {"anyOf": [CLOSED]}}}}, strict=True),
    ),
    "a choice without tools": ({"tool_choice": "auto"}, "tool_choice", {"tool_choice": "required", "tools": [TOOL]}),
    "parallel calls without tools": (
        {"parallel_tool_calls": True},
        "parallel_tool_calls",
        {"parallel_tool_calls": False, "tools": [TOOL]},
    ),
    "a choice of what is not offered": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    ),
    "a custom choice of what is not offered": (
        {"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "g"}}},
        "tool_choice",
        {"tools": [CUSTOM_TOOL], "tool_choice": {"type": "custom", "custom": {"name": "patch"}}},
    ),
    "an unknown choice": (
        {"tools": [TOOL], "tool_choice": "any"},
        "tool_choice",
        {"tools": [TOOL], "tool_choice": "none"},
    ),
    "a choice in flat form": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
        "tool_choice",
        {
            "tools": [TOOL],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
        },
    ),
    "a format with a type in capitals": (
        format(schema={"type": "OBJECT"}),
        "response_format.json_schema.schema",
        format(schema={"type": "object"}),
    ),
    "a format without a name": (format(name=...), "response_format.json_schema.name", format()),
    "a format without a schema": (format(schema=...), "response_format.json_schema.schema", format(schema=OPEN)),
    "a strict format with an open schema": (
        format(schema=OPEN, strict=True),
        "response_format.json_schema.schema",
        format(schema=CLOSED, strict=True),
    ),
    "a format nobody knows": (
        {"response_format": {"type": "yaml"}},
        "response_format",
        {"response_format": {"type": "text"}},
    ),
    "any JSON without the word": (
        {"response_format": {"type": "json_object"}},
        "messages",
        {"response_format": {"type": "json_object"}, **body_with({"role": "user", "content": "as JSON"})},
    ),
    "two limits": ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", {"max_completion_tokens": 1}),
    "stream options without a stream": (
        {"stream_options": {"include_usage": True}},
        "stream_options",
        {"stream_options": {"include_usage": True}, "stream": True},
    ),
    "top_logprobs without logprobs": ({"top_logprobs": 2}, "top_logprobs", {"top_logprobs": 2, "logprobs": True}),
    "too many top_logprobs": (
        {"top_logprobs": 21, "logprobs": True},
        "top_logprobs",
        {"top_logprobs": 20, "logprobs": True},
    ),
    "too hot": ({"temperature": 2.1}, "temperature", {"temperature": 2}),
    "a number in a string": ({"temperature": "1"}, "temperature", {"temperature": 1.5}),
    "a boolean for a number": ({"temperature": True}, "temperature", {"temperature": None}),
    "a fraction for a count": ({"max_tokens": 1.5}, "max_tokens", {"max_tokens": 1}),
    "top_p out of range": ({"top_p": 1.01}, "top_p", {"top_p": 0}),
    "a penalty out of range": ({"presence_penalty": -3}, "presence_penalty", {"presence_penalty": -2}),
    "no answers": ({"n": 0}, "n", {"n": 1}),
    "five stops": ({"stop": ["a"] * 5}, "stop", {"stop": ["a"] * 4}),
    "a stop that is no string": ({"stop": [1]}, "stop", {"stop": "a"}),
    "a stop of another kind": ({"stop": {"a": 1}}, "stop", {"stop": None}),
    "an unknown effort": ({"reasoning_effort": "huge"}, "reasoning_effort", {"reasoning_effort": "low"}),
    "a stream that is no boolean": ({"stream": "yes"}, "stream", {"stream": False}),
    "too much metadata": (
        {"metadata": {str(at): "" for at in range(17)}},
        "metadata",
        {"metadata": {str(at): "" for at in range(16)}},
    ),
    "metadata that is none": ({"metadata": []}, "metadata", {"metadata": {}}),
    "a user with a long name": ({"user": "u" * 65}, "user", {"user": "u" * 64}),
    "metadata of numbers": ({"metadata": {"a": 1}}, "metadata.a", {"metadata": {"a": "1"}}),
    "metadata that is long": ({"metadata": {"a": "v" * 513}}, "metadata.a", {"metadata": {"a": "v" * 512}}),
    "metadata with long keys": ({"metadata": {"k" * 65: ""}}, "metadata." + "k" * 65, {"metadata": {"k" * 64: ""}}),
}


def full(change: dict[str, Any]) -> dict[str, Any]:
    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return [kept(one) for one in value] if isinstance(value, list) else value
        return {name: kept(inner) for name, inner in value.items() if inner is not ...}

    body: dict[str, Any] = kept({"model": "m", **body_with(USER), **change})
    return body


@pytest.mark.parametrize("rule", RULES)
def test_rule_refuses_its_violation(rule: str) -> None:
    wrong, param, _ = RULES[rule]
    refused = error_of(ChatBehavior().find_refusal(make_request(full(wrong))))
    assert (refused.get("status"), refused.get("param"), refused.get("type")) == (
        400,
        param,
        "invalid_request_error",
    ), refused


@pytest.mark.parametrize("rule", RULES)
def test_the_same_done_right_is_taken(rule: str) -> None:
    assert (
        error_of(ChatBehavior(ServerLimits(strict_fields=True)).find_refusal(make_request(full(RULES[rule][2])))) == {}
    )


@pytest.mark.parametrize("rule", [rule for rule, (wrong, _, _) in RULES.items() if "model" not in wrong])
def test_a_lenient_server_takes_everything(rule: str) -> None:
    assert error_of(ChatBehavior(ServerLimits(strict=False)).find_refusal(make_request(full(RULES[rule][0])))) == {}


# What a server demands of everyone: (limits, request, status and code; None where it is taken).
DEMANDS: dict[str, tuple[ServerLimits, Any, dict[str, str], tuple[int, str] | None]] = {
    "no key": (ServerLimits(key="k"), full({}), {}, (401, "invalid_api_key")),
    "a wrong key": (ServerLimits(key="k"), full({}), {"authorization": "Bearer j"}, (401, "invalid_api_key")),
    "the right key": (ServerLimits(key="k"), full({}), {"authorization": "Bearer k"}, None),
    "no content type": (ServerLimits(), full({}), {"content_type": ""}, (415, "unsupported_media_type")),
    "another content type": (ServerLimits(), full({}), {"content_type": "text/plain"}, (415, "unsupported_media_type")),
    "a content type with a charset": (
        ServerLimits(),
        full({}),
        {"content_type": "application/json; charset=utf-8"},
        None,
    ),
    "no JSON": (ServerLimits(), b"{", {}, (400, "invalid_json")),
    "no object": (ServerLimits(), b"[]", {}, (400, "invalid_json")),
    "far too deep": (ServerLimits(), b"[" * 100_000, {}, (400, "invalid_json")),
    "an unknown model": (ServerLimits(models=("a",)), full({}), {}, (404, "model_not_found")),
    "a known model": (ServerLimits(models=("m",)), full({}), {}, None),
    "an unknown field": (ServerLimits(strict_fields=True), full({"top_k": 1}), {}, (400, "unknown_parameter")),
    "an unknown field where nobody minds": (ServerLimits(), full({"top_k": 1}), {}, None),
    "a long prompt": (
        ServerLimits(max_chars=5),
        full(body_with(USER, USER, USER)),
        {},
        (400, "context_length_exceeded"),
    ),
    "a tool loop without its thoughts": (
        ServerLimits(wants_reasoning=True),
        full(body_with(USER, CALLED, RESULT)),
        {},
        (400, "invalid_request_error"),
    ),
    "a tool loop with its thoughts": (
        ServerLimits(wants_reasoning=True),
        full(body_with(USER, {**CALLED, "reasoning_content": "Hm."}, RESULT)),
        {},
        None,
    ),
    "a prompt that just fits": (ServerLimits(max_chars=4), full(body_with(USER, USER)), {}, None),
    "a lenient server counts too": (
        ServerLimits(max_chars=1, strict=False),
        full({}),
        {},
        (400, "context_length_exceeded"),
    ),
    "without messages nothing is too long": (ServerLimits(max_chars=1, strict=False), full({"messages": 1}), {}, None),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_server_refuses_requests_without_its_demands(demand: str) -> None:
    limits, body, headers, expected = DEMANDS[demand]
    refused = error_of(ChatBehavior(limits).find_refusal(make_request(body, **headers)))
    assert (refused and (refused["status"], refused["code"])) == (expected or {})


@pytest.mark.parametrize(
    ("limits", "change", "code"),
    [(ServerLimits(max_chars=1), {}, "context_length_exceeded"), (ServerLimits(models=()), {}, "model_not_found")],
)
def test_a_refusal_means_to_the_gateway_what_it_means_here(
    limits: ServerLimits, change: dict[str, Any], code: str
) -> None:
    refused = ChatBehavior(limits).find_refusal(make_request(full(change)))
    assert refused is not None
    assert error_to_hub(refused.status, refused.headers, refused.body).code == code


def test_every_field_that_has_a_rule_is_a_known_field() -> None:
    named = {name for wrong, _, right in RULES.values() for name in (*wrong, *right)}
    assert named <= FIELDS


@settings(max_examples=30)
@given(requests())
def test_every_conversation_that_the_dialect_writes_is_taken(request: Request) -> None:
    """Whatever a client's history looks like; settings and schemas are the client's own business."""
    try:
        body, _ = request_from_hub(replace(request, model="m"))
    except ApiError:
        return
    param = error_of(ChatBehavior().find_refusal(make_request(body))).get("param") or ""
    assert not re.match(r"messages\[|tools\[\d+\]\.function\.name|tools$", param), param
