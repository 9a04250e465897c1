"""`dialects/ollama/request_in`: a client's request as a hub request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from antiphon.dialects.ollama import request_at_path, request_from_hub, request_to_hub
from antiphon.errors import ApiError
from antiphon.protocol.content import InputImageParam, InputText, OutputTextParam, ReasoningText
from antiphon.protocol.items import FunctionCallOutputParam, FunctionCallParam, ItemParam, MessageParam, ReasoningParam
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    TextParam,
    input_items,
)
from antiphon.protocol.tools import FunctionToolParam

PNG = "iVBORw0KGgoAAAANSUhEUg=="
USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def read(**fields: Any) -> tuple[Request, list[str]]:
    request, losses = request_to_hub(json.dumps({"model": "m", "messages": [USER], **fields}).encode())
    return request, [loss.path for loss in losses]


def items(*messages: Any) -> list[ItemParam]:
    return input_items(read(messages=[USER, *messages])[0])[1:]


def text(role: Any, words: str) -> MessageParam:
    part = OutputTextParam(text=words) if role == "assistant" else InputText(text=words)
    return MessageParam(role=role, content=[part])


def call(name: str, arguments: Any = UNSET, **members: Any) -> dict[str, Any]:
    function = {"name": name} if arguments is UNSET else {"name": name, "arguments": arguments}
    return {"function": function, **members}


# Messages


def test_leading_system_messages_become_instructions() -> None:
    system = {"role": "system", "content": "Be brief."}
    request, _ = read(messages=[system, system, USER, {"role": "System", "content": "Late."}])
    assert request.instructions == "Be brief.\n\nBe brief."
    assert input_items(request) == [text("user", "Hi"), text("system", "Late.")]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        ("/9j/4AAQ", "image/jpeg"),
        ("R0lGODlh", "image/gif"),
        ("UklGRiQA", "image/webp"),
        ("Qk02AAAA", "image/bmp"),
    ],
)
def test_image_gets_its_media_type_from_its_first_bytes(data: str, kind: str) -> None:
    image = InputImageParam(image_url=f"data:{kind};base64,{data}")
    assert items({**USER, "images": [data]}) == [MessageParam(role="user", content=[InputText(text="Hi"), image])]
    assert items({"role": "user", "images": [data]}) == [MessageParam(role="user", content=[image])]


def test_message_without_content_is_empty() -> None:
    assert items({"role": "user"}, {"role": "assistant"}) == [text("user", ""), text("assistant", "")]


def test_assistant_message_is_split_into_items() -> None:
    message = {"role": "assistant", "content": "Wait.", "thinking": "Hm.", "tool_calls": [call("f", {"a": 1}, id="c")]}
    assert items(message, {"role": "tool", "tool_call_id": "c", "content": "ok"}) == [
        ReasoningParam(summary=[], content=[ReasoningText(text="Hm.")]),
        text("assistant", "Wait."),
        FunctionCallParam(call_id="c", name="f", arguments='{"a":1}'),
        FunctionCallOutputParam(call_id="c", output="ok"),
    ]


def test_results_without_ids_belong_to_the_first_call_of_their_tool() -> None:
    calls = {"role": "assistant", "tool_calls": [call("f"), call("g", {}), call("f", None)]}
    named = [{"role": "tool", "tool_name": name, "content": name} for name in ("g", "f", "f")]
    outputs = [item.call_id for item in items(calls, *named) if isinstance(item, FunctionCallOutputParam)]
    assert outputs == ["call_1_1", "call_1_0", "call_1_2"]
    unnamed = [{"role": "tool", "content": "x"}] * 2
    outputs = [item.call_id for item in items(calls, *unnamed) if isinstance(item, FunctionCallOutputParam)]
    assert outputs == ["call_1_0", "call_1_1"]


def test_result_without_a_call_has_an_id_of_its_own() -> None:
    assert items({"role": "tool", "content": "x"}) == [FunctionCallOutputParam(call_id="call_1", output="x")]


def test_fields_of_other_roles_are_losses() -> None:
    message = {**USER, "thinking": "x", "tool_name": "f", "mood": 1}
    assert read(messages=[message])[1] == ["messages[0].mood", "messages[0].thinking", "messages[0].tool_name"]


# Tools and settings


def test_tools_are_functions() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "x": 1}, "y": 2}
    request, losses = read(tools=[tool])
    assert request.tools == [FunctionToolParam(name="f", description="d", parameters=SCHEMA, strict=False)]
    assert losses == ["tools[0].y", "tools[0].function.x"]


@pytest.mark.parametrize(
    ("think", "effort"), [(True, "medium"), (False, "none"), ("low", "low"), ("max", "max")], ids=str
)
def test_think_becomes_an_effort(think: Any, effort: Any) -> None:
    """RSN-4."""
    assert read(think=think)[0].reasoning == ReasoningConfigParam(effort=effort)
    assert read(think=None)[0].reasoning is UNSET


def test_format_becomes_the_output_format() -> None:
    """REQ-1."""
    assert read(format="json")[0].text == TextParam(format=JsonObjectFormat())
    assert read(format=SCHEMA)[0].text == TextParam(format=JsonSchemaFormatParam(name="response", schema=SCHEMA))
    assert read(format="")[0].text is UNSET
    assert read(format={})[0].text is UNSET


def test_stream_is_the_default() -> None:
    assert read()[0].stream is True
    assert read(stream=None)[0].stream is True
    assert read(stream=False)[0].stream is False


def test_options_become_settings_and_others_are_kept() -> None:
    """REQ-7."""
    options = {"temperature": 0.5, "top_p": 0.9, "num_predict": 7, "num_ctx": 4096, "seed": 1, "mirostat": None}
    request, _ = read(options=options, keep_alive="5m", truncate=True)
    assert (request.temperature, request.top_p, request.max_output_tokens) == (0.5, 0.9, 7)
    assert request.extra == {
        "ollama:keep_alive": Raw(b'"5m"'),
        "ollama:truncate": Raw(b"true"),
        "ollama:num_ctx": Raw(b"4096"),
        "ollama:seed": Raw(b"1"),
    }


@pytest.mark.parametrize("limit", [-1, -2])
def test_limit_below_zero_means_no_limit(limit: int) -> None:
    assert read(options={"num_predict": limit})[0].max_output_tokens is UNSET


def test_logprobs_are_included() -> None:
    request, _ = read(logprobs=True, top_logprobs=3)
    assert (request.include, request.top_logprobs) == ([ENCRYPTED_IF_ANY, "message.output_text.logprobs"], 3)
    assert read(top_logprobs=3)[0].top_logprobs is UNSET


# Generate


def test_prompt_becomes_one_message() -> None:
    body = json.dumps({"model": "m", "prompt": "Why?", "system": "Be brief.", "images": [PNG], "suffix": ""}).encode()
    request, losses = request_to_hub(body)
    assert request == request_at_path("/api/generate", body)[0]
    assert request.instructions == "Be brief."
    image = InputImageParam(image_url=f"data:image/png;base64,{PNG}")
    assert input_items(request) == [MessageParam(role="user", content=[InputText(text="Why?"), image])]
    assert request.extra == {"ollama:generate": Raw(b"{}")}
    assert list(losses) == []


@pytest.mark.parametrize("extra", [{"suffix": "x"}, {"raw": True}, {"context": [1]}, {"template": "{{ .Prompt }}"}])
def test_fields_that_change_the_prompt_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        request_to_hub(json.dumps({"model": "m", "prompt": "Why?", **extra}).encode())
    assert (caught.value.status, caught.value.param) == (400, next(iter(extra)))


# Errors


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/api/chat", {"messages": []}, "messages"),
        ("/api/chat", {}, "messages"),
        ("/api/chat", {"messages": [{"role": "robot"}]}, "messages[0].role"),
        ("/api/chat", {"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content"),
        ("/api/chat", {"messages": [{**USER, "images": ["data:image/png;base64,AAAA"]}]}, "messages[0].images[0]"),
        ("/api/chat", {"messages": [USER], "think": "hard"}, "think"),
        ("/api/chat", {"messages": [USER], "options": {"temperature": "hot"}}, "options.temperature"),
        ("/api/chat", {"messages": [USER], "tools": [{"function": {}}]}, "tools[0].function.name"),
        ("/api/generate", {}, "prompt"),
        ("/api/generate", {"prompt": ""}, "prompt"),
        ("/api/generate", {"prompt": "x", "images": ["AAAA"]}, "images[0]"),
    ],
)
def test_invalid_request_is_refused_with_its_path(path: str, fields: dict[str, Any], param: str) -> None:
    """ERR-3."""
    with pytest.raises(ApiError) as caught:
        request_at_path(path, json.dumps({"model": "m", **fields}).encode())
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        request_to_hub(body)
    assert caught.value.status == 400


def test_request_of_a_client_reaches_a_server_unchanged() -> None:
    """Law (d), REQ-7."""
    call_and_result = [
        {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [call("f", {"a": 1}, id="c1")]},
        {"role": "tool", "content": "ok", "tool_name": "f", "tool_call_id": "c1"},
    ]
    call_and_result[0]["tool_calls"][0]["function"] |= {"index": 0}  # type: ignore[index]
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "S"}, {**USER, "images": [PNG]}, *call_and_result],
        "stream": False,
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
        "format": SCHEMA,
        "think": "high",
        "logprobs": True,
        "top_logprobs": 2,
        "options": {"temperature": 0.5, "num_predict": 20, "stop": ["x"], "top_k": 5, "num_ctx": 4096},
        "keep_alive": "5m",
        "shift": False,
    }
    request, losses = request_to_hub(json.dumps(body).encode())
    sent, more = request_from_hub(request)
    assert json.loads(sent) == body
    assert [*losses, *more] == []
