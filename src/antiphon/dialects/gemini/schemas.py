"""Translates the API's schemas to JSON schema: upper-case types, `nullable`, `example` and numbers in strings.

Clients use this form in the JSON schema fields too (`responseJsonSchema`, `parametersJsonSchema`), and the API accepts
it. Property names and values do not change. Keywords that JSON schema does not have (`propertyOrdering`) stay: readers
of a schema ignore them.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.dialects.common.schema_budget import SchemaBudget, SchemaCounter
from antiphon.protocol.tools import JsonSchema


def schema_to_hub(schema: JsonSchema, path: str, budget: SchemaBudget | None = None) -> JsonSchema:
    """Translate the schema at `path`. A JSON schema is unchanged. A schema beyond the limits of `budget` is refused;
    the budget is that of the request's tools, or a new one.
    """
    return _to_hub(schema, (budget or SchemaBudget()).counter(path))


def _to_hub(schema: JsonSchema, counter: SchemaCounter) -> JsonSchema:
    counter.enter(schema)
    result: JsonSchema = {}
    for name, value in schema.items():
        name = KEYWORD_SPELLINGS.get(name, name)
        match value:
            case str() if name == "type":
                if value != "TYPE_UNSPECIFIED":
                    result[name] = value.lower()
            case list() if name == "type":
                counter.add_members(value)
                result[name] = [kind.lower() if isinstance(kind, str) else kind for kind in value]
            case dict() if name in NAMED_SUBSCHEMAS:
                counter.add_members(value)
                result[name] = {key: _inner(member, counter) for key, member in value.items()}
            case dict() | list() if name in SUBSCHEMAS:
                result[name] = _inner(value, counter)
            case str() if name in INTEGER_KEYWORDS and value.isdecimal():
                result[name] = int(value)
            case _ if name == "example":
                result["examples"] = [value]
            case _:
                result[name] = value
    counter.leave()
    return _with_null(result) if result.pop("nullable", False) is True else result


def _inner(value: Any, counter: SchemaCounter) -> Any:
    if isinstance(value, list):
        counter.add_members(value)
        return [_inner(member, counter) for member in value]
    return _to_hub(value, counter) if isinstance(value, dict) else value


def _with_null(schema: JsonSchema) -> JsonSchema:
    """Express `nullable` in JSON schema."""
    match schema:
        case {"type": str() as kind}:
            nullable = {**schema, "type": [kind, "null"]}
        case {"anyOf": list() as options}:
            nullable = {**schema, "anyOf": [*options, {"type": "null"}]}
        case _:
            return schema  # a schema without a type already allows null
    if isinstance(nullable.get("enum"), list):
        nullable["enum"] = [*nullable["enum"], None]
    return nullable


#: Keywords whose value is a schema or a list of schemas; below, keywords whose value maps names to schemas.
SUBSCHEMAS: Final = frozenset(
    {
        *(
            "items",
            "prefixItems",
            "additionalItems",
            "unevaluatedItems",
            "contains",
            "additionalProperties",
            "propertyNames",
        ),
        *("unevaluatedProperties", "not", "if", "then", "else", "anyOf", "oneOf", "allOf"),
    }
)
NAMED_SUBSCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
#: 64-bit integers, which the API's JSON writes as strings.
INTEGER_KEYWORDS: Final = frozenset(
    {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
#: Keywords for which the API accepts a second spelling.
KEYWORD_SPELLINGS: Final = {
    "any_of": "anyOf",
    "one_of": "oneOf",
    "all_of": "allOf",
    "prefix_items": "prefixItems",
    "additional_properties": "additionalProperties",
    "property_ordering": "propertyOrdering",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "ref": "$ref",
    "defs": "$defs",
}
