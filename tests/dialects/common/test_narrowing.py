"""JSON schema narrowed to what a server knows: every change is a loss, and what is equal needs none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.dialects.common.narrowing import Narrowing, narrowed
from antiphon.dialects.gemini.tools_from_hub import OPENAPI, OUTPUT, PLAIN
from antiphon.errors import JsonTooDeep
from antiphon.fakes.gemini_schemas import check_json_schema, check_schema
from antiphon.protocol.losses import Losses

CLOSED = Narrowing(keywords=frozenset({"type", "properties", "required", "additionalProperties", "enum"}), closed_objects=True)


def narrow(schema: dict[str, Any], narrowing: Narrowing = OPENAPI) -> tuple[dict[str, Any], list[str]]:
    losses = Losses()
    return narrowed(schema, narrowing, "p", losses), [loss.path for loss in losses]


@pytest.mark.parametrize(
    ("schema", "sent", "lost"),
    [
        ({"type": "string"}, {"type": "STRING"}, []),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}, []),
        ({"type": "null"}, {"type": "NULL"}, []),
        ({"const": "a"}, {"type": "STRING", "enum": ["a"]}, []),
        ({"type": "integer", "enum": [1, 2]}, {"type": "INTEGER"}, ["p.enum"]),
        ({"type": "string", "format": "uri"}, {"type": "STRING"}, ["p.format"]),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}, []),
        ({"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}, ["p"]),
        ({"items": {"type": "number"}}, {"type": "ARRAY", "items": {"type": "NUMBER"}}, []),
        ({}, {"type": "STRING"}, ["p"]),
        (
            {"type": "object", "properties": {"a": True, "b": False}},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}}},
            ["p.properties.a", "p.properties.b", "p.properties.b"],
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]},
            ["p.required"],
        ),
        (
            {"type": ["string", "array"], "description": "d", "minLength": 1, "items": {"type": "string"}},
            {"description": "d", "anyOf": [{"type": "STRING", "minLength": 1}, {"type": "ARRAY", "items": {"type": "STRING"}}]},
            [],
        ),
        ({"type": "integer", "enum": ["a"], "minLength": 1}, {"type": "INTEGER"}, ["p.enum"]),
        ({"anyOf": [{"type": "string"}], "required": ["a"]}, {"anyOf": [{"type": "STRING"}]}, ["p.required"]),
        ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "STRING"}]}, ["p.oneOf"]),
        ({"type": "object", "$schema": "x", "not": {}, "x": 1}, {"type": "OBJECT"}, ["p.not", "p.x"]),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "string"}}, "required": ["b"]},
                ]
            },
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}}, "required": ["a", "b"]},
            [],
        ),
        ({"type": "string", "allOf": [{"$ref": "#/$defs/a"}]}, {"type": "STRING"}, ["p.allOf"]),
    ],
)
def test_a_schema_is_said_in_the_words_of_the_server(schema: dict[str, Any], sent: dict[str, Any], lost: list[str]) -> None:
    """Issue 7, point 5: every change that matters is a loss."""
    assert narrow(schema) == (sent, lost)


def test_references_are_written_out() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x~1y", "description": "mine"}, "b": {"$ref": "#/definitions/z"}, "c": {"$ref": 7}},
        "$defs": {"x/y": {"type": "string", "description": "theirs"}},
        "definitions": {"z": {"type": "number"}},
    }
    found, lost = narrow(schema)
    assert found["properties"]["a"] == {"type": "STRING", "description": "mine"}
    assert found["properties"]["b"] == {"type": "NUMBER"}
    assert lost == ["p.properties.c", "p.properties.c"]
    assert set(found) == {"type", "properties"}
    assert narrow({"$ref": "#/type/b", "type": "string"})[1] == ["p"]


def test_a_reference_into_itself_ends_somewhere() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    found, lost = narrow({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert found["properties"]["next"] == {"type": "OBJECT"}
    assert lost == ["p.properties.next"]


def test_references_that_double_end_somewhere_too() -> None:
    """Faults: thirty definitions that each refer twice to the next would be a billion."""
    defs: dict[str, Any] = {
        f"d{at}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{at + 1}"} for side in "ab"}} for at in range(30)
    }
    _, lost = narrow({"$ref": "#/$defs/d0", "$defs": {**defs, "d30": {"type": "string"}}})
    assert lost


def test_references_are_kept_where_they_stand_alone() -> None:
    plain = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}
    assert narrow(plain, PLAIN) == (plain, [])
    beside = {**plain, "properties": {"a": [{"$ref": "#/$defs/x", "minLength": 1}]}}
    assert "$defs" not in narrow(beside, PLAIN)[0]
    kept = {"$ref": "#/$defs/x", "title": "t", "$defs": {"x": {}}}
    assert narrow(kept, Narrowing()) == (kept, [])


def test_objects_are_closed_where_the_server_wants_it() -> None:
    """For servers whose structured output knows no other objects."""
    found, lost = narrow({"properties": {"a": {"type": "string"}, "b": {"type": "object", "additionalProperties": True}}}, CLOSED)
    assert found["additionalProperties"] is False
    assert found["properties"] == {"a": {"type": "string"}, "b": {"type": "object", "additionalProperties": False}}
    assert lost == ["p.properties.b.additionalProperties"]


def test_a_schema_of_known_words_comes_back_equal() -> None:
    schema = {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"items": {}}]}}, "additionalProperties": {}}
    assert narrow(schema, OUTPUT) == (schema, [])


def test_a_schema_without_end_is_refused() -> None:
    """Faults: nesting beyond what can be read."""
    schema: dict[str, Any] = {}
    for _ in range(3000):
        schema = {"items": schema}
    with pytest.raises(JsonTooDeep):
        narrow(schema)


SCHEMAS = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": ["integer", "null"]}, {"enum": ["a"]}, {"const": 1}, {}, {"type": "array"}]),
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(lambda one: {"type": "object", "properties": {"a": one}, "required": ["a", "z"]}, inner),
        st.builds(lambda one, other: {"oneOf": [one, other], "description": "d"}, inner, inner),
        st.builds(lambda one, other: {"allOf": [one, other]}, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=30)
@given(SCHEMAS)
def test_a_strict_server_takes_whatever_was_narrowed(schema: dict[str, Any]) -> None:
    """Issue 7, point 5."""
    check_schema(narrow(schema)[0], "p", empty_objects=True)
    check_json_schema(narrow(schema, OUTPUT)[0], "p")
