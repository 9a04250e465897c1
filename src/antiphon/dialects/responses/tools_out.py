"""Turns extension tools into plain functions, for servers that support only these.

Namespaces are flattened, custom tools become functions with one string, and `additional_tools` items join the other
tools. Calls in the history are renamed alike. Hosted tools are losses. `answer_in` translates the calls back.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.offered_tools import ToolsByName, flatten_tools
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.tool_names import ToolNames, ToolRef, key_of_call
from antiphon.dialects.common.unknown_fields import report_unknown_fields
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
    SpecificCustom,
    SpecificFunction,
    SpecificToolChoice,
    ToolChoiceParam,
    ToolParam,
    UnknownToolChoice,
)


class FlatTools:
    """The tools of one request as plain functions, by their names on the wire."""

    def __init__(self, request: Request, losses: Losses) -> None:
        self._names = ToolNames.for_request(request)
        self._losses = losses
        self._offered_tools: ToolsByName[ToolParam] = ToolsByName(losses)
        self._offer_tools(request.tools or (), "tools")

    @property
    def tools(self) -> list[ToolParam] | UnsetType:
        return list(self._offered_tools.by_name.values()) or UNSET

    def flatten_item(self, item: ItemParam, path: str) -> ItemParam | None:
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
                    id=item.id,
                    status=item.status,
                    extra=item.extra,
                )
            case CustomToolCallOutputParam():
                return FunctionCallOutputParam(
                    call_id=item.call_id, output=item.output, id=item.id, status=item.status, extra=item.extra
                )
            case _ if isinstance(item, ToolSearchCall | ToolSearchOutput | CompactionTrigger | HostedItem):
                self._losses.add(path, f"an item of type {type_of(item)!r}", "the server supports only functions")
                return None
            case _:
                return item

    def flatten_choice(self, choice: ToolChoiceParam | None | UnsetType) -> ToolChoiceParam | None | UnsetType:
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
                    offered = replace(tool, name=name)
                case CustomTool():
                    name = self._names.wire_name(ToolRef("custom", tool.name, namespace))
                    offered = self._custom_as_function(tool, name, tool_path)
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
            defer_loading=tool.defer_loading,
        )
