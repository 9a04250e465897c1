"""Lines of agents as typed events: known ones typed, unknown ones kept, anything else none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.dialects.common.thread_events import (
    AgentMessageItem,
    AgentUsage,
    CommandExecutionItem,
    ItemCompleted,
    McpToolCallItem,
    OtherEvent,
    OtherItem,
    ThreadEvent,
    ThreadStarted,
    TurnCompleted,
    TurnFailed,
    decode_thread_event,
    item_kind,
    item_members,
)


def read(event: Any) -> ThreadEvent | None:
    return decode_thread_event(msgspec.json.encode(event))


def test_an_event_is_read_also_out_of_its_envelope() -> None:
    """B-5: one agent writes events as they are, another can name the version of their schema around them."""
    started = ThreadStarted(thread_id="t1")
    assert read({"type": "thread.started", "thread_id": "t1"}) == started
    assert read({"schema_version": "0.8.0", "event": {"type": "thread.started", "thread_id": "t1"}}) == started


def test_usage_is_read_and_counters_of_other_names_are_passed_over() -> None:
    usage = {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2, "cache_creation_tokens": 1}
    assert read({"type": "turn.completed", "usage": usage}) == TurnCompleted(
        usage=AgentUsage(input_tokens=9, cached_input_tokens=4, output_tokens=2)
    )


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"message": "no"}, "no"),
        ({"error": {"message": "no"}}, "no"),
        ({}, "the turn of the agent failed without a reason"),
    ],
)
def test_why_a_turn_failed_is_read_in_either_place(told: dict[str, Any], why: str) -> None:
    event = read({"type": "turn.failed", **told})
    assert isinstance(event, TurnFailed)
    assert event.why == why


def test_fields_that_nobody_knows_stay_with_their_item() -> None:
    event = read(
        {"type": "item.completed", "item": {"id": "i", "type": "command_execution", "command": "ls", "cwd": "/w"}}
    )
    assert isinstance(event, ItemCompleted)
    assert isinstance(event.item, CommandExecutionItem)
    assert item_members(event.item) == {
        "command": "ls", "aggregated_output": "", "exit_code": None, "status": "completed", "cwd": "/w",
    }  # fmt: skip


@pytest.mark.parametrize("item", [{"type": "todo_list", "items": []}, {"type": "command_execution", "command": 7}])
def test_an_item_of_a_kind_or_a_shape_that_nobody_knows_is_kept_whole(item: dict[str, Any]) -> None:
    event = read({"type": "item.completed", "item": {"id": "i", **item}})
    assert isinstance(event, ItemCompleted)
    assert isinstance(event.item, OtherItem)
    assert item_kind(event.item) == item["type"]
    assert item_members(event.item) == {name: value for name, value in item.items() if name != "type"}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "plan.delta", "delta": "x"},
        {"type": "item.started"},
        {"type": "item.started", "item": {"type": "reasoning"}},
        {"type": "turn.completed", "usage": "much"},
    ],
)
def test_an_event_of_a_kind_or_a_shape_that_nobody_knows_is_kept(event: dict[str, Any]) -> None:
    assert read(event) == OtherEvent(kind=event["type"], members=event)


@pytest.mark.parametrize(
    "line", [b"Warning: hot", b'"text"', b"[]", b"{}", b'{"type":1}', b'{"type":"a', b'"\xff"', b"[" * 5000]
)
def test_what_is_no_event_is_none(line: bytes) -> None:
    assert decode_thread_event(line) is None


def test_a_tool_of_a_server_is_named_with_it() -> None:
    assert McpToolCallItem(id="i", server="lab", tool="weather").name == "lab__weather"
    assert McpToolCallItem(id="i", tool_name="weather").name == "weather"
    assert AgentMessageItem(id="i").text == ""
