"""`dialects/chat/request_out`: the settings of a request for a chat server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw
from tests.generate.chat_bodies import RICH
from tests.generate.chat_rules import assert_chat_accepts

from antiphon.dialects.chat import request_from_hub, request_to_hub
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import UnsupportedParameter
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
)
from antiphon.protocol.tools import FunctionToolParam


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
        ["client_metadata", "reasoning.x", "text.x", "prompt_cache_retention"],
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
    assert sent(ChatWire(extra_fields=("top_k",)), extra={"top_k": Raw(b"5")}) == ({"top_k": 5}, [])
    assert sent(extra={"top_k": Raw(b"5")}) == ({}, ["top_k"])


@pytest.mark.parametrize("name", ["chat:model", "chat:messages", "chat:stream", "chat:temperature", "n"])
def test_unknown_field_never_overrides_a_known_one(name: str) -> None:
    body, losses = sent(ChatWire(extra_fields=("n",)), temperature=0.5, extra={name: Raw(b"2")})
    assert body == {"temperature": 0.5}
    assert losses == [name.removeprefix("chat:")]


def test_server_specific_value_is_sent_if_the_hub_field_is_unset() -> None:
    assert sent(extra={"chat:service_tier": Raw(b'"on_demand"')}) == ({"service_tier": "on_demand"}, [])


@pytest.mark.parametrize("name", ["messages:stop_sequences", "gemini:stopSequences"])
def test_stop_sequences_of_other_clients_become_stop_REQ5(name: str) -> None:
    assert sent(extra={name: Raw(b'["END"]')}) == ({"stop": ["END"]}, [])
    assert sent(ChatWire(fields=()), extra={name: Raw(b'["END"]')}) == ({}, [name.partition(":")[2]])


def test_seed_and_top_k_of_other_clients_are_sent_if_supported_REQ5() -> None:
    extra = {"gemini:seed": Raw(b"7"), "gemini:topK": Raw(b"5")}
    assert sent(ChatWire(extra_fields=("top_k",)), extra=extra) == ({"seed": 7, "top_k": 5}, [])
    assert sent(extra={"messages:top_k": Raw(b"5")}) == ({}, ["top_k"])


def test_unsupported_includes_are_losses() -> None:
    """REQ-6, F-4."""
    assert sent(include=["file_search_call.results"]) == ({}, ["include[0]"])


def test_unknown_field_after_stream_options_is_sent() -> None:
    extra = {"chat:stream_options": Raw(b'{"include_usage":true}'), "chat:logit_bias": Raw(b'{"5":1}')}
    body, losses = request_from_hub(Request(model="m", input="hi", extra=extra), ChatWire())
    assert json.loads(body)["logit_bias"] == {"5": 1}
    assert list(losses) == []


def test_token_bias_of_a_profile_is_sent_unless_the_client_sets_one() -> None:
    wire = ChatWire(token_bias={"2": 3.0})
    assert sent(wire) == ({"logit_bias": {"2": 3.0}}, [])
    assert sent(wire, extra={"chat:logit_bias": Raw(b'{"5":1}')}) == ({"logit_bias": {"5": 1}}, [])


def test_json_object_with_a_schema_keeps_its_form_REQ1() -> None:
    """A chat client's own form, which some servers understand."""
    format = {"type": "json_object", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "response_format": format}
    request, _ = request_to_hub(json.dumps(body).encode())
    sent_body, losses = request_from_hub(request, ChatWire())
    assert json.loads(sent_body)["response_format"] == format
    assert [loss.path for loss in losses] == []
