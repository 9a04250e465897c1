"""Narrows JSON schemas of outputs and strict tools to the subset that a Messages server enforces. Every change is a
loss.

Some schemas cannot be enforced: those that leave the type of a value open, and recursive ones.
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
    """The schema that the server enforces; None, without losses, if it cannot. `budget` is the request's budget."""
    changes = Losses()
    narrowed = narrow_schema(schema, ENFORCED_SUBSET, path, changes, budget)
    if not _is_enforceable(narrowed):
        return None
    losses.extend(changes)
    return narrowed


def enforceable_arguments(
    schema: JsonSchema, path: str, losses: Losses, budget: SchemaBudget | None = None
) -> JsonSchema | None:
    """Like `enforceable_schema`, for the arguments of a tool, which may have no properties."""
    if not schema.get("properties") and schema.keys() <= EMPTY_KEYWORDS and not schema.get("additionalProperties"):
        return {**schema, "additionalProperties": False}
    return enforceable_schema(schema, path, losses, budget)


def _is_enforceable(root: JsonSchema) -> bool:
    """Whether every part states its type, and no reference is recursive. Each definition is checked once."""
    references: dict[str, list[str]] = {}  # references in the root or in a definition, by reference
    pending = [ROOT]
    while pending:
        reference = pending.pop()
        if reference in references:
            continue
        inner = _references_in(root if reference == ROOT else _definition(reference, root))
        if inner is None:
            return False
        references[reference] = inner
        pending += inner
    try:
        TopologicalSorter(references).prepare()
    except CycleError:
        return False
    return True


def _references_in(schema: Any) -> list[str] | None:
    """The references in a schema; None if a part leaves the type of a value open."""
    references: list[str] = []
    pending = [schema]
    while pending:
        subschema = pending.pop()
        if not isinstance(subschema, dict) or TYPE_KEYWORDS.isdisjoint(subschema):
            return None
        if "$ref" in subschema:
            if not isinstance(subschema["$ref"], str):
                return None
            references.append(subschema["$ref"])
        elif _leaves_value_open(subschema):
            return None
        else:
            pending += _children(subschema)
    return references


def _leaves_value_open(schema: JsonSchema) -> bool:
    """Whether a value is not fully described. A closed object without properties could hold nothing, which is not
    intended.
    """
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
    for keyword in ("anyOf", "allOf"):
        forms = schema.get(keyword, [])
        children += forms if isinstance(forms, list) else [None]
    return children


def _definition(reference: str, root: JsonSchema) -> Any:
    match reference.split("/", 3):
        case ["#", ("$defs" | "definitions") as group, name]:
            definitions = root.get(group)
            return definitions.get(name) if isinstance(definitions, dict) else None
        case _:
            return None


#: The keywords of a schema of arguments without properties.
EMPTY_KEYWORDS: Final = frozenset({"type", "properties", "required", "additionalProperties", "title", "description"})
ROOT: Final = ""  # not a valid reference
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
