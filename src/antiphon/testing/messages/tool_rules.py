"""The rules of the Messages API for tools, the tool choice, and enforced output schemas."""

from __future__ import annotations

import re
from typing import Any, Final

from antiphon.testing.messages.block_rules import Members, check_cache_control, check_members, check_tool_name, kind_of
from antiphon.testing.messages.errors import MessagesRequestRefused
from antiphon.testing.rules import unknown_type_in


def check_tools(tools: Any) -> list[str]:
    """Check the tools; return their names."""
    if not isinstance(tools, list):
        raise MessagesRequestRefused("tools: Input should be a valid list")
    names = [_check_tool(tool, f"tools.{at}") for at, tool in enumerate(tools)]
    # Tool names must be unique.
    if len(set(names)) != len(names):
        raise MessagesRequestRefused("tools: Tool names must be unique.")
    return names


def check_choice(choice: Any, names: list[str], *, thinks: bool) -> None:
    # "tool_choice may only be specified while providing tools".
    if not names:
        raise MessagesRequestRefused("tool_choice: may only be specified while providing tools")
    kind = kind_of(choice)
    # The choice is an object, never a bare word, and its types are these four.
    if kind not in CHOICES:
        raise MessagesRequestRefused(
            f"tool_choice: Input tag {kind!r} does not match any of the expected tags: {', '.join(CHOICES)}"
        )
    check_members(choice, f"tool_choice.{kind}", CHOICES[kind])
    if not isinstance(choice.get("disable_parallel_tool_use", False), bool):
        raise MessagesRequestRefused(f"tool_choice.{kind}.disable_parallel_tool_use: Input should be a valid boolean")
    # "Tool 'x' not found in provided tools".
    if kind == "tool" and choice["name"] not in names:
        raise MessagesRequestRefused(f"tool_choice: tool {choice['name']!r} not found in provided tools")
    # "Thinking may not be enabled when tool_choice forces tool use."
    if thinks and kind in ("any", "tool"):
        raise MessagesRequestRefused("Thinking may not be enabled when tool_choice forces tool use.")


def check_output_format(format: Any, path: str) -> None:
    check_members(format, path, Members({"type": str, "schema": dict}))
    # One type of format: there is no mode of JSON without a schema.
    if format["type"] != "json_schema":
        raise MessagesRequestRefused(f"{path}.type: Input should be 'json_schema'")
    check_schema(format["schema"], f"{path}.schema")


def check_schema(schema: dict[str, Any], path: str) -> None:
    """Check an enforced schema: of the output, or of a strict tool."""
    _check_part(schema, path)
    _check_no_circle(schema, schema, path, ())


# Tools.


def _check_tool(tool: Any, path: str) -> str:
    kind = kind_of(tool)
    # Tools that the server runs, or whose schema it knows, are told apart by a dated type, and have settings of their
    # own.
    if HOSTED.fullmatch(kind):
        return check_tool_name(tool.get("name", kind), path)
    # "Input tag 'function' found using 'type' does not match any of the expected tags": tools of other APIs are not
    # known here.
    if kind not in ("", "custom"):
        raise MessagesRequestRefused(
            f"{path}: Input tag {kind!r} found using 'type' does not match any of the expected tags: custom, ..."
        )
    check_members(tool, f"{path}.custom", TOOL)
    name = check_tool_name(tool["name"], f"{path}.custom")
    check_cache_control(tool.get("cache_control"), f"{path}.custom")
    if not isinstance(tool.get("description", ""), str):
        raise MessagesRequestRefused(f"{path}.custom.description: Input should be a valid string")
    if not isinstance(tool.get("strict", False), bool):
        raise MessagesRequestRefused(f"{path}.custom.strict: Input should be a valid boolean")
    _check_input_schema(tool["input_schema"], f"{path}.custom.input_schema")
    if tool.get("strict"):
        check_schema(tool["input_schema"], f"{path}.custom.input_schema")
    return name


