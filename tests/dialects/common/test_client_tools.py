"""Tools that the client itself runs, as functions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.dialects.common.client_tools import ClientTools, arguments_of_tool, is_local
from antiphon.protocol import codec
from antiphon.protocol.items import ShellCall
from antiphon.protocol.request import Request

FIND = {"type": "function", "name": "find", "defer_loading": True}
GROUP = {"type": "namespace", "name": "crm", "tools": [{**FIND, "name": "list"}, {"type": "custom", "name": "raw"}]}


def request(**members: Any) -> Request:
    return codec.decode_request(json.dumps({"model": "m", "input": "hi", **members}).encode())


def converted(**members: Any) -> dict[str, Any]:
    asked = request(**members)
    tools = ClientTools.of_request(asked)
    assert tools is not None
    sent: dict[str, Any] = json.loads(codec.encode(tools.as_functions(asked)))
    return sent


def tool_names(sent: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in sent.get("tools", [])]


@pytest.mark.parametrize("tools", [[], [{"type": "function", "name": "f"}], [{"type": "web_search"}]])
def test_request_without_such_tools_is_not_converted(tools: Any) -> None:
    assert ClientTools.of_request(request(tools=tools)) is None


def test_function_of_the_same_name_keeps_its_name() -> None:
    """TOOL-8."""
    tools = [{"type": "shell"}, {"type": "function", "name": "shell"}, {"type": "custom", "name": "shell_tool"}]
    call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    sent = converted(tools=tools, input=[call])
    assert tool_names(sent) == ["shell_tool_tool", "shell", "shell_tool"]
    assert sent["input"][0]["name"] == "shell_tool_tool"


@pytest.mark.parametrize("environment", [None, {"type": "local", "skills": []}])
def test_shell_of_the_client_becomes_a_function(environment: Any) -> None:
    """TOOL-8."""
    assert tool_names(converted(tools=[{"type": "shell", "environment": environment}])) == ["shell"]


def test_shell_of_the_server_is_kept() -> None:
    tools = [{"type": "shell", "environment": {"type": "container_auto"}}]
    assert converted(tools=tools)["tools"] == tools
    call = {"type": "shell_call", "call_id": "c", "action": {}, "environment": {"type": "container_reference"}}
    assert converted(tools=tools, input=[call])["input"][0]["type"] == "shell_call"
    assert is_local(ShellCall(call_id="c", action={}))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "shell"}, {"type": "function", "name": "shell"}),
        ({"type": "web_search"}, {"type": "web_search"}),
        ("required", "required"),
        (
            {"type": "allowed_tools", "tools": [{"type": "shell"}, {"type": "function", "name": "f"}]},
            {
                "type": "allowed_tools",
                "tools": [{"type": "function", "name": "shell"}, {"type": "function", "name": "f"}],
            },
        ),
    ],
)
def test_choice_of_the_tool_names_its_function(choice: Any, expected: Any) -> None:
    """TOOL-8, TOOL-2."""
    tools = [{"type": "shell"}, {"type": "function", "name": "f"}]
    assert converted(tools=tools, tool_choice=choice)["tool_choice"] == expected


def test_history_becomes_calls_and_outputs_of_functions() -> None:
    """TOOL-8: also if the tools are not offered any more. A failed patch stays marked."""
    patch = {"type": "delete_file", "path": "a"}
    exec: dict[str, Any] = {"type": "exec", "command": ["ls"], "env": {}, "user": None}
    items = [
        {"type": "apply_patch_call", "call_id": "1", "status": "completed", "operation": patch},
        {"type": "apply_patch_call_output", "call_id": "1", "status": "failed", "output": "no"},
        {"type": "apply_patch_call_output", "call_id": "1", "status": "completed"},
        {"type": "shell_call", "call_id": "2", "action": {"commands": ["ls"], "timeout_ms": None}},
        {"type": "shell_call_output", "call_id": "2", "output": [{"stdout": "a"}]},
        {"type": "local_shell_call", "id": "lsh_3", "call_id": "3", "action": exec},
        {"type": "local_shell_call_output", "id": "lsh_3", "output": "by the id of the item"},
        {"type": "local_shell_call_output", "id": "3", "output": "by the id of the call"},
        {"type": "message", "role": "user", "content": "So?"},
    ]
    sent = [
        (item.get("call_id"), item.get("arguments") or item.get("output"), item.get("is_error"))
        for item in converted(input=items)["input"]
    ]
    assert sent == [
        ("1", '{"type":"delete_file","path":"a"}', None),
        ("1", "no", True),
        ("1", "completed", None),
        ("2", '{"commands":["ls"]}', None),
        ("2", '[{"stdout":"a"}]', None),
        ("3", '{"command":["ls"]}', None),
        ("3", "by the id of the item", None),
        ("3", "by the id of the call", None),
        (None, None, None),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("apply_patch", '{"operation": {"type": "delete_file", "path": "a"}}', {"type": "delete_file", "path": "a"}),
        ("apply_patch", '{"type": "create_file", "path": "a"}', None),
        (
            "apply_patch",
            '{"type": "create_file", "path": "a", "diff": "+a", "x": 1}',
            {"type": "create_file", "path": "a", "diff": "+a"},
        ),
        ("apply_patch", '{"type": "rename", "path": "a"}', None),
        ("shell", '{"command": "ls", "timeout_ms": "5"}', {"commands": ["ls"]}),
        ("shell", '{"commands": [1]}', None),
        ("shell", '{"commands": []}', None),
        ("local_shell", '{"command": "ls"}', {"type": "exec", "command": ["bash", "-lc", "ls"], "env": {}}),
        ("local_shell", '{"command": {}}', None),
        ("tool_search", '{"query": "x"}', {"query": "x"}),
        ("shell", '["ls"]', None),
        ("shell", '{"commands": ["l', None),
    ],
)
def test_arguments_are_those_of_the_tool_or_none(kind: str, text: str, expected: Any) -> None:
    """TOOL-8: nothing but what the model wrote is ever run."""
    assert arguments_of_tool(kind, text) == expected


def test_deferred_tools_are_offered_without_a_search() -> None:
    """TOOL-9."""
    sent = converted(tools=[{"type": "tool_search"}, FIND, GROUP, {"type": "web_search"}])
    assert [tool["type"] for tool in sent["tools"]] == ["function", "namespace", "web_search"]
    assert "defer_loading" not in json.dumps(sent)


def test_found_tools_of_earlier_searches_stay_offered() -> None:
    """TOOL-9: those that the request does not offer itself."""
    search: dict[str, Any] = {"type": "tool_search_call", "arguments": {}, "execution": "server", "call_id": None}
    result = {"type": "tool_search_output", "tools": [FIND, {**FIND, "name": "other"}], "execution": "server"}
    sent = converted(tools=[{"type": "tool_search"}, FIND], input=[search, result])
    assert [item["type"] for item in sent["input"]] == ["additional_tools"]
    assert tool_names(sent["input"][0]) == ["other"]


def test_search_of_the_client_is_a_function() -> None:
    """TOOL-9: its result is told by name, and the tools are offered."""
    tools = [{"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}}]
    call = {"type": "tool_search_call", "call_id": "1", "execution": "client", "arguments": {"q": "x"}}
    result = {"type": "tool_search_output", "call_id": "1", "execution": "client", "tools": [GROUP]}
    empty = {**result, "tools": []}
    offer = {"type": "additional_tools", "role": "developer", "tools": [{"type": "shell"}]}
    sent = converted(tools=tools, input=[call, result, {**call, "arguments": "raw"}, empty, offer])
    assert sent["tools"][0] == {
        "type": "function",
        "name": "tool_search",
        "description": "Finds.",
        "parameters": {"type": "object"},
    }
    assert [item["type"] for item in sent["input"]] == [
        "function_call",
        "function_call_output",
        "additional_tools",
        "function_call",
        "function_call_output",
        "additional_tools",
    ]
    assert [item.get("arguments") or item.get("output") for item in sent["input"] if "call_id" in item] == [
        '{"q":"x"}',
        "These tools are available now: list, raw",
        "raw",
        "No tool was found.",
    ]
    assert tool_names(sent["input"][-1]) == ["shell"]
