"""`rules/tool_forms`: the forms of function tools."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected

from antiphon.rules.tool_forms import check_unique_names, describe_form, form_of


@pytest.mark.parametrize(
    ("tool", "form"),
    [
        ({"type": "function", "name": "f"}, "flat"),
        ({"type": "function", "function": {"name": "f"}}, "nested"),
        ({"type": "custom", "custom": {"name": "f"}}, "nested"),
        ({"name": "f", "input_schema": {}}, "input_schema"),
        ({"functionDeclarations": []}, "declarations"),
        ({"function_declarations": []}, "declarations"),
        ({"type": "web_search"}, None),
        ({}, None),
    ],
)
def test_form_of_a_tool_is_recognised(tool: dict[str, Any], form: str | None) -> None:
    assert form_of(tool) == form


def test_form_is_described_with_the_one_that_is_wanted() -> None:
    assert describe_form("flat", "nested").startswith(
        "this tool is flat, with its name and its schema beside its type;"
    )
    assert describe_form(None, "nested").startswith("this is no tool: servers of this dialect want it nested")
    assert describe_form("nested", "nested").startswith("this is no tool")


def test_names_of_tools_are_unique() -> None:
    report = Collected()
    check_unique_names(["a", "b", "a"], "two tools have one name", report)
    assert [violation.problem for violation in report.violations] == ['2 tools are called "a"; each needs its own name']
