"""`rules/messages/schemas`: schemas of tools, and schemas that the server enforces."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import findings_of
from tests.rules.messages.checking import violations
from tests.testing.messages.test_rules import (
    CLOSED,
    format,
    full,
    tool,
    with_part,
)

from antiphon.diagnosis.finding import MAX_SCHEMAS

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "an unknown type in a format": (
        with_part({"type": "STRING"}),
        [("schema", "output_config.format.schema.properties.a.type", True)],
    ),
    "a union that is no list": (
        with_part({"anyOf": 1}),
        [("schema", "output_config.format.schema.properties.a.anyOf", True)],
    ),
    "definitions that are no object": (
        format({**CLOSED, "$defs": 1, "properties": {"a": {"$ref": "#/$defs/A"}}}),
        [
            ("schema", "output_config.format.schema.$defs", True),
            ("schema", "output_config.format.schema.properties.a", True),
        ],
    ),
    "a definition that is no object": (
        format({**CLOSED, "$defs": {"A": True}, "properties": {"a": {"$ref": "#/$defs/A"}}}),
        [
            ("schema", "output_config.format.schema.$defs.A", True),
            ("schema", "output_config.format.schema.properties.a", True),
        ],
    ),
    "a reference that is no string": (
        with_part({"$ref": 1}),
        [("schema", "output_config.format.schema.properties.a", True)],
    ),
    "an input of true": (tool(input_schema={"type": "object", "properties": {"a": True}}), []),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


def test_definition_is_entered_once() -> None:
    """A schema of references that fork at every level has no exponential number of paths."""
    forks = {f"A{number}": {"anyOf": [{"$ref": f"#/$defs/A{number + 1}"}] * 9} for number in range(40)}
    schema = {**CLOSED, "properties": {"a": {"$ref": "#/$defs/A0"}}, "$defs": {**forks, "A40": {"type": "string"}}}
    assert violations(format(schema)) == []


def test_references_are_followed_up_to_a_bound() -> None:
    schema = {"type": "object", "properties": {f"p{at}": {"$ref": "#/$defs/A"} for at in range(MAX_SCHEMAS)}}
    found = findings_of("messages", full(format({**schema, "additionalProperties": False})))
    assert [finding for finding in found if finding.certain] == []


# Diagnosis and the fake server disagreed on these bodies.


def test_required_name_without_a_property_is_accepted() -> None:
    """Diagnosis refused it; JSON schema allows it."""
    assert violations(tool(input_schema={"type": "object", "required": ["a"]})) == []
