"""Translates tools and tool choice for a Messages server (TOOL-1, TOOL-2).

Namespaces are flattened, and custom tools become functions with one string parameter (`dialects/common` reverses both).
Tools that a server of this dialect runs itself are sent unchanged. Hosted tools of other APIs are losses, except a web
search, if the server has one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, assert_never

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.offered_tools import ToolsByName, tools_with_paths
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.schema_budget import SchemaBudget, SchemaCounter
from antiphon.dialects.common.tool_names import ToolNames, ToolRef
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.common.web_search import (
    MESSAGES_KINDS,
    SEARCH_NAME,
    ServerSearch,
    WebSearch,
    is_search_choice,
)
from antiphon.dialects.messages.content_out import native_members
from antiphon.dialects.messages.schemas import enforceable_arguments
from antiphon.dialects.messages.wire import MessagesWire, ToolChoiceOut, ToolOut
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    JsonSchema,
    SpecificCustom,
    SpecificFunction,
    ToolChoiceParam,
    ToolParam,
    UnknownTool,
    UnknownToolChoice,
)


class OfferedTools(Struct, frozen=True):
    """Tools in wire form by their wire names, with the losses."""

    by_name: dict[str, Any]  # `ToolOut`, a dict, or the bytes of a tool of this dialect
    losses: Losses


def tools_from_hub(request: Request, names: ToolNames, wire: MessagesWire) -> OfferedTools:
    """Translate every tool that can be offered."""
    losses = Losses()
    budget = SchemaBudget()
    offered_tools: ToolsByName[Any] = ToolsByName(losses)
    offered = list(tools_with_paths(request, losses, "the API has no namespaces of tools"))
    can_defer = _can_defer([tool for _, tool, _ in offered])
    for path, tool, namespace in offered:
        match tool:
            case FunctionToolParam():
                name = names.wire_name(("function", tool.name, namespace))
                tool_out = _function_tool(tool, name, path, wire, losses, budget)
            case CustomTool():
                name = names.wire_name(("custom", tool.name, namespace))
                tool_out = _custom_tool(tool, name, path, losses)
            case UnknownTool() if NATIVE_TOOL.fullmatch(tool.kind):
                offered_tools.add(tool.string_member("name") or tool.kind, tool.raw, path)
                continue
            case _:
                losses.add(path, f"a tool of type {type_of(tool)!r}", "the API has no equivalent")
                continue
        if tool.defer_loading and can_defer:
            tool_out = replace(tool_out, defer_loading=True)
        elif tool.defer_loading:
            losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")
        offered_tools.add(name, _with_fields(tool_out, tool, path, losses), path)
    return OfferedTools(offered_tools.by_name, losses)


def _can_defer(tools: Sequence[ToolParam]) -> bool:
    """Whether deferred tools can be found: by the server's search, or by a tool of the client that searches for them.
    The search of another API is lost, and servers need one tool that is not deferred."""
    kinds = [type_of(tool) for tool in tools]
    if any(kind.startswith("tool_search_tool") for kind in kinds):
        return True
    has_own_search = any(not tool.defer_loading for tool in tools if isinstance(tool, FunctionToolParam | CustomTool))
    return has_own_search and "tool_search" not in kinds


def tool_choice_from_hub(
    request: Request, offered_tools: Collection[str], names: ToolNames, losses: Losses
) -> ToolChoiceOut | UnsetType:
    """The tool choice among the tools that were sent; an impossible choice is a loss."""
    chosen = _translate_choice(request.tool_choice, offered_tools, names, losses)
    if request.parallel_tool_calls is not False or not offered_tools:
        return chosen
    choice = chosen or ToolChoiceOut(type="auto")
    return choice if choice.type == "none" else replace(choice, disable_parallel_tool_use=True)


def _translate_choice(
    choice: ToolChoiceParam | None | UnsetType, offered_tools: Collection[str], names: ToolNames, losses: Losses
) -> ToolChoiceOut | UnsetType:
    match choice:
        case None | UnsetType():
            return UNSET
        case str():
            return _mode_choice(choice, offered_tools, losses)
        case UnknownToolChoice():
            is_search = is_search_choice(choice)
            name = SEARCH_NAME if is_search else choice.string_member("name") or ""
            if (is_search or choice.kind == "tool") and name in offered_tools:
                return ToolChoiceOut(type="tool", name=name)
            losses.add("tool_choice", f"the tool choice {choice.kind!r}", "the API has no equivalent")
            return UNSET
        case SpecificFunction() | SpecificCustom():
            return _named_choice(choice, offered_tools, names, losses)
        case AllowedToolsParam(tools=[SpecificFunction() | SpecificCustom() as only], mode="required"):
            return _named_choice(only, offered_tools, names, losses)
        case AllowedToolsParam(mode=mode):  # TOOL-3: all tools are sent, calls outside the set are withheld by policy
            report_unknown_fields(choice, "tool_choice", losses)
            can_call = any(
                isinstance(tool, UnknownToolChoice) or names.wire_name(ToolRef.from_choice(tool)) in offered_tools
                for tool in choice.tools
            )
            return _mode_choice(mode or "auto" if can_call else "none", offered_tools, losses)
        case _ as never:
            assert_never(never)


def _mode_choice(mode: str, offered_tools: Collection[str], losses: Losses) -> ToolChoiceOut | UnsetType:
    if offered_tools:
        return ToolChoiceOut(type="any" if mode == "required" else "none" if mode == "none" else "auto")
    if mode == "required":
        losses.add("tool_choice", "a forced tool call", "no tool could be offered")
    return UNSET


def _named_choice(
    choice: SpecificFunction | SpecificCustom, offered_tools: Collection[str], names: ToolNames, losses: Losses
) -> ToolChoiceOut | UnsetType:
    report_unknown_fields(choice, "tool_choice", losses)
    name = names.wire_name(ToolRef.from_choice(choice))
    if name in offered_tools:
        return ToolChoiceOut(type="tool", name=name)
    losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
    return UNSET


def _function_tool(
    tool: FunctionToolParam, name: str, path: str, wire: MessagesWire, losses: Losses, budget: SchemaBudget
) -> ToolOut:
    schema_path = f"{path}.parameters"
    schema = _object_schema(tool.parameters or {}, schema_path, losses, budget.counter(schema_path))
    strict = enforceable_arguments(schema, schema_path, losses, budget) if tool.strict and wire.strict_tools else None
    if tool.strict and strict is None:
        why = "the server cannot enforce such a schema" if wire.strict_tools else "the server does not support it"
        losses.add(f"{path}.strict", "strict arguments", why)
    return ToolOut(
        name=name,
        description=tool.description or UNSET,
        input_schema=schema if strict is None else strict,
        strict=UNSET if strict is None else True,
    )


def _custom_tool(tool: CustomTool, name: str, path: str, losses: Losses) -> ToolOut:
    description = freeform_tools.description(tool, path, losses)
    return ToolOut(name=name, description=description or UNSET, input_schema=freeform_tools.schema())


def _with_fields(tool_out: ToolOut, tool: FunctionToolParam | CustomTool, path: str, losses: Losses) -> Any:
    if not tool.extra:
        return tool_out
    return {
        **{name: value for name in ToolOut.__struct_fields__ if (value := getattr(tool_out, name)) is not UNSET},
        **native_members(tool, path, TOOL_FIELDS, losses, UNSET),
    }


def _write_search(search: WebSearch, losses: Losses) -> UnknownTool:
    settings = search.take(SEARCH_SETTINGS, losses)
    if "allowed_domains" in settings and settings.pop("blocked_domains", None):
        why = "the API takes allowed or blocked domains, not both"
        losses.add(search.paths["blocked_domains"], "the blocked domains of the web search", why)
    tool = {"type": SEARCH_KIND, "name": SEARCH_NAME, **settings}
    return UnknownTool(kind=SEARCH_KIND, raw=Raw(codec.encode(tool)))


def _has_no_own_search(tools: Sequence[ToolParam]) -> bool:
    """Whether no function of the client has the name of the server's search."""
    return not any(isinstance(tool, FunctionToolParam | CustomTool) and tool.name == SEARCH_NAME for tool in tools)