def _check_input_schema(schema: dict[str, Any], path: str) -> None:
    # "input_schema.type: Field required", "Input should be 'object'".
    if schema.get("type") != "object":
        raise MessagesRequestRefused(f"{path}.type: Input should be 'object'")
    # "input_schema does not support oneOf, allOf, or anyOf at the top level".
    if any(union in schema for union in ("oneOf", "allOf", "anyOf")):
        raise MessagesRequestRefused(f"{path}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    properties = schema.get("properties") or {}
    # "JSON schema is invalid. It must match JSON Schema draft 2020-12".
    is_list = isinstance(schema.get("required") or [], list)
    if not isinstance(properties, dict) or not is_list or unknown_type_in(schema) is not None:
        raise MessagesRequestRefused(f"{path}: JSON schema is invalid. It must match JSON Schema draft 2020-12")
    for name in properties:
        # "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'".
        if not PROPERTY.fullmatch(name):
            raise MessagesRequestRefused(
                f"{path}.properties: Property keys should match pattern '^{PROPERTY.pattern}$', not {name!r}"
            )


# Enforced schemas.


def _check_part(schema: Any, path: str) -> None:
    if not isinstance(schema, dict):
        raise MessagesRequestRefused(f"{path}: Input should be a valid dictionary")
    _check_form(schema, path)
    kind = schema.get("type")
    # Every part says what it is: there is no value of any kind.
    if not any(word in schema for word in ("type", "anyOf", "allOf", "enum", "const", "$ref")):
        raise MessagesRequestRefused(f"{path}: a schema needs a 'type', 'anyOf', 'allOf', 'enum', 'const' or '$ref'")
    for word in schema:
        # "For 'integer' type, property 'minimum' is not supported": bounds, lengths, conditions, `oneOf`.
        if word not in KEYWORDS:
            raise MessagesRequestRefused(f"{path}: For {kind!r} type, property {word!r} is not supported")
    # "For 'object' type, 'additionalProperties' must be explicitly set to false".
    if (kind == "object" or "properties" in schema) and schema.get("additionalProperties") is not False:
        raise MessagesRequestRefused(
            f"{path}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        )
    # "For 'array' type, 'minItems' values other than 0 or 1 are not supported".
    if schema.get("minItems", 0) not in (0, 1):
        raise MessagesRequestRefused(f"{path}: For 'array' type, 'minItems' values other than 0 or 1 are not supported")
    # Formats of strings: a list of known ones.
    if schema.get("format", "date") not in FORMATS:
        raise MessagesRequestRefused(f"{path}: For 'string' type, format {schema['format']!r} is not supported")
    # "Enum values of complex types are not supported".
    if any(isinstance(value, dict | list) for value in schema.get("enum", ())):
        raise MessagesRequestRefused(f"{path}: enum values are strings, numbers, booleans or null")
    for step, child in _children(schema):
        _check_part(child, f"{path}.{step}")


def _check_form(schema: dict[str, Any], path: str) -> None:
    # "JSON schema is invalid. It must match JSON Schema draft 2020-12".
    if unknown_type_in({"type": schema.get("type")}) is not None:
        raise MessagesRequestRefused(f"{path}.type: JSON schema is invalid. It must match JSON Schema draft 2020-12")
    for words, kind in ((("properties", "$defs", "definitions"), dict), (("anyOf", "allOf", "enum", "required"), list)):
        for word in words:
            if word in schema and not isinstance(schema[word], kind):
                raise MessagesRequestRefused(
                    f"{path}.{word}: JSON schema is invalid. It must match JSON Schema draft 2020-12"
                )


def _children(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    children: list[tuple[str, Any]] = [("items", schema["items"])] if "items" in schema else []
    for group in ("properties", "$defs", "definitions"):
        children += [(f"{group}.{name}", child) for name, child in schema.get(group, {}).items()]
    for group in ("anyOf", "allOf"):
        children += [(f"{group}.{at}", child) for at, child in enumerate(schema.get(group, ()))]
    return children


def _check_no_circle(schema: dict[str, Any], root: dict[str, Any], path: str, passed: tuple[str, ...]) -> None:
    ref = schema.get("$ref")
    if ref is not None:
        target = _resolve_ref(ref, root)
        # "Circular reference detected in schema definitions"; and no other document is ever fetched.
        if target is None or ref in passed:
            raise MessagesRequestRefused(f"{path}: the reference {ref!r} leads in a circle or out of the schema")
        _check_no_circle(target, root, path, (*passed, ref))
    for step, child in _children(schema):
        # Definitions are walked where they are referred to.
        if not step.startswith(("$defs.", "definitions.")):
            _check_no_circle(child, root, f"{path}.{step}", passed)


def _resolve_ref(ref: Any, root: dict[str, Any]) -> dict[str, Any] | None:
    match ref.split("/") if isinstance(ref, str) else []:
        case ["#", ("$defs" | "definitions") as group, name]:
            target = root.get(group, {}).get(name)
            return target if isinstance(target, dict) else None
        case _:
            return None


PARALLEL: Final = ("disable_parallel_tool_use",)
CHOICES: Final = {
    "auto": Members({"type": str}, PARALLEL),
    "any": Members({"type": str}, PARALLEL),
    "tool": Members({"type": str, "name": str}, PARALLEL),
    "none": Members({"type": str}),
}
TOOL: Final = Members(
    {"name": str, "input_schema": dict},
    (
        "type",
        "description",
        "cache_control",
        "strict",
        "defer_loading",
        "allowed_callers",
        "eager_input_streaming",
        "input_examples",
    ),
)
HOSTED: Final = re.compile(r"[a-z_]+_20\d{6}|mcp_toolset")
PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
KEYWORDS: Final = {
    *("type", "properties", "required", "additionalProperties", "items", "minItems", "enum", "const", "anyOf", "allOf"),
    *(
        "$ref",
        "$defs",
        "definitions",
        "format",
        "pattern",
        "default",
        "title",
        "description",
        "examples",
        "$schema",
        "$id",
    ),
}
FORMATS: Final = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
