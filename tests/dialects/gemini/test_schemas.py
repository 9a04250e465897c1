"""This API's schemas, in either of its forms, as JSON schema."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.counting import calls_of
from tests.dialects.gemini.asking import ask
from tests.hostile_schemas import object_of

from antiphon.dialects.common.schema_budget import MAX_NODES
from antiphon.dialects.gemini.schemas import schema_to_hub
from antiphon.errors import InvalidValue
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import JsonSchemaFormatParam
from antiphon.protocol.tools import FunctionToolParam

TYPES = ["string", "number", "integer", "boolean", "null"]
# Names of properties that are keywords too, or have an unusual spelling.
NAMES = st.sampled_from(["a", "type", "items", "any_of", "nullable", "STRING", "min_items"])
ONE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
)
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    """JSON schemas with subschemas in every place, and with values that only look like types."""
    schema: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from([*TYPES, "object", "array", ["string", "null"]]),
                "enum": st.just(["STRING", "OBJECT", None]),
                "const": st.just({"type": "STRING"}),
                "default": st.just({"type": "ARRAY"}),
                "description": st.just("A STRING"),
                "x-mine": st.just({"type": "STRING"}),
                "my_word": st.just(1),
            },
        )
    )
    inner = schemas(depth=depth - 1) if depth else st.just({})
    if depth:
        for word in draw(st.sets(st.sampled_from([*ONE, *NAMED, *SEVERAL]), max_size=2)):
            if word in ONE:
                schema[word] = draw(st.booleans() | inner)
            elif word in NAMED:
                schema[word] = draw(st.dictionaries(NAMES, inner, max_size=2))
            else:
                schema[word] = draw(st.lists(inner, min_size=1, max_size=2))
    return schema


def in_capitals(schema: Any) -> Any:
    """The same with its types in capitals, wherever a schema is allowed."""
    if not isinstance(schema, dict):
        return schema
    respelled: dict[str, Any] = {}
    for word, value in schema.items():
        if word == "type":
            respelled[word] = [kind.upper() for kind in value] if isinstance(value, list) else value.upper()
        elif word in ONE:
            respelled[word] = in_capitals(value)
        elif word in NAMED:
            respelled[word] = {name: in_capitals(inner) for name, inner in value.items()}
        elif word in SEVERAL:
            respelled[word] = [in_capitals(inner) for inner in value]
        else:
            respelled[word] = value
    return respelled


@given(schemas())
def test_schema_to_hub_reads_types_in_capitals_at_every_depth(schema: dict[str, Any]) -> None:
    """And leaves a JSON schema, the user's values and names included, unchanged."""
    assert schema_to_hub(schema, "s") == schema
    assert schema_to_hub(in_capitals(schema), "s") == schema


@given(schemas())
def test_schema_in_capitals_is_the_same_request_in_every_field(schema: dict[str, Any]) -> None:
    """`responseSchema`, `responseJsonSchema`, `parameters` and `parametersJsonSchema` accept either spelling."""
    schema = {"type": "object", "properties": {"a": {}}, **schema}
    for spelled in (schema, in_capitals(schema)):
        for field in ("responseSchema", "responseJsonSchema"):
            text = ask(generationConfig={"responseMimeType": "application/json", field: spelled}).request.text
            assert text
            assert text.format == JsonSchemaFormatParam(name="response", schema=schema)
        for field in ("parameters", "parametersJsonSchema"):
            tools = ask(tools=[{"functionDeclarations": [{"name": "f", field: spelled}]}]).request.tools
            assert tools == [FunctionToolParam(name="f", parameters=schema, strict=False)]


