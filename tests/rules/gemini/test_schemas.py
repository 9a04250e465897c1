"""`rules/gemini/schemas`: the older kind of schema, and JSON schema."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.gemini.checking import SCHEMA, violations
from tests.testing.gemini.test_rules import (
    function,
    takes,
)

# (what is wrong, the violations of the body, in the spelling of these servers).
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, bool]]]] = {
    "several faults of one schema": (
        takes(type="array", enum=["a"], format="x", properties={"b": {"type": "string"}}),
        [
            ("schema", f"{SCHEMA}.properties[a].properties", True),
            ("schema", f"{SCHEMA}.properties[a].items", True),
            ("schema", f"{SCHEMA}.properties[a].enum", True),
        ],
    ),
    "a reference where definitions are no object": (
        function(parametersJsonSchema={"type": "object", "$defs": [], "anyOf": [[{"$ref": "#/$defs/A"}]]}),
        [("schema", "tools[0].function_declarations[0].parametersJsonSchema.anyOf[0][0].$ref", True)],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_all_violations_are_reported(case: str) -> None:
    change, expected = WRONG[case]
    assert violations(change) == expected


# Diagnosis and the fake server disagreed on these bodies.


def test_required_name_without_a_property_is_refused() -> None:
    """ "required[0]: property is not defined": diagnosis knew the rule for other dialects only."""
    assert violations(
        function(parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": "b"})
    ) == [("schema", f"{SCHEMA}.required[0]", True)]
