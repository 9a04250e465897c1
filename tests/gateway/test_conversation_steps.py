"""`gateway/conversation_steps`: which items of a conversation belong together."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.gateway.conversation_steps import (
    is_permanent,
    is_summary,
    is_user_message,
    last_user_index,
    split_steps,
    summary_message,
)
from antiphon.protocol import codec
from antiphon.protocol.items import ItemParam


def items(*given: dict[str, Any]) -> list[ItemParam]:
    read: list[ItemParam] = codec.decode_as(msgspec.json.encode(given), list[ItemParam])
    return read


def says(role: str, text: str = "words") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def call(id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def custom(id: str) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": id, "name": "f", "input": "x"}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "42"}


THINKS: dict[str, Any] = {"type": "reasoning", "summary": []}
TOOLS: dict[str, Any] = {"type": "additional_tools", "tools": []}


def steps(*given: dict[str, Any]) -> list[list[int]]:
    return [step.indexes for step in split_steps(items(*given))]


def test_message_is_a_separate_step() -> None:
    assert steps(says("user"), says("assistant"), says("assistant"), says("user"), says("system")) == [
        [0],
        [1],
        [2],
        [3],
        [4],
    ]


def test_call_and_output_are_one_step_at_any_distance() -> None:
    assert steps(says("user"), call("a"), says("user"), output("a"), says("user")) == [[0], [1, 3], [2], [4]]


def test_parallel_calls_with_text_and_reasoning_are_one_step() -> None:
    given = [THINKS, says("assistant"), call("a"), custom("b"), output("a"), output("b"), call("c"), output("c")]
    assert steps(*given) == [[0, 1, 2, 3, 4, 5], [6, 7]]


def test_reasoning_belongs_to_the_following_item() -> None:
    assert steps(THINKS, THINKS, says("assistant"), THINKS, call("a")) == [[0, 1, 2], [3, 4]]


def test_repeated_call_id_starts_another_step() -> None:
    assert steps(call("a"), call("a"), output("a")) == [[0], [1, 2]]


def test_orphan_outputs_and_unknown_items_are_separate_steps() -> None:
    assert steps(output("a"), {"type": "acme:thing"}, TOOLS, says("assistant")) == [[0], [1], [2], [3]]


def test_step_lists_its_open_calls() -> None:
    (step,) = split_steps(items(call("a"), custom("b"), output("a")))
    assert step.open_calls == {"b"}


def test_system_text_and_tools_are_permanent() -> None:
    given = items(says("system"), says("developer"), TOOLS, says("user"), says("assistant"), call("a"))
    assert list(map(is_permanent, given)) == [True, True, True, False, False, False]


def test_summary_is_not_a_user_message() -> None:
    summary = summary_message("all of it")
    user, parts = items(says("user"), {**says("user"), "content": []})
    assert [is_summary(item) for item in (summary, user, parts)] == [True, False, False]
    assert [is_user_message(item) for item in (summary, user, parts)] == [False, True, True]
    assert last_user_index([user, summary]) == 0
    assert last_user_index([summary]) is None
