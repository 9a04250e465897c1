"""Requests: absent is not null, limits are those of the schema (REQ-8), and a string input is one message (ITEM-8)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from antiphon.errors import ClientFault
from antiphon.protocol.codec import decode_compact_request, decode_request, encode
from antiphon.protocol.items import MessageParam
from antiphon.protocol.request import Request, conversation_id_of, input_items


def test_absent_fields_differ_from_null() -> None:
    absent, null = decode_request(b"{}"), decode_request(b'{"temperature":null}')
    assert (absent.temperature, null.temperature) == (UNSET, None)
    assert (encode(absent), encode(null)) == (b"{}", b'{"temperature":null}')


@given(st.text(max_size=10))
def test_string_input_is_one_user_message(text: str) -> None:
    """ITEM-8."""
    assert input_items(Request(input=text)) == [MessageParam(role="user", content=text)]


@pytest.mark.parametrize("request_", [Request(), Request(input=None), Request(input=[])])
def test_missing_input_gives_no_items(request_: Request) -> None:
    assert input_items(request_) == []


def test_input_items_returns_a_list_input_unchanged() -> None:
    items = [MessageParam(role="user", content="a"), MessageParam(role="assistant", content="b")]
    assert input_items(Request(input=[*items])) == items


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"input": [{"type": "function_call", "call_id": "", "name": "f", "arguments": ""}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "", "output": ""}]}, "input[0].call_id"),
        ({"input": [{"type": "custom_tool_call", "call_id": "", "name": "f", "input": ""}]}, "input[0].call_id"),
        ({"input": [{"type": "custom_tool_call_output", "call_id": "", "output": ""}]}, "input[0].call_id"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": ""}]}]},
            "tools[0].tools[0].name",
        ),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"safety_identifier": "s" * 65}, "safety_identifier"),
        ({"prompt_cache_key": "k" * 65}, "prompt_cache_key"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}] * 129}},
            "tool_choice.tools",
        ),
        ({"input": [{"role": "user", "content": "x" * (10 * 1024 * 1024 + 1)}]}, "input[0].content"),
    ],
)
def test_limits_inside_a_request_are_reported_with_their_path(document: Any, path: str) -> None:
    """REQ-8; each limit by itself is in test_schema."""
    with pytest.raises(ClientFault) as refused:
        decode_request(json.dumps(document).encode())
    assert (refused.value.code, refused.value.param) == ("invalid_value", path)


@pytest.mark.parametrize("name", ["f" * 200, "f.g", "ns:tool", "é"])
def test_names_and_call_ids_of_clients_have_no_limits(name: str) -> None:
    """REQ-8: the limits of the schema are for what servers get."""
    call = {"type": "function_call", "call_id": name, "name": name, "arguments": ""}
    output = {"type": "function_call_output", "call_id": name, "output": ""}
    document = {"tools": [{"type": "function", "name": name}], "input": [call, output]}
    assert json.loads(encode(decode_request(json.dumps(document).encode()))) == document


def test_compact_request_requires_a_model() -> None:
    """CMP-1."""
    with pytest.raises(ClientFault) as refused:
        decode_compact_request(b'{"input":"x"}')
    assert (refused.value.code, refused.value.param) == ("missing_field", "model")


@pytest.mark.parametrize("named", ["conv_1", {"id": "conv_1"}, {"id": "conv_1", "more": 1}])
def test_conversation_is_named_by_an_id_or_an_object(named: Any) -> None:
    assert conversation_id_of(Request(conversation=named)) == "conv_1"


@pytest.mark.parametrize("named", [None, UNSET])
def test_request_without_conversation_has_no_id(named: Any) -> None:
    assert conversation_id_of(Request(conversation=named, previous_response_id="resp_1")) is None


@pytest.mark.parametrize(
    ("named", "param"), [("", "conversation"), ({}, "conversation.id"), ({"id": ""}, "conversation.id")]
)
def test_conversation_without_a_valid_id_is_refused(named: Any, param: str) -> None:
    with pytest.raises(ClientFault) as caught:
        conversation_id_of(Request(conversation=named))
    assert caught.value.param == param


def test_conversation_and_previous_response_together_are_refused() -> None:
    with pytest.raises(ClientFault) as caught:
        conversation_id_of(Request(conversation="conv_1", previous_response_id="resp_1"))
    assert (caught.value.status, caught.value.param) == (400, "conversation")
