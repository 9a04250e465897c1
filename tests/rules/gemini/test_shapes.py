"""`rules/gemini/shapes`: unknown fields and wrong types."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.gemini.checking import SCHEMA, violations
from tests.rules.judging import findings_of
from tests.testing.gemini.test_rules import (
    F_SAYS,
    PLACE,
    USER,
    F,
    body_with,
    config,
    full,
    function,
    identified,
    model,
    part,
    takes,
    user,
)

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "unknown fields do not end the check": (
        {**body_with({"role": "user", "content": "hi"}), "messages": []},
        [
            ("unknown_field", "contents[0].content", True),
            ("unknown_field", "messages", True),
            ("missing_field", "contents[0].parts", True),
        ],
    ),
    "values of wrong types end the check": (
        {**body_with({"role": 1, "parts": []}), "systemInstruction": {"parts": []}},
        [("value", "contents[0].role", True)],
    ),
    "a tool of chat": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        [("tool_form", "tools[0]", True), ("tool_form", "tools[0]", True), ("missing_field", "tools[0]", True)],
    ),
    "a list for one value": (config(temperature=[1]), [("value", "generation_config.temperature", True)]),
    "a type of a part": (
        part({"type": "text", "text": "a"}),
        [("discriminator", "contents[0].parts[0].type", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_ids_and_closed_objects_are_options() -> None:
    assert violations(body_with(USER, model(identified(F, "1")), user(F_SAYS)), ids=False) == [
        ("unknown_field", "contents[1].parts[0].function_call.id", True)
    ]
    closed = function(parameters={**PLACE, "additionalProperties": False})
    assert violations(closed) == [("schema", f"{SCHEMA}.additionalProperties", True)]
    assert violations(closed, additional_properties=True) == []


def test_paths_are_those_of_the_body_in_either_spelling() -> None:
    for spelled in ("generationConfig", "generation_config"):
        for name in ("topP", "top_p"):
            body = full({spelled: {name: 2}})
            assert [found.path for found in findings_of("gemini", body) if found.certain] == [f"{spelled}.{name}"]


# Diagnosis and the fake server disagreed on these bodies.


def test_words_of_json_schema_are_refused_in_the_older_kind_of_schema() -> None:
    """Both knew the list of words, each its own."""
    assert violations(takes(type="string", const="a")) == [("schema", f"{SCHEMA}.properties[0].value.const", True)]
