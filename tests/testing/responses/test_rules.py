"""Each rule with a request that it refuses and one, as near as can be, that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.testing.requests import error_of, make_request

from antiphon.rules.responses import FIELDS
from antiphon.testing.responses.rules import make_encrypted_content
from antiphon.testing.responses.server import ResponsesBehavior
from antiphon.testing.rules import ServerLimits

pytestmark = pytest.mark.without_coverage
USER = {"type": "message", "role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+"}
CUSTOM_RESULT = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
THOUGHT = {"type": "reasoning", "summary": []}
ANSWER = {"type": "message", "role": "assistant", "content": "Hello."}
CITATION = {"type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 1}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}


def body_with(*items: Any) -> dict[str, Any]:
    return {"input": list(items)}


def content(role: str, *parts: Any) -> dict[str, Any]:
    return body_with({"role": role, "content": list(parts)})


def format(**members: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, **members}}}


def chosen(choice: Any, *tools: Any) -> dict[str, Any]:
    return {"tool_choice": choice, "tools": list(tools) or [TOOL]}


# (what is wrong, the param of the error, the same done right); a value of ... leaves the field out.
RULES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "a format with a type in capitals": (
        format(schema={"type": "object", "properties": {"a": {"type": "STRING"}}}),
        "text.format.schema",
        format(schema={"type": "object", "properties": {"a": {"type": ["string", "null"]}}}),
    ),
    "a function with a type in capitals": (
        {"tools": [{**TOOL, "parameters": {"type": "object", "properties": {"a": {"anyOf": [{"type": ["STRING"]}]}}}}]},
        "tools[0].parameters",
        {"tools": [{**TOOL, "parameters": {"type": "object", "properties": {"type": {"enum": ["STRING"]}}}}]},
    ),
    "no model": ({"model": ...}, "model", {}),
    "no input": ({"input": ...}, "input", {"input": "hi"}),
    "an empty input": ({"input": ""}, "input", {"input": "a"}),
    "an input without items": (body_with(), "input", body_with(USER)),
    "an item that is no object": (body_with("hi"), "input[0]", body_with(USER)),
    "a stored response": ({"previous_response_id": "resp_1"}, "previous_response_id", {"previous_response_id": None}),
    "background work": ({"background": True}, "background", {"background": False}),
    "a conversation": ({"conversation": "conv_1"}, "conversation", {"conversation": None}),
    "an unknown type of item": (body_with({"type": "acme:thing"}), "input[0].type", body_with(USER)),
    "a mark of failure on a result": (
        body_with(CALL, {**RESULT, "is_error": True}),
        "input[1].is_error",
        body_with(CALL, RESULT),
    ),
    "a mark of failure on a custom result": (
        body_with(CUSTOM, {**CUSTOM_RESULT, "is_error": False}),
        "input[1].is_error",
        body_with(CUSTOM, {**CUSTOM_RESULT, "id": "ctco_1"}),
    ),
    "a hint about caching": (
        body_with({**USER, "cache_control": {}}),
        "input[0].cache_control",
        body_with({**USER, "status": "completed"}),
    ),
    "an item without a type": (
        body_with({"call_id": "c1", "output": ""}),
        "input[0].type",
        body_with({"role": "user", "content": "a"}),
    ),
    "an unknown role": (
        body_with({"role": "tool", "content": "a"}),
        "input[0].role",
        body_with({"role": "developer", "content": "a"}),
    ),
    "content that is null": (
        body_with({"role": "user", "content": None}),
        "input[0].content",
        body_with({"role": "user", "content": ""}),
    ),
    "content without parts": (
        content("user"),
        "input[0].content",
        content("user", {"type": "input_text", "text": "a"}),
    ),
    "a part that is no object": (content("user", "a"), "input[0].content[0].type", body_with(USER)),
    "the word of the assistant from the user": (
        content("user", {"type": "output_text", "text": "a"}),
        "input[0].content[0].type",
        content("assistant", {"type": "output_text", "text": "a"}),
    ),
    "the word of the user from the assistant": (
        content("assistant", {"type": "input_text", "text": "a"}),
        "input[0].content[0].type",
        content("assistant", {"type": "refusal", "refusal": "a"}),
    ),
    "the word of chat": (content("user", {"type": "text", "text": "a"}), "input[0].content[0].type", body_with(USER)),
    "an image from the system": (
        content("system", {"type": "input_image", "image_url": "https://example.org/a.png"}),
        "input[0].content[0].type",
        content("user", {"type": "input_image", "image_url": "https://example.org/a.png"}),
    ),
    "an image that is nowhere": (
        content("user", {"type": "input_image"}),
        "input[0].content[0]",
        content("user", {"type": "input_image", "file_id": "file_1"}),
    ),
    "a file that is nowhere": (
        content("user", {"type": "input_file", "filename": "a"}),
        "input[0].content[0]",
        content("user", {"type": "input_file", "file_data": ""}, {"type": "input_file", "file_id": "file_1"}),
    ),
    "a call without a call_id": (
        body_with({**CALL, "call_id": ...}, RESULT),
        "input[0].call_id",
        body_with(CALL, RESULT),
    ),
    "a long call_id": (
        body_with({**CALL, "call_id": "c" * 65}),
        "input[0].call_id",
        body_with({**CALL, "call_id": "c" * 64}, {**RESULT, "call_id": "c" * 64}),
    ),
    "arguments as an object": (
        body_with({**CALL, "arguments": {}}, RESULT),
        "input[0].arguments",
        body_with(CALL, RESULT),
    ),
    "a custom call without input": (
        body_with({**CUSTOM, "input": ...}),
        "input[0].input",
        body_with(CUSTOM, CUSTOM_RESULT),
    ),
    "a call of a bad name": (body_with({**CALL, "name": "f g"}, RESULT), "input[0].name", body_with(CALL, RESULT)),
    "an output without a call": (body_with(USER, RESULT), "input[1]", body_with(USER, CALL, RESULT)),
    "an output before its call": (body_with(RESULT, CALL), "input[0]", body_with(CALL, USER, RESULT)),
    "two outputs of one call": (body_with(CALL, RESULT, RESULT), "input[2]", body_with(CALL, RESULT, CALL, RESULT)),
    "a call without an output": (body_with(CALL, USER), "input[0]", body_with(CALL, USER, RESULT)),
    "an output that is null": (
        body_with(CALL, {**RESULT, "output": None}),
        "input[1].output",
        body_with(CALL, {**RESULT, "output": [{"type": "input_text", "text": "a"}]}),
    ),
    "reasoning without a summary": (body_with({"type": "reasoning"}), "input[0].summary", body_with(THOUGHT, ANSWER)),
    "reasoning at the end": (body_with(USER, THOUGHT), "input", body_with(USER, THOUGHT, ANSWER)),
    "reasoning before a question": (body_with(THOUGHT, USER), "input", body_with(THOUGHT, THOUGHT, CALL, RESULT, USER)),
    "reasoning before an output": (
        body_with(CALL, THOUGHT, RESULT),
        "input",
        body_with(THOUGHT, CUSTOM, CUSTOM_RESULT),
    ),
    "a tool with examples": (
        {"tools": [{**TOOL, "input_examples": [{}]}]},
        "tools[0].input_examples",
        {"tools": [{**TOOL, "output_schema": {}, "allowed_callers": ["direct"]}]},
    ),
    "a custom tool that is streamed eagerly": (
        {"tools": [{"type": "custom", "name": "f", "eager_input_streaming": True}]},
        "tools[0].eager_input_streaming",
        {"tools": [{"type": "custom", "name": "f", "format": {"type": "text"}}]},
    ),
    "a deferred tool without its search": (
        {"tools": [{**TOOL, "defer_loading": True}]},
        "tools.defer_loading",
        {"tools": [{**TOOL, "defer_loading": False}]},
    ),
    "a text with citations of the Messages API": (
        content("user", {"type": "input_text", "text": "a", "citations": {"enabled": True}}),
        "input[0].content[0].citations",
        content("user", {"type": "input_text", "text": "a"}),
    ),
    "a file with a context": (
        content("user", {"type": "input_file", "file_url": "u", "context": "c"}),
        "input[0].content[0].context",
        content("user", {"type": "input_file", "file_url": "u", "detail": "low"}),
    ),
    "an image with a resolution of Gemini": (
        content("user", {"type": "input_image", "image_url": "u", "mediaResolution": {}}),
        "input[0].content[0].mediaResolution",
        content("user", {"type": "input_image", "image_url": "u", "detail": "low"}),
    ),
    "a video": (
        content("user", {"type": "input_video", "video_url": "u"}),
        "input[0].content[0].type",
        content("user", {"type": "input_text", "text": "u"}),
    ),
    "a reference to a tool in a result": (
        body_with(CALL, {**RESULT, "output": [{"type": "tool_reference", "tool_name": "f"}]}),
        "input[1].output[0].type",
        body_with(CALL, {**RESULT, "output": [{"type": "input_text", "text": "f"}]}),
    ),
    "a citation with members of the Messages API": (
        content("assistant", {"type": "output_text", "text": "a", "annotations": [{**CITATION, "cited_text": "a"}]}),
        "input[0].content[0].annotations[0].cited_text",
        content("assistant", {"type": "output_text", "text": "a", "annotations": [CITATION]}),
    ),
    "reasoning of another kind": (
        body_with({**THOUGHT, "content": [{"type": "output_text", "text": "a"}]}),
        "input[0].content",
        body_with({**THOUGHT, "content": [{"type": "reasoning_text", "text": "a"}]}, ANSWER),
    ),
    "an id of another kind": (body_with({**USER, "id": "fc_1"}), "input[0].id", body_with({**USER, "id": "msg_1"})),
    "a long id": (
        body_with({**USER, "id": "msg_" + "1" * 61}),
        "input[0].id",
        body_with({**USER, "id": "msg_" + "1" * 60}),
    ),
    "tools that are no list": ({"tools": {}}, "tools", {"tools": []}),
    "tools in nested form": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        "tools[0].name",
        {"tools": [TOOL]},
    ),
    "a hosted tool": (
        {"tools": [{"type": "web_search"}]},
        "tools[0].type",
        {"tools": [{"type": "custom", "name": "patch"}]},
    ),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "tools", {"tools": [TOOL]}),
    "a tool with a bad name": (
        {"tools": [{**TOOL, "name": "a.b"}]},
        "tools[0].name",
        {"tools": [{**TOOL, "name": "a-b"}]},
    ),
    "parameters that are no object": (
        {"tools": [{**TOOL, "parameters": {"type": "array"}}]},
        "tools[0].parameters",
        {"tools": [{**TOOL, "parameters": None}]},
    ),
    "a strict tool with an open schema": (
        {"tools": [{**TOOL, "parameters": OPEN, "strict": True}]},
        "tools[0].parameters",
        {"tools": [{**TOOL, "parameters": CLOSED, "strict": True}]},
    ),
    "a must without tools": ({"tool_choice": "required"}, "tool_choice", chosen("required")),
    "a choice of what is not offered": (
        chosen({"type": "function", "name": "g"}),
        "tool_choice",
        chosen({"type": "function", "name": "f"}),
    ),
    "allowed tools that are not offered": (
        chosen({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}),
        "tool_choice",
        chosen({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}),
    ),
    "no tools among the allowed": (
        chosen({"type": "allowed_tools", "mode": "auto", "tools": []}),
        "tool_choice",
        {"tool_choice": "auto"},
    ),
    "a choice in nested form": (
        chosen({"type": "function", "function": {"name": "f"}}),
        "tool_choice",
        {"tool_choice": "none"},
    ),
    "a format without a name": (format(name=...), "text.format.name", format()),
    "a format without a schema": (format(schema=...), "text.format.schema", format(schema=OPEN)),
    "a strict format with an open schema": (
        format(schema=OPEN, strict=True),
        "text.format.schema",
        format(schema=CLOSED, strict=True),
    ),
    "a format nobody knows": (
        {"text": {"format": {"type": "yaml"}}},
        "text.format",
        {"text": {"format": {"type": "text"}}},
    ),
    "any JSON without the word": (
        {"text": {"format": {"type": "json_object"}}},
        "input",
        {"text": {"format": {"type": "json_object"}}, "instructions": "JSON, please", **body_with(USER)},
    ),
    "an unknown verbosity": ({"text": {"verbosity": "chatty"}}, "verbosity", {"text": {"verbosity": "low"}}),
    "stream options without a stream": (
        {"stream_options": {}},
        "stream_options",
        {"stream_options": {}, "stream": True},
    ),
    "reasoning that another sealed": (
        body_with({**THOUGHT, "encrypted_content": make_encrypted_content("rs_1", "other")}, ANSWER),
        "input[0].encrypted_content",
        body_with({**THOUGHT, "encrypted_content": make_encrypted_content("rs_1", "fake")}, ANSWER),
    ),
    "reasoning that was sealed by nobody": (
        body_with({**THOUGHT, "encrypted_content": "gAAAAABpM0Yj"}, ANSWER),
        "input[0].encrypted_content",
        body_with({**THOUGHT, "encrypted_content": None}, ANSWER),
    ),
    "reasoning that was sealed for another item": (
        body_with({**THOUGHT, "id": "rs_2", "encrypted_content": make_encrypted_content("rs_1", "fake")}, ANSWER),
        "input[0].encrypted_content",
        body_with({**THOUGHT, "id": "rs_1", "encrypted_content": make_encrypted_content("rs_1", "fake")}, ANSWER),
    ),
    "an unknown include": ({"include": ["all"]}, "include[0]", {"include": ["reasoning.encrypted_content"]}),
    "an unknown effort": (
        {"reasoning": {"effort": "huge"}},
        "effort",
        {"reasoning": {"effort": "low", "summary": "auto"}},
    ),
    "too few tokens": ({"max_output_tokens": 15}, "max_output_tokens", {"max_output_tokens": 16}),
    "too hot": ({"temperature": 2.5}, "temperature", {"temperature": 0.5}),
    "a truncation nobody knows": ({"truncation": "some"}, "truncation", {"truncation": "auto"}),
    "a user with a long name": ({"user": "u" * 65}, "user", {"user": "u" * 64}),
    "metadata of numbers": ({"metadata": {"a": 1}}, "metadata.a", {"metadata": {"a": "1"}}),
}


def full(change: dict[str, Any]) -> dict[str, Any]:
    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return [kept(one) for one in value] if isinstance(value, list) else value
        return {name: kept(inner) for name, inner in value.items() if inner is not ...}

    body: dict[str, Any] = kept({"model": "m", "input": "hi", **change})
    return body


@pytest.mark.parametrize("rule", RULES)
def test_rule_refuses_its_violation(rule: str) -> None:
    wrong, param, _ = RULES[rule]
    refused = error_of(ResponsesBehavior().find_refusal(make_request(full(wrong))))
    assert (refused.get("status"), refused.get("param"), refused.get("type")) == (
        400,
        param,
        "invalid_request_error",
    ), refused


@pytest.mark.parametrize("rule", RULES)
def test_the_same_done_right_is_taken(rule: str) -> None:
    assert (
        error_of(ResponsesBehavior(ServerLimits(strict_fields=True)).find_refusal(make_request(full(RULES[rule][2]))))
        == {}
    )


@pytest.mark.parametrize(
    ("limits", "change", "status", "code"),
    [
        (ServerLimits(key="k"), {}, 401, "invalid_api_key"),
        (ServerLimits(models=()), {}, 404, "model_not_found"),
        (ServerLimits(), {"previous_response_id": "resp_1"}, 400, "previous_response_not_found"),
        (ServerLimits(), body_with({"type": "item_reference", "id": "msg_1"}), 404, "not_found"),
        (ServerLimits(), body_with({"type": "compaction", "encrypted_content": 7}), 400, "invalid_type"),
        (ServerLimits(max_chars=1), {}, 400, "context_length_exceeded"),
        (
            ServerLimits(max_chars=4, strict=False),
            body_with(CALL, {**RESULT, "output": "a" * 5}),
            400,
            "context_length_exceeded",
        ),
        (ServerLimits(strict_fields=True), {"messages": []}, 400, "unknown_parameter"),
    ],
)
def test_errors_have_the_status_and_code_that_clients_look_for(
    limits: ServerLimits, change: dict[str, Any], status: int, code: str
) -> None:
    refused = error_of(ResponsesBehavior(limits).find_refusal(make_request(full(change))))
    assert (refused["status"], refused["code"]) == (status, code)


def test_a_server_takes_the_tools_that_are_its_own() -> None:
    own = ResponsesBehavior(ServerLimits(own_tools=("web_search", "namespace")))
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "files", "tools": []}]
    assert own.find_refusal(make_request(full({"tools": tools}))) is None
    assert error_of(own.find_refusal(make_request(full({"tools": [{"type": "computer"}]}))))["param"] == "tools[0].type"


def test_lenient_server_refuses_violations_of_the_schema() -> None:
    refused = error_of(ResponsesBehavior(ServerLimits(strict=False)).find_refusal(make_request(full({"input": 7}))))
    assert (refused["status"], refused["param"]) == (400, "input")


def test_every_field_that_has_a_rule_is_a_known_field() -> None:
    named = {name for wrong, _, right in RULES.values() for name in (*wrong, *right)}
    assert named <= FIELDS


NO_REASONING = [
    "gpt-4o",
    "gpt-4.1-mini",
    "gpt-3.5-turbo",
    "chatgpt-4o-latest",
    "ft:gpt-4o-2024-08-06:acme::1",
    "gpt-5-chat-latest",
]
SEALED = {"include": ["reasoning.encrypted_content"]}


@pytest.mark.parametrize("model", [*NO_REASONING, "deployment-1"])
def test_encrypted_reasoning_is_refused_by_models_that_do_not_reason(model: str) -> None:
    server = ResponsesBehavior(ServerLimits(plain_models=("deployment-1",)))
    refused = error_of(server.find_refusal(make_request(full({"model": model, **SEALED}))))
    assert refused == {
        "status": 400,
        "message": "Encrypted content is not supported with this model.",
        "type": "invalid_request_error",
        "param": "include",
        "code": None,
    }
    assert server.find_refusal(make_request(full({"model": model}))) is None


@pytest.mark.parametrize("model", ["gpt-5", "o3", "o4-mini", "codex-mini-latest", "deployment-1"])
def test_encrypted_reasoning_is_given_by_models_that_reason(model: str) -> None:
    assert ResponsesBehavior().find_refusal(make_request(full({"model": model, **SEALED}))) is None
