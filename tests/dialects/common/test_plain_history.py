"""`dialects/common/plain_history` in two dialects: the fast path gives the same result as the full path, or none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from tests.generate.conversations import requests

from antiphon.dialects.common.history import NO_RESULT
from antiphon.dialects.common.plain_history import plain_text
from antiphon.dialects.common.tool_names import GEMINI_NAMES, MESSAGES_NAMES, ToolNames
from antiphon.dialects.gemini.history_out import general_history_from_hub as general_gemini_history
from antiphon.dialects.gemini.history_out import plain_contents
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.dialects.messages.history_out import general_history_from_hub as general_messages_history
from antiphon.dialects.messages.history_out import plain_messages
from antiphon.dialects.messages.wire import MessagesWire
from antiphon.protocol.codec import decode_request
from antiphon.protocol.content import InputText, OutputTextParam, Refusal
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items

Json = dict[str, Any]


def goes_the_short_way(request: Request) -> bool:
    """Whether it is used for servers of messages and gemini; both results must equal those of the full path, without a
    loss."""
    items, losses = input_items(request), Losses()
    names = ToolNames.for_request(request, MESSAGES_NAMES)
    messages = plain_messages(items, names)
    if messages is not None:
        long = general_messages_history(items, names, MessagesWire(), losses, [])
        assert msgspec.json.encode(messages) == msgspec.json.encode(long.messages)
        assert long.system == []
    for wire in (GeminiWire(), GeminiWire(call_ids=True)):
        contents = plain_contents(items, ToolNames.for_request(request, GEMINI_NAMES), wire)
        if contents is not None:
            wanted = general_gemini_history(request, ToolNames.for_request(request, GEMINI_NAMES), wire, losses)
            assert msgspec.json.encode(contents) == msgspec.json.encode(wanted.contents)
            assert wanted.system == []
    assert list(losses) == []
    return messages is not None and contents is not None


@settings(max_examples=30)
@given(request=requests())
def test_plain_history_agrees_for_any_conversation(request: Request) -> None:
    goes_the_short_way(request)


def user(text: Any = "Hi") -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def text_message(text: str = "Yes.", role: str = "assistant") -> Json:
    return {"type": "message", "role": role, "content": text}


def call(id: str = "c", arguments: str = '{"a": 1}', **more: Any) -> Json:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": arguments, **more}


def output(id: str = "c", value: Any = "42", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": value, **more}


# Small conversations of these, in any order, exercise every rule.
PIECES = [
    user(),
    user(" "),
    text_message(),
    text_message("\n"),
    text_message("Be brief.", "system"),
    {**text_message(), "phase": "commentary"},
    {**user(), "mood": "good"},
    call(),
    call("d", ""),
    call("e", "no object"),
    call("d", namespace="n"),
    call("d", mood="good"),
    output(),
    output("d", ""),
    output("e"),
    output("d", [{"type": "input_text", "text": "x"}]),
    output("d", mood="good"),
    {"type": "reasoning", "summary": []},
]


@settings(max_examples=30)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=7))
def test_plain_history_agrees_for_any_order_of_items(pieces: list[Json]) -> None:
    goes_the_short_way(read([user("First"), *pieces]))


@pytest.mark.parametrize(
    "pieces",
    [
        [user()],
        [user(), text_message(), user()],
        [user(), call(), output()],
        [user(), call(arguments=""), output(value=""), user()],
        [user(), text_message(), call(), call("d", " {} "), output(), output("d", NO_RESULT), text_message(), user()],
        [user(), call(), output(), call("d"), output("d"), text_message(), call("e"), output("e")],
    ],
)
def test_plain_history_accepts_agent_conversations(pieces: list[Json]) -> None:
    assert goes_the_short_way(read(pieces))


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [text_message(), user()],
        [user(), user()],
        [user(), text_message(), text_message(), user()],
        [user(), text_message()],
        [call(), output()],
        [user(), call()],
        [user(), call(), text_message(), output()],
        [user(), call(), call("d"), output(), user()],
        [user(), call(), call("d"), output("d"), output()],
        [user(), call(), output(), call(), output()],
        [user(), output()],
        [user(), call(), output(), output()],
        [user(), call(arguments="[]"), output()],
        [user(), call(arguments="{"), output()],
        [user(), call("ä"), output("ä"), {"type": "reasoning", "summary": []}],
        [user(), text_message("Be brief.", "system"), user()],
        [user(), {**text_message(), "phase": "commentary"}, user()],
        [user(" ")],
    ],
)
def test_plain_history_declines_other_conversations(pieces: list[Json]) -> None:
    assert not goes_the_short_way(read(pieces))


def test_plain_history_declines_ids_that_messages_servers_refuse() -> None:
    request = read([user(), call("ä"), output("ä")])
    assert plain_messages(input_items(request), ToolNames.for_request(request, MESSAGES_NAMES)) is None
    assert plain_contents(input_items(request), ToolNames.for_request(request, GEMINI_NAMES), GeminiWire()) is not None


def test_plain_text_accepts_only_single_plain_texts() -> None:
    extra = {"x": Raw(b"1")}
    assert plain_text("a") == "a"
    assert plain_text([InputText(text="a")]) == "a"
    assert plain_text([OutputTextParam(text="a", annotations=[])]) == "a"
    for part in (InputText(text="a", extra=extra), OutputTextParam(text="a", extra=extra), Refusal(refusal="a")):
        assert plain_text([part]) is None
    assert plain_text([]) is None
    assert plain_text([InputText(text="a"), InputText(text="b")]) is None


def read(pieces: list[Json]) -> Request:
    return decode_request(msgspec.json.encode({"model": "m", "input": pieces}))