def _object_schema(schema: JsonSchema, path: str, losses: Losses, counter: SchemaCounter) -> JsonSchema:
    """A schema that servers accept for arguments: an object, no choice at the top, and only valid property names."""
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        losses.add(
            path, f"a schema of type {str(kind)[:50]!r}", "arguments are always an object; any properties are allowed"
        )
        return NO_PARAMETERS
    object_schema = {
        "type": "object",
        **{keyword: value for keyword, value in schema.items() if keyword not in (*CHOICE_KEYWORDS, "type")},
    }
    members = [_properties_of(object_schema)]
    required = dict.fromkeys(_required_of(object_schema))
    for keyword in CHOICE_KEYWORDS:
        if keyword not in schema:
            continue
        losses.add(
            f"{path}.{keyword}",
            f"{keyword!r} at the top level of a schema",
            "the properties of all alternatives are allowed together",
        )
        for alternative in schema[keyword] if isinstance(schema[keyword], list) else []:
            counter.add_nodes(1)
            if isinstance(alternative, dict):
                members.append(_properties_of(alternative))
                required |= dict.fromkeys(_required_of(alternative) if keyword == "allOf" else ())
    properties: dict[str, Any] = {}
    for group in reversed(members):  # of properties with the same name, the first wins
        counter.add_nodes(len(group))
        properties.update(group)
    for name in [name for name in properties if not PROPERTY_NAME.fullmatch(name)]:
        losses.add(f"{path}.properties", f"the parameter {name[:80]!r}", "the server refuses its name")
        del properties[name]
    given_required = object_schema.get("required", [])
    if not isinstance(given_required, list) or not set(map(type, given_required)) <= {str}:
        losses.add(f"{path}.required", "required properties that are not strings", "the server refuses them")
    required_names = [name for name in required if PROPERTY_NAME.fullmatch(name)]
    object_schema |= {"properties": properties, "required": required_names}
    if not required_names and schema.get("required") != []:
        del object_schema["required"]
    return object_schema


def _properties_of(schema: JsonSchema) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required_of(schema: JsonSchema) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}
CHOICE_KEYWORDS: Final = ("anyOf", "oneOf", "allOf")
PROPERTY_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
#: The types of tools that a server of this dialect runs, or whose schema it knows, contain a date.
NATIVE_TOOL: Final = re.compile(r"[a-z0-9_]+_20\d{6}|mcp_toolset|tool_search_tool_(regex|bm25)")
TOOL_FIELDS: Final = frozenset({"cache_control", "eager_input_streaming", "input_examples", "allowed_callers"})
#: The first version of the search, which all current models have. Source: the provider's page on its web search tool.
SEARCH_KIND: Final = "web_search_20250305"
SEARCH_SETTINGS: Final = ("max_uses", "allowed_domains", "blocked_domains", "user_location")
SEARCH: Final = ServerSearch(MESSAGES_KINDS, _write_search, _has_no_own_search)
