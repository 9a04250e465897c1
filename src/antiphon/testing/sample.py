"""Make a sample value for a JSON schema: always the same, and the smallest that the common keywords allow.

Keywords that tools and formats rarely use (`pattern`, `not`, conditions) are ignored.
"""

from __future__ import annotations

from typing import Any, Final


def sample(schema: Any) -> Any:
    """Return a value that the schema allows."""
    return _sample(schema, schema if isinstance(schema, dict) else {}, "value", MAX_DEPTH)


def _sample(schema: Any, root: dict[str, Any], name: str, depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return None
    if isinstance(schema.get("$ref"), str):
        return _sample(_resolve_ref(schema["$ref"], root), root, name, depth - 1)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    for list_keyword in ("enum", "examples"):
        if schema.get(list_keyword):
            return schema[list_keyword][0]
    for union_keyword in ("anyOf", "oneOf"):
        if schema.get(union_keyword):
            return _sample(schema[union_keyword][0], root, name, depth - 1)
    if schema.get("allOf"):
        schema = {key: value for part in (schema, *schema["allOf"]) for key, value in part.items() if key != "allOf"}
    return _sample_of_type(schema, root, name, depth)


def _sample_of_type(schema: dict[str, Any], root: dict[str, Any], name: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            properties = schema.get("properties", {})
            return {key: _sample(properties.get(key, {}), root, key, depth - 1) for key in schema.get("required", ())}
        case "array":
            return [_sample(schema.get("items"), root, name, depth - 1)] * schema.get("minItems", 1)
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _sample_text(schema, name)


def _sample_text(schema: dict[str, Any], name: str) -> str:
    text: str = TEXTS_BY_FORMAT.get(schema.get("format", ""), name)
    return text.ljust(schema.get("minLength", 0), "-")[: schema.get("maxLength")]


def _resolve_ref(ref: str, root: dict[str, Any]) -> Any:
    """Return the target of a reference such as `#/$defs/Name`."""
    target: Any = root
    for step in ref.removeprefix("#").strip("/").split("/"):
        target = target.get(step) if isinstance(target, dict) and step else target
    return target


TEXTS_BY_FORMAT: Final = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
MAX_DEPTH: Final = 20
