"""`dialects/chat/history_out`: the fast path gives the same result as the full path, or none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generate.chat_bodies import wires
from tests.generate.conversations import requests

from antiphon.dialects.chat.history_out import general_history_from_hub, plain_messages
from antiphon.dialects.chat.wire import ChatWire, MessageOut
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames
from antiphon.errors import ApiError
from antiphon.protocol.codec import decode_request
from antiphon.protocol.items import ItemParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


def long_way(items: list[ItemParam], names: ToolNames, wire: ChatWire) -> tuple[list[MessageOut], list[Any]]:
    losses = Losses()
    try:
        messages = general_history_from_hub(items, names, wire, losses, [])
    except ApiError as error:
        return [], [error]
    return messages, list(losses)


def assert_both_ways_agree(items: list[ItemParam], wire: ChatWire) -> bool:
    names = ToolNames.for_request(Request(input=items), PLAIN_NAMES)
    short = plain_messages(items, names, wire)
    if short is not None:
        messages, losses = long_way(items, names, wire)
        assert msgspec.json.encode(short) == msgspec.json.encode(messages)
        assert losses == []
    return short is not None


@settings(max_examples=40)
@given(request=requests(), wire=st.one_of(st.just(ChatWire()), wires()))
def test_plain_history_agrees_for_any_conversation(request: Request, wire: ChatWire) -> None:
    assert_both_ways_agree(input_items(request), wire)


def user(text: str = "Hi") -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def message(text: str = "Yes.", role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def call(id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "", **more}


def output(id: str = "c", value: Any = "42", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": value, **more}


WANTS_REASONING = ChatWire(reasoning_field="reasoning_content", reasoning_history="all", missing_reasoning="blank")
# Small conversations of these, in any order, exercise every rule.
PIECES = [
    user(),
    user(""),
    message(),
    message(""),
    message("Be brief.", "system"),
    message("Be kind.", "developer"),
    {**message(), "phase": "commentary"},
    {**user(), "mood": "good"},
    call(),
    call("d"),
    call("d", namespace="n"),
    call("e", mood="good"),
    output(),
    output("d"),
    output("d", [{"type": "input_text", "text": "x"}]),
    output("d", mood="good"),
    {"type": "reasoning", "summary": []},
]


@settings(max_examples=40)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=7), wire=st.sampled_from([ChatWire(), WANTS_REASONING]))
def test_plain_history_agrees_for_any_order_of_items(pieces: list[dict[str, Any]], wire: ChatWire) -> None:
    assert_both_ways_agree(read(pieces), wire)


def test_plain_history_declines_calls_if_reasoning_is_required() -> None:
    """The fast path would omit it, and the server would refuse the request."""
    assert not assert_both_ways_agree(read([user(), call(), output()]), WANTS_REASONING)
    assert assert_both_ways_agree(read([user(), message(), user()]), WANTS_REASONING)


@pytest.mark.parametrize(
    "pieces",
    [
        [user()],
        [user(), message(), user()],
        [user(), call(), output()],
        [user(), message(), call(), call("d"), output(), output("d"), message(), user()],
        [user(), call(), output(), call("d"), output("d"), call("e"), output("e")],
    ],
)
def test_plain_history_accepts_agent_conversations(pieces: list[dict[str, Any]]) -> None:
    assert assert_both_ways_agree(read(pieces), ChatWire())


@pytest.mark.parametrize(
    "pieces",
    [
        [call()],
        [call(), user(), output()],
        [call(), call("d"), output(), call("e")],
        [call(), call("d"), output("d"), output()],
        [call(), call(), output(), output()],
        [output()],
        [call(), output(), output()],
    ],
)
def test_plain_history_declines_calls_answered_out_of_order(pieces: list[dict[str, Any]]) -> None:
    assert not assert_both_ways_agree(read(pieces), ChatWire())


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [user(), message()],
        [user(), message(), message(), user()],
        [message("Be brief.", "system"), user()],
        [user(""), message(), user()],
    ],
)
def test_plain_history_declines_complex_conversations(pieces: list[dict[str, Any]]) -> None:
    assert not assert_both_ways_agree(read(pieces), ChatWire())


@pytest.mark.parametrize("wire", [ChatWire(text_content="parts"), ChatWire(empty_content="absent")])
def test_plain_history_declines_servers_with_special_options(wire: ChatWire) -> None:
    assert not assert_both_ways_agree(read([user()]), wire)


def read(pieces: list[dict[str, Any]]) -> list[ItemParam]:
    return input_items(decode_request(msgspec.json.encode({"model": "m", "input": pieces})))