def test_schema_to_hub_lowers_types_at_every_depth() -> None:
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
        "property_ordering": ["my_list", "type"],
        "additionalProperties": False,
    }
    assert schema_to_hub(schema, "s") == {
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
    ("schema", "expected"),
    [
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "STRING", "nullable": False}, {"type": "string"}),
        ({"type": "STRING", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"anyOf": [{"type": "STRING"}], "nullable": True}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"description": "x", "nullable": True}, {"description": "x"}),
        ({"type": "STRING", "example": "x"}, {"type": "string", "examples": ["x"]}),
        (
            {"ref": "#/$defs/a", "defs": {"a": {"type": "NULL"}}},
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
        ),
        ({"type": "STRING", "maxLength": "7", "pattern": "7"}, {"type": "string", "maxLength": 7, "pattern": "7"}),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        ({"type": ["STRING", "NULL"]}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ],
)
def test_schema_to_hub_translates_keywords_that_json_schema_lacks(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert schema_to_hub(schema, "s") == expected
    jsonschema.Draft202012Validator.check_schema(expected)


def test_schema_to_hub_reads_tuples_of_older_drafts() -> None:
    assert schema_to_hub({"items": [{"type": "STRING"}, True]}, "s") == {"items": [{"type": "string"}, True]}


@pytest.mark.parametrize(
    "schema", [{"type": 7}, {"type": [7]}, {"items": True}, {"properties": [{"type": "STRING"}]}, {"maxItems": "many"}]
)
def test_schema_to_hub_keeps_values_that_are_not_schemas(schema: dict[str, Any]) -> None:
    assert schema_to_hub(schema, "s") == schema


def test_schema_to_hub_reads_the_deepest_allowed_nesting() -> None:
    schema: dict[str, Any] = {"type": "STRING"}
    for _ in range(MAX_NESTING // 2):
        schema = {"anyOf": [schema]}
    assert str(schema_to_hub(schema, "s")).count("anyOf") == MAX_NESTING // 2


@pytest.mark.parametrize(
    "schema",
    [
        object_of(100_000),
        {"anyOf": [{"type": "STRING"}] * 100_000},
        {"anyOf": [1] * 100_000},
        {"properties": {str(number): 1 for number in range(100_000)}},
        {"type": ["STRING"] * 100_000},
        {f"x{number}": 1 for number in range(100_000)},
    ],
    ids=["members", "forms", "numbers", "numbers by name", "types", "keywords"],
)
def test_schema_to_hub_has_a_limit(schema: dict[str, Any]) -> None:
    """Faults: the work ends at the limit, not at the end of the schema."""

    def read() -> None:
        with pytest.raises(InvalidValue, match="1,250 nodes") as refused:
            schema_to_hub(schema, "s")
        assert refused.value.param == "s"

    assert calls_of(read) < 50 * MAX_NODES


@pytest.mark.parametrize("field", ["responseSchema", "responseJsonSchema"])
def test_output_schema_of_a_client_is_refused_under_its_own_name(field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        ask(generationConfig={"responseMimeType": "application/json", field: object_of(MAX_NODES)})
    assert refused.value.param == f"generationConfig.{field}"


@pytest.mark.parametrize("field", ["parameters", "parametersJsonSchema"])
def test_tools_of_a_client_have_a_common_limit(field: str) -> None:
    functions = [{"name": f"f{number}", field: object_of(900)} for number in range(20)]
    with pytest.raises(InvalidValue, match="12,500 nodes") as refused:
        ask(tools=[{"googleSearch": {}}, {"functionDeclarations": functions}])
    assert refused.value.param == f"tools[1].functionDeclarations[11].{field}"


@pytest.mark.parametrize(
    ("spelled", "keyword", "value"),
    [
        *((f"{word}_of", f"{word}Of", [{"type": "string"}]) for word in ("any", "one", "all")),
        ("prefix_items", "prefixItems", [{"type": "string"}]),
        ("additional_properties", "additionalProperties", False),
        ("property_ordering", "propertyOrdering", ["a"]),
        *((f"{side}_items", f"{side}Items", 3) for side in ("min", "max")),
        *((f"{side}_length", f"{side}Length", 3) for side in ("min", "max")),
        *((f"{side}_properties", f"{side}Properties", 3) for side in ("min", "max")),
        ("ref", "$ref", "#/$defs/x"),
        ("defs", "$defs", {"x": {"type": "string"}}),
    ],
)
def test_schema_to_hub_reads_both_spellings_of_a_keyword(spelled: str, keyword: str, value: Any) -> None:
    assert schema_to_hub({spelled: value}, "s") == schema_to_hub({keyword: value}, "s") == {keyword: value}
