"""JSON schemas that a Messages server enforces, of the output or of a strict tool: narrowed to what it knows, every change a loss.

Some schemas cannot be enforced at all: those that leave open what a value is, and those that go round in a circle.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.dialects.common.narrowing import Narrowing, narrow_schema
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import JsonSchema


def enforceable_schema(schema: JsonSchema, path: str, losses: Losses) -> JsonSchema | None:
    """The schema as the server enforces it; None, and no losses, if it cannot."""
    changes = Losses()
    found = narrow_schema(schema, ENFORCED_SUBSET, path, changes)
    if not _is_sound(found, found, ()):
        return None
    losses.extend(changes)
    return found


def _is_sound(schema: Any, root: JsonSchema, inside: tuple[str, ...]) -> bool:
    """Whether every part says what it is. An object without known members could hold nothing, and must not be meant."""
    if not isinstance(schema, dict) or not any(word in schema for word in SAYS_WHAT):
        return False
    if "$ref" in schema:
        reference = schema["$ref"]
        target = _target(reference, root)
        return reference not in inside and _is_sound(target, root, (*inside, reference))
    kind = schema.get("type")
    if kind == "object" and not schema.get("properties"):
        return False
    if any(isinstance(value, dict | list) for value in schema.get("enum", ())) or (isinstance(kind, list) and "object" in kind):
        return False
    return all(_is_sound(child, root, inside) for child in _children(schema))


def _children(schema: JsonSchema) -> list[Any]:
    found = [schema["items"]] if "items" in schema else []
    properties = schema.get("properties", {})
    found += properties.values() if isinstance(properties, dict) else [None]
    for word in ("anyOf", "allOf"):
        forms = schema.get(word, [])
        found += forms if isinstance(forms, list) else [None]
    return found


def _target(reference: Any, root: JsonSchema) -> Any:
    match reference.split("/") if isinstance(reference, str) else []:
        case ["#", ("$defs" | "definitions") as group, name]:
            return root.get(group, {}).get(name)
        case _:
            return None


SAYS_WHAT: Final = ("type", "anyOf", "allOf", "enum", "const", "$ref")
ENFORCED_SUBSET: Final = Narrowing(
    keywords=frozenset(
        {
            *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "allOf"),
            *("$ref", "$defs", "definitions", "format", "default", "title", "description"),
        }
    ),
    formats=frozenset({"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}),
    closed_objects=True,
)
