"""Limits of the number of tools and of the ids of calls."""

from __future__ import annotations

import pytest
from tests.profiles.quirk_runs import run_quirk

from antiphon.errors import InvalidValue
from antiphon.profiles.quirks.tool_limits import LimitToolsOptions, ShortenCallIdsOptions

TOOLS = [{"type": "function", "name": f"f{number}"} for number in range(3)]


def test_limit_tools_refuses_more_tools_than_the_server_allows() -> None:
    with pytest.raises(InvalidValue, match="tools: expected at most 2 tools, got 3") as refusal:
        run_quirk("limit_tools", LimitToolsOptions(limit=2), input="hi", tools=TOOLS)
    assert refusal.value.param == "tools"
    assert run_quirk("limit_tools", LimitToolsOptions(limit=3), input="hi", tools=TOOLS)[1] == {}
    assert run_quirk("limit_tools", LimitToolsOptions(), input="hi") == ({"input": "hi"}, {})


def test_shorten_call_ids_keeps_calls_and_results_together() -> None:
    long, short = "call_" + "x" * 60, "call_1"
    items = [
        {"type": "function_call", "call_id": long, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": long, "output": "1"},
        {"type": "custom_tool_call", "call_id": long + "y", "name": "g", "input": ""},
        {"type": "custom_tool_call_output", "call_id": long + "y", "output": "1"},
        {"type": "function_call", "call_id": short, "name": "f", "arguments": "{}"},
    ]
    changed, losses = run_quirk("shorten_call_ids", ShortenCallIdsOptions(limit=24), input=items)
    ids = [item["call_id"] for item in changed["input"]]
    assert losses == {}
    assert (ids[0], ids[2], ids[4]) == (ids[1], ids[3], short)
    assert len({*ids}) == 3
    assert max(map(len, ids)) == 24
    assert run_quirk("shorten_call_ids", ShortenCallIdsOptions(), input="hi") == ({"input": "hi"}, {})
