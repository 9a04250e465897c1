"""Translates tools and tool choice for a gemini server (TOOL-1, TOOL-2). All functions are in one list of declarations.

Namespaces are flattened, and custom tools become functions with one string parameter. Tools that only this dialect has
are sent unchanged. Hosted tools of other APIs are losses, except a web search, if the server has one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, assert_never

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.narrowing import Narrowing, narrow_schema
from antiphon.dialects.common.offered_tools import ToolsByName, tools_with_paths
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.schema_budget import SchemaBudget
from antiphon.dialects.common.tool_names import ToolNames, ToolRef
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.common.web_search import GEMINI_KINDS, ServerSearch, WebSearch, is_search
from antiphon.dialects.gemini.wire import (
    PREFIX,
    FunctionCallingConfigOut,
    FunctionDeclarationOut,
    GeminiWire,
    ToolConfigOut,
    ToolOut,
)
from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    JsonSchema,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    ToolParam,
    UnknownTool,
    UnknownToolChoice,
)


class ToolsFromHub:
    """The tools of a request in wire form, with the losses."""

    def __init__(self, request: Request, names: ToolNames, wire: GeminiWire) -> None:
        self.losses = Losses()
        self._names = names
        self._wire = wire
        self._budget = SchemaBudget()
        self._offered: ToolsByName[FunctionDeclarationOut] = ToolsByName(self.losses)
        self._functions = self._offered.by_name
        self._native_tools: list[dict[str, Raw]] = []
        for path, tool, namespace in tools_with_paths(request, self.losses, "the API has no namespaces of tools"):
            self._add_tool(path, tool, namespace)
        functions = [ToolOut(function_declarations=list(self._functions.values()))] if self._functions else []
        tools = [*functions, *self._native_tools]
        self.encoded: Raw | UnsetType = Raw(codec.encode(tools)) if tools else UNSET

    @property
    def has_functions(self) -> bool:
        return bool(self._functions)

    def tool_config(self, request: Request, losses: Losses) -> ToolConfigOut | UnsetType:
        """The tool choice among the functions that were sent; an impossible choice is a loss."""
        choice = request.tool_choice
        if request.parallel_tool_calls is False and self._functions:
            losses.add("parallel_tool_calls", "the limit of one tool call", "the API has no equivalent")
        match choice:
            case None | UnsetType():
                return UNSET
            case str():
                return self._tool_config(MODES[choice], None, losses)
            case UnknownToolChoice():
                losses.add("tool_choice", f"the tool choice {choice.kind!r}", "the API has no equivalent")
                return UNSET
            case SpecificFunction() | SpecificCustom():
                report_unknown_fields(choice, "tool_choice", losses)
                return self._tool_config("ANY", [self._names.wire_name(ToolRef.from_choice(choice))], losses)
            case AllowedToolsParam():
                report_unknown_fields(choice, "tool_choice", losses)
                allowed = [
                    self._names.wire_name(ToolRef.from_choice(tool))
                    for tool in choice.tools
                    if not isinstance(tool, UnknownToolChoice)
                ]
                if choice.mode == "required":
                    return self._tool_config("ANY", allowed, losses)
                # TOOL-3: the API takes allowed names only with a forced call; policy withholds calls outside the set.
                return self._tool_config(MODES[choice.mode or "auto"], None, losses)
            case _ as never:
                assert_never(never)

    def _add_tool(self, path: str, tool: ToolParam, namespace: str | None) -> None:
        losses = self.losses
        match tool:
            case FunctionToolParam():
                name = self._names.wire_name(("function", tool.name, namespace))
                declaration = self._function_declaration(tool, name, path)
            case CustomTool():
                name = self._names.wire_name(("custom", tool.name, namespace))
                declaration = self._custom_declaration(tool, name, path)
            case UnknownTool() if tool.kind.startswith(PREFIX):
                self._native_tools.append(
                    {member: raw for member, raw in tool.raw_members().items() if member != "type"}
                )
                return
            case _:
                has_search = self._wire.web_search_models and is_search(tool)
                why = SEARCH_ALONE if has_search else "the API has no equivalent"
                losses.add(path, f"a tool of type {type_of(tool)!r}", why)
                return
        others = {name: raw for name, raw in (tool.extra or {}).items() if _own_name(name) not in NATIVE_MEMBERS}
        report_unknown_fields(Shape(extra=others), path, losses)
        if tool.defer_loading:
            losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")
        self._offered.add(name, declaration, path)

    def _function_declaration(self, tool: FunctionToolParam, name: str, path: str) -> FunctionDeclarationOut:
        if tool.strict:
            self.losses.add(f"{path}.strict", "strict arguments", "the API has no equivalent")
        declaration_out = self._declaration(name, tool.description or "", tool.parameters or {}, f"{path}.parameters")
        native_members = {
            NATIVE_MEMBERS[_own_name(name)]: raw
            for name, raw in (tool.extra or {}).items()
            if _own_name(name) in NATIVE_MEMBERS
        }
        return replace(declaration_out, **native_members) if native_members else declaration_out

    def _custom_declaration(self, tool: CustomTool, name: str, path: str) -> FunctionDeclarationOut:
        description = freeform_tools.description(tool, path, self.losses)
        schema = freeform_tools.schema()
        if self._wire.schemas == "openapi":
            del schema["additionalProperties"]  # it adds nothing for one string
        return self._declaration(name, description, schema, path)

    def _declaration(self, name: str, description: str, schema: JsonSchema, path: str) -> FunctionDeclarationOut:
        sent_description = description or UNSET
        if not schema.get("properties") and set(schema) <= UNCONSTRAINING_KEYWORDS:
            return FunctionDeclarationOut(
                name=name, description=sent_description
            )  # some API versions refuse an object without properties
        if schema.get("type") != "object":
            if "type" in schema:
                self.losses.add(f"{path}.type", "the type of the arguments", "arguments are always an object")
            schema = {**schema, "type": "object"}
        if self._wire.schemas == "json_schema":
            wire_schema = narrow_schema(schema, TOOL_SUBSET, path, self.losses, self._budget)
            return FunctionDeclarationOut(name=name, description=sent_description, parameters_json_schema=wire_schema)
        wire_schema = narrow_schema(schema, OPENAPI_SUBSET, path, self.losses, self._budget)
        return FunctionDeclarationOut(name=name, description=sent_description, parameters=wire_schema)

    def _tool_config(self, mode: Any, names: Collection[str] | None, losses: Losses) -> ToolConfigOut | UnsetType:
        offered_names = [name for name in names if name in self._functions] if names is not None else None
        if mode == "ANY" and not (self._functions if offered_names is None else offered_names):
            losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
            return UNSET
        if not self._functions:
            return UNSET
        return ToolConfigOut(
            function_calling_config=FunctionCallingConfigOut(mode=mode, allowed_function_names=offered_names or UNSET)
        )


def _own_name(name: str) -> str:
    """The name of a member of a function without the prefix that members of this dialect's clients have."""
    return name.removeprefix(PREFIX)


