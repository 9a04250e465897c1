"""This API's older schemas as JSON schema."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from antiphon.dialects.gemini.schema_to_hub import schema_to_hub


def test_types_in_capitals_are_written_small_at_every_depth() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "format": "enum", "enum": ["OBJECT"]},
            "my_list": {
                "type": "ARRAY",
                "items": {"any_of": [{"type": "INTEGER"}, {"type": "NUMBER"}]},
                "min_items": "1",
            },
        },
        "required": ["type"],
        "propertyOrdering": ["my_list", "type"],
        "additionalProperties": False,
    }
    assert schema_to_hub(schema) == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "format": "enum", "enum": ["OBJECT"]},
            "my_list": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "number"}]}, "minItems": 1},
        },
        "required": ["type"],
        "propertyOrdering": ["my_list", "type"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "STRING", "nullable": False}, {"type": "string"}),
        ({"type": "STRING", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"anyOf": [{"type": "STRING"}], "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"description": "x", "nullable": True}, {"description": "x"}),
        ({"type": "STRING", "example": "x"}, {"type": "string", "examples": ["x"]}),
        ({"ref": "#/$defs/a", "defs": {"a": {"type": "NULL"}}}, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}),
        ({"type": "STRING", "maxLength": "7", "pattern": "7"}, {"type": "string", "maxLength": 7, "pattern": "7"}),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ],
)
def test_what_json_schema_says_otherwise_is_said_so(schema: dict[str, Any], told: dict[str, Any]) -> None:
    assert schema_to_hub(schema) == told
    jsonschema.Draft202012Validator.check_schema(told)


def test_json_schema_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "number"}}, "x-mine": 1}
    assert schema_to_hub(schema) == schema
