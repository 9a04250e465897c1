"""`rules/messages/tools`: tools and the tool choice."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import findings_of, refusal_of
from tests.rules.messages.checking import violations
from tests.testing.messages.test_rules import (
    TOOL,
    choice,
    full,
)

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "a tool without a name": (
        {"tools": [{"input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "f"}},
        [("missing_field", "tools.0.custom.name", True)],
    ),
    "a tool with a bad name": (
        {"tools": [{**TOOL, "name": "a b"}], "tool_choice": {"type": "tool", "name": "f"}},
        [("name", "tools.0.custom.name", True)],
    ),
    "a tool of chat": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        [("tool_form", "tools.0", True)],
    ),
    "a tool of chat without a type": ({"tools": [{"function": {"name": "f"}}]}, [("tool_form", "tools.0", True)]),
    "a tool of gemini": ({"tools": [{"functionDeclarations": []}]}, [("tool_form", "tools.0", True)]),
    "a tool of an unknown type": ({"tools": [{"type": "web"}]}, [("discriminator", "tools.0", True)]),
    "a tool that is no object": ({"tools": [1]}, [("value", "tools.0.custom", True)]),
    "tools that are no list, and a choice": (
        {"tools": 1, "tool_choice": {"type": "tool", "name": "f"}},
        [("value", "tools", True)],
    ),
    "a choice without a name": (choice(type="tool"), [("missing_field", "tool_choice.tool.name", True)]),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


# Diagnosis and the fake server disagreed on these bodies.


def test_any_number_of_tools_is_accepted() -> None:
    """Diagnosis suspected more than 128 tools, and none; the API has no such limit."""
    for tools in ([], [{**TOOL, "name": f"f{at}"} for at in range(200)]):
        body = full({"tools": tools})
        assert refusal_of("messages", body) is None
        assert findings_of("messages", body) == []