def _write_search(search: WebSearch, losses: Losses) -> UnknownTool:
    search.take((), losses)
    return UnknownTool(kind=SEARCH_KIND, raw=Raw(codec.encode({"type": SEARCH_KIND, "googleSearch": {}})))


def _has_no_functions(tools: Sequence[ToolParam]) -> bool:
    return not any(isinstance(tool, FunctionToolParam | CustomTool | NamespaceTool) for tool in tools)


SEARCH_KIND: Final = GEMINI_KINDS[0]
SEARCH_ALONE: Final = "the search of the server is for some models, and not together with functions"
#: "Tool use with function calling is unsupported": older models take functions or the search. Newer ones take both only
#: if the client sends the calls of the search back, which clients of other dialects cannot.
SEARCH: Final = ServerSearch(re.compile("|".join(GEMINI_KINDS)), _write_search, _has_no_functions)
#: Function members that only clients of this dialect set: their wire name and our field name.
NATIVE_MEMBERS: Final = {"response": "response", "responseJsonSchema": "response_json_schema", "behavior": "behavior"}
MODES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
#: Keywords that constrain nothing if the schema has no properties.
UNCONSTRAINING_KEYWORDS: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "$schema", "title", "description"}
)
#: The older schema form of the API: a subset of OpenAPI.
OPENAPI_SUBSET: Final = Narrowing(
    keywords=frozenset(
        {
            "type",
            "format",
            "title",
            "description",
            "nullable",
            "default",
            "enum",
            "items",
            "minItems",
            "maxItems",
            "properties",
            "required",
            "propertyOrdering",
            "minProperties",
            "maxProperties",
            "minLength",
            "maxLength",
            "pattern",
            "minimum",
            "maximum",
            "anyOf",
            "example",
        }
    ),
    formats=frozenset({"enum", "date-time", "float", "double", "int32", "int64"}),
    references="inline",
    types="capitals",
    enum_of_strings=True,
)
#: JSON schema without references that have sibling keywords, which the API refuses.
TOOL_SUBSET: Final = Narrowing(references="inline_unless_plain")
#: The subset of JSON schema that the API accepts for structured output.
OUTPUT_SUBSET: Final = Narrowing(
    keywords=frozenset(
        {
            "$id",
            "$defs",
            "$ref",
            "$anchor",
            "type",
            "format",
            "title",
            "description",
            "enum",
            "items",
            "prefixItems",
            "minItems",
            "maxItems",
            "minimum",
            "maximum",
            "anyOf",
            "oneOf",
            "properties",
            "additionalProperties",
            "required",
            "propertyOrdering",
        }
    ),
    references="inline_unless_plain",
)
#: The same for newer models.
WIDE_OUTPUT_SUBSET: Final = replace(
    OUTPUT_SUBSET, keywords=(OUTPUT_SUBSET.keywords or frozenset()) | {"default", "pattern"}
)
