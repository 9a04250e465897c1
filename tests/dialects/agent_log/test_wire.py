"""Lines of agents as typed events: known ones typed, unknown ones kept, other lines ignored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.dialects.agent_log.wire import (
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


def test_thread_event_is_decoded_with_and_without_envelope() -> None:
    """B-5: one agent writes bare events, another may wrap them with the version of their schema."""
    started = ThreadStarted(thread_id="t1")
    assert read({"type": "thread.started", "thread_id": "t1"}) == started
    assert read({"schema_version": "0.8.0", "event": {"type": "thread.started", "thread_id": "t1"}}) == started


def test_usage_is_decoded_and_unknown_counters_ignored() -> None:
    usage = {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2, "cache_creation_tokens": 1}
    assert read({"type": "turn.completed", "usage": usage}) == TurnCompleted(
        usage=AgentUsage(input_tokens=9, cached_input_tokens=4, output_tokens=2)
    )


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"message": "no"}, "no"),
        ({"error": {"message": "no"}}, "no"),
        ({}, "the turn of the agent failed without a reason"),
    ],
)
def test_failure_reason_is_read_in_either_place(members: dict[str, Any], why: str) -> None:
    event = read({"type": "turn.failed", **members})
    assert isinstance(event, TurnFailed)
    assert event.why == why


def test_unknown_fields_stay_with_their_item() -> None:
    event = read(
        {"type": "item.completed", "item": {"id": "i", "type": "command_execution", "command": "ls", "cwd": "/w"}}
    )
    assert isinstance(event, ItemCompleted)
    assert isinstance(event.item, CommandExecutionItem)
    assert item_members(event.item) == {
        "command": "ls", "aggregated_output": "", "exit_code": None, "status": "completed", "cwd": "/w",
    }  # fmt: skip


@pytest.mark.parametrize("item", [{"type": "todo_list", "items": []}, {"type": "command_execution", "command": 7}])
def test_item_of_unknown_kind_or_shape_is_kept_whole(item: dict[str, Any]) -> None:
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
def test_event_of_unknown_kind_or_shape_is_kept(event: dict[str, Any]) -> None:
    assert read(event) == OtherEvent(kind=event["type"], members=event)


@pytest.mark.parametrize(
    "line", [b"Warning: hot", b'"text"', b"[]", b"{}", b'{"type":1}', b'{"type":"a', b'"\xff"', b"[" * 5000]
)
def test_line_that_is_no_event_gives_none(line: bytes) -> None:
    assert decode_thread_event(line) is None


def test_mcp_tool_name_includes_its_server() -> None:
    assert McpToolCallItem(id="i", server="lab", tool="weather").name == "lab__weather"
    assert McpToolCallItem(id="i", tool_name="weather").name == "weather"
    assert AgentMessageItem(id="i").text == ""
