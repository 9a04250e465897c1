"""A Messages client's tools and tool choice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.messages.client_asking import read

from antiphon.protocol.tools import FunctionToolParam, SpecificFunction, UnknownTool, UnknownToolChoice

LOOK = {"name": "look", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


def test_client_tools_become_functions() -> None:
    """TOOL-1: `strict` is set explicitly, since its default differs between servers."""
    request, losses = read(
        tools=[
            LOOK,
            {
                **LOOK,
                "type": "custom",
                "name": "x" * 100,
                "description": "d",
                "strict": True,
                "defer_loading": True,
                "cache_control": {"type": "ephemeral"},
                "input_examples": [{}],
            },
            {**LOOK, "type": None, "defer_loading": None, "strict": None},
        ]
    )
    plain = FunctionToolParam(name="look", parameters={"type": "object"}, strict=False)
    assert request.tools == [
        plain,
        FunctionToolParam(
            name="x" * 100,
            description="d",
            parameters={"type": "object"},
            strict=True,
            defer_loading=True,
            extra={
                "messages:input_examples": Raw(b"[{}]"),
                "prompt_cache_breakpoint": Raw(b'{"mode":"explicit","cache_control":{"type":"ephemeral"}}'),
            },
        ),
        plain,
    ]
    assert list(losses) == []


@pytest.mark.parametrize(
    "tool",
    [
        SEARCH,
        {"type": "bash_20250124", "name": "bash", "cache_control": {"type": "ephemeral"}},
        {"type": "mcp_toolset", "mcp_server_name": "s"},
    ],
)
def test_server_tools_are_passed_through(tool: dict[str, Any]) -> None:
    request, losses = read(tools=[tool])
    assert request.tools
    (decoded,) = request.tools
    assert isinstance(decoded, UnknownTool)
    assert (decoded.kind, json.loads(bytes(decoded.raw))) == (tool["type"], tool)
    assert list(losses) == []


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        ({"type": "auto"}, "auto", UNSET),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "auto", "disable_parallel_tool_use": False}, "auto", True),
        ({"type": "none"}, "none", UNSET),
        ({"type": "tool", "name": "look"}, SpecificFunction(name="look"), UNSET),
        (
            {"type": "tool", "name": "web_search"},
            UnknownToolChoice(kind="tool", raw=Raw(b'{"type":"tool","name":"web_search"}')),
            UNSET,
        ),
    ],
)
def test_tool_choice_is_translated(choice: dict[str, Any], wanted: Any, parallel: Any) -> None:
    """TOOL-2, TOOL-4."""
    request, losses = read(tools=[LOOK, SEARCH], tool_choice=choice)
    assert request.tool_choice == wanted
    assert request.parallel_tool_calls is parallel
    assert list(losses) == []
