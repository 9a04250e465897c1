"""Each rule with a request that it refuses and one, as near as can be, that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from tests.generate.conversations import requests
from tests.testing.requests import error_of, make_request

from antiphon.dialects.messages import error_to_hub, request_from_hub
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.errors import ApiError
from antiphon.protocol.request import Request
from antiphon.rules.messages import BETA_FIELDS, FIELDS
from antiphon.testing.messages.issued_thoughts import IssuedThoughts, redacted_data, signature_of
from antiphon.testing.messages.rules import NEWEST_VERSION, MessagesLimits
from antiphon.testing.messages.server import MessagesBehavior

pytestmark = pytest.mark.without_coverage
VERSION = {"some_version": "2023-06-01"}
USER = {"role": "user", "content": "hi"}
SYSTEM = {"role": "system", "content": "be brief"}
ANSWER = {"role": "assistant", "content": "hello"}
TEXT = {"type": "text", "text": "hm"}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
SECOND = {**CALL, "id": "t2"}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
SECOND_RESULT = {**RESULT, "tool_use_id": "t2"}
CALLED = {"role": "assistant", "content": [CALL]}
RESULTS = {"role": "user", "content": [RESULT]}
THOUGHT = {"type": "thinking", "thinking": "so", "signature": signature_of("so")}
SEALED = {"type": "redacted_thinking", "data": redacted_data("so")}
PNG = "iVBORw0KGgoAAAAN"
MARK = {"cache_control": {"type": "ephemeral"}}
LONG_MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}


def body_with(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


def user(*blocks: Any) -> dict[str, Any]:
    return body_with({"role": "user", "content": list(blocks)})


def answers(*blocks: Any) -> dict[str, Any]:
    return body_with(USER, {"role": "assistant", "content": list(blocks)}, USER)


def image(**source: Any) -> dict[str, Any]:
    return user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG, **source}})


def document(**source: Any) -> dict[str, Any]:
    return user(
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA", **source}}
    )


def result(**members: Any) -> dict[str, Any]:
    return body_with(USER, CALLED, {"role": "user", "content": [{**RESULT, **members}]})


def tool(**members: Any) -> dict[str, Any]:
    return {"tools": [{**TOOL, **members}]}


def choice(**members: Any) -> dict[str, Any]:
    return {"tools": [TOOL], "tool_choice": members}


def format(schema: Any, **members: Any) -> dict[str, Any]:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema, **members}}}


def with_part(part: Any, **members: Any) -> dict[str, Any]:
    return format({**CLOSED, "properties": {"a": part}, **members})


CITING = {**TEXT, "citations": [{"type": "char_location"}]}
REF = {"$ref": "#/$defs/A"}

# (what is wrong, a piece of what the error says, the same done right); a value of ... leaves the field out.
RULES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    # Fields and settings.
    "no model": ({"model": ...}, "model: Field required", {"model": "m"}),
    "no max_tokens": ({"max_tokens": ...}, "max_tokens: Field required", {"max_tokens": 1}),
    "no messages": ({"messages": ...}, "messages: Field required", body_with(USER)),
    "an empty model": ({"model": ""}, "model: String", {"model": "x"}),
    "no tokens at all": ({"max_tokens": 0}, "max_tokens: Input should be within", {"max_tokens": 1}),
    "max_tokens in a string": ({"max_tokens": "9"}, "max_tokens: Input should be a valid integer", {"max_tokens": 9}),
    "max_tokens of true": ({"max_tokens": True}, "max_tokens: Input should be a valid integer", {"max_tokens": 9}),
    "an unknown field": ({"seed": 1}, "seed: Extra inputs are not permitted", {"top_k": 1}),
    "a field of a beta": ({"context_management": {}}, "context_management: Extra inputs", {"container": "c"}),
    "too hot": ({"temperature": 1.5}, "temperature: Input should be within", {"temperature": 1.0}),
    "no temperature": ({"temperature": None}, "temperature: Input should be a valid number", {"temperature": 0}),
    "temperature and top_p": ({"temperature": 0.5, "top_p": 0.5}, "cannot both", {"top_p": 0.5}),
    "a stream of one": ({"stream": 1}, "stream: Input should be a valid bool", {"stream": True}),
    "an unknown tier": ({"service_tier": "flex"}, "service_tier: Input should be one of", {"service_tier": "auto"}),
    "a stop in a string": (
        {"stop_sequences": "."},
        "stop_sequences: Input should be a valid list",
        {"stop_sequences": ["."]},
    ),
    "a blank stop": ({"stop_sequences": ["\n"]}, "stop_sequences.0:", {"stop_sequences": ["\na"]}),
    "a stop that is no string": ({"stop_sequences": [1]}, "stop_sequences.0:", {"stop_sequences": ["1"]}),
    "free metadata": ({"metadata": {"a": "b"}}, "metadata.a: Extra inputs", {"metadata": {"user_id": "b"}}),
    "metadata in a string": ({"metadata": "a"}, "metadata: Input should be a valid dictionary", {"metadata": {}}),
    "a user without an id": ({"metadata": {"user_id": 1}}, "metadata.user_id:", {"metadata": {"user_id": None}}),
    "an endless user id": (
        {"metadata": {"user_id": "u" * 513}},
        "metadata.user_id:",
        {"metadata": {"user_id": "u" * 512}},
    ),
    "a system of another kind": ({"system": {}}, "system: Input should be", {"system": "be brief"}),
    "an image in the system": ({"system": [CALL]}, "system.0: `tool_use`", {"system": [{**TEXT, **MARK}]}),
    "an empty system block": ({"system": [{**TEXT, "text": ""}]}, "must be non-empty", {"system": [TEXT]}),
    # Roles and their order.
    "empty messages": (body_with(), "at least one message", body_with(USER)),
    "messages that are no list": ({"messages": "hi"}, "at least one message", body_with(USER)),
    "a message that is no object": (body_with("hi"), "messages.0: Input should be", body_with(USER)),
    "no role": (body_with({"content": "hi"}), "messages.0.role: Field required", body_with(USER)),
    "a role of a number": (
        body_with({"role": 1, "content": "a"}),
        "messages.0.role: Input should be a valid string",
        body_with(USER),
    ),
    "a name": (body_with({**USER, "name": "a"}), "messages.0.name: Extra inputs", body_with(USER)),
    "an unknown role": (body_with(USER, {"role": "tool", "content": "a"}), 'Unexpected role "tool"', body_with(USER)),
    "a system message": (body_with(SYSTEM, USER), 'Unexpected role "system"', {"system": "be brief"}),
    "the assistant first": (body_with(ANSWER, USER), "first message", body_with(USER, ANSWER, USER)),
    "two users in a row": (body_with(USER, USER), 'multiple "user" roles', body_with(USER, ANSWER, USER)),
    "two assistants in a row": (
        body_with(USER, ANSWER, ANSWER),
        'multiple "assistant" roles',
        body_with(USER, ANSWER, USER),
    ),
    # Content.
    "no content": (body_with({"role": "user"}), "messages.0.content: Field required", body_with(USER)),
    "null for content": (
        body_with({"role": "user", "content": None}),
        "messages.0.content: Input should be",
        body_with(USER),
    ),
    "empty content": (
        body_with({**USER, "content": ""}),
        "non-empty content",
        body_with(USER, {**ANSWER, "content": ""}),
    ),
    "an empty list": (user(), "non-empty content", body_with(USER, {**ANSWER, "content": []})),
    "an empty answer in the middle": (answers(), "non-empty content", answers(TEXT)),
    "an empty text": (user({**TEXT, "text": ""}), "must be non-empty", user(TEXT)),
    "a blank text": (body_with({**USER, "content": " \n"}), "non-whitespace", body_with({**USER, "content": " \nhi"})),
    "a text that is none": (user({"type": "text", "text": 1}), "text.text: Input should be a valid string", user(TEXT)),
    "no block": (user("hi"), "Input tag ''", user(TEXT)),
    "a part of another API": (user({"type": "input_text", "text": "a"}), "Input tag 'input_text'", user(TEXT)),
    "an unknown member": (
        user({**TEXT, "detail": "low"}),
        "text.detail: Extra inputs",
        user({**TEXT, "citations": None}),
    ),
    "a call by the user": (user(CALL), "`tool_use` blocks are not permitted", body_with(USER, CALLED, RESULTS)),
    "an image by the assistant": (answers(image()["messages"][0]["content"][0]), "`image` blocks", image()),
    "a result by the assistant": (answers(RESULT), "`tool_result` blocks", body_with(USER, CALLED, RESULTS)),
    "a blank end": (
        body_with(USER, {**ANSWER, "content": "so "}),
        "trailing whitespace",
        body_with(USER, {**ANSWER, "content": " so"}),
    ),
    # Media.
    "an unknown image": (image(media_type="image/jpg"), "media_type: Input should be 'image/jpeg'", image()),
    "a data URL": (image(data=f"data:image/png;base64,{PNG}"), "Invalid base64", image(data=PNG)),
    "no image at all": (image(data=""), "Invalid base64", image(data="AAAA")),
    "letters from elsewhere": (image(data="é"), "Invalid base64", image(data="AAAA")),
    "a PNG that is said to be a GIF": (image(media_type="image/gif"), "appears to be image/png", image()),
    "an image by plain http": (
        user({"type": "image", "source": {"type": "url", "url": "http://example.org/a.png"}}),
        "Only HTTPS",
        user({"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
    ),
    "an image without a source": (user({"type": "image"}), "image.source: Field required", image()),
    "a source of another kind": (image(type="data"), "Input tag 'data'", image()),
    "a document that is no PDF": (document(media_type="text/html"), "'application/pdf'", document()),
    "a text that is no text": (
        document(type="text", media_type="text/html"),
        "'text/plain'",
        document(type="text", media_type="text/plain"),
    ),
    # Calls and results.
    "a call without a result": (
        body_with(USER, CALLED, USER),
        "messages.1: `tool_use` ids",
        body_with(USER, CALLED, RESULTS),
    ),
    "a call at the end": (body_with(USER, CALLED), "messages.1: `tool_use` ids", body_with(USER, CALLED, RESULTS)),
    "one result of two": (
        body_with(USER, {**CALLED, "content": [CALL, SECOND]}, RESULTS),
        "immediately after: t2",
        body_with(USER, {**CALLED, "content": [CALL, SECOND]}, {**RESULTS, "content": [SECOND_RESULT, RESULT, TEXT]}),
    ),
    "a result after text": (
        body_with(USER, CALLED, {**RESULTS, "content": [TEXT, RESULT]}),
        "immediately after: t1",
        body_with(USER, CALLED, {**RESULTS, "content": [RESULT, TEXT]}),
    ),
    "an orphan": (
        body_with(USER, ANSWER, RESULTS),
        "messages.2.content.0: unexpected",
        body_with(USER, CALLED, RESULTS),
    ),
    "an orphan at the beginning": (body_with(RESULTS), "messages.0.content.0: unexpected", body_with(USER)),
    "a result of an earlier call": (
        body_with(USER, CALLED, RESULTS, ANSWER, RESULTS),
        "messages.4.content.0: unexpected",
        body_with(USER, CALLED, RESULTS, {**CALLED, "content": [SECOND]}, {**RESULTS, "content": [SECOND_RESULT]}),
    ),
    "two results of one call": (
        body_with(USER, CALLED, {**RESULTS, "content": [RESULT, RESULT]}),
        "single result",
        body_with(USER, CALLED, RESULTS),
    ),
    "text after a call": (
        body_with(USER, {**CALLED, "content": [CALL, TEXT]}, RESULTS),
        "immediately after: t1",
        body_with(USER, {**CALLED, "content": [TEXT, CALL]}, RESULTS),
    ),
    "one id for two calls": (
        body_with(USER, {**CALLED, "content": [CALL, CALL]}, RESULTS),
        "must be unique",
        body_with(USER, CALLED, RESULTS),
    ),
    "an id used before": (
        body_with(USER, CALLED, RESULTS, CALLED, RESULTS),
        "messages.3: `tool_use` ids must be unique",
        body_with(USER, CALLED, RESULTS, ANSWER, USER),
    ),
    "an id with a dot": (
        body_with(USER, {**CALLED, "content": [{**CALL, "id": "t.1"}]}, RESULTS),
        "tool_use.id: String should match",
        body_with(USER, CALLED, RESULTS),
    ),
    "a name with a slash": (
        body_with(USER, {**CALLED, "content": [{**CALL, "name": "a/b"}]}, RESULTS),
        "tool_use.name: String should match",
        body_with(USER, CALLED, RESULTS),
    ),
    "input in a string": (
        body_with(USER, {**CALLED, "content": [{**CALL, "input": "{}"}]}, RESULTS),
        "tool_use.input: Input should be a valid dictionary",
        body_with(USER, CALLED, RESULTS),
    ),
    "a result of null": (result(content=None), "tool_result.content: Input should be", result(content=...)),
    "a result with nothing in its text": (result(content=[{**TEXT, "text": ""}]), "non-empty", result(content=[])),
    "a call inside a result": (result(content=[CALL]), "`tool_use` blocks", result(content=[{**TEXT, "text": "\n"}])),
    "an error of one": (result(is_error=1), "is_error: Input should be a valid boolean", result(is_error=True)),
    "an error without words": (
        result(is_error=True, content=""),
        "content cannot be empty",
        result(is_error=False, content=""),
    ),
    "an error without content": (result(is_error=True, content=...), "content cannot be empty", result(content=...)),
    "an image as an error": (
        result(is_error=True, content=image()["messages"][0]["content"]),
        "if `is_error` is true",
        result(is_error=False, content=image()["messages"][0]["content"]),
    ),
    # IssuedThoughts.
    "unsigned thoughts": (
        answers({"type": "thinking", "thinking": "so"}, TEXT),
        "thinking.signature: Field required",
        answers(THOUGHT, TEXT),
    ),
    "thoughts with an empty signature": (
        answers({**THOUGHT, "signature": ""}, TEXT),
        "Invalid `signature`",
        answers(THOUGHT, TEXT),
    ),
    "changed thoughts": (
        answers({**THOUGHT, "thinking": "no"}, TEXT),
        "messages.1.content.0: Invalid",
        answers(THOUGHT, TEXT),
    ),
    "foreign sealed thoughts": (answers({**SEALED, "data": "AAAA"}, TEXT), "Invalid `data`", answers(SEALED, TEXT)),
    "sealed thoughts that are no base64": (
        answers({**SEALED, "data": "é"}, TEXT),
        "Invalid `data`",
        answers(SEALED, TEXT),
    ),
    "thoughts that lead to nothing": (answers(TEXT, THOUGHT), "final block", answers(THOUGHT, TEXT)),
    "a loop without thoughts": (
        {**body_with(USER, CALLED, RESULTS), **BUDGET},
        "messages.1.content.0.type: Expected `thinking`",
        {**body_with(USER, CALLED, RESULTS), **ADAPTIVE},
    ),
    "a loop of two rounds without thoughts": (
        {
            **body_with(
                USER, CALLED, RESULTS, {**CALLED, "content": [THOUGHT, SECOND]}, {**RESULTS, "content": [SECOND_RESULT]}
            ),
            **BUDGET,
        },
        "messages.1.content.0.type: Expected `thinking`",
        {
            **body_with(
                USER,
                {**CALLED, "content": [SEALED, CALL]},
                RESULTS,
                {**CALLED, "content": [SECOND]},
                {**RESULTS, "content": [SECOND_RESULT]},
            ),
            **BUDGET,
        },
    ),
    "an answer begun before it is thought about": (
        {**body_with(USER, {**ANSWER, "content": [THOUGHT, TEXT]}), **BUDGET},
        "cannot end with an assistant message",
        {**body_with(USER, CALLED, RESULTS, ANSWER, USER), **BUDGET},
    ),
    "an empty answer to think about": (
        {**body_with(USER, {**ANSWER, "content": ""}), **BUDGET},
        "but found ``",
        {**body_with(USER), **BUDGET},
    ),
    "an answer begun where thinking is adaptive": (
        {**body_with(USER, ANSWER), **ADAPTIVE},
        "cannot end with an assistant message",
        body_with(USER, ANSWER),
    ),
    "an unknown way of thinking": ({"thinking": {"type": "on"}}, "Input tag 'on'", {"thinking": {"type": "disabled"}}),
    "thinking of null": ({"thinking": None}, "Input tag ''", {"thinking": {"type": "between_tools"}}),
    "a budget of nothing": ({"thinking": {"type": "enabled"}}, "budget_tokens: Field required", BUDGET),
    "a small budget": (
        {"thinking": {"type": "enabled", "budget_tokens": 1023}},
        "greater than or equal to 1024",
        BUDGET,
    ),
    "a budget beyond the limit": (
        {**BUDGET, "max_tokens": 1024},
        "`max_tokens` must be greater",
        {**BUDGET, "max_tokens": 1025},
    ),
    "a budget for adaptive thinking": (
        {"thinking": {"type": "adaptive", "budget_tokens": 2048}},
        "Extra inputs",
        ADAPTIVE,
    ),
    "an unknown display": (
        {"thinking": {"type": "adaptive", "display": "all"}},
        "display: Input should be",
        {"thinking": {"type": "adaptive", "display": "omitted"}},
    ),
    "cool thoughts": (
        {**ADAPTIVE, "temperature": 0},
        "`temperature` may only be set to 1",
        {**BUDGET, "temperature": 1},
    ),
    "thoughts and top_k": (
        {**BUDGET, "top_k": 5},
        "`top_k` must be unset",
        {"thinking": {"type": "disabled"}, "top_k": 5},
    ),
    "thoughts and top_p": ({**BUDGET, "top_p": 0.5}, "`top_p` must be greater", {**BUDGET, "top_p": 0.95}),
    # Tools.
    "tools that are no list": ({"tools": {}}, "tools: Input should be a valid list", {"tools": []}),
    "a tool of another API": (
        {"tools": [{"type": "function", "function": {}}]},
        "Input tag 'function'",
        tool(type="custom"),
    ),
    "a tool without a schema": ({"tools": [{"name": "f"}]}, "input_schema: Field required", tool()),
    "parameters": (tool(parameters={}), "parameters: Extra inputs", tool(description="d")),
    "a tool with a dot": (tool(name="a.b"), "name: String should match", tool(name="a-b")),
    "a long name": (tool(name="n" * 129), "name: String should match", tool(name="n" * 128)),
    "a hosted tool with a dot": (
        {"tools": [{"type": "web_search_20250305", "name": "a.b"}]},
        "name: String should match",
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}]},
    ),
    "a search with allowed and blocked domains": (
        {"tools": [{**SEARCH, "allowed_domains": ["a.example"], "blocked_domains": ["b.example"]}]},
        "only one of allowed_domains and blocked_domains",
        {"tools": [{**SEARCH, "allowed_domains": ["a.example"]}]},
    ),
    "two tools of one name": ({"tools": [TOOL, TOOL]}, "must be unique", {"tools": [TOOL, {**TOOL, "name": "g"}]}),
    "a description of null": (tool(description=None), "description: Input should be", tool(description="")),
    "strict in a string": (tool(strict="yes"), "strict: Input should be", tool(strict=False)),
    "a schema of a string": (tool(input_schema={"type": "string"}), "Input should be 'object'", tool()),
    "a schema without a type": (
        tool(input_schema={}),
        "Input should be 'object'",
        tool(input_schema={"type": "object"}),
    ),
    "a union at the top": (
        tool(input_schema={"type": "object", "anyOf": []}),
        "at the top level",
        tool(input_schema={"type": "object", "properties": {"a": {"anyOf": []}}}),
    ),
    "a type in capitals": (
        tool(input_schema={"type": "object", "properties": {"a": {"type": "STRING"}}}),
        "draft 2020-12",
        tool(input_schema={"type": "object", "properties": {"a": {"type": ["string", "null"]}}}),
    ),
    "properties in a list": (tool(input_schema={"type": "object", "properties": [1]}), "draft 2020-12", tool()),
    "a property with a space": (
        tool(input_schema={"type": "object", "properties": {"a b": {}}}),
        "Property keys should match",
        tool(input_schema={"type": "object", "properties": {"a.b": {}}}),
    ),
    "an open strict tool": (tool(strict=True), "additionalProperties", tool(strict=True, input_schema=CLOSED)),
    "a choice without tools": ({"tool_choice": {"type": "auto"}}, "while providing tools", choice(type="auto")),
    "a choice in a word": ({"tools": [TOOL], "tool_choice": "any"}, "Input tag ''", choice(type="any")),
    "an unknown choice": (choice(type="required"), "Input tag 'required'", choice(type="none")),
    "a choice of nothing": (choice(type="tool"), "name: Field required", choice(type="tool", name="f")),
    "a choice of what is not offered": (
        choice(type="tool", name="g"),
        "not found in provided tools",
        choice(type="tool", name="f"),
    ),
    "no parallel calls of no tools": (
        choice(type="none", disable_parallel_tool_use=True),
        "Extra inputs",
        choice(type="auto", disable_parallel_tool_use=True),
    ),
    "parallel in a string": (
        choice(type="any", disable_parallel_tool_use="no"),
        "valid boolean",
        choice(type="any", disable_parallel_tool_use=False),
    ),
    "a forced call that is thought about": (
        {**choice(type="any"), **BUDGET},
        "forces tool use",
        {**choice(type="auto"), **BUDGET},
    ),
    "a forced tool that is thought about": (
        {**choice(type="tool", name="f"), **ADAPTIVE, "model": "claude-opus-5-5"},
        "forces tool use",
        {**choice(type="tool", name="f"), **ADAPTIVE, "model": "claude-opus-4-6"},
    ),
    "a forced tool of a model that always thinks": (
        {**choice(type="tool", name="f"), "model": "claude-opus-5-5"},
        "forces tool use",
        {**choice(type="auto"), "model": "claude-opus-5-5"},
    ),
    # The form of the output.
    "an unknown effort": (
        {"output_config": {"effort": "minimal"}},
        "effort: Input should be",
        {"output_config": {"effort": "max"}},
    ),
    "an unknown setting of the output": (
        {"output_config": {"verbosity": "low"}},
        "Extra inputs",
        {"output_config": {}},
    ),
    "JSON of any form": (format(CLOSED, type="json_object"), "'json_schema'", format(CLOSED)),
    "a format with a name": (format(CLOSED, name="n"), "Extra inputs", format(CLOSED)),
    "an open object": (format({"type": "object"}), "additionalProperties", format({**CLOSED, "$schema": "x"})),
    "an open object inside": (with_part({"type": "object"}), "schema.properties.a: For 'object'", with_part(CLOSED)),
    "an open object in a list": (
        with_part({"type": "array", "items": {"type": "object"}}),
        "properties.a.items",
        with_part({"type": "array", "items": CLOSED}),
    ),
    "an open object among others": (
        with_part({"anyOf": [{"type": "object"}]}),
        "properties.a.anyOf.0",
        with_part({"anyOf": [CLOSED, {"type": "null"}]}),
    ),
    "a least number": (
        with_part({"type": "integer", "minimum": 1}),
        "property 'minimum'",
        with_part({"type": "integer"}),
    ),
    "one of several": (
        with_part({"oneOf": [CLOSED], "type": "object"}),
        "property 'oneOf'",
        with_part({"anyOf": [CLOSED]}),
    ),
    "two of a kind": (
        with_part({"type": "array", "minItems": 2}),
        "'minItems'",
        with_part({"type": "array", "minItems": 1}),
    ),
    "an unknown format": (
        with_part({"type": "string", "format": "x"}),
        "format 'x'",
        with_part({"type": "string", "format": "uuid"}),
    ),
    "an enum of objects": (with_part({"enum": [{}]}), "enum values", with_part({"enum": ["a", 1, None]})),
    "anything at all": (with_part({}), "a schema needs a 'type'", with_part({"const": 1})),
    "true for a schema": (with_part(True), "valid dictionary", with_part({"type": "boolean"})),
    "properties that are no object": (
        format({**CLOSED, "properties": []}),
        "draft 2020-12",
        format({**CLOSED, "properties": {}}),
    ),
    "a circle": (
        with_part(REF, **{"$defs": {"A": {"anyOf": [REF]}}}),
        "in a circle",
        with_part({"anyOf": [REF, REF]}, **{"$defs": {"A": CLOSED}}),
    ),
    "a reference to nothing": (
        with_part(REF),
        "out of the schema",
        with_part(REF, definitions={}, **{"$defs": {"A": CLOSED}}),
    ),
    "a reference to another document": (
        with_part({"$ref": "https://example.org/a"}),
        "out of the schema",
        with_part({"$ref": "#/definitions/A"}, definitions={"A": CLOSED}),
    ),
    # Hints about caching.
    "five marks": (
        {**user(*[{**TEXT, **MARK}] * 4), "system": [{**TEXT, **MARK}]},
        "Found 5",
        {**user(*[{**TEXT, **MARK}] * 3, TEXT), "system": [{**TEXT, **MARK}]},
    ),
    "marks on everything": (
        {**result(content=[{**TEXT, **MARK}], **MARK), **tool(**MARK), "system": [{**TEXT, **MARK}], **MARK},
        "Found 5",
        {**result(content=[{**TEXT, **MARK}], **MARK), **tool(**MARK), "system": "be brief", **MARK},
    ),
    "an hour after five minutes": (
        {**user({**TEXT, **LONG_MARK}), "system": [{**TEXT, **MARK}]},
        "must not come after",
        {**user({**TEXT, **MARK}), "system": [{**TEXT, **LONG_MARK}]},
    ),
    "another cache": (
        user({**TEXT, "cache_control": {"type": "persistent"}}),
        "cache_control",
        user({**TEXT, "cache_control": None}),
    ),
    "an odd life": (
        {"cache_control": {"type": "ephemeral", "ttl": "1d"}},
        "body.cache_control",
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ),
    "a mark on thoughts": (
        answers({**THOUGHT, **MARK}, TEXT),
        "thinking.cache_control: Extra inputs",
        answers(THOUGHT, {**TEXT, **MARK}),
    ),
}


def full(change: dict[str, Any]) -> dict[str, Any]:
    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return [kept(one) for one in value] if isinstance(value, list) else value
        return {name: kept(inner) for name, inner in value.items() if inner is not ...}

    body: dict[str, Any] = kept({"model": "m", "max_tokens": 2048, **body_with(USER), **change})
    return body


def refused(change: dict[str, Any], limits: MessagesLimits = MessagesLimits(), **headers: str) -> dict[str, Any]:  # noqa: B008
    return error_of(MessagesBehavior(limits).find_refusal(make_request(full(change), **{**VERSION, **headers})))


@pytest.mark.parametrize("rule", RULES)
def test_rule_refuses_its_violation(rule: str) -> None:
    wrong, message_part, _ = RULES[rule]
    error = refused(wrong)
    assert (error.get("status"), error.get("type")) == (400, "invalid_request_error"), error
    assert message_part in error["message"], error


@pytest.mark.parametrize("rule", RULES)
def test_the_same_done_right_is_taken(rule: str) -> None:
    assert refused(RULES[rule][2]) == {}


@pytest.mark.parametrize("rule", [rule for rule, (wrong, _, _) in RULES.items() if "model" not in wrong])
def test_a_lenient_server_takes_everything(rule: str) -> None:
    assert refused(RULES[rule][0], MessagesLimits(strict=False)) == {}


def test_every_field_that_has_a_rule_is_a_known_field() -> None:
    named = {name for _, _, right in RULES.values() for name in right}
    assert named <= FIELDS


def test_an_error_is_told_in_the_form_of_this_api() -> None:
    reply = MessagesBehavior().find_refusal(make_request(full({"model": ...}), **VERSION))
    assert reply is not None
    told_whole = reply.headers["request-id"], reply.headers["content-type"], reply.body
    expected = b'{"type":"error","error":{"type":"invalid_request_error","message":"model: Field required"},"request_id":"req_fake"}'
    assert told_whole == ("req_fake", "application/json", expected)


# What a server demands of everyone: (limits, request, headers, status and type; None where it is taken).
OLD = MessagesLimits()
DEMANDS: dict[str, tuple[MessagesLimits, Any, dict[str, str], tuple[int, str] | None]] = {
    "no key": (MessagesLimits(key="k"), full({}), {}, (401, "authentication_error")),
    "a wrong key": (MessagesLimits(key="k"), full({}), {"x_api_key": "j"}, (401, "authentication_error")),
    "the right key": (MessagesLimits(key="k"), full({}), {"x_api_key": "k"}, None),
    "the right key as a bearer": (MessagesLimits(key="k"), full({}), {"authorization": "Bearer k"}, None),
    "no version": (OLD, full({}), {"some_version": ""}, (400, "invalid_request_error")),
    "an unknown version": (OLD, full({}), {"some_version": "2024-01-01"}, (400, "invalid_request_error")),
    "the oldest version": (OLD, full({}), {"some_version": "2023-01-01"}, None),
    "the newest version": (OLD, full({}), {"some_version": NEWEST_VERSION}, None),
    "a version twice": (OLD, full({}), {"some_version": "2023-06-01, 2023-06-01"}, (400, "invalid_request_error")),
    "a temperature in the newest version": (
        OLD,
        full({"temperature": 1}),
        {"some_version": NEWEST_VERSION},
        (400, "invalid_request_error"),
    ),
    "a user who cites": (OLD, full(user(CITING)), {"some_version": NEWEST_VERSION}, (400, "invalid_request_error")),
    "a user who cites in an older version": (OLD, full(user(CITING)), {}, None),
    "an assistant who cites": (OLD, full(answers(CITING)), {"some_version": NEWEST_VERSION}, None),
    "a finding that cites": (
        OLD,
        full(user({"type": "search_result", "source": "s", "title": "t", "content": [CITING]})),
        {"some_version": NEWEST_VERSION},
        (400, "invalid_request_error"),
    ),
    "no version where nobody minds": (MessagesLimits(strict=False), full({}), {"some_version": "x"}, None),
    "no content type": (OLD, full({}), {"content_type": ""}, (415, "invalid_request_error")),
    "a content type with a charset": (OLD, full({}), {"content_type": "application/json; charset=utf-8"}, None),
    "no JSON": (OLD, b"{", {}, (400, "invalid_request_error")),
    "no object": (OLD, b"[]", {}, (400, "invalid_request_error")),
    "far too deep": (OLD, b"[" * 100_000, {}, (400, "invalid_request_error")),
    "an unknown model": (MessagesLimits(models=("a",)), full({}), {}, (404, "not_found_error")),
    "a known model": (MessagesLimits(models=("m",)), full({}), {}, None),
    "a huge body": (MessagesLimits(max_bytes=10), full({}), {}, (413, "request_too_large")),
    "a long prompt": (MessagesLimits(max_chars=9), full({"system": "be brief"}), {}, (400, "invalid_request_error")),
    "a prompt that just fits": (MessagesLimits(max_chars=10), full({"system": "be brief"}), {}, None),
    "a long result": (
        MessagesLimits(max_chars=5),
        full(result(content=[{**TEXT, "text": "four"}])),
        {},
        (400, "invalid_request_error"),
    ),
    "without messages nothing is too long": (
        MessagesLimits(max_chars=1, strict=False),
        full({"messages": 1}),
        {},
        None,
    ),
    "nor with odd ones": (MessagesLimits(max_chars=1, strict=False), full(body_with(1, {"content": 2})), {}, None),
    "turns that others merge": (
        MessagesLimits(alternating=False),
        full(body_with(USER, USER, ANSWER, ANSWER, USER)),
        {},
        None,
    ),
    "calls are answered all the same": (
        MessagesLimits(alternating=False),
        full(body_with(USER, CALLED, ANSWER, RESULTS)),
        {},
        (400, "invalid_request_error"),
    ),
    "results in two messages": (
        MessagesLimits(alternating=False),
        full(body_with(USER, {**CALLED, "content": [CALL, SECOND]}, RESULTS, {**RESULTS, "content": [SECOND_RESULT]})),
        {},
        (400, "invalid_request_error"),
    ),
    "a system message at the end": (MessagesLimits(system_messages=True), full(body_with(USER, SYSTEM)), {}, None),
    "a system message in the middle": (
        MessagesLimits(system_messages=True),
        full(body_with(USER, SYSTEM, ANSWER, USER)),
        {},
        None,
    ),
    "a system message first": (
        MessagesLimits(system_messages=True),
        full(body_with(SYSTEM, USER)),
        {},
        (400, "invalid_request_error"),
    ),
    "a system message before the user": (
        MessagesLimits(system_messages=True),
        full(body_with(USER, ANSWER, SYSTEM, USER)),
        {},
        (400, "invalid_request_error"),
    ),
    "an image in a system message": (
        MessagesLimits(system_messages=True),
        full(body_with(USER, {"role": "system", "content": [CALL]})),
        {},
        (400, "invalid_request_error"),
    ),
    "two forms of the output": (
        OLD,
        full({**format(CLOSED), "output_format": format(CLOSED)["output_config"]["format"]}),
        {"some_beta": "structured-outputs-2025-11-13"},
        (400, "invalid_request_error"),
    ),
    "the older form of the output": (
        OLD,
        full({"output_format": format(CLOSED)["output_config"]["format"]}),
        {"some_beta": "a-1, structured-outputs-2025-11-13"},
        None,
    ),
    "a field of another beta": (
        OLD,
        full({"mcp_servers": []}),
        {"some_beta": "context-management-1"},
        (400, "invalid_request_error"),
    ),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_server_refuses_requests_without_its_demands(demand: str) -> None:
    limits, body, headers, expected = DEMANDS[demand]
    request_headers = {name: value for name, value in {**VERSION, **headers}.items() if value or name == "content_type"}
    error = error_of(MessagesBehavior(limits).find_refusal(make_request(body, **request_headers)))
    assert (error and (error["status"], error["type"])) == (expected or {}), error


@pytest.mark.parametrize("field", BETA_FIELDS)
def test_a_field_of_a_beta_is_known_to_who_names_the_beta(field: str) -> None:
    value = format(CLOSED)["output_config"]["format"] if field == "output_format" else {}
    assert refused({field: value}, some_beta=f"{BETA_FIELDS[field]}2026-01-01") == {}


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (MessagesLimits(max_chars=1), "context_length_exceeded"),
        (MessagesLimits(models=()), "model_not_found"),
        (MessagesLimits(key="k"), "upstream_auth_failed"),
        (MessagesLimits(max_bytes=1), "request_too_large"),
    ],
)
def test_a_refusal_means_to_the_gateway_what_it_means_here(limits: MessagesLimits, code: str) -> None:
    reply = MessagesBehavior(limits).find_refusal(make_request(full({}), **VERSION))
    assert reply is not None
    assert error_to_hub(reply.status, reply.headers, reply.body).code == code


# Not `temperature` and `top_p` at once.
WIRE = MessagesWire(fields=("temperature", "top_k", "stop_sequences", "metadata"))


@settings(max_examples=30)
@given(requests())
def test_every_conversation_that_the_dialect_writes_is_taken(request_: Request) -> None:
    """REQ-6: whatever a client's history looks like. What clients say of caching is their own business."""
    try:
        body, _ = request_from_hub(replace(request_, model="m"), WIRE)
    except ApiError:
        return
    message = error_of(MessagesBehavior().find_refusal(make_request(body, **VERSION))).get("message", "")
    assert not message or "cache_control" in message


def test_thoughts_are_known_to_who_gave_them_and_to_nobody_else() -> None:
    """RSN-3, at its source: what a server did not sign it refuses, and a script's own signatures are the server's
    too."""
    thoughts = IssuedThoughts()
    assert thoughts.issue("so", None) == signature_of("so")
    assert thoughts.issue("so", "own") == "own"
    thoughts.issue_redacted("data")
    assert (thoughts.is_issued("so", "own"), thoughts.is_issued("no", "own"), thoughts.is_issued_redacted("data")) == (
        True,
        False,
        True,
    )
    assert (IssuedThoughts().is_issued("so", "own"), IssuedThoughts().is_issued_redacted("data")) == (False, False)
    assert IssuedThoughts().is_issued("so", signature_of("so"))
