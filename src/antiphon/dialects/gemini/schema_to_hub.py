"""This API's older schemas as JSON schema: types in capitals, `nullable`, `example` and numbers in strings become what that has.

Names of properties are the user's own and stay. What JSON schema does not know (`propertyOrdering`) is left where it is: readers of
a schema pass over it.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.dialects.gemini.request_in import camel
from antiphon.protocol.tools import JsonSchema


def schema_to_hub(schema: JsonSchema) -> JsonSchema:
    """The same schema; one that is JSON schema already is unchanged."""
    found: JsonSchema = {}
    for name, value in schema.items():
        name = camel(name)
        match name, value:
            case "type", str():
                if value != "TYPE_UNSPECIFIED":
                    found[name] = value.lower()
            case (("properties" | "defs" | "$defs"), dict()):
                found["$defs" if name == "defs" else name] = {key: _inner(member) for key, member in value.items()}
            case (("items" | "additionalProperties" | "not"), _):
                found[name] = _inner(value)
            case (("anyOf" | "oneOf" | "allOf" | "prefixItems"), list()):
                found[name] = [_inner(member) for member in value]
            case "example", _:
                found["examples"] = [value]
            case "ref", _:
                found["$ref"] = value
            case _ if name in COUNTS and isinstance(value, str) and value.isdecimal():
                found[name] = int(value)
            case _:
                found[name] = value
    return _with_null(found) if found.pop("nullable", False) is True else found


def _inner(value: Any) -> Any:
    return schema_to_hub(value) if isinstance(value, dict) else value


def _with_null(schema: JsonSchema) -> JsonSchema:
    """`nullable`, as JSON schema says it."""
    match schema:
        case {"type": str() as kind}:
            told = {**schema, "type": [kind, "null"]}
        case {"anyOf": list() as options}:
            told = {**schema, "anyOf": [*options, {"type": "null"}]}
        case _:
            return schema  # what has no type may be null already
    if isinstance(told.get("enum"), list):
        told["enum"] = [*told["enum"], None]
    return told


#: 64-bit numbers, which the API's own JSON writes as strings.
COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
