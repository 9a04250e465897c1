"""Repeated tools are decoded, named, translated and encoded once, with the same results as without sharing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from msgspec import UNSET
from msgspec.structs import replace
from tests.generate.chat_bodies import wires
from tests.generate.conversations import requests

from antiphon.dialects import chat, responses
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames, tools_of_request
from antiphon.errors import ApiError
from antiphon.protocol import codec
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.tools import FunctionToolParam, ToolList


def apart(request: Request) -> Request:
    """The same request with tools that are not shared."""
    return replace(request, tools=list(request.tools)) if request.tools else request


def chat_body(request: Request, wire: ChatWire) -> object:
    try:
        body, losses = chat.request_from_hub(request, wire)
        return body, list(losses)
    except ApiError as error:
        return error.code, error.message, error.param


@given(requests(), wires())
def test_shared_tools_are_translated_like_others(request: Request, wire: ChatWire) -> None:
    read = codec.decode_request(codec.encode(apart(request)))
    for _ in range(2):  # the second pass uses the cached results of the first
        for other in (ChatWire(), wire, replace(wire)):
            assert chat_body(read, other) == chat_body(apart(read), other)
        assert responses.request_from_hub(read)[0] == responses.request_from_hub(apart(read))[0]
        shared, plain = (make_initial_response(each, id="resp_1", created_at=1) for each in (read, apart(read)))
        assert shared == plain
        assert codec.encode(shared) == codec.encode(plain)
        names, fresh = ToolNames.for_request(read, PLAIN_NAMES), ToolNames.for_request(apart(read), PLAIN_NAMES)
        assert (names._wire_names, names._key_of_name) == (fresh._wire_names, fresh._key_of_name)


@given(requests())
def test_repeated_body_is_decoded_the_same(request: Request) -> None:
    body = codec.encode(apart(request))
    first, second = codec.decode_request(body), codec.decode_request(body)
    assert first == second
    assert codec.encode(second) == codec.encode(first)
    assert tools_of_request(first) == tools_of_request(second)


TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


def test_equal_tools_are_decoded_once() -> None:
    one, other = (codec.decode_request(msgspec.json.encode({"model": model, "tools": [TOOL]})) for model in "ab")
    assert isinstance(one.tools, ToolList)
    assert one.tools is other.tools
    assert (
        make_initial_response(one, id="a", created_at=1).tools
        is make_initial_response(other, id="b", created_at=2).tools
    )


def test_tools_over_the_cache_limit_are_decoded() -> None:
    long = [{**TOOL, "description": "x" * codec.MAX_CACHED_TOOL_BYTES}]
    one, other = (codec.decode_request(msgspec.json.encode({"tools": long})) for _ in range(2))
    assert one == other
    assert one.tools is not other.tools


@pytest.mark.parametrize(("raw_tools", "read"), [(b"null", None), (b"[]", [])])
def test_empty_and_null_tools_are_decoded(raw_tools: bytes, read: object) -> None:
    assert codec.decode_request(b'{"tools":' + raw_tools + b"}").tools == read
    assert codec.decode_request(b"{}").tools is UNSET


def test_additional_tools_are_sent_beside_the_shared_ones() -> None:
    extra = {"type": "additional_tools", "tools": [{**TOOL, "name": "more"}]}
    hello = {"type": "message", "role": "user", "content": "hello"}
    body = msgspec.json.encode({"input": [hello, extra], "tools": [TOOL]})
    read = codec.decode_request(body)
    assert [tool.name for tool in tools_of_request(read) if isinstance(tool, FunctionToolParam)] == ["look", "more"]
    assert ToolNames.for_request(read, PLAIN_NAMES).original_tool("more").name == "more"
    sent = msgspec.json.decode(chat.request_from_hub(read)[0])
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["look", "more"]


def test_invalid_tool_is_refused_with_its_path_every_time() -> None:
    body = msgspec.json.encode({"tools": [TOOL, {**TOOL, "name": ""}]})
    for _ in range(2):
        with pytest.raises(ApiError, match="name") as refused:
            codec.decode_request(body)
        assert refused.value.param == "tools[1].name"
