"""Tool calls and results in a history: as text, and as blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from tests.profiles.quirk_runs import run_quirk
from tests.profiles.requests import requests

from antiphon.profiles.quirks import QUIRKS
from antiphon.profiles.quirks.rewriting import NoOptions
from antiphon.protocol.content import ToolResult
from antiphon.protocol.items import CustomToolCallOutputParam, FunctionCallOutputParam, ItemParam, MessageParam
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items

CALL = {"type": "function_call", "call_id": "call_123", "name": "get_time", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_123", "output": "The current time is 3:00 PM"}


def test_tool_history_as_text_has_the_documented_wording() -> None:
    """D-2."""
    sent, losses = run_quirk(
        "tool_history_as_text", input=[{"role": "assistant", "content": "Let me check the time."}, CALL, OUTPUT]
    )
    assert sent["input"] == [
        {
            "type": "message",
            "role": "assistant",
            "content": "Let me check the time.\n\n[Tool Call: get_time({}) -> call_id: call_123]",
        },
        {"type": "message", "role": "user", "content": "[Tool Result for call_123]: The current time is 3:00 PM"},
    ]
    assert losses == {}


def test_tool_history_as_text_adds_a_message_for_a_call_without_text() -> None:
    """D-2: and a second one is added below it."""
    second = {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": '{"arg": "value"}'}
    sent, _ = run_quirk("tool_history_as_text", input=[{"role": "user", "content": "hi"}, CALL, second])
    assert sent["input"][1:] == [
        {
            "type": "message",
            "role": "assistant",
            "content": '[Tool Call: get_time({}) -> call_id: call_123]\n\n[Tool Call: f({"arg": "value"}) -> call_id: call_2]',
        }
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "NOTE"),
        ([], [{"type": "output_text", "text": "NOTE"}]),
        ([{"type": "output_text", "text": "a"}], [{"type": "output_text", "text": "a\n\nNOTE"}]),
        ([{"type": "input_text", "text": "a"}], [{"type": "input_text", "text": "a\n\nNOTE"}]),
        (
            [{"type": "refusal", "refusal": "no"}],
            [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "NOTE"}],
        ),
    ],
)
def test_tool_history_as_text_appends_a_call_to_the_assistant_message(before: Any, after: Any) -> None:
    """D-2: string or parts."""
    sent, _ = run_quirk("tool_history_as_text", input=[{"role": "assistant", "content": before}, CALL])
    note = "[Tool Call: get_time({}) -> call_id: call_123]"
    assert [item["content"] for item in sent["input"]] == [_filled(after, note)]


def _filled(content: Any, note: str) -> Any:
    if isinstance(content, str):
        return content.replace("NOTE", note)
    return [{name: value.replace("NOTE", note) for name, value in part.items()} for part in content]


def test_tool_history_as_text_covers_custom_calls_and_namespaces() -> None:
    """D-2."""
    sent, losses = run_quirk(
        "tool_history_as_text",
        input=[
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'a "b"\n'},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "", "namespace": "ns", "note": 1},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
        ],
    )
    assert sent["input"] == [
        {
            "type": "message",
            "role": "assistant",
            "content": '[Tool Call: patch("a \\"b\\"\\n") -> call_id: c1]\n\n[Tool Call: ns__f({}) -> call_id: c2]',
        },
        {"type": "message", "role": "user", "content": "[Tool Result for c1]: done"},
    ]
    assert losses == {"input[1].note": "the field 'note'"}


def test_tool_history_as_text_keeps_media_of_results() -> None:
    """D-2, TOOL-6: texts alone are joined with line breaks (A-5)."""
    text, image = {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}
    for output, wanted in [
        ([text, text], "[Tool Result for c]: a\na"),
        ([], "[Tool Result for c]: "),
        ([text, image, text], [{"type": "input_text", "text": "[Tool Result for c]: a"}, image, text]),
        ([image], [{"type": "input_text", "text": "[Tool Result for c]: "}, image]),
    ]:
        sent, losses = run_quirk(
            "tool_history_as_text", input=[{"type": "function_call_output", "call_id": "c", "output": output}]
        )
        assert sent["input"] == [{"type": "message", "role": "user", "content": wanted}]
        assert losses == {}


def test_tool_history_as_text_converts_blocks_inside_messages() -> None:
    """D-2, E-1."""
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "c", "content": "v", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [{"type": "text", "text": "v"}, {"type": "text", "text": "w"}],
        },
        {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image", "source": {}}]},
        {"type": "tool_result", "tool_use_id": "c"},
    ]
    sent, losses = run_quirk(
        "tool_history_as_text", input=[{"role": "assistant", "content": [use]}, {"role": "user", "content": results}]
    )
    assert sent["input"][0]["content"] == [{"type": "output_text", "text": '[Tool Call: f({"x":1}) -> call_id: c]'}]
    assert [(part["type"], part["text"]) for part in sent["input"][1]["content"]] == [
        ("input_text", "[Tool Result for c]: [tool error] v"),
        ("input_text", "[Tool Result for c]: v\nw"),
        ("input_text", '[Tool Result for c]: [{"type":"image","source":{}}]'),
        ("input_text", "[Tool Result for c]: "),
    ]
    assert losses == {}


def test_tool_results_in_user_messages_joins_consecutive_results() -> None:
    """E-2: in their order, each with the id of its call."""
    other = {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]}
    sent, losses = run_quirk(
        "tool_results_in_user_messages", input=[CALL, OUTPUT, other, {"role": "user", "content": "and?"}, OUTPUT]
    )
    first = {"type": "tool_result", "tool_use_id": "call_123", "content": OUTPUT["output"]}
    assert sent["input"] == [
        CALL,
        {
            "type": "message",
            "role": "user",
            "content": [first, {"type": "tool_result", "tool_use_id": "c2", "content": "x"}],
        },
        {"type": "message", "role": "user", "content": "and?"},
        {"type": "message", "role": "user", "content": [first]},
    ]
    assert losses == {}


def test_tool_results_in_user_messages_keeps_parts() -> None:
    """E-2, TOOL-6: also with unknown members."""
    parts = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "u", "mark": 1}]
    output = {"type": "function_call_output", "call_id": "c", "output": parts}
    sent, _ = run_quirk("tool_results_in_user_messages", input=[output])
    assert sent["input"][0]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": parts}]


@settings(max_examples=40)
@given(request_=requests())
def test_tool_results_in_user_messages_converts_every_result(request_: Request) -> None:
    """E-2, E-5."""
    changed = QUIRKS["tool_results_in_user_messages"].apply(request_, Losses(), NoOptions())
    before = [item.call_id for item in input_items(request_) if isinstance(item, OUTPUTS)]
    old = {id(part) for part in _blocks(input_items(request_))}
    assert [part.tool_use_id for part in _blocks(input_items(changed)) if id(part) not in old] == before
    assert not any(isinstance(item, OUTPUTS) for item in input_items(changed))


def _blocks(items: list[ItemParam]) -> list[ToolResult]:
    contents = [item.content for item in items if isinstance(item, MessageParam)]
    return [
        part for content in contents if isinstance(content, list) for part in content if isinstance(part, ToolResult)
    ]


OUTPUTS = (FunctionCallOutputParam, CustomToolCallOutputParam)
