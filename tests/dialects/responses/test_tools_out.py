"""Tools beyond the specification on servers that support only plain functions, in requests and answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from tests.dialects.responses.upstreams import ReadResult, frame_of, read_frames
from tests.generate.conversations import requests

from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames, ToolRef, tools_of_request
from antiphon.dialects.responses import ResponsesWire, request_from_hub, request_to_hub
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.losses import Loss
from antiphon.protocol.request import Request
from antiphon.protocol.tools import CustomTool, FunctionToolParam, NamespaceTool

FLAT = ResponsesWire(extension_tools="flatten")
PATCH = {"type": "custom", "name": "patch", "description": "Applies a patch"}
GRAMMAR = {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}}
FILES = {
    "type": "namespace",
    "name": "files",
    "description": "Files",
    "tools": [{"type": "function", "name": "read"}, PATCH],
}


def sent(**members: Any) -> tuple[dict[str, Any], list[Loss]]:
    request, _ = request_to_hub(json.dumps({"model": "m", "input": "hi", **members}).encode())
    body, losses = request_from_hub(request, FLAT)
    return json.loads(body), list(losses)


def answered(request: Request, name: str, *pieces: str, item_done: bool = True) -> ReadResult:
    """The hub response when a flat server calls the function `name`, with arguments in these pieces."""
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c_1",
        "name": name,
        "arguments": "",
        "status": "in_progress",
    }
    deltas = [{"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": piece} for piece in pieces]
    done = {**call, "arguments": "".join(pieces), "status": "completed"}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "item": call},
        *deltas,
        *([{"type": "response.output_item.done", "item": done}] if item_done else []),
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    return read_frames([frame_of(event) for event in events], request, FLAT)


def refs_of(request: Request) -> set[ToolRef]:
    """Every tool that can be called."""
    collected: set[ToolRef] = set()
    for tool in tools_of_request(request):
        group = tool.name if isinstance(tool, NamespaceTool) else None
        for member in tool.tools if isinstance(tool, NamespaceTool) else [tool]:
            if isinstance(member, FunctionToolParam | CustomTool):
                collected.add(ToolRef("custom" if isinstance(member, CustomTool) else "function", member.name, group))
    return collected


@given(requests())
@settings(max_examples=40)
def test_flat_servers_get_only_functions_with_unique_names(request: Request) -> None:
    body, losses = request_from_hub(request, FLAT)
    members = json.loads(body)
    tools = members.get("tools", [])
    assert {tool["type"] for tool in tools} <= {"function"}
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
    items = members["input"] if isinstance(members.get("input"), list) else []
    assert not {item["type"] for item in items} & {
        "custom_tool_call",
        "custom_tool_call_output",
        "additional_tools",
        "tool_search_call",
    }
    assert all("namespace" not in item for item in items)
    functions = refs_of(request)
    assert len(names) == len(functions)
    lost = {loss.path for loss in losses}
    chosen = members.get("tool_choice")
    assert not isinstance(chosen, dict) or chosen["type"] in ("function", "allowed_tools")
    assert (
        "tool_choice" in lost or not isinstance(chosen, dict) or chosen["type"] != "function" or chosen["name"] in names
    )


@given(requests())
@settings(max_examples=40)
def test_calls_are_mapped_back_to_the_offered_tools(request: Request) -> None:
    """TOOL-1: by name, namespace and kind; a custom tool's input from its one string."""
    names = ToolNames.for_request(request, PLAIN_NAMES)
    for ref in refs_of(request):
        read = answered(request, names.wire_name(ref), '{"in', 'put":"a\\n', 'b"}')
        assert find_violations(read.events) == []
        item = read.response.output[0]
        match ref.kind:
            case "custom":
                assert isinstance(item, CustomToolCall)
                assert item.input == "a\nb"
            case "function":
                assert isinstance(item, FunctionCall)
                assert item.arguments == '{"input":"a\\nb"}'
        assert (item.name, item.namespace or None) == (ref.name, ref.namespace)
        assert item.call_id == "c_1"


def test_custom_tools_and_groups_become_functions() -> None:
    body, losses = sent(tools=[PATCH, FILES])
    assert [(tool["type"], tool["name"]) for tool in body["tools"]] == [
        ("function", "patch"),
        ("function", "files__read"),
        ("function", "files__patch"),
    ]
    assert body["tools"][0]["parameters"]["required"] == ["input"]
    assert body["tools"][0]["strict"] is False
    assert [loss.path for loss in losses] == ["tools[1].description"]


def test_grammar_is_described_in_words_and_a_loss() -> None:
    body, losses = sent(tools=[GRAMMAR])
    assert "lark grammar:\nstart: /x/" in body["tools"][0]["description"]
    assert [loss.path for loss in losses] == ["tools[0].format"]


def test_custom_tool_without_a_description_has_none() -> None:
    assert "description" not in sent(tools=[{"type": "custom", "name": "x"}])[0]["tools"][0]


def test_additional_tools_join_the_others() -> None:
    body, losses = sent(tools=[PATCH], input=[{"type": "additional_tools", "tools": [FILES["tools"][0]]}])
    assert [tool["name"] for tool in body["tools"]] == ["patch", "read"]
    assert body["input"] == []
    assert losses == []


