"""JSON schemas of a few kilobytes that stand for far more than they say, and requests with them."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def references_to(definition: Schema, count: int = 450) -> Schema:
    """An object whose members all refer to one definition. A description beside a reference has Gemini's dialect write
    it out."""
    reference = {"$ref": "#/$defs/d", "description": "x"}
    return {"type": "object", "$defs": {"d": definition}, "properties": {f"m{at}": reference for at in range(count)}}


def object_of(members: int) -> Schema:
    """An object with so many members."""
    return {"type": "object", "properties": {f"m{at}": {"type": "string"} for at in range(members)}}


def unknown_keywords(count: int) -> Schema:
    """A schema with so many keywords that no server knows: each is a loss."""
    return {"type": "string", **{f"x{at}": 1 for at in range(count)}}


def many_parts(count: int) -> Schema:
    """`allOf` with so many parts that all say the same."""
    return {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}] * count}


def nested_all_of(levels: int, members: int) -> Schema:
    """`allOf` inside of `allOf`, each level with so many members and required names."""
    schema: Schema = {"type": "object"}
    for level in range(levels):
        names = [f"m{level}_{at}" for at in range(members)]
        schema = {"allOf": [schema, {"properties": {name: {"type": "string"} for name in names}, "required": names}]}
    return {"type": "object", "properties": {"a": schema}}


def doubling_references(levels: int, **beside: Any) -> Schema:
    """Definitions that each refer twice to the next one."""
    defs: Schema = {
        f"d{at}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/d{at + 1}", **beside} for name in "ab"}}
        for at in range(levels)
    }
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0", **beside}},
        "$defs": {**defs, f"d{levels}": {"type": "string"}},
    }


def many_forms(count: int) -> Schema:
    """A choice at the top among so many forms, each with a member of its own that it requires."""
    return {
        "type": "object",
        "allOf": [{"properties": {f"m{at}": {"type": "string"}}, "required": [f"m{at}"]} for at in range(count)],
    }


def tool(schema: Schema, number: int = 0) -> dict[str, Any]:
    """A function in the form of the Responses API."""
    return {"type": "function", "name": f"tool_{number}", "parameters": schema, "strict": True}


def output(schema: Schema) -> dict[str, Any]:
    """The field `text` that wants output by this schema."""
    return {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}}
