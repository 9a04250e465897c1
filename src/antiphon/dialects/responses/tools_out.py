"""Gives tools the form and the names that the server takes. Calls in the history are renamed alike, and `answer_in`
translates calls back.

`NativeTools` is for servers that support extension tools: it replaces only names that the server refuses. `FlatTools`
is for servers that support only functions. Namespaces are flattened, custom tools become functions with one string, and
`additional_tools` items join the other tools. Hosted tools are losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.offered_tools import ToolsByName, flatten_tools
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.tool_names import (
    PLAIN_NAMES,
    ToolKey,
    ToolNames,
    ToolRef,
    has_additional_tools,
    key_of_call,
    tools_of_request,
)
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.protocol.items import (
    AdditionalTools,
    CompactionTrigger,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    HostedItem,
    ItemParam,
    ToolSearchCall,
    ToolSearchOutput,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    NamespaceTool,
    SpecificCustom,
    SpecificFunction,
    SpecificToolChoice,
    ToolChoiceParam,
    ToolList,
    ToolParam,
    UnknownTool,
    UnknownToolChoice,
)

MemberTool = FunctionToolParam | CustomTool | UnknownTool
Choice = TypeVar("Choice", bound=SpecificFunction | SpecificCustom | UnknownToolChoice)


class NativeNames:
    """The names of tools on servers that support custom tools and namespaces. Each namespace has its own names."""

    def __init__(self, tools: Sequence[ToolParam], max_name_length: int) -> None:
        tools_of: dict[str | None, list[ToolParam]] = {None: []}
        for tool in tools:
            if isinstance(tool, NamespaceTool):
                tools_of.setdefault(tool.name, []).extend(tool.tools)
            else:
                tools_of[None].append(tool)
        rule = PLAIN_NAMES.limited(max_name_length)
        self._names = {namespace: ToolNames(members, rule) for namespace, members in tools_of.items()}
        self.is_identity = all(names.is_identity for names in self._names.values())

    @classmethod
    def for_request(cls, request: Request, max_name_length: int) -> NativeNames:
        """The names of all tools of the request, in `tools` or in `additional_tools` items."""
        tools = request.tools
        if type(tools) is not ToolList or has_additional_tools(request):
            return cls(tools_of_request(request), max_name_length)
        return tools.derive_once((cls, max_name_length), lambda: cls(tools, max_name_length))

    def wire_name(self, key: ToolKey) -> str:
        """The name that the server gets for a tool. Its kind and its namespace stay."""
        kind, name, namespace = key
        return self._names.get(namespace, self._names[None]).wire_name((kind, name, None))

    def original_name(self, sent_name: str, namespace: str | None) -> str:
        """The name of the tool that the server calls."""
        names = self._names.get(namespace)
        return names.original_tool(sent_name).name if names else sent_name


class NativeTools:
    """Replaces names that the server refuses. Everything else of tools, calls and choices stays."""

    def __init__(self, request: Request, wire: ResponsesWire) -> None:
        self._names = NativeNames.for_request(request, wire.max_name_length)

    def rewrite_request(self, request: Request) -> Request:
        """Rename the tools and the tool choice of the request."""
        if self._names.is_identity:
            return request
        tools = self._rename_tools(request.tools) if request.tools else request.tools
        return replace(request, tools=tools, tool_choice=self._rename_choice(request.tool_choice))

    def rewrite_item(self, item: ItemParam, path: str) -> ItemParam:
        """Rename the tool that an item of the history calls, or the tools that it adds."""
        del path
        match item:
            case FunctionCallParam() | CustomToolCallParam():
                name = self._names.wire_name(key_of_call(item))
                return item if name == item.name else replace(item, name=name)
            case AdditionalTools() if not self._names.is_identity:
                return replace(item, tools=self._rename_tools(item.tools))
            case _:
                return item

    def _rename_tools(self, tools: Sequence[ToolParam]) -> list[ToolParam]:
        renamed: list[ToolParam] = []
        for tool in tools:
            match tool:
                case FunctionToolParam() | CustomTool():
                    renamed.append(self._rename_tool(tool, None))
                case NamespaceTool():
                    members = [self._rename_tool(member, tool.name) for member in tool.tools]
                    renamed.append(replace(tool, tools=members))
                case _:
                    renamed.append(tool)
        return renamed

    def _rename_tool(self, tool: MemberTool, namespace: str | None) -> MemberTool:
        match tool:
            case FunctionToolParam():
                return replace(tool, name=self._names.wire_name(("function", tool.name, namespace)))
            case CustomTool():
                return replace(tool, name=self._names.wire_name(("custom", tool.name, namespace)))
            case _:
                return tool

    def _rename_choice(self, choice: ToolChoiceParam | None | UnsetType) -> ToolChoiceParam | None | UnsetType:
        match choice:
            case SpecificFunction() | SpecificCustom():
                return self._rename_named_choice(choice)
            case AllowedToolsParam():
                return replace(choice, tools=[self._rename_named_choice(tool) for tool in choice.tools])
            case _:
                return choice

    def _rename_named_choice(self, choice: Choice) -> Choice:
        if isinstance(choice, UnknownToolChoice):
            return choice
        return replace(choice, name=self._names.wire_name(ToolRef.from_choice(choice)))


class FlatTools:
    """The tools of one request as plain functions, by their names on the wire."""

    def __init__(self, request: Request, wire: ResponsesWire, losses: Losses) -> None:
        self._names = ToolNames.for_request(request, PLAIN_NAMES.limited(wire.max_name_length))
        self._losses = losses
        self._offered_tools: ToolsByName[ToolParam] = ToolsByName(losses)
        self._offer_tools(request.tools or (), "tools")

    def rewrite_request(self, request: Request) -> Request:
        """Rewrite the tools and the tool choice, after all items."""
        tools = list(self._offered_tools.by_name.values())
        return replace(request, tools=tools or UNSET, tool_choice=self._flatten_choice(request.tool_choice))

    def rewrite_item(self, item: ItemParam, path: str) -> ItemParam | None:
        """Rewrite an item of the history for the server. None if the server cannot take it."""
        match item:
            case AdditionalTools():
                report_unknown_fields(item, path, self._losses)
                self._offer_tools(item.tools, f"{path}.tools")
                return None
            case FunctionCallParam():
                name = self._names.wire_name(key_of_call(item))
                return replace(item, name=name, namespace=UNSET)
            case CustomToolCallParam():
                return FunctionCallParam(
                    call_id=item.call_id,
                    name=self._names.wire_name(key_of_call(item)),
                    arguments=freeform_tools.wrap_input(item.input),
                    id=_function_id(item.id),
                    status=item.status,
                    extra=item.extra,
                )
            case CustomToolCallOutputParam():
                return FunctionCallOutputParam(
                    call_id=item.call_id,
                    output=item.output,
                    id=_function_id(item.id),
                    status=item.status,
                    extra=item.extra,
                )
            case _ if isinstance(item, ToolSearchCall | ToolSearchOutput | CompactionTrigger | HostedItem):
                self._losses.add(path, f"an item of type {type_of(item)!r}", "the server supports only functions")
                return None
            case _:
                return item

    def _flatten_choice(self, choice: ToolChoiceParam | None | UnsetType) -> ToolChoiceParam | None | UnsetType:
        """Rewrite the tool choice. A choice of a tool that is not offered is a loss."""
        match choice:
            case SpecificFunction() | SpecificCustom() as named:
                offered = self._offered_choice(named)
                if offered is None:
                    self._losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
                return offered or UNSET
            case AllowedToolsParam():
                return self._restrict_to_offered(choice)
            case UnknownToolChoice():
                self._losses.add(
                    "tool_choice", f"the tool choice {choice.kind!r}", "the server supports only functions"
                )
                return UNSET
            case _:
                return choice

    def _offer_tools(self, tools: Sequence[ToolParam], path: str) -> None:
        for tool_path, tool, namespace in flatten_tools(
            tools, path, self._losses, "the server has no namespaces of tools"
        ):
            match tool:
                case FunctionToolParam():
                    name = self._names.wire_name(ToolRef("function", tool.name, namespace))
                    offered = replace(tool, name=name, defer_loading=UNSET)
                    self._report_deferred(tool, tool_path)
                case CustomTool():
                    name = self._names.wire_name(ToolRef("custom", tool.name, namespace))
                    offered = self._custom_as_function(tool, name, tool_path)
                    self._report_deferred(tool, tool_path)
                case _:
                    self._losses.add(
                        tool_path, f"a tool of type {type_of(tool)!r}", "the server supports only functions"
                    )
                    continue
            self._offered_tools.add(name, offered, tool_path)

    def _offered_choice(self, choice: SpecificFunction | SpecificCustom) -> SpecificFunction | None:
        """Return the choice of a tool by its wire name. None if the tool is not offered."""
        name = self._names.wire_name(ToolRef.from_choice(choice))
        return SpecificFunction(name=name) if name in self._offered_tools.by_name else None

    def _restrict_to_offered(self, choice: AllowedToolsParam) -> ToolChoiceParam:
        """TOOL-3: reduce the set to the offered tools. The policy withholds calls outside the set."""
        offered_choices: list[SpecificToolChoice] = []
        for index, named in enumerate(choice.tools):
            offered = None if isinstance(named, UnknownToolChoice) else self._offered_choice(named)
            if offered is None:
                why = "the tool could not be offered"
                self._losses.add(f"tool_choice.tools[{index}]", "a tool of the allowed set", why)
            else:
                offered_choices.append(offered)
        return replace(choice, tools=offered_choices) if offered_choices else choice.mode or "auto"

    def _custom_as_function(self, tool: CustomTool, name: str, path: str) -> FunctionToolParam:
        report_unknown_fields(tool, path, self._losses)
        return FunctionToolParam(
            name=name,
            description=freeform_tools.description(tool, path, self._losses).strip() or UNSET,
            parameters=freeform_tools.schema("The whole input of the tool as plain text."),
            strict=False,
        )

    def _report_deferred(self, tool: FunctionToolParam | CustomTool, path: str) -> None:
        if tool.defer_loading:
            self._losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")


def _function_id(id: str | None | UnsetType) -> str | UnsetType:
    """The id of an item that is sent as a function's. The prefix of an id is the type of its item, so another one would
    be refused."""
    return id if isinstance(id, str) and id.startswith("fc") else UNSET
