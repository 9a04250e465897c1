"""The published schema of Open Responses, and documents made from it.

`open_responses_2026_04_24.json` holds the facts of the schema of that version without its prose; `tools/schema_facts.py` makes such
a file from the OpenAPI document of a newer one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

SCHEMA_FACTS: Final = Path(__file__).with_name("open_responses_2026_04_24.json")

Schema = dict[str, Any]


@cache
def published() -> dict[str, Schema]:
    """The schemas by name."""
    schemas: dict[str, Schema] = json.loads(SCHEMA_FACTS.read_text(encoding="utf-8"))
    return schemas


@cache
def valid(name: str) -> SearchStrategy[Any]:
    """Documents that are valid by a schema, and by those inside it that are amended."""
    return documents(_amended({"$ref": f"#/components/schemas/{name}"}))


def _amended(schema: Any) -> Any:
    match schema:
        case {"$ref": reference}:
            name = str(reference).rsplit("/", 1)[1]
            return _amended(published()[name] | AMENDED.get(name, ("", {}))[1])
        case dict():
            return {key: _amended(value) for key, value in schema.items()}
        case list():
            return [_amended(value) for value in schema]
        case _:
            return schema


def alternatives(schema: Schema) -> list[Schema]:
    """The plain schemas behind references, `anyOf`, `oneOf` and `allOf`: each has a `type` of its own, or none for any
    JSON."""
    if "$ref" in schema:
        return alternatives(published()[schema["$ref"].rsplit("/", 1)[1]])
    if "allOf" in schema:
        parts = schema["allOf"]
        return alternatives(parts[0]) if len(parts) == 1 else [_merged([alternatives(part)[0] for part in parts])]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [plain for option in schema[word] for plain in alternatives(option)]
    return [schema]


def _merged(parts: list[Schema]) -> Schema:
    """An object with the properties of several; the first to name one decides it."""
    properties = {name: value for part in reversed(parts) for name, value in part["properties"].items()}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for part in parts for name in part["required"]],
    }


def documents(schema: Schema) -> SearchStrategy[Any]:
    """Valid documents, small ones."""
    return st.one_of([_plain(plain) for plain in alternatives(schema)])


def _plain(schema: Schema) -> SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            least = schema.get("minLength", 0)
            alphabet = st.sampled_from("aZ0_-") if "pattern" in schema else st.characters(codec="utf-8")
            return st.text(alphabet, min_size=least, max_size=least + 6)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            return st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(
                documents(schema["items"]), min_size=schema.get("minItems", 0), max_size=schema.get("minItems", 0) + 2
            )
        case "object" if schema.get("properties"):
            return _object(schema)
        case "object":
            values = schema.get("additionalProperties") or {}
            return st.dictionaries(
                st.text(max_size=6), json_values if values in ({}, True) else documents(values), max_size=3
            )
        case _:
            return json_values


def _object(schema: Schema) -> SearchStrategy[dict[str, Any]]:
    required = schema.get("required", [])
    members = {name: documents(value) for name, value in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: member for name, member in members.items() if name in required},
        optional={name: member for name, member in members.items() if name not in required},
    )


def smallest(schema: Schema) -> Any:
    """One valid document, with nothing in it that could be left out."""
    plain = alternatives(schema)[0]
    if "enum" in plain:
        return plain["enum"][0]
    match plain.get("type"):
        case "string":
            return "a" * plain.get("minLength", 0)
        case "integer" | "number":
            return plain.get("minimum", 0)
        case "boolean":
            return False
        case "array":
            return [smallest(plain["items"])] * plain.get("minItems", 0)
        case "object":
            return {name: smallest(plain["properties"][name]) for name in plain.get("required", [])}
        case _:
            return None


def boundaries(schema: Schema) -> Iterator[tuple[str, Any, Any]]:
    """For each limit: its name, a value that just keeps it and one that just breaks it."""
    for plain in alternatives(schema):
        for word in LIMITS & plain.keys():
            limit = plain[word]
            match word:
                case "maxLength":
                    yield word, "a" * limit, "a" * (limit + 1)
                case "minLength":
                    yield word, "a" * limit, "a" * (limit - 1)
                case "pattern":
                    yield word, "aZ0_-", "a b"
                case "minimum":
                    yield word, limit, limit - 1
                case "maximum":
                    yield word, limit, limit + 1
                case "maxItems":
                    yield word, [smallest(plain["items"])] * limit, [smallest(plain["items"])] * (limit + 1)
                case "minItems":
                    yield word, [smallest(plain["items"])] * limit, [smallest(plain["items"])] * (limit - 1)
                case "maxProperties":
                    yield word, {str(n): "" for n in range(limit)}, {str(n): "" for n in range(limit + 1)}


# Where documents are made by a schema that differs from the published one, and why.
AMENDED: Final[dict[str, tuple[str, Schema]]] = {
    "ItemReferenceParam": (
        "a type that is null or absent is told by the fields, and written out; see test_second_reading",
        {"required": ["type", "id"], "properties": {"type": {"enum": ["item_reference"]}, "id": {"type": "string"}}},
    ),
    "JsonSchemaResponseFormatParam": (
        "the same, where the fields tell it; `{}` is asked for its type",
        {"required": ["type"]},
    ),
}
LIMITS: Final = {"maxLength", "minLength", "pattern", "minimum", "maximum", "maxItems", "minItems", "maxProperties"}
json_values: Final[SearchStrategy[Any]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
