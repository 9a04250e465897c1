"""The rules of the Messages API for schemas: of a tool's input, and those that the server enforces.

A strict tool and a format of the output have an enforced schema. Schemas are checked without recursion, as far as the
report allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from antiphon.rules.messages.members import refuse
from antiphon.rules.report import Report, as_json
from antiphon.rules.schemas import TYPES, iter_schemas, unknown_type_of


def check_input_schema(schema: dict[str, Any], path: str, report: Report) -> None:
    """Check the schema of a tool's input."""
    # "input_schema.type: Field required", "Input should be 'object'".
    if schema.get("type") != "object":
        problem = f"the schema of a tool's input has the type object, not {as_json(schema.get('type'))}"
        refuse(report, "schema", f"{path}.type", "Input should be 'object'", problem, exact_path=path)
        return
    # "input_schema does not support oneOf, allOf, or anyOf at the top level".
    if any(union in schema for union in ("oneOf", "allOf", "anyOf")):
        refuse(report, "schema", path, "input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties") or {}
    if not isinstance(properties, dict) or not isinstance(schema.get("required") or [], list):
        refuse(report, "schema", path, INVALID, "`properties` is an object and `required` a list of names")
        return
    for exact_path, part in iter_schemas(schema, path, report, _children):
        server_text = unknown_type_of(part) if isinstance(part, dict) else None
        if server_text is not None:
            problem = f"{as_json(server_text)} is no type of JSON schema: expected one of {', '.join(TYPES)}"
            refuse(report, "schema", path, INVALID, problem, exact_path=f"{exact_path}.type")
    for name in properties:
        # "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'".
        if not PROPERTY.fullmatch(name):
            server_text = f"Property keys should match pattern '^{PROPERTY.pattern}$', not {name!r}"
            refuse(report, "schema", f"{path}.properties", server_text)


def check_enforced_schema(schema: dict[str, Any], path: str, report: Report) -> None:
    """Check a schema that the server enforces."""
    for exact_path, part in iter_schemas(schema, path, report, _children):
        _check_part(part, exact_path, report)
    _check_references(schema, path, report)


def _check_part(schema: Any, path: str, report: Report) -> None:
    if not isinstance(schema, dict):
        problem = f"{as_json(schema)} is no JSON schema: expected an object"
        refuse(report, "schema", path, "Input should be a valid dictionary", problem)
        return
    _check_form(schema, path, report)
    kind = schema.get("type")
    # Every part says what it is: there is no value of any kind.
    if not any(word in schema for word in ("type", "anyOf", "allOf", "enum", "const", "$ref")):
        refuse(report, "schema", path, "a schema needs a 'type', 'anyOf', 'allOf', 'enum', 'const' or '$ref'")
    for word in schema:
        # "For 'integer' type, property 'minimum' is not supported": bounds, lengths, conditions, `oneOf`.
        if word not in KEYWORDS:
            server_text = f"For {kind!r} type, property {word!r} is not supported"
            refuse(report, "schema", path, server_text, f"`{word}` is not supported here", exact_path=f"{path}.{word}")
    # "For 'object' type, 'additionalProperties' must be explicitly set to false".
    if (kind == "object" or "properties" in schema) and schema.get("additionalProperties") is not False:
        refuse(report, "schema", path, "For 'object' type, 'additionalProperties' must be explicitly set to false")
    # "For 'array' type, 'minItems' values other than 0 or 1 are not supported".
    if schema.get("minItems", 0) not in (0, 1):
        refuse(report, "schema", path, "For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    # Formats of strings: a list of known ones.
    if schema.get("format", "date") not in FORMATS:
        refuse(report, "schema", path, f"For 'string' type, format {schema['format']!r} is not supported")
    # "Enum values of complex types are not supported".
    values = schema.get("enum")
    if isinstance(values, list) and any(isinstance(value, dict | list) for value in values):
        refuse(report, "schema", path, "enum values are strings, numbers, booleans or null")


def _check_form(schema: dict[str, Any], path: str, report: Report) -> None:
    # "JSON schema is invalid. It must match JSON Schema draft 2020-12".
    server_text = unknown_type_of(schema)
    if server_text is not None:
        problem = f"{as_json(server_text)} is no type of JSON schema: expected one of {', '.join(TYPES)}"
        refuse(report, "schema", f"{path}.type", INVALID, problem)
    for words, kind in ((("properties", "$defs", "definitions"), dict), (("anyOf", "allOf", "enum", "required"), list)):
        for word in words:
            if word in schema and not isinstance(schema[word], kind):
                problem = f"`{word}` is {'an object' if kind is dict else 'a list'}, not {as_json(schema[word])}"
                refuse(report, "schema", f"{path}.{word}", INVALID, problem)


def _children(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly inside a schema, each with its step of the path."""
    if not isinstance(schema, dict):
        return
    if "items" in schema:
        yield ".items", schema["items"]
    for group in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(group), dict):
            yield from ((f".{group}.{name}", child) for name, child in schema[group].items())
    for group in ("anyOf", "allOf"):
        if isinstance(schema.get(group), list):
            yield from ((f".{group}.{index}", child) for index, child in enumerate(schema[group]))


def _check_references(root: dict[str, Any], path: str, report: Report) -> None:
    """Report references that lead in a circle or out of the schema. Each definition is entered once."""
    entered: set[str] = set()
    left: set[str] = set()
    # A path and a schema to enter, or the reference whose definition is left.
    unanswered_calls: list[tuple[str, Any] | str] = [(path, root)]
    while unanswered_calls:
        step = unanswered_calls.pop()
        if isinstance(step, str):
            left.add(step)
            continue
        exact_path, schema = step
        if not isinstance(schema, dict):
            continue
        if not report.may_check_schema(exact_path):
            return
        # Definitions are entered from their references.
        unanswered_calls += [
            (f"{exact_path}{name}", child)
            for name, child in _children(schema)
            if not name.startswith((".$defs.", ".definitions."))
        ]
        ref = schema.get("$ref")
        if ref is None:
            continue
        target = _resolve(ref, root)
        # "Circular reference detected in schema definitions"; and no other document is ever fetched.
        if target is None or (ref in entered and ref not in left):
            refuse(report, "schema", exact_path, f"the reference {ref!r} leads in a circle or out of the schema")
        elif ref not in entered:
            entered.add(ref)
            unanswered_calls += [ref, (exact_path, target)]


def _resolve(ref: Any, root: dict[str, Any]) -> dict[str, Any] | None:
    match ref.split("/") if isinstance(ref, str) else []:
        case ["#", ("$defs" | "definitions") as group, name]:
            definitions = root.get(group)
            target = definitions.get(name) if isinstance(definitions, dict) else None
            return target if isinstance(target, dict) else None
        case _:
            return None


INVALID: Final = "JSON schema is invalid. It must match JSON Schema draft 2020-12"
PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
KEYWORDS: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "minItems", "enum", "const", "anyOf"),
        *("allOf", "$ref", "$defs", "definitions", "format", "pattern", "default", "title", "description"),
        *("examples", "$schema", "$id"),
    }
)
FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
