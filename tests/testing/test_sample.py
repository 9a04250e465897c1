from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from antiphon.testing.sample import sample

pytestmark = pytest.mark.without_coverage
TREE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Node"}]}},
            "required": ["name", "next"],
        }
    },
}
SCHEMAS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "object"}, {}),
    (
        {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
        {"location": "location"},
    ),
    ({"properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}, {"a": 1}),
    ({"type": "object", "required": ["untold"]}, {"untold": "untold"}),
    ({"enum": ["x", "y"]}, "x"),
    ({"const": 7}, 7),
    ({"type": "string", "default": "d"}, "d"),
    ({"type": "string", "examples": ["e", "f"]}, "e"),
    ({"oneOf": [{"type": "boolean"}, {"type": "null"}]}, True),
    ({"type": ["null", "string"]}, None),
    ({"type": "array", "items": {"type": "number", "minimum": 3}, "minItems": 2}, [3, 3]),
    ({"type": "integer", "exclusiveMinimum": 5}, 6),
    ({"type": "string", "minLength": 7}, "value--"),
    ({"type": "string", "maxLength": 2}, "va"),
    ({"type": "string", "format": "date"}, "2026-01-01"),
    ({"allOf": [{"type": "object"}, {"required": ["a"], "properties": {"a": {"const": 1}}}]}, {"a": 1}),
    (TREE, {"name": "name", "next": None}),
    ({"$ref": "#", "type": "string"}, None),  # it never ends; nothing fits, and this is at least no hang
]


@pytest.mark.parametrize(("schema", "value"), SCHEMAS)
def test_a_sample_is_foreseeable(schema: dict[str, Any], value: Any) -> None:
    assert sample(schema) == value


@pytest.mark.parametrize("schema", [schema for schema, _ in SCHEMAS[:-1]])
def test_a_sample_is_valid(schema: dict[str, Any]) -> None:
    Draft202012Validator(schema).validate(sample(schema))


def test_no_schema_has_no_value() -> None:
    assert sample(True) is None