def test_duplicate_tool_is_offered_once() -> None:
    body, losses = sent(
        tools=[{"type": "function", "name": "a", "description": "one"}, {"type": "function", "name": "a"}]
    )
    assert body["tools"] == [{"type": "function", "name": "a"}]
    assert [loss.path for loss in losses] == ["tools[0]"]


def test_hosted_tools_and_their_items_are_losses() -> None:
    """ITEM-5, F-4"""
    body, losses = sent(
        tools=[{"type": "web_search"}, {"type": "acme:tool"}],
        input=[
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "tool_search_call", "arguments": {}},
            {"type": "compaction_trigger"},
            {"role": "user", "content": "hi"},
        ],
        tool_choice={"type": "web_search"},
    )
    assert "tools" not in body
    assert "tool_choice" not in body
    assert [item["type"] for item in body["input"]] == ["message"]
    assert [loss.path for loss in losses] == ["tools[0]", "tools[1]", "input[0]", "input[1]", "input[2]", "tool_choice"]


def test_call_of_a_custom_tool_keeps_the_id_that_the_server_gave_the_function() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x", "id": "fc_1"}
    body, _ = sent(tools=[FILES], input=[call, {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}])
    assert [item.get("id") for item in body["input"]] == ["fc_1", None]


def test_calls_in_the_history_are_renamed_like_their_tools() -> None:
    """Ids of other types of items are refused by servers that check the prefix."""
    body, losses = sent(
        tools=[FILES],
        input=[
            {
                "type": "custom_tool_call",
                "call_id": "c",
                "name": "patch",
                "input": "a\nb",
                "namespace": "files",
                "id": "ctc_1",
            },
            {"type": "custom_tool_call_output", "call_id": "c", "output": "ok", "id": "ctco_1"},
            {"type": "function_call", "call_id": "d", "name": "read", "arguments": "{}", "namespace": "files"},
            {"type": "function_call_output", "call_id": "d", "output": "ok"},
        ],
    )
    assert body["input"] == [
        {
            "type": "function_call",
            "call_id": "c",
            "name": "files__patch",
            "arguments": '{"input":"a\\nb"}',
        },
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "function_call", "call_id": "d", "name": "files__read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "d", "output": "ok"},
    ]
    assert [loss.path for loss in losses] == ["tools[0].description"]


@pytest.mark.parametrize(
    ("choice", "expected", "lost"),
    [
        ("required", "required", []),
        ({"type": "custom", "name": "patch"}, {"type": "function", "name": "patch"}, []),
        ({"type": "function", "name": "read", "namespace": "files"}, {"type": "function", "name": "files__read"}, []),
        ({"type": "function", "name": "gone"}, None, ["tool_choice"]),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "custom", "name": "patch"}, {"type": "web_search"}],
            },
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "patch"}]},
            ["tool_choice.tools[1]"],
        ),
        ({"type": "allowed_tools", "tools": [{"type": "function", "name": "gone"}]}, "auto", ["tool_choice.tools[0]"]),
    ],
)
def test_tool_choice_is_renamed_like_its_tool(choice: Any, expected: Any, lost: list[str]) -> None:
    """TOOL-2, TOOL-3"""
    body, losses = sent(tools=[PATCH, {**FILES, "description": None}], tool_choice=choice)
    assert body.get("tool_choice") == expected
    assert [loss.path for loss in losses] == lost


@pytest.mark.parametrize("item_done", [True, False])
def test_further_arguments_of_a_custom_call_are_a_loss(item_done: bool) -> None:
    request, _ = request_to_hub(json.dumps({"tools": [PATCH]}).encode())
    read = answered(request, "patch", '{"input":"a","why":"b"}', item_done=item_done)
    item = read.response.output[0]
    assert isinstance(item, CustomToolCall)
    assert item.input == "a"
    assert [loss.path for loss in read.losses] == ["output[0].input"]


def test_call_of_an_unknown_tool_is_a_function_call() -> None:
    request, _ = request_to_hub(b'{"model":"m"}')
    item = answered(request, "other", "{}").response.output[0]
    assert isinstance(item, FunctionCall)
    assert (item.name, item.arguments) == ("other", "{}")


def test_custom_call_of_a_flat_server_is_a_custom_call() -> None:
    """It has no custom tools, but its call is one."""
    request, _ = request_to_hub(json.dumps({"tools": [PATCH]}).encode())
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c_1", "name": "patch", "input": "a"}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "item": {**call, "input": ""}},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    item = read_frames([frame_of(event) for event in events], request, FLAT).response.output[0]
    assert isinstance(item, CustomToolCall)
    assert (item.name, item.input) == ("patch", "a")


def test_allowed_tool_of_an_unknown_type_stays_beside_renamed_tools() -> None:
    long_name = "a" * 20
    allowed = [{"type": "function", "name": long_name}, {"type": "web_search"}]
    members = {"tools": [{"type": "function", "name": long_name}, {"type": "web_search"}]}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    request, _ = request_to_hub(json.dumps({"model": "m", "input": "hi", **members, "tool_choice": choice}).encode())
    body = json.loads(request_from_hub(request, ResponsesWire(max_name_length=16))[0])
    [renamed, search] = body["tool_choice"]["tools"]
    assert search == {"type": "web_search"}
    assert renamed["name"] == body["tools"][0]["name"]
    assert len(renamed["name"]) <= 16
