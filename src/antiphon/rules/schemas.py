"""Rules for JSON schemas: those of chat and responses servers, and what all dialects share.

The schemas inside a schema are checked one after the other, without recursion, as far as the report allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from antiphon.rules.report import Report, as_json


def check_parameters(schema: Any, path: str, report: Report, *, strict: Any) -> None:
    """Check the schema of a function's parameters."""
    # "schema must be of type object": a function takes named arguments, and nothing else.
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
        kind = schema.get("type") if isinstance(schema, dict) else None
        report.add(
            "schema",
            path,
            "the schema of a function's parameters is of type object",
            f"the schema of a function's parameters has the type object, not {as_json(kind)}",
            code="invalid_function_parameters",
        )
        return
    check_schema(schema, path, report, strict=strict)


def check_schema(schema: Any, path: str, report: Report, *, strict: Any) -> None:
    """Check a schema. In a strict schema every object is closed and every property is required."""
    if strict is not None and not isinstance(strict, bool):
        message, exact_path = f"strict is {strict!r}, not a boolean", f"{path.rpartition('.')[0]}.strict"
        report.add("value", exact_path, message, f"{as_json(strict)} is not a boolean", param=path, code="invalid_type")
    if schema is not None:
        for exact_path, part in iter_schemas(schema, path, report, children_of):
            _check_part(part, exact_path, path, report, strict=strict is True)


def iter_schemas(
    schema: Any, path: str, report: Report, children: Callable[[Any], Iterator[tuple[str, Any]]]
) -> Iterator[tuple[str, Any]]:
    """Yield a schema and all schemas inside it, each before its own, until the report ends the check."""
    unanswered_calls: list[tuple[str, Iterator[tuple[str, Any]]]] = [(path, iter([("", schema)]))]
    while unanswered_calls:
        parent, parts = unanswered_calls[-1]
        step, part = next(parts, (None, None))
        if step is None:
            unanswered_calls.pop()
            continue
        exact_path = f"{parent}{step}"
        if not report.may_check_schema(exact_path):
            return
        yield exact_path, part
        unanswered_calls.append((exact_path, children(part)))


def children_of(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly inside a schema, each with its step of the path."""
    if not isinstance(schema, dict):
        return
    if "items" in schema and not isinstance(schema["items"], list):
        yield ".items", schema["items"]
    for group in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(group), dict):
            yield from ((f".{group}.{name}", child) for name, child in schema[group].items())
    for group in ("anyOf", "allOf", "oneOf"):
        if isinstance(schema.get(group), list):
            yield from ((f".{group}[{index}]", child) for index, child in enumerate(schema[group]))


def unknown_type_of(schema: dict[str, Any]) -> Any:
    """Return the first `type` of this schema that JSON schema does not define; None if all are valid."""
    given = schema.get("type")
    kinds = given if isinstance(given, list) else [given]
    return next((kind for kind in kinds if kind is not None and kind not in TYPES), None)


def _check_part(schema: Any, exact_path: str, param: str, report: Report, *, strict: bool) -> None:
    """Check one schema. Providers name the whole schema (`param`), we name the part (`exact_path`)."""

    def refuse(path: str, message: str, problem: str, settings: tuple[str, ...] = ()) -> None:
        report.add("schema", path, message, problem, param=param, code="invalid_schema", settings=settings)

    # "1 is not of type 'object', 'boolean'": JSON schema knows both; strict schemas know only objects.
    if not isinstance(schema, dict):
        if strict or not isinstance(schema, bool):
            problem = f"{as_json(schema)} is no JSON schema: expected an object"
            refuse(exact_path, f"Invalid schema: {schema!r} is not of type 'object'", problem)
        return
    # "Invalid schema for function 'f': 'float' is not valid under any of the given schemas": types in capitals are as
    # unknown.
    server_text = unknown_type_of(schema)
    if server_text is not None:
        problem = f"{as_json(server_text)} is no type of JSON schema: expected one of {', '.join(TYPES)}"
        refuse(
            f"{exact_path}.type",
            f"Invalid schema: {server_text!r} is not valid under any of the given schemas",
            problem,
        )
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if (
        not isinstance(properties, dict)
        or not isinstance(required, list)
        or not all(isinstance(name, str) for name in required)
    ):
        message = "properties and required must be an object and an array of names"
        refuse(exact_path, message, "`properties` is an object and `required` a list of names")
        return
    # Strict schemas close every object and require every property: the constrained decoder knows no others.
    if strict and (schema.get("type") == "object" or "properties" in schema):
        if schema.get("additionalProperties") is not False:
            message = "additionalProperties must be false in a strict schema"
            refuse(exact_path, message, "`additionalProperties` must be false in a strict schema", NOT_STRICT)
        if set(required) != set(properties):
            names = sorted(set(required) ^ set(properties))
            problem = f"a strict schema requires exactly its properties; {as_json(names)} differ"
            refuse(f"{exact_path}.required", "every property must be required in a strict schema", problem, NOT_STRICT)
    elif not properties.keys() >= set(required):
        # JSON schema allows it; a server that compiles the schema may not.
        names = sorted(set(required) - properties.keys())
        report.suspect("schema", f"{exact_path}.required", f"{as_json(names)} are required, and are no properties")


TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
NOT_STRICT: Final = ("wire.strict_tools = false",)
