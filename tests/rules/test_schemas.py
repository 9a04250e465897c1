"""`rules/schemas`: schemas of chat and responses servers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rules.judging import Collected

from antiphon.rules.schemas import check_parameters, check_schema

CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}


def report_on(schema: Any, *, strict: Any = None) -> Collected:
    report = Collected()
    check_schema(schema, "f.parameters", report, strict=strict)
    return report


def paths(schema: Any, *, strict: Any = None) -> list[str]:
    return [violation.path for violation in report_on(schema, strict=strict).violations]


def holding(part: Any) -> dict[str, Any]:
    return {**CLOSED, "properties": {"a": part}, "required": ["a"]}


def test_violation_names_the_part_and_the_error_names_the_schema() -> None:
    [violation] = report_on(holding({"anyOf": [{"type": "STRING"}]})).violations
    assert violation.path == "f.parameters.properties.a.anyOf[0].type"
    assert (violation.param, violation.code) == ("f.parameters", "invalid_schema")


def test_strict_is_a_boolean_beside_the_schema() -> None:
    assert paths(CLOSED, strict="yes") == ["f.strict"]


def test_absent_schema_is_accepted() -> None:
    assert paths(None, strict=True) == []


def test_parameters_are_an_object() -> None:
    report = Collected()
    for schema in (None, {"type": "object"}, {"type": "OBJECT"}, {}, 1):
        check_parameters(schema, "p", report, strict=None)
    assert [violation.code for violation in report.violations] == ["invalid_function_parameters"] * 3


# Diagnosis and the fake server disagreed on these schemas.


def test_required_name_without_a_property_is_suspected() -> None:
    """JSON schema allows it and the API's maker accepts it; diagnosis took it for certain."""
    report = report_on({"type": "object", "required": ["a"]})
    assert (report.violations, report.suspicions) == ([], [("schema", "f.parameters.required")])


def test_required_name_without_a_property_is_refused_in_a_strict_schema() -> None:
    """ "Extra required key 'a' supplied." """
    assert paths({**CLOSED, "required": ["a"]}, strict=True) == ["f.parameters.required"]


@pytest.mark.parametrize("part", [1, "string", None, []])
def test_part_that_is_no_schema_is_refused(part: Any) -> None:
    """ "1 is not of type 'object', 'boolean'"; the fake server passed over it."""
    assert paths(holding(part)) == ["f.parameters.properties.a"]


@pytest.mark.parametrize("part", [True, False])
def test_boolean_is_a_schema_unless_it_is_strict(part: bool) -> None:
    """Diagnosis refused it always, the fake server never."""
    assert paths(holding(part)) == []
    assert paths(holding(part), strict=True) == ["f.parameters.properties.a"]


@pytest.mark.parametrize("members", [{"properties": 1}, {"required": "a"}, {"required": [1]}])
def test_properties_and_required_have_their_types_in_every_schema(members: dict[str, Any]) -> None:
    """The fake server looked at them in strict schemas only."""
    assert paths({"type": "object", **members}) == ["f.parameters"]


@pytest.mark.parametrize("union", ["anyOf", "allOf", "oneOf"])
def test_schemas_in_every_union_are_checked(union: str) -> None:
    """The fake server looked into `anyOf` only."""
    assert paths({union: [{"type": "OBJECT"}]}) == [f"f.parameters.{union}[0].type"]
    assert paths({union: [{"type": "object"}]}, strict=True) == [f"f.parameters.{union}[0]"]


def test_list_of_items_is_passed_over() -> None:
    assert paths({"type": "array", "items": [{"type": "STRING"}]}) == []
