"""The rules of gemini servers for schemas: their own subset of OpenAPI, and JSON schema, which newer servers accept.

Schemas are checked without recursion, as far as the report allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from antiphon.rules.gemini.refusing import refuse
from antiphon.rules.report import Report, as_json
from antiphon.rules.schemas import iter_schemas


def check_schema(schema: dict[str, Any] | None, path: str, report: Report, *, empty_objects: bool) -> None:
    """Check a schema of the server's own kind. `shapes` has checked its keywords and types."""
    for exact_path, part in iter_schemas(schema, path, report, _children):
        if part is not None:
            _check_part(part, exact_path, report, empty_objects=empty_objects)


def check_parameters(schema: dict[str, Any] | None, path: str, report: Report, *, empty_objects: bool) -> None:
    """Check the schema of a function's parameters."""
    # It says "functionDeclaration parameters schema should be of type OBJECT"
    if schema is not None and schema.get("type") != "OBJECT":
        report.add(
            "schema",
            path,
            f"* GenerateContentRequest.{path}: functionDeclaration parameters schema should be of type OBJECT.",
            f"the schema of a function's parameters has the type object, not {as_json(schema.get('type'))}",
        )
        return
    check_schema(schema, path, report, empty_objects=empty_objects)


def check_json_schema(schema: Any, path: str, report: Report) -> None:
    """Check a JSON schema. Keywords that the server does not know it ignores, as documented."""
    if not isinstance(schema, dict):
        message = f"* GenerateContentRequest.{path}: must be a JSON schema object."
        report.add("schema", path, message, f"{as_json(schema)} is no JSON schema: expected an object")
        return
    for exact_path, part in iter_schemas(schema, path, report, _members):
        if isinstance(part, dict):
            _check_reference(part, schema, exact_path, path, report)


def _check_part(schema: dict[str, Any], path: str, report: Report, *, empty_objects: bool) -> None:
    kind = schema.get("type")
    properties = schema.get("properties", {})
    # It says "type: must be specified when not using one_of, any_of or all_of fields"
    if kind is None and "anyOf" not in schema:
        server_text = "must be specified when not using one_of, any_of or all_of fields"
        refuse(report, "missing_field", f"{path}.type", server_text, "a schema has a type or `anyOf`")
    for field in ("properties", "required"):
        # It says "properties: only allowed for OBJECT type", "required: only allowed for OBJECT type"
        if schema.get(field) and kind != "OBJECT":
            refuse(report, "schema", f"{path}.{field}", "only allowed for OBJECT type")
    # It says "properties: should be non-empty for OBJECT type": older versions
    if kind == "OBJECT" and not properties and not empty_objects:
        problem, server_text = "some servers take no object without properties", "should be non-empty for OBJECT type"
        refuse(report, "schema", f"{path}.properties", server_text, problem, is_certain=False)
    for index, name in enumerate(schema.get("required", ())):
        # It says "required[0]: property is not defined"
        if name not in properties:
            problem = f"{as_json(name)} is required, and is no property"
            refuse(report, "schema", f"{path}.required[{index}]", "property is not defined", problem)
    # It says "items: missing field."
    if kind == "ARRAY" and "items" not in schema:
        refuse(report, "schema", f"{path}.items", "missing field.", "an array has `items`")
    _check_words(schema, path, report)


def _check_words(schema: dict[str, Any], path: str, report: Report) -> None:
    kind = schema.get("type")
    words = schema.get("enum")
    # It says "enum: only allowed for STRING type"
    if words is not None and kind != "STRING":
        refuse(report, "schema", f"{path}.enum", "only allowed for STRING type")
    for index, word in enumerate(words or ()):
        # It says "enum[0]: cannot be empty"
        if not word:
            refuse(report, "schema", f"{path}.enum[{index}]", "cannot be empty")
    formats = FORMATS.get(kind or "")
    # It says "format: only 'enum' and 'date-time' are supported for STRING type", and the like for numbers
    if formats is not None and schema.get("format", formats[0]) not in formats:
        server_text = f"only {' and '.join(map(repr, formats))} are supported for {kind} type"
        refuse(report, "schema", f"{path}.format", server_text)


def _children(schema: dict[str, Any] | None) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the schemas directly inside a schema, each with its step of the path."""
    if schema is None:  # it was not read
        return
    yield from ((f".properties[{name}]", child) for name, child in schema.get("properties", {}).items())
    yield from ((f".any_of[{index}]", child) for index, child in enumerate(schema.get("anyOf", ())))
    if "items" in schema:
        yield ".items", schema["items"]


def _members(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the objects and lists in an object or list, each with its step of the path."""
    steps = (
        ((f".{name}", member) for name, member in value.items())
        if isinstance(value, dict)
        else ((f"[{index}]", member) for index, member in enumerate(value))
    )
    return ((step, member) for step, member in steps if isinstance(member, dict | list))


def _check_reference(schema: dict[str, Any], root: dict[str, Any], exact_path: str, path: str, report: Report) -> None:
    ref = schema.get("$ref")
    if not isinstance(ref, str):
        return
    # It says "If $ref is set on a sub-schema, no other properties, except for those starting as a $, may be set";
    # newer servers let a description and a default stand beside it.
    others = [name for name in schema if not name.startswith("$") and name not in ("description", "default")]
    if others:
        server_text = f"cannot be set together with {', '.join(others)}"
        refuse(report, "schema", f"{path}.$ref", server_text, exact_path=f"{exact_path}.$ref")
    # A reference leads into the schema's own $defs.
    definitions = root.get("$defs")
    if ref != "#" and not (isinstance(definitions, dict) and ref.removeprefix("#/$defs/") in definitions):
        refuse(report, "schema", f"{path}.$ref", f"{ref} is not defined", exact_path=f"{exact_path}.$ref")


FORMATS: Final = {
    "STRING": ("enum", "date-time"),
    "NUMBER": ("float", "double"),
    "INTEGER": ("int32", "int64"),
}
