"""JSON schema narrowed to what a server knows: every change is a loss, and what is equal needs none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.dialects.common.narrowing import MAX_NODES, MAX_SIZE, Narrowing, narrow_schema
from antiphon.dialects.gemini.tools_from_hub import OPENAPI_SUBSET, OUTPUT_SUBSET, TOOL_SUBSET
from antiphon.errors import InvalidValue, JsonTooDeep
from antiphon.fakes.gemini_schemas import check_json_schema, check_schema
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MAX_NESTING

CLOSED = Narrowing(keywords=frozenset({"type", "properties", "required", "additionalProperties", "enum"}), closed_objects=True)


def narrow(schema: dict[str, Any], narrowing: Narrowing = OPENAPI_SUBSET) -> tuple[dict[str, Any], list[str]]:
    losses = Losses()
    return narrow_schema(schema, narrowing, "p", losses), [loss.path for loss in losses]


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
    assert narrow(plain, TOOL_SUBSET) == (plain, [])
    beside = {**plain, "properties": {"a": [{"$ref": "#/$defs/x", "minLength": 1}]}}
    assert "$defs" not in narrow(beside, TOOL_SUBSET)[0]
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
    assert narrow(schema, OUTPUT_SUBSET) == (schema, [])


def chain_of_references(length: int) -> dict[str, Any]:
    links = {f"d{at}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{at + 1}"}}} for at in range(length)}
    return {"$defs": {**links, f"d{length}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def nested_lists(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (nested_lists(MAX_NESTING - 1), True),
        (nested_lists(MAX_NESTING), False),
        (chain_of_references(MAX_NESTING // 2 - 1), True),
        (chain_of_references(MAX_NESTING), False),
    ],
)
def test_narrowed_schema_has_a_bound_on_its_nesting(schema: dict[str, Any], fits: bool) -> None:
    """Faults: the bound holds for what references are written out as, too."""
    if fits:
        narrow(schema)
        return
    with pytest.raises(JsonTooDeep, match="more than 256 levels") as refused:
        narrow(schema)
    assert refused.value.param == "p"


def wide(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"m{at}": {"type": "string"} for at in range(count)}}


def doubling_references(levels: int) -> dict[str, Any]:
    """Each level has the next one twice."""
    both = [{"type": "object", "properties": {name: {"$ref": f"#/$defs/d{at + 1}"} for name in "ab"}} for at in range(levels)]
    return {"$defs": {**{f"d{at}": one for at, one in enumerate(both)}, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def doubling_types(levels: int) -> dict[str, Any]:
    """A server that takes one type gets all that is inside twice."""
    schema: dict[str, Any] = {"type": "string", "description": "x" * 100}
    for _ in range(levels):
        schema = {"type": ["string", "integer"], "anyOf": [schema]}
    return schema


def long_text(uses: int) -> dict[str, Any]:
    members = {f"m{at}": {"$ref": "#/$defs/d"} for at in range(uses)}
    return {"$defs": {"d": {"type": "string", "description": "x" * 50_000}}, "type": "object", "properties": members}


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        (wide(MAX_NODES - 1), True),
        (wide(MAX_NODES), False),
        (doubling_references(7), True),
        (doubling_types(6), True),
        (doubling_types(12), False),
        (long_text(5), True),
        (long_text(6), False),
        ({"type": "string", "enum": ["x" * 100] * 3000}, False),
        ({"type": "array", "items": {"type": ["object", "null"], "properties": {"a": nested_lists(100)}}}, True),
    ],
)
def test_narrowed_schema_has_a_bound_on_its_size(schema: dict[str, Any], fits: bool) -> None:
    """Faults: what counts is what is written out, copies included."""
    if fits:
        written, _ = narrow(schema)
        assert len(json.dumps(written)) < 2 * MAX_SIZE
        return
    with pytest.raises(InvalidValue, match="once its references are written out") as refused:
        narrow(schema)
    assert refused.value.param == "p"


@given(
    st.lists(st.tuples(st.lists(st.sampled_from("abcd"), max_size=3), st.lists(st.sampled_from("abcd"), max_size=3)), max_size=5)
)
def test_allof_puts_members_and_required_names_together_once(parts: list[tuple[list[str], list[str]]]) -> None:
    """Members and required names of all parts, each once, in the order in which they come."""
    schema = {"allOf": [{"properties": {n: {"type": "string"} for n in names}, "required": needed} for names, needed in parts]}
    written, _ = narrow(schema, CLOSED)
    members = list(dict.fromkeys(name for names, _ in parts for name in names))
    assert list(written.get("properties", {})) == members
    assert written.get("required", []) == list(dict.fromkeys(name for _, needed in parts for name in needed))


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
    check_json_schema(narrow(schema, OUTPUT_SUBSET)[0], "p")
