"""Each rule with a request that it refuses and one, as near as can be, that it takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.testing.requests import make_request

from antiphon.dialects.ollama import error_to_hub
from antiphon.rules import ollama as rules
from antiphon.testing.ollama.rules import OllamaLimits
from antiphon.testing.ollama.server import OllamaBehavior

pytestmark = pytest.mark.without_coverage
PNG = "iVBORw0KGgo="
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}


def says(**members: Any) -> dict[str, Any]:
    return {"messages": [{**USER, **members}]}


def calls(**members: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "tool_calls": [{**CALL, **members}]}]}


def tool(**function: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": OPEN, **function}}]}


def has_property(schema: Any) -> dict[str, Any]:
    return tool(parameters={"type": "object", "properties": {"a": schema}})


# (what is wrong, the path, the same done right); a value of ... leaves the field out.
RULES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "no model": ({"model": ...}, "model", {"model": "m"}),
    "an empty model": ({"model": ""}, "model", {"model": "m"}),
    "messages that are no list": ({"messages": "hi"}, "messages", {"messages": [USER]}),
    "a message that is no object": ({"messages": ["hi"]}, "messages[0]", {"messages": [USER]}),
    "parts of a message": (says(content=[{"type": "text"}]), "messages[0].content", says(content="a")),
    "a role that is no text": (says(role=1), "messages[0].role", says(role="User")),
    "thinking that is no text": (says(thinking=True), "messages[0].thinking", says(thinking=None)),
    "an image with a media type": (
        says(images=[f"data:image/png;base64,{PNG}"]),
        "messages[0].images[0]",
        says(images=[PNG]),
    ),
    "an image that is no base64": (says(images=["?" * 8]), "messages[0].images[0]", says(images=[])),
    "an image that is a number": (says(images=[1]), "messages[0].images[0]", says(images=[PNG])),
    "images that are no list": (says(images=PNG), "messages[0].images", says(images=[PNG])),
    "a call that is no object": ({"messages": [{**USER, "tool_calls": ["f"]}]}, "messages[0].tool_calls[0]", calls()),
    "a call without a function": (calls(function=...), "messages[1].tool_calls[0]", calls()),
    "arguments as a text": (
        calls(function={"name": "f", "arguments": '{"a":1}'}),
        "messages[1].tool_calls[0].function.arguments",
        calls(function={"name": "f", "arguments": {"a": 1}}),
    ),
    "an id that is a number": (calls(id=7), "messages[1].tool_calls[0].id", calls(id=...)),
    "an index that is a text": (
        calls(function={"name": "f", "index": "0"}),
        "messages[1].tool_calls[0].function.index",
        calls(function={"name": "f", "index": 0}),
    ),
    "tools that are an object": ({"tools": {}}, "tools", {"tools": []}),
    "a tool in flat form": ({"tools": [{"type": "function", "name": "f"}]}, "tools[0]", tool()),
    "a tool that is a text": ({"tools": ["f"]}, "tools[0]", tool()),
    "a description that is a list": (tool(description=["a"]), "tools[0].function.description", tool(description="a")),
    "parameters that are a list": (tool(parameters=[]), "tools[0].function.parameters", tool(parameters=None)),
    "two types of the arguments": (
        tool(parameters={"type": ["object", "null"]}),
        "tools[0].function.parameters.type",
        tool(parameters={"type": "object"}),
    ),
    "a required name that is a number": (
        tool(parameters={**OPEN, "required": [1]}),
        "tools[0].function.parameters.required",
        tool(parameters={**OPEN, "required": ["a"]}),
    ),
    "a property that is true": (has_property(True), "tools[0].function.parameters.properties.a", has_property({})),
    "a type that is a number": (
        has_property({"type": 1}),
        "tools[0].function.parameters.properties.a.type",
        has_property({"type": ["string", "null"]}),
    ),
    "an enum that is a text": (
        has_property({"enum": "a"}),
        "tools[0].function.parameters.properties.a.enum",
        has_property({"enum": ["a", 1]}),
    ),
    "an unknown level of thinking": ({"think": "hard"}, "think", {"think": "max"}),
    "a level that is a number": ({"think": 2}, "think", {"think": True}),
    "an unknown format": ({"format": "yaml"}, "format", {"format": "json"}),
    "a format that is a list": ({"format": []}, "format", {"format": OPEN}),
    "a duration without a unit": ({"keep_alive": "5"}, "keep_alive", {"keep_alive": "5m30s"}),
    "a duration that is true": ({"keep_alive": True}, "keep_alive", {"keep_alive": -1}),
    "a stream that is a text": ({"stream": "yes"}, "stream", {"stream": False}),
    "too many alternatives": ({"top_logprobs": 21}, "top_logprobs", {"top_logprobs": 20}),
    "options that are a list": ({"options": []}, "options", {"options": {}}),
    "a temperature that is a text": (
        {"options": {"temperature": "0.5"}},
        "options.temperature",
        {"options": {"temperature": 1}},
    ),
    "a seed that is true": ({"options": {"seed": True}}, "options.seed", {"options": {"seed": 1.0}}),
    "stop that is a text": ({"options": {"stop": "x"}}, "options.stop", {"options": {"stop": ["x"]}}),
    "a switch that is a number": ({"options": {"use_mmap": 1}}, "options.use_mmap", {"options": {"unknown": 1}}),
    "a prompt that is a list": ({"prompt": ["hi"], "messages": ...}, "prompt", {"prompt": "hi", "messages": ...}),
}


def full(change: dict[str, Any]) -> dict[str, Any]:
    def kept(value: Any) -> Any:
        if not isinstance(value, dict):
            return [kept(one) for one in value] if isinstance(value, list) else value
        return {name: kept(inner) for name, inner in value.items() if inner is not ...}

    body: dict[str, Any] = kept({"model": "m", "messages": [USER], **change})
    return body


@pytest.mark.parametrize("rule", RULES)
def test_server_refuses_the_wrong_and_takes_the_right(rule: str) -> None:
    wrong, path, right = RULES[rule]
    refused = OllamaBehavior().find_refusal(make_request(full(wrong)))
    assert refused is not None
    assert refused.status == (500 if path.startswith("options.") else 400)
    assert isinstance(json.loads(refused.body)["error"], str)
    assert OllamaBehavior().find_refusal(make_request(full(right))) is None


@pytest.mark.parametrize("name", sorted(rules.OPTION_TYPES))
def test_every_option_is_checked(name: str) -> None:
    assert OllamaBehavior().find_refusal(make_request(full({"options": {name: {}}}))) is not None
    assert OllamaBehavior().find_refusal(make_request(full({"options": {name: None}}))) is None


#: The server's limits, a body and headers; the status and the code that the gateway understands.
DEMANDS: dict[str, tuple[OllamaLimits, Any, dict[str, str], tuple[int, str] | None]] = {
    "no key": (OllamaLimits(key="k"), full({}), {}, (401, "upstream_auth_failed")),
    "the key": (OllamaLimits(key="k"), full({}), {"authorization": "Bearer k"}, None),
    "another model": (OllamaLimits(models=("n",)), full({}), {}, (404, "model_not_found")),
    "its model": (OllamaLimits(models=("m",)), full({}), {}, None),
    "a long prompt": (OllamaLimits(max_chars=1), full({}), {}, (400, "context_length_exceeded")),
    "a prompt that fits": (OllamaLimits(max_chars=2), full({}), {}, None),
    "a long prompt to generate": (
        OllamaLimits(max_chars=1),
        {"model": "m", "prompt": "hi"},
        {},
        (400, "context_length_exceeded"),
    ),
    "a model that does not think": (
        OllamaLimits(plain_models=("m",)),
        full({"think": True}),
        {},
        (400, "invalid_value"),
    ),
    "a model without tools": (OllamaLimits(plain_models=("m",)), full(tool()), {}, (400, "invalid_value")),
    "a plain model": (OllamaLimits(plain_models=("m",)), full({"think": False}), {}, None),
    "a lenient server": (OllamaLimits(strict=False), full({"think": "hard"}), {}, None),
    "no body": (OllamaLimits(), b"", {}, (400, "invalid_value")),
    "a list": (OllamaLimits(), b"[]", {}, (400, "invalid_value")),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_server_refuses_requests_without_its_demands(demand: str) -> None:
    """The gateway understands each refusal."""
    limits, body, headers, wanted = DEMANDS[demand]
    refused = OllamaBehavior(limits).find_refusal(make_request(body, **headers))
    understood = refused and (refused.status, error_to_hub(refused.status, refused.headers, refused.body).code)
    assert understood == wanted
