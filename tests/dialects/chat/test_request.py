"""Chat requests, both ways: laws over generated conversations, then settings one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import UNSET, Raw
from tests.generate.chat_bodies import RICH, bodies, wires
from tests.generate.chat_rules import assert_chat_accepts
from tests.generate.conversations import marks_of, requests

from antiphon.dialects.chat import request_from_hub, request_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import InvalidJson, InvalidValue, MissingField, UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.content import (
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    Refusal,
    ToolUse,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    ReasoningConfigParam,
    Request,
    StreamOptions,
    TextFormat,
    TextParam,
    input_items,
)
from antiphon.protocol.tools import FunctionToolParam

# The laws.


@given(requests(orphans=True), wires())
def test_sent_body_is_accepted_by_servers_of_every_habit_E5(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    assert_chat_accepts(body, developer=wire.developer == "developer", media_in_tools=wire.tool_images == "keep")


@settings(max_examples=40)
@given(requests(orphans=True), wires())
def test_every_text_is_sent_or_named_as_a_loss_E5_F4(request: Request, wire: ChatWire) -> None:
    body, losses = request_from_hub(request, wire)
    sent = [text for _, text in _strings(_with_arguments_read(json.loads(body)))]
    for path, text in _strings(json.loads(codec.encode(request))):
        # Content that only its server can read is never sent to chat; it is reported where nothing else was there.
        if marks_of(text) and not path.endswith("encrypted_content"):
            assert any(text in other for other in sent) or _is_named(path, losses), f"{path}: {text!r}"


@given(requests(), wires())
def test_call_ids_are_kept_E5(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    calls = [call["id"] for message in json.loads(body)["messages"] for call in message.get("tool_calls", ())]
    assert calls == _call_ids(input_items(request))


@given(requests(orphans=True), wires(system="anywhere"))
def test_messages_and_calls_keep_their_order_E5(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    texts, texts_and_calls = _marks_sent(json.loads(body)["messages"])
    given_texts, given_called = _marks_given(input_items(request))
    assert [mark for mark in texts if mark in given_texts] == [mark for mark in given_texts if mark in texts]
    assert [mark for mark in texts_and_calls if mark in given_called] == given_called


@given(requests(), wires())
def test_outputs_follow_their_own_call_E2(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    results = [message for message in json.loads(body)["messages"] if message["role"] == "tool"]
    for item in input_items(request):
        if isinstance(item, FunctionCallOutputParam | CustomToolCallOutputParam) and isinstance(item.output, str):
            assert [
                result
                for result in results
                if item.output in str(result["content"]) and result["tool_call_id"] == item.call_id
            ]


@given(requests(orderly=True))
def test_orderly_conversation_survives_the_round_trip_law_d(request: Request) -> None:
    body, losses = request_from_hub(request, RICH)
    again, more_losses = request_to_hub(body)
    assert not [loss for loss in losses if loss.path.startswith(("input", "instructions", "tools"))]
    assert not list(more_losses)
    assert _plain_conversation(again) == _plain_conversation(request)
    assert again.tools == request.tools
    for field in (
        "temperature",
        "top_p",
        "metadata",
        "service_tier",
        "user",
        "stream",
        "safety_identifier",
        "prompt_cache_key",
    ):
        assert (getattr(again, field) or None) == (getattr(request, field) or None)


@given(
    requests(orphans=True), wires(reasoning_history="all")
)  # a moved image is a user's turn, which would end a tool loop
def test_sent_body_is_unchanged_after_a_round_trip_through_the_hub_law_d(request: Request, wire: ChatWire) -> None:
    body, _ = request_from_hub(request, wire)
    again, losses = request_to_hub(body)
    assert not list(losses)
    assert _regrouped(json.loads(request_from_hub(again, wire)[0])) == _regrouped(json.loads(body))


@given(bodies())
def test_chat_body_survives_the_round_trip(body: dict[str, Any]) -> None:
    request, losses = request_to_hub(json.dumps(body).encode())
    again, more_losses = request_from_hub(request, RICH)
    assert not list(losses)
    assert not list(more_losses)
    assert _regrouped(assert_chat_accepts(again)) == _regrouped(body)


@given(bodies())
def test_hub_parts_are_typed_by_role_C2_E5(body: dict[str, Any]) -> None:
    request, _ = request_to_hub(json.dumps(body).encode())
    if request.max_output_tokens == 1:  # allowed in chat, below the hub's limit: kept, and left to the upstream
        body |= {"max_completion_tokens": 4096}
        request, _ = request_to_hub(json.dumps(body).encode())
    assert codec.decode_request(codec.encode(request)) == request
    for item in input_items(request):
        if isinstance(item, MessageParam):
            assert all(isinstance(part, PARTS_OF_ROLE[item.role]) for part in item.content)


@given(bodies())
def test_every_text_of_a_client_reaches_the_hub_E5(body: dict[str, Any]) -> None:
    request, _ = request_to_hub(json.dumps(body).encode())
    held = [text for _, text in _strings(json.loads(codec.encode(request)))]
    for path, text in _strings(body):
        assert not marks_of(text) or any(text in other for other in held), path


@given(bodies())
def test_order_and_ids_of_a_client_reach_the_hub_E5(body: dict[str, Any]) -> None:
    request, _ = request_to_hub(json.dumps(body).encode())
    sent = [mark for _, text in _strings(body["messages"]) for mark in marks_of(text)]
    held = [
        mark
        for _, text in _strings(json.loads(codec.encode([request.instructions or "", request.input])))
        for mark in marks_of(text)
    ]
    assert held == _reasoning_first(sent, body["messages"])
    assert _call_ids(input_items(request)) == [call["id"] for m in body["messages"] for call in m.get("tool_calls", ())]
    outputs = [item.call_id for item in input_items(request) if isinstance(item, OUTPUTS)]
    assert outputs == [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


# Helpers of the laws.


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for name, member in value.items():
                yield from _strings(member, f"{path}.{name}" if path else name)
        case list():
            for at, member in enumerate(value):
                yield from _strings(member, f"{path}[{at}]")


def _with_arguments_read(value: Any) -> Any:
    """The same with the content of arguments besides the arguments themselves."""
    match value:
        case {"arguments": str(arguments)}:
            return [value, json.loads(arguments)]
        case dict():
            return {name: _with_arguments_read(member) for name, member in value.items()}
        case list():
            return [_with_arguments_read(member) for member in value]
        case _:
            return value


def _is_named(path: str, losses: Losses) -> bool:
    return any(path == loss.path or path.startswith((f"{loss.path}.", f"{loss.path}[")) for loss in losses)


def _call_ids(items: list[ItemParam]) -> list[str]:
    ids = []
    for item in items:
        if isinstance(item, FunctionCallParam | CustomToolCallParam):
            ids.append(item.call_id)
        elif isinstance(item, MessageParam) and isinstance(item.content, list):
            ids += [part.id for part in item.content if isinstance(part, ToolUse)]
    return ids


def _marks_given(items: list[ItemParam]) -> tuple[list[str], list[str]]:
    """In order: the texts of all messages; the texts of users and systems, and the calls."""
    texts: list[str] = []
    called: list[str] = []
    for item in items:
        match item:
            case MessageParam(role=role, content=content):
                parts = [InputText(text=content)] if isinstance(content, str) else content
                for part in parts:
                    if isinstance(part, InputText | OutputTextParam):
                        texts += marks_of(part.text)
                        called += marks_of(part.text) if role != "assistant" else []
                    elif isinstance(part, ToolUse):
                        called += marks_of(part.input["q"])
            case FunctionCallParam(arguments=text) | CustomToolCallParam(input=text):
                called += marks_of(text)
    return texts, called


def _marks_sent(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    collected: list[str] = []
    called: list[str] = []
    for message in messages:
        texts = [mark for _, text in _strings(message.get("content")) for mark in marks_of(text)]
        calls = [mark for _, text in _strings(message.get("tool_calls", [])) for mark in marks_of(text)]
        if message["role"] != "tool":
            collected += texts
            called += calls if message["role"] == "assistant" else texts
    return collected, called


def _plain_conversation(request: Request) -> list[Any]:
    """Roles, texts, calls and outputs in order; the leading system text is one, wherever it stood."""
    entries = [("system", request.instructions)] if request.instructions else []
    for item in input_items(request):
        match item:
            case (
                MessageParam(role=role, content=str(text))
                | MessageParam(role=role, content=[InputText(text=text) | OutputTextParam(text=text)])
            ):
                entries.append((role, text))
            case MessageParam(role=role, content=parts):
                entries.append((role, codec.encode(parts).decode()))
            case FunctionCallParam():
                entries.append((item.call_id, item.name + item.arguments))
            case FunctionCallOutputParam():
                entries.append((item.call_id, str(item.output)))
    leading = [
        text for at, (role, text) in enumerate(entries) if all(before[0] == "system" for before in entries[: at + 1])
    ]
    return ["\n\n".join(leading), *entries[len(leading) :]]


def _regrouped(body: dict[str, Any]) -> dict[str, Any]:
    """The documented regrouping: leading system text is one text, text parts are one text, text and calls one turn."""
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        message = {**message, "content": _joined(message.get("content"))}
        before = messages[-1] if messages else {"role": ""}
        if message["role"] == "system" and all(other["role"] == "system" for other in messages) and messages:
            messages[-1] = {**before, "content": f"{before['content']}\n\n{message['content']}"}
        elif before["role"] == "assistant" and not before.get("tool_calls") and _only_calls(message):
            messages[-1] = {**before, "tool_calls": message["tool_calls"]}
        else:
            messages.append(message)
    return {**body, "messages": messages}


def _joined(content: Any) -> Any:
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content


def _only_calls(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant" and {name for name, value in message.items() if value} == {
        "role",
        "tool_calls",
    }


def _reasoning_first(marks: list[str], messages: list[dict[str, Any]]) -> list[str]:
    """A client may put the reasoning anywhere in a message; in the hub it is an item before the text."""
    ordered: list[str] = []
    for message in messages:
        first = {"reasoning_content": message.get("reasoning_content", "")}
        ordered += [
            mark for _, text in _strings([first, {**message, **{"reasoning_content": ""}}]) for mark in marks_of(text)
        ]
    assert sorted(ordered) == sorted(marks)
    return ordered


OUTPUTS = (FunctionCallOutputParam, CustomToolCallOutputParam)
PARTS_OF_ROLE = {
    "user": (InputText, InputImageParam, InputFileParam, InputAudio),
    "system": (InputText,),
    "developer": (InputText,),
    "assistant": (OutputTextParam, Refusal),
}


# Settings to the server.


def sent(wire: ChatWire | None = None, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """The body without its messages, and the paths of the losses."""
    body, losses = request_from_hub(Request(**{"input": "hi", **fields}), wire or ChatWire())
    read = assert_chat_accepts(body)
    read.pop("messages")
    return read, [loss.path for loss in losses]


SETTINGS: dict[str, Any] = {
    "temperature": 0,
    "top_p": 0.5,
    "presence_penalty": 1,
    "frequency_penalty": -1,
    "metadata": {"session": "s"},
    "service_tier": "flex",
    "safety_identifier": "who",
    "prompt_cache_key": "key",
    "user": "u",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_setting_is_sent_if_supported_and_otherwise_a_loss_REQ5_REQ6(name: str) -> None:
    assert sent(ChatWire(fields=(name,)), **{name: SETTINGS[name]}) == ({name: SETTINGS[name]}, [])
    assert sent(ChatWire(fields=()), **{name: SETTINGS[name]}) == ({}, [name])
    assert sent(ChatWire(fields=()), **{name: None}) == ({}, [])


def test_effort_and_verbosity_are_renamed_for_chat_RSN4_REQ5() -> None:
    fields: dict[str, Any] = {"reasoning": ReasoningConfigParam(effort="high"), "text": TextParam(verbosity="low")}
    assert sent(RICH, **fields) == ({"reasoning_effort": "high", "verbosity": "low"}, [])
    assert sent(ChatWire(fields=()), **fields) == ({}, ["reasoning.effort", "text.verbosity"])


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_token_limit_has_the_configured_name(name: Any) -> None:
    assert sent(ChatWire(max_tokens=name), max_output_tokens=100) == ({name: 100}, [])
    assert sent(ChatWire(max_tokens=name), max_output_tokens=None) == ({}, [])


def test_log_probabilities_are_requested_by_include_or_top_logprobs_STR12() -> None:
    asked = ["message.output_text.logprobs"]
    assert sent(include=asked) == ({"logprobs": True}, [])
    assert sent(include=asked, top_logprobs=0) == ({"logprobs": True}, [])
    assert sent(top_logprobs=3) == ({"logprobs": True, "top_logprobs": 3}, [])
    assert sent(top_logprobs=0) == ({}, [])
    assert sent(ChatWire(fields=("logprobs",)), top_logprobs=3) == ({"logprobs": True}, ["top_logprobs"])
    assert sent(ChatWire(fields=()), top_logprobs=3, include=asked) == ({}, ["top_logprobs"])
    assert sent(ChatWire(fields=()), include=asked) == ({}, ["include"])


def test_stream_requests_usage_if_supported_REQ4() -> None:
    assert sent(stream=True) == ({"stream": True, "stream_options": {"include_usage": True}}, [])
    assert sent(ChatWire(stream_usage=False), stream=True) == ({"stream": True}, [])
    assert sent(stream=False) == ({"stream": False}, [])
    assert sent(stream=None) == ({}, [])


def test_stream_options_of_a_chat_client_are_merged_with_ours() -> None:
    extra = {"chat:stream_options": Raw(b'{"include_usage":false,"chunk_size":1}')}
    assert sent(stream=True, extra=extra)[0]["stream_options"] == {"chunk_size": 1, "include_usage": True}
    assert sent(ChatWire(stream_usage=False), stream=True, extra=extra) == (
        {"stream": True},
        ["stream_options.chunk_size"],
    )
    assert sent(extra=extra) == ({}, [])
    odd = {"chat:stream_options": Raw(b"1")}
    assert sent(stream=True, extra=odd)[0]["stream_options"] == {"include_usage": True}


def test_fields_served_by_the_gateway_are_neither_sent_nor_lost() -> None:
    own: dict[str, Any] = {
        "store": True,
        "background": False,
        "truncation": "auto",
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
        "include": ["reasoning.encrypted_content", ENCRYPTED_IF_ANY],
        "stream_options": StreamOptions(include_obfuscation=True),
        "max_tool_calls": 3,
        "generate": True,
        "context_management": [{"type": "compaction"}],
    }
    assert sent(**own) == ({}, [])


def test_fields_that_chat_does_not_have_are_losses_REQ6() -> None:
    fields: dict[str, Any] = {
        "client_metadata": {"x": "y"},
        "prompt_cache_retention": "24h",
        "reasoning": ReasoningConfigParam(summary="auto", extra={"x": Raw(b"1")}),
        "text": TextParam(extra={"x": Raw(b"1")}),
    }
    assert sent(**fields) == (
        {},
        ["reasoning.x", "reasoning.summary", "text.x", "client_metadata", "prompt_cache_retention"],
    )


# The form of the output.


def test_text_formats_are_nested_for_chat_REQ1() -> None:
    schema = JsonSchemaFormatParam(name="answer", description="d", schema={"type": "object"}, strict=True)
    expected = {"name": "answer", "description": "d", "schema": {"type": "object"}, "strict": True}
    assert sent(text=TextParam(format=schema)) == (
        {"response_format": {"type": "json_schema", "json_schema": expected}},
        [],
    )
    bare = {"type": "json_schema", "json_schema": {"name": "response"}}
    assert sent(text=TextParam(format=JsonSchemaFormatParam(strict=None))) == ({"response_format": bare}, [])
    assert sent(text=TextParam(format=JsonObjectFormat())) == ({"response_format": {"type": "json_object"}}, [])
    assert sent(text=TextParam(format=TextFormat(extra={"x": Raw(b"1")}))) == ({}, ["text.format.x"])
    assert sent(text=TextParam(format=None)) == ({}, [])


def test_schema_is_sent_in_the_system_text_to_json_object_servers_REQ1() -> None:
    schema = JsonSchemaFormatParam(description="an answer", schema={"type": "object"})
    request = Request(input="hi", instructions="be brief", text=TextParam(format=schema))
    body, losses = request_from_hub(request, ChatWire(json_output="json_object"))
    read = assert_chat_accepts(body)
    assert read["response_format"] == {"type": "json_object"}
    [system, _] = read["messages"]
    assert system["content"].startswith("be brief\n\nAnswer with one JSON object")
    assert system["content"].endswith('{"type":"object"}\nan answer')
    assert [loss.path for loss in losses] == ["text.format"]


@pytest.mark.parametrize("format", [JsonObjectFormat(), JsonSchemaFormatParam(schema={})])
def test_json_output_is_refused_for_servers_without_json_REQ1(format: Any) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        sent(ChatWire(json_output="none"), text=TextParam(format=format))
    assert (caught.value.param, caught.value.code) == ("text.format", "unsupported_parameter")
    assert sent(ChatWire(json_output="none"), text=TextParam(format=TextFormat())) == ({}, [])


def test_schemas_of_the_deepest_allowed_nesting_are_sent() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_NESTING):
        deep = {"type": "object", "properties": deep}
    body, _ = sent(tools=[FunctionToolParam(name="f", parameters=deep)])
    assert json.dumps(body["tools"]).count("properties") == MAX_NESTING
    asked = Request(input="hi", text=TextParam(format=JsonSchemaFormatParam(schema=deep)))
    written, _ = request_from_hub(asked, ChatWire(json_output="json_object"))
    assert written.count(b"properties") == MAX_NESTING


# Unknown fields.


def test_fields_of_a_chat_client_reach_a_chat_server_REQ7() -> None:
    assert sent(extra={"chat:stop": Raw(b'["x"]'), "chat:top_k": Raw(b"5")}) == ({"stop": ["x"], "top_k": 5}, [])


def test_other_unknown_fields_are_sent_if_the_profile_allows_REQ6() -> None:
    assert sent(ChatWire(pass_fields=("top_k",)), extra={"top_k": Raw(b"5")}) == ({"top_k": 5}, [])
    assert sent(extra={"top_k": Raw(b"5")}) == ({}, ["top_k"])


@pytest.mark.parametrize("name", ["chat:model", "chat:messages", "chat:stream", "chat:n", "chat:temperature", "n"])
def test_unknown_field_never_overrides_a_known_one(name: str) -> None:
    body, losses = sent(ChatWire(pass_fields=("n",)), temperature=0.5, extra={name: Raw(b"2")})
    assert body == {"temperature": 0.5}
    assert losses == [name]


def test_server_specific_value_is_sent_if_the_hub_field_is_unset() -> None:
    assert sent(extra={"chat:service_tier": Raw(b'"on_demand"')}) == ({"service_tier": "on_demand"}, [])


@pytest.mark.parametrize("name", ["messages:stop_sequences", "gemini:stopSequences"])
def test_stop_sequences_of_other_clients_become_stop_REQ5(name: str) -> None:
    assert sent(extra={name: Raw(b'["END"]')}) == ({"stop": ["END"]}, [])
    assert sent(ChatWire(fields=()), extra={name: Raw(b'["END"]')}) == ({}, [name])


def test_seed_and_top_k_of_other_clients_are_sent_if_supported_REQ5() -> None:
    extra = {"gemini:seed": Raw(b"7"), "gemini:topK": Raw(b"5")}
    assert sent(ChatWire(pass_fields=("top_k",)), extra=extra) == ({"seed": 7, "top_k": 5}, [])
    assert sent(extra={"messages:top_k": Raw(b"5")}) == ({}, ["messages:top_k"])


# Settings from the client.


def taken(**fields: Any) -> tuple[Request, list[str]]:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    request, losses = request_to_hub(json.dumps(body).encode())
    return request, [loss.path for loss in losses]


@pytest.mark.parametrize("name", [*SETTINGS, "model", "parallel_tool_calls", "store", "stream", "top_logprobs"])
def test_settings_of_the_same_name_are_decoded_REQ5(name: str) -> None:
    value = SETTINGS.get(name, {"model": "m", "top_logprobs": 2}.get(name, True))
    request, losses = taken(**{name: value})
    assert getattr(request, name) == value
    assert not losses
    assert getattr(taken(**{name: None})[0], name) in (None, UNSET)


def test_settings_of_another_name_are_decoded_REQ5() -> None:
    request, losses = taken(reasoning_effort="low", verbosity="high", logprobs=True, max_completion_tokens=5)
    assert request.reasoning == ReasoningConfigParam(effort="low")
    assert request.text == TextParam(verbosity="high", format=UNSET)
    assert request.include == ["message.output_text.logprobs", ENCRYPTED_IF_ANY]
    assert taken()[0].include == [ENCRYPTED_IF_ANY]  # RSN-2: chat clients have a field for it, and no way to request it
    assert request.max_output_tokens == 5  # allowed in chat
    assert not losses


def test_token_limit_is_read_under_both_names() -> None:
    assert taken(max_tokens=5)[0].max_output_tokens == 5
    assert taken(max_tokens=5, max_completion_tokens=5)[1] == []
    request, losses = taken(max_tokens=5, max_completion_tokens=6)
    assert request.max_output_tokens == 6
    assert losses == ["max_tokens"]


def test_server_specific_values_are_passed_through() -> None:
    request, losses = taken(reasoning_effort="default", verbosity="chatty", service_tier="on_demand")
    assert request.reasoning is request.text is request.service_tier is UNSET
    assert _extra(request) == {
        "chat:reasoning_effort": "default",
        "chat:verbosity": "chatty",
        "chat:service_tier": "on_demand",
    }
    assert not losses


def test_response_formats_are_flat_in_the_hub_REQ1() -> None:
    schema = {"name": "answer", "description": "d", "schema": {"type": "object"}, "strict": True}
    request, losses = taken(response_format={"type": "json_schema", "json_schema": schema})
    assert request.text == TextParam(
        format=JsonSchemaFormatParam(name="answer", description="d", schema={"type": "object"}, strict=True),
        verbosity=UNSET,
    )
    assert taken(response_format={"type": "json_object"})[0].text == TextParam(
        format=JsonObjectFormat(), verbosity=UNSET
    )
    assert taken(response_format={"type": "text"})[0].text == TextParam(format=TextFormat(), verbosity=UNSET)
    assert taken(response_format=None)[0].text is UNSET
    assert not losses
    grammar = {"type": "grammar", "grammar": "x"}
    request, losses = taken(response_format=grammar)
    assert request.text is UNSET
    assert _extra(request) == {"chat:response_format": grammar}
    assert not losses
    x = {"x": 1}
    odd = {"type": "json_schema", "json_schema": {**schema, **x}, **x}
    assert taken(response_format=odd)[1] == ["response_format.x", "response_format.json_schema.x"]


def test_stream_options_are_kept_for_the_stream_writer() -> None:
    request, losses = taken(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert request.stream_options == StreamOptions(include_obfuscation=False)
    assert _extra(request) == {"chat:stream_options": {"include_usage": True}}
    assert not losses
    assert taken(stream=True, stream_options={"include_obfuscation": None})[0].extra is UNSET
    assert taken(stream_options=None)[0].stream_options is UNSET


def test_other_fields_are_passed_through_REQ7() -> None:
    others = {"stop": ["x"], "seed": 1, "logit_bias": {"5": 1}, "modalities": ["text"], "top_k": 3, "prediction": None}
    request, losses = taken(**others)
    assert _extra(request) == {f"chat:{name}": value for name, value in others.items()}
    assert not losses


def test_more_than_one_choice_is_refused() -> None:
    assert taken(n=1)[0].extra is UNSET
    with pytest.raises(UnsupportedParameter) as caught:
        taken(n=2)
    assert caught.value.param == "n"


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (b"", InvalidJson, None),
        (b"[]", InvalidJson, None),
        (b"{}", MissingField, "messages"),
        (b'{"messages":[]}', InvalidValue, "messages"),
        (b'{"messages":"hi"}', InvalidValue, "messages"),
        (b'{"messages":[{"role":"user","content":"hi"}],"temperature":"hot"}', InvalidValue, "temperature"),
        (b'{"messages":[{"role":"user","content":"hi"}],"n":0}', InvalidValue, "n"),
        (
            b'{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema"}}',
            MissingField,
            "response_format.json_schema",
        ),
    ],
)
def test_invalid_bodies_are_refused_with_their_path_ERR3(body: bytes, kind: Any, param: str | None) -> None:
    with pytest.raises(kind) as caught:
        request_to_hub(body)
    assert caught.value.param == param
    assert caught.value.status == 400


def _extra(request: Request) -> dict[str, Any]:
    return {name: json.loads(bytes(raw)) for name, raw in (request.extra or {}).items()}


def test_unsupported_includes_are_losses() -> None:
    """REQ-6, F-4."""
    assert sent(include=["file_search_call.results"]) == ({}, ["include[0]"])


def test_unknown_field_after_stream_options_is_sent() -> None:
    extra = {"chat:stream_options": Raw(b'{"include_usage":true}'), "chat:logit_bias": Raw(b'{"5":1}')}
    body, losses = request_from_hub(Request(model="m", input="hi", extra=extra), ChatWire())
    assert json.loads(body)["logit_bias"] == {"5": 1}
    assert list(losses) == []
