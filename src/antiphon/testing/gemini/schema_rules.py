"""The rules of gemini servers for schemas: their own subset of OpenAPI, and JSON schema, which newer servers accept."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from antiphon.testing.gemini.errors import GeminiRequestRefused


def check_schema(schema: dict[str, Any], path: str, *, empty_objects: bool) -> None:
    """A schema of the server's own kind. Unknown keywords, types and lists of types were refused by its shape."""
    kind = schema.get("type")
    # It says "type: must be specified when not using one_of, any_of or all_of fields"
    if kind is None and "anyOf" not in schema:
        _refuse(path, "type", "must be specified when not using one_of, any_of or all_of fields")
    for field in ("properties", "required"):
        # It says "properties: only allowed for OBJECT type", "required: only allowed for OBJECT type"
        if schema.get(field) and kind != "OBJECT":
            _refuse(path, field, "only allowed for OBJECT type")
    # It says "properties: should be non-empty for OBJECT type": older versions
    if kind == "OBJECT" and not schema.get("properties") and not empty_objects:
        _refuse(path, "properties", "should be non-empty for OBJECT type")
    for at, name in enumerate(schema.get("required", ())):
        # It says "required[0]: property is not defined"
        if name not in schema.get("properties", {}):
            _refuse(path, f"required[{at}]", "property is not defined")
    # It says "items: missing field."
    if kind == "ARRAY" and "items" not in schema:
        _refuse(path, "items", "missing field.")
    _check_words(schema, path)
    for field, child in _children(schema):
        check_schema(child, f"{path}.{field}", empty_objects=empty_objects)


def check_parameters(schema: dict[str, Any], path: str, *, empty_objects: bool) -> None:
    """The schema of a function's parameters."""
    # It says "functionDeclaration parameters schema should be of type OBJECT"
    if schema.get("type") != "OBJECT":
        raise GeminiRequestRefused(
            f"* GenerateContentRequest.{path}: functionDeclaration parameters schema should be of type OBJECT."
        )
    check_schema(schema, path, empty_objects=empty_objects)


def check_json_schema(schema: Any, path: str) -> None:
    """JSON schema under the name of its own. Keywords that the server does not know it passes over, as documented."""
    if not isinstance(schema, dict):
        raise GeminiRequestRefused(f"* GenerateContentRequest.{path}: must be a JSON schema object.")
    _check_refs(schema, schema, path)


def _check_words(schema: dict[str, Any], path: str) -> None:
    kind = schema.get("type")
    words = schema.get("enum")
    # It says "enum: only allowed for STRING type"
    if words is not None and kind != "STRING":
        _refuse(path, "enum", "only allowed for STRING type")
    for at, word in enumerate(words or ()):
        # It says "enum[0]: cannot be empty"
        if not word:
            _refuse(path, f"enum[{at}]", "cannot be empty")
    formats = FORMATS.get(kind or "")
    # It says "format: only 'enum' and 'date-time' are supported for STRING type", and the like for numbers
    if formats is not None and schema.get("format", formats[0]) not in formats:
        _refuse(path, "format", f"only {' and '.join(map(repr, formats))} are supported for {kind} type")


def _children(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    children = [(f"properties[{name}]", child) for name, child in schema.get("properties", {}).items()]
    children += [(f"any_of[{at}]", child) for at, child in enumerate(schema.get("anyOf", ()))]
    return [*children, ("items", schema["items"])] if "items" in schema else children


def _check_refs(schema: Any, root: dict[str, Any], path: str) -> None:
    if isinstance(schema, list):
        for member in schema:
            _check_refs(member, root, path)
    if not isinstance(schema, dict):
        return
    ref = schema.get("$ref")
    if isinstance(ref, str):
        # It says "If $ref is set on a sub-schema, no other properties, except for those starting as a $, may be set";
        # newer servers let a description and a default stand beside it.
        others = [name for name in schema if not name.startswith("$") and name not in ("description", "default")]
        if others:
            _refuse(path, "$ref", f"cannot be set together with {', '.join(others)}")
        # A reference leads into the schema's own $defs.
        if ref != "#" and ref.removeprefix("#/$defs/") not in (root.get("$defs") or {}):
            _refuse(path, "$ref", f"{ref} is not defined")
    for member in schema.values():
        _check_refs(member, root, path)


def _refuse(path: str, field: str, wrong: str) -> NoReturn:
    raise GeminiRequestRefused(f"* GenerateContentRequest.{path}.{field}: {wrong}\n")


FORMATS: Final = {
    "STRING": ("enum", "date-time"),
    "NUMBER": ("float", "double"),
    "INTEGER": ("int32", "int64"),
}
