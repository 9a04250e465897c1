"""JSON schema narrowed to what a server supports: every change is a loss, equivalent forms are not."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import calls_of
from tests.hostile_schemas import (
    doubling_references,
    many_forms,
    many_parts,
    nested_all_of,
    object_of,
    references_to,
    unknown_keywords,
)

from antiphon.dialects.common.narrowing import MAX_INLINED, Narrowing, narrow_schema
from antiphon.dialects.common.schema_budget import MAX_NODES, MAX_SIZE, MAX_TOTAL_NODES, SchemaBudget
from antiphon.dialects.gemini.tools_out import OPENAPI_SUBSET, OUTPUT_SUBSET, TOOL_SUBSET
from antiphon.errors import InvalidValue, JsonTooDeep
from antiphon.protocol.losses import MAX_TEXT_LENGTH, Losses
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.rules.gemini.schemas import check_json_schema, check_schema
from antiphon.testing.gemini.rules import StrictReport

CLOSED = Narrowing(
    keywords=frozenset({"type", "properties", "required", "additionalProperties", "enum"}), closed_objects=True
)


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
            {
                "description": "d",
                "anyOf": [{"type": "STRING", "minLength": 1}, {"type": "ARRAY", "items": {"type": "STRING"}}],
            },
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
            {
                "type": "OBJECT",
                "properties": {"a": {"type": "STRING"}, "b": {"type": "STRING"}},
                "required": ["a", "b"],
            },
            [],
        ),
        ({"type": "string", "allOf": [{"$ref": "#/$defs/a"}]}, {"type": "STRING"}, ["p.allOf"]),
    ],
)
def test_schema_is_narrowed_to_the_keywords_of_the_server(
    schema: dict[str, Any], sent: dict[str, Any], lost: list[str]
) -> None:
    """Issue 7, point 5: every change that matters is a loss."""
    assert narrow(schema) == (sent, lost)


def test_references_are_expanded() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/x~1y", "description": "mine"},
            "b": {"$ref": "#/definitions/z"},
            "c": {"$ref": 7},
        },
        "$defs": {"x/y": {"type": "string", "description": "theirs"}},
        "definitions": {"z": {"type": "number"}},
    }
    narrowed, lost = narrow(schema)
    assert narrowed["properties"]["a"] == {"type": "STRING", "description": "mine"}
    assert narrowed["properties"]["b"] == {"type": "NUMBER"}
    assert lost == ["p.properties.c", "p.properties.c"]
    assert set(narrowed) == {"type", "properties"}
    assert narrow({"$ref": "#/type/b", "type": "string"})[1] == ["p"]


def test_recursive_reference_is_cut() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    narrowed, lost = narrow({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert narrowed["properties"]["next"] == {"type": "OBJECT"}
    assert lost == ["p.properties.next"]


def test_doubling_references_are_cut() -> None:
    """Faults: thirty definitions that each refer twice to the next would expand to a billion."""
    defs: dict[str, Any] = {
        f"d{at}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{at + 1}"} for side in "ab"}}
        for at in range(30)
    }
    _, lost = narrow({"$ref": "#/$defs/d0", "$defs": {**defs, "d30": {"type": "string"}}})
    assert lost


def test_references_without_siblings_are_kept() -> None:
    plain = {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}
    assert narrow(plain, TOOL_SUBSET) == (plain, [])
    beside = {**plain, "properties": {"a": [{"$ref": "#/$defs/x", "minLength": 1}]}}
    assert "$defs" not in narrow(beside, TOOL_SUBSET)[0]
    with_title = {"$ref": "#/$defs/x", "title": "t", "$defs": {"x": {}}}
    assert narrow(with_title, Narrowing()) == (with_title, [])


def test_objects_are_closed_if_required() -> None:
    """For servers whose structured output supports no other objects."""
    narrowed, lost = narrow(
        {"properties": {"a": {"type": "string"}, "b": {"type": "object", "additionalProperties": True}}}, CLOSED
    )
    assert narrowed["additionalProperties"] is False
    assert narrowed["properties"] == {"a": {"type": "string"}, "b": {"type": "object", "additionalProperties": False}}
    assert lost == ["p.properties.b.additionalProperties"]


def test_supported_schema_is_unchanged() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"oneOf": [{"type": "string"}, {"items": {}}]}},
        "additionalProperties": {},
    }
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
def test_narrowed_schema_has_a_nesting_limit(schema: dict[str, Any], fits: bool) -> None:
    """Faults: the limit also applies to expanded references."""
    if fits:
        narrow(schema)
        return
    with pytest.raises(JsonTooDeep, match="more than 256 levels") as refused:
        narrow(schema)
    assert refused.value.param == "p"


def doubling_types(levels: int) -> dict[str, Any]:
    """A server that accepts one type gets everything inside twice."""
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
        (object_of(MAX_NODES - 1), True),
        (object_of(MAX_NODES), False),
        (doubling_references(7), True),
        (doubling_types(6), True),
        (doubling_types(12), False),
        (long_text(5), True),
        (long_text(6), False),
        ({"type": "string", "enum": ["x" * 100] * 3000}, False),
        ({"type": "array", "items": {"type": ["object", "null"], "properties": {"a": nested_lists(100)}}}, True),
    ],
)
def test_narrowed_schema_has_a_size_limit(schema: dict[str, Any], fits: bool) -> None:
    """Faults: the expanded size counts, copies included."""
    if fits:
        written, _ = narrow(schema)
        assert len(json.dumps(written)) < 2 * MAX_SIZE
        return
    with pytest.raises(InvalidValue, match="after its references are resolved") as refused:
        narrow(schema)
    assert refused.value.param == "p"


HOSTILE = {
    "members": references_to(object_of(5000)),
    "unknown keywords": references_to(unknown_keywords(5000)),
    "parts of allOf": references_to(many_parts(4000)),
    "required names of allOf": references_to({"allOf": [{"required": ["a"] * 50_000}]}),
    "members of allOf": references_to({"allOf": [object_of(500)] * 10}),
    "allOf with a reference at its end": references_to({"allOf": [{}] * 20_000 + [{"$ref": "#"}]}),
    "numbers in an enum": references_to({"enum": [1] * 50_000}),
    "format that is a list": references_to({"format": [1] * 50_000}),
    "reference that is a list": references_to({"$ref": [1] * 50_000}),
    "nested allOf": nested_all_of(50, 300),
    "forms": many_forms(5000),
    "unknown keywords at the top": unknown_keywords(20_000),
    "long keyword": references_to({"type": "string", "x" * 100_000: 1}),
    "long name": references_to({"type": "object", "properties": {"x" * 100_000: {"type": "string"}}}),
    "copies of a whole": {"anyOf": [{}] * (MAX_NODES - 10), "type": [f"t{at}" for at in range(100)]},
    "many types": object_of(1000)
    | {"properties": {f"m{at}": {"type": ["string", "integer"] * 5} for at in range(1000)}},
}
"""Schemas that cost far more than they say, and are refused before."""


@pytest.mark.parametrize("narrowing", [OPENAPI_SUBSET, OUTPUT_SUBSET, TOOL_SUBSET], ids=["OPENAPI", "OUTPUT", "PLAIN"])
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_schema_costs_no_more_than_one_at_the_limit(name: str, narrowing: Narrowing) -> None:
    """Faults: refused or not, the work has a limit."""

    def try_it() -> None:
        with suppress(InvalidValue):
            json.dumps(narrow(HOSTILE[name], narrowing))

    assert calls_of(try_it) < 40 * MAX_NODES


@pytest.mark.parametrize("narrowing", [OPENAPI_SUBSET, OUTPUT_SUBSET], ids=["OPENAPI", "OUTPUT"])
@pytest.mark.parametrize(
    "name",
    [
        "members",
        "unknown keywords",
        "parts of allOf",
        "required names of allOf",
        "allOf with a reference at its end",
        "numbers in an enum",
        "format that is a list",
        "long keyword",
    ],
)
def test_hostile_schema_is_refused(name: str, narrowing: Narrowing) -> None:
    with pytest.raises(InvalidValue, match="after its references are resolved"):
        narrow(HOSTILE[name], narrowing)


def test_long_reference_is_resolved_once() -> None:
    """Faults: a reference of sixty thousand steps that two hundred members use."""
    schema = references_to({"$ref": "#" + "/x" * 60_000}, 200)
    assert calls_of(lambda: narrow(schema)) < 4 * 60_000


def test_paths_in_losses_do_not_grow_with_long_names() -> None:
    """Faults: a path that is repeated for each of a thousand members."""
    schema: dict[str, Any] = {"anyOf": [{"x": 1}] * 300}
    for _ in range(100):
        schema = {"type": "object", "properties": {"x" * 2000: schema}}
    losses = Losses()
    narrow_schema(schema, OPENAPI_SUBSET, "p", losses)
    assert max(len(loss.path) for loss in losses) <= 500


def test_large_values_are_checked_without_a_call_for_each() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x"] * 50_000, "title": "t"}},
        "x": {"$ref": "#/$defs/a", "y": 1},
    }
    for narrowing in (OPENAPI_SUBSET, OUTPUT_SUBSET, TOOL_SUBSET):
        assert calls_of(lambda: narrow(schema, narrowing)) < 200  # noqa: B023


def test_schemas_of_one_request_have_a_common_node_limit() -> None:
    """Faults: many tools, each just below the limit for one."""
    budget = SchemaBudget()
    whole = MAX_TOTAL_NODES // MAX_NODES
    for _ in range(whole):
        narrow_schema(object_of(MAX_NODES - 1), TOOL_SUBSET, "p", Losses(), budget)
    with pytest.raises(InvalidValue, match="schemas of the request have more than 12,500 nodes") as refused:
        narrow_schema({"type": "string"}, TOOL_SUBSET, "tools[3].parameters", Losses(), budget)
    assert refused.value.param == "tools[3].parameters"


def test_schemas_of_one_request_have_a_common_size_limit() -> None:
    budget, schema = SchemaBudget(), {"type": "string", "description": "x" * (MAX_SIZE - 100)}
    for _ in range(10):
        narrow_schema(schema, TOOL_SUBSET, "p", Losses(), budget)
    with pytest.raises(InvalidValue, match="have more than 2,621,440 bytes") as refused:
        narrow_schema(schema, TOOL_SUBSET, "tools[10].parameters", Losses(), budget)
    assert refused.value.param == "tools[10].parameters"


@pytest.mark.parametrize(
    "narrowing", [OPENAPI_SUBSET, OUTPUT_SUBSET, TOOL_SUBSET, CLOSED], ids=["OPENAPI", "OUTPUT", "PLAIN", "CLOSED"]
)
@pytest.mark.parametrize(
    "schema",
    [
        {"enum": 5},
        {"enum": {"a": 1}},
        {"required": True},
        {"required": [["a"]], "properties": {"a": {}}},
        {"required": ["a"], "properties": 5},
        {"required": "a", "properties": ["a"]},
        {"format": {}},
        {"format": ["a"]},
        {"type": {"a": 1}},
        {"type": 5},
        {"type": [[], {}]},
        {"allOf": [{"required": [[]]}]},
        {"$ref": ["a"], "title": "t"},
        {"items": 5, "properties": None, "anyOf": 1},
    ],
)
def test_keywords_with_values_of_the_wrong_type_raise_nothing_else(
    schema: dict[str, Any], narrowing: Narrowing
) -> None:
    """Faults: invalid schemas may be dropped or sent, and raise only refusals."""
    narrow(schema, narrowing)


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abcd"), max_size=3), st.lists(st.sampled_from("abcd"), max_size=3)),
        max_size=5,
    )
)
def test_allof_merges_members_and_required_names(parts: list[tuple[list[str], list[str]]]) -> None:
    """Members and required names of all parts, each once, in order."""
    schema = {
        "allOf": [{"properties": {n: {"type": "string"} for n in names}, "required": needed} for names, needed in parts]
    }
    written, _ = narrow(schema, CLOSED)
    members = list(dict.fromkeys(name for names, _ in parts for name in names))
    assert list(written.get("properties", {})) == members
    assert written.get("required", []) == list(dict.fromkeys(name for _, needed in parts for name in needed))


SCHEMAS = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": ["integer", "null"]}, {"enum": ["a"]}, {"const": 1}, {}, {"type": "array"}]
    ),
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
def test_narrowed_schema_is_accepted_by_a_strict_server(schema: dict[str, Any]) -> None:
    """Issue 7, point 5."""
    check_schema(narrow(schema)[0], "p", StrictReport(), empty_objects=True)
    check_json_schema(narrow(schema, OUTPUT_SUBSET)[0], "p", StrictReport())


# JSON in which keywords of JSON schema have any value.
WORDS = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "required",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "format",
        "$ref",
        "$defs",
        "x",
    ]
)
NO_SCHEMAS = st.recursive(
    st.sampled_from([None, True, 1, "a", "object", "array", "null", "#/$defs/a", "#"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    "narrowing", [OPENAPI_SUBSET, OUTPUT_SUBSET, TOOL_SUBSET, CLOSED], ids=["OPENAPI", "OUTPUT", "PLAIN", "CLOSED"]
)
@given(schema=st.dictionaries(WORDS, NO_SCHEMAS, max_size=5))
def test_json_that_is_no_schema_raises_nothing(narrowing: Narrowing, schema: dict[str, Any]) -> None:
    """Faults: it is dropped or sent unchanged."""
    narrow(schema, narrowing)


def test_keywords_after_the_definitions_are_kept() -> None:
    """The references are written out, so the definitions are left out; they come first here."""
    schema = {
        "$defs": {"city": {"type": "string"}},
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/city"}},
        "required": ["city"],
    }
    narrowed = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
    assert narrow(schema) == (narrowed, [])


@pytest.mark.parametrize(
    ("references", "lost"), [(MAX_INLINED, []), (MAX_INLINED + 1, [f"p.properties.p{MAX_INLINED}"])]
)
def test_references_are_written_out_up_to_a_bound(references: int, lost: list[str]) -> None:
    names = [f"p{at}" for at in range(references)]
    schema = {"$defs": {"s": {"type": "string"}}, "properties": {name: {"$ref": "#/$defs/s"} for name in names}}
    losses = Losses()
    narrowed = narrow_schema(schema, OPENAPI_SUBSET, "p", losses)
    assert [loss.path for loss in losses] == lost
    assert sum(member == {"type": "STRING"} for member in narrowed["properties"].values()) == MAX_INLINED


def test_list_of_the_null_type_alone_is_the_null_type() -> None:
    assert narrow({"type": ["null"]}) == ({"type": "NULL"}, [])


@pytest.mark.parametrize(("length", "end"), [(MAX_TEXT_LENGTH - 1, "…"), (MAX_TEXT_LENGTH, "p")])
def test_step_is_added_to_a_path_up_to_a_bound(length: int, end: str) -> None:
    """A path with a further step is longer than the text of a loss, so it is cut. A path of that length gets no
    step."""
    losses = Losses()
    narrow_schema({"type": "string", "acme": 1}, OPENAPI_SUBSET, "p" * length, losses)
    assert [loss.path for loss in losses] == ["p" * (MAX_TEXT_LENGTH - 1) + end]
