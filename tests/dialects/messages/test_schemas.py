"""Schemas that the server enforces: narrowed, or not enforced at all."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counting import calls_of
from tests.hostile_schemas import doubling_references, object_of

from antiphon.dialects.common.schema_budget import MAX_NODES, SchemaBudget
from antiphon.dialects.messages.schemas import enforceable_schema
from antiphon.errors import InvalidValue
from antiphon.protocol.losses import Losses

STRING = {"type": "string"}
CLOSED: dict[str, Any] = {"type": "object", "properties": {"a": STRING}, "additionalProperties": False}


def test_supported_keywords_are_kept() -> None:
    losses = Losses()
    schema = {
        **CLOSED,
        "$defs": {"x": STRING},
        "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"type": "array", "items": STRING}},
    }
    assert enforceable_schema(schema, "s", losses) == schema
    assert not list(losses)


def test_unsupported_keywords_are_removed_with_a_loss() -> None:
    """F-4."""
    losses = Losses()
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    assert enforceable_schema(schema, "s", losses) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert [loss.path for loss in losses] == ["s.properties.a.minimum"]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"title": "anything"},
        {"type": ["object", "null"], "properties": {"a": STRING}},
        {"enum": [{"a": 1}]},
        {"type": "array", "items": {}},
        {"type": "object", "properties": ["a"]},
        {"anyOf": "one of them"},
        {"allOf": [{"$ref": "#/$defs/x"}]},
        {"$ref": 7},
        {"$ref": "https://example.com/schema"},
        {"$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}}}, "$ref": "#/$defs/x"},
        {"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"},
        {"$defs": {"x": {"type": "object"}}, "anyOf": [STRING, {"$ref": "#/$defs/x"}]},
        {"$defs": ["x"], "$ref": "#/$defs/x"},
        {"$defs": {"x": 5}, "$ref": "#/$defs/x"},
        {"type": "string", "enum": 5},
    ],
)
def test_schema_without_a_definite_type_is_not_enforceable(schema: dict[str, Any]) -> None:
    losses = Losses()
    assert enforceable_schema(schema, "s", losses) is None
    assert not list(losses)


def test_definition_with_many_references_is_visited_once() -> None:
    """Faults: thirty definitions that each refer twice to the next one would be visited a billion times."""
    few, many = (calls_of(lambda: enforceable_schema(doubling_references(levels), "s", Losses())) for levels in (8, 16))  # noqa: B023
    assert many < 3 * few
    assert enforceable_schema(doubling_references(30), "s", Losses()) is not None


def test_long_chain_of_references_is_followed_to_its_end() -> None:
    """Faults: six hundred steps, which would exceed the recursion limit."""
    links = {f"d{at}": {"type": "array", "items": {"$ref": f"#/$defs/d{at + 1}"}} for at in range(600)}
    assert enforceable_schema({"$defs": {**links, "d600": STRING}, "$ref": "#/$defs/d0"}, "s", Losses()) is not None
    assert enforceable_schema({"$defs": {**links, "d600": {}}, "$ref": "#/$defs/d0"}, "s", Losses()) is None
    assert (
        enforceable_schema({"$defs": {**links, "d600": {"$ref": "#/$defs/d0"}}, "$ref": "#/$defs/d0"}, "s", Losses())
        is None
    )


def test_enum_values_are_checked_without_a_call_for_each() -> None:
    schema = {"type": "string", "enum": ["x"] * 50_000}
    assert calls_of(lambda: enforceable_schema(schema, "s", Losses())) < 200


def test_schemas_of_one_request_have_a_common_limit() -> None:
    """Faults."""
    budget = SchemaBudget()
    for _ in range(10):
        enforceable_schema(object_of(MAX_NODES - 1), "s", Losses(), budget)
    with pytest.raises(InvalidValue) as refused:
        enforceable_schema(STRING, "tools[10].parameters", Losses(), budget)
    assert refused.value.param == "tools[10].parameters"


WORDS = st.sampled_from(
    ["type", "enum", "const", "properties", "items", "anyOf", "allOf", "$ref", "$defs", "definitions", "a"]
)
NO_SCHEMAS = st.recursive(
    st.sampled_from([None, True, 1, "a", "object", "string", "#/$defs/a", "#/definitions/a", "#/$defs/a/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, NO_SCHEMAS, max_size=5))
def test_json_that_is_no_schema_raises_nothing(schema: dict[str, Any]) -> None:
    """Faults."""
    enforceable_schema(schema, "s", Losses())


@pytest.mark.parametrize("order", sorted(set(permutations(("x", "x", "open")))))
def test_open_definition_beside_a_definition_that_is_used_twice_cannot_be_enforced(order: tuple[str, ...]) -> None:
    schema = {
        "$defs": {"x": STRING, "open": {}},
        "type": "object",
        "properties": {f"p{at}": {"$ref": f"#/$defs/{name}"} for at, name in enumerate(order)},
    }
    assert enforceable_schema(schema, "s", Losses()) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a", "b"]},
        {"const": "a"},
        {"anyOf": [STRING, {"type": "null"}]},
        {"allOf": [STRING, {"type": "string", "title": "t"}]},
        {"type": "array", "items": STRING},
        {"$ref": "#/$defs/x", "$defs": {"x": STRING}},
        {"$ref": "#/definitions/x", "definitions": {"x": STRING}},
        {"type": "string", "format": "date-time", "default": "x", "title": "t", "description": "d"},
        {"type": "object", "properties": {"a": STRING}, "required": ["a"], "additionalProperties": False},
    ],
)
def test_keywords_that_the_server_enforces_are_unchanged(schema: dict[str, Any]) -> None:
    losses = Losses()
    assert enforceable_schema(schema, "s", losses) == schema
    assert list(losses) == []


@pytest.mark.parametrize(
    "format", ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"]
)
def test_formats_that_the_server_enforces_are_unchanged(format: str) -> None:
    losses = Losses()
    assert enforceable_schema({"type": "string", "format": format}, "s", losses) == {"type": "string", "format": format}
    assert list(losses) == []
