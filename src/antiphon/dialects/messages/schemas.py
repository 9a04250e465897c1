"""JSON schemas that a Messages server enforces, of the output or of a strict tool: narrowed to what it knows, every change a loss.

Some schemas cannot be enforced at all: those that leave open what a value is, and those that go round in a circle.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from antiphon.dialects.common.narrowing import Narrowing, narrow_schema
from antiphon.dialects.common.schema_budget import SchemaBudget
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import JsonSchema


def enforceable_schema(
    schema: JsonSchema, path: str, losses: Losses, budget: SchemaBudget | None = None
) -> JsonSchema | None:
    """The schema as the server enforces it; None, and no losses, if it cannot. `budget` is that of the request's tools."""
    changes = Losses()
    narrowed = narrow_schema(schema, ENFORCED_SUBSET, path, changes, budget)
    if not _is_enforceable(narrowed):
        return None
    losses.extend(changes)
    return narrowed


def _is_enforceable(root: JsonSchema) -> bool:
    """Whether every part says what it is, and no reference leads back to itself. Each definition is looked at once, however many
    references lead to it."""
    references: dict[str, list[str]] = {}  # of the definition behind a reference, or of the root
    waiting = [ROOT]
    while waiting:
        reference = waiting.pop()
        if reference in references:
            continue
        inner = _references_in(root if reference == ROOT else _target(reference, root))
        if inner is None:
            return False
        references[reference] = inner
        waiting += inner
    try:
        TopologicalSorter(references).prepare()
    except CycleError:
        return False
    return True


def _references_in(schema: Any) -> list[str] | None:
    """The references in a schema; None if a part of it leaves open what a value is."""
    references: list[str] = []
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict) or TYPE_KEYWORDS.isdisjoint(part):
            return None
        if "$ref" in part:
            if not isinstance(part["$ref"], str):
                return None
            references.append(part["$ref"])
        elif _is_open(part):
            return None
        else:
            waiting += _children(part)
    return references


def _is_open(schema: JsonSchema) -> bool:
    """Whether a value may be more than is said. An object without known members could hold nothing, and that is not meant."""
    kind, values = schema.get("type"), schema.get("enum", [])
    if kind == "object" and not schema.get("properties"):
        return True
    if not isinstance(values, list) or not {dict, list}.isdisjoint(map(type, values)):
        return True
    return isinstance(kind, list) and "object" in kind


def _children(schema: JsonSchema) -> list[Any]:
    children = [schema["items"]] if "items" in schema else []
    properties = schema.get("properties", {})
    children += properties.values() if isinstance(properties, dict) else [None]
    for word in ("anyOf", "allOf"):
        forms = schema.get(word, [])
        children += forms if isinstance(forms, list) else [None]
    return children


def _target(reference: str, root: JsonSchema) -> Any:
    match reference.split("/", 3):
        case ["#", ("$defs" | "definitions") as group, name]:
            definitions = root.get(group)
            return definitions.get(name) if isinstance(definitions, dict) else None
        case _:
            return None


ROOT: Final = ""  # which no reference can be
TYPE_KEYWORDS: Final = frozenset({"type", "anyOf", "allOf", "enum", "const", "$ref"})
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
