"""Translates tools and tool choices in both directions: flat in the hub, nested in Chat (C-3, TOOL-1, TOOL-2).

For a server, namespaces are flattened, custom tools become functions with one string, and hosted tools are losses.
`dialects/common` translates the calls back. From a client, both forms are read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, assert_never

from msgspec import UNSET, UnsetType

from antiphon.dialects.chat.wire import (
    AllowedToolsChoiceIn,
    ChatWire,
    CustomChoiceIn,
    CustomFormatOut,
    CustomIn,
    CustomOut,
    CustomToolIn,
    FunctionChoiceIn,
    FunctionIn,
    FunctionOut,
    FunctionToolIn,
    GrammarFormatIn,
    GrammarOut,
    NameIn,
    RequestIn,
    ToolIn,
    ToolOut,
)
from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.offered_tools import tools_with_paths
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.tool_names import ToolNames, ToolRef
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import MissingField
from antiphon.protocol.items import AdditionalTools
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import (
    AllowedToolsParam,
    CustomTool,
    FunctionToolParam,
    GrammarFormat,
    SpecificCustom,
    SpecificFunction,
    SpecificToolChoice,
    TextFormatOfTool,
    ToolChoiceParam,
    ToolChoiceValue,
    ToolParam,
    UnknownToolChoice,
)


def tools_from_hub(request: Request, names: ToolNames, wire: ChatWire, losses: Losses) -> dict[str, ToolOut]:
    """Every tool that can be offered, by the name it is sent under. Offered twice, the last one counts."""
    sent: dict[str, ToolOut] = {}
    places: dict[str, str] = {}
    for path, tool, namespace in tools_with_paths(request, losses, "the API has no namespaces of tools"):
        match tool:
            case FunctionToolParam():
                name = names.wire_name(("function", tool.name, namespace))
                offered = _function(tool, name, path, wire, losses)
            case CustomTool():
                name = names.wire_name(("custom", tool.name, namespace))
                offered = _custom(tool, name, path, wire, losses)
            case _:
                losses.add(path, f"a tool of type {type_of(tool)!r}", "the API has no equivalent")
                continue
        report_unknown_fields(tool, path, losses)
        if tool.defer_loading:
            losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")
        if sent.get(name, offered) != offered:
            losses.add(
                places[name],
                f"an earlier definition of {name!r}",
                "each tool is offered once; the last definition is used",
            )
        sent[name], places[name] = offered, path
    return sent


def tool_choice_from_hub(
    choice: ToolChoiceParam | None | UnsetType, sent: Collection[str], names: ToolNames, wire: ChatWire, losses: Losses
) -> ToolChoiceValue | ToolOut | UnsetType:
    """Translate the tool choice. A choice of a tool that is not sent is a loss."""
    match choice:
        case None | UnsetType():
            return UNSET
        case str():
            return _mode(choice, sent, wire, losses)
        case UnknownToolChoice():
            losses.add("tool_choice", f"the tool choice {choice.kind!r}", "the API has no equivalent")
            return UNSET
        case SpecificFunction() | SpecificCustom() as only:
            return _named(only, sent, names, wire, losses)
        case AllowedToolsParam(tools=[SpecificFunction() | SpecificCustom() as only], mode="required"):
            return _named(only, sent, names, wire, losses)
        case AllowedToolsParam(mode=mode):  # TOOL-3: all tools are sent, calls outside the set are withheld by policy
            report_unknown_fields(choice, "tool_choice", losses)
            return _mode(mode or "auto", sent, wire, losses)
        case _ as never:
            assert_never(never)


def report_tool_loss(request: Request, losses: Losses, what: str, why: str) -> None:
    """Report the same loss for each list of tools in the request."""
    if request.tools:
        losses.add("tools", what, why)
    for at, item in enumerate(input_items(request)):
        if type(item) is AdditionalTools:
            losses.add(f"input[{at}].tools", what, why)


def tools_to_hub(chat: RequestIn, losses: Losses) -> list[ToolParam] | UnsetType:
    """Translate the tools of a client's request, and the older `functions`."""
    if not chat.tools and not chat.functions:
        return UNSET
    tools = [_tool_to_hub(tool, f"tools[{at}]", losses) for at, tool in enumerate(chat.tools or ())]
    functions = [
        _function_to_hub(function, f"functions[{at}]", losses) for at, function in enumerate(chat.functions or ())
    ]
    return [*tools, *functions]


def tool_choice_to_hub(chat: RequestIn, losses: Losses) -> ToolChoiceParam | UnsetType:
    """Translate `tool_choice`, or the older `function_call`."""
    match chat.tool_choice or chat.function_call:
        case FunctionChoiceIn() | CustomChoiceIn() as named:
            return _choice_to_hub(named, "tool_choice", losses)
        case NameIn(name=name) as function:
            report_unknown_fields(function, "function_call", losses)
            return SpecificFunction(name=name)
        case AllowedToolsChoiceIn(allowed_tools=allowed) as choice:
            path = "tool_choice.allowed_tools"
            report_unknown_fields(choice, "tool_choice", losses)
            report_unknown_fields(allowed, path, losses)
            tools = [_choice_to_hub(tool, f"{path}.tools[{at}]", losses) for at, tool in enumerate(allowed.tools)]
            return AllowedToolsParam(tools=tools, mode=allowed.mode)
        case None | UnsetType():
            return UNSET
        case "any":
            return "required"
        case choice:
            return choice


def _function(tool: FunctionToolParam, name: str, path: str, wire: ChatWire, losses: Losses) -> ToolOut:
    if tool.strict and not wire.strict_tools:
        losses.add(f"{path}.strict", "strict arguments", "the server does not support it")
    return ToolOut(
        function=FunctionOut(
            name=name,
            description=tool.description or UNSET,
            parameters=tool.parameters or NO_PARAMETERS,
            strict=_strict(bool(tool.strict), wire),
        )
    )


def _strict(is_strict: bool, wire: ChatWire) -> bool | UnsetType:
    """Return an explicit value, because the default of `strict` differs between servers."""
    return is_strict if wire.strict_tools else UNSET


def _custom(tool: CustomTool, name: str, path: str, wire: ChatWire, losses: Losses) -> ToolOut:
    if wire.custom_tools == "native":
        if tool.format:
            report_unknown_fields(tool.format, f"{path}.format", losses)
        custom = CustomOut(name=name, description=tool.description or UNSET, format=_format_from_hub(tool.format))
        return ToolOut(type="custom", custom=custom)
    return ToolOut(
        function=FunctionOut(
            name=name,
            description=freeform_tools.description(tool, path, losses) or UNSET,
            parameters=freeform_tools.schema(),
            strict=_strict(False, wire),
        )
    )


def _format_from_hub(format: TextFormatOfTool | GrammarFormat | None | UnsetType) -> CustomFormatOut | UnsetType:
    match format:
        case GrammarFormat():
            return CustomFormatOut(
                type="grammar", grammar=GrammarOut(syntax=format.syntax, definition=format.definition)
            )
        case TextFormatOfTool():
            return CustomFormatOut(type="text")
        case _:
            return UNSET


def _mode(mode: ToolChoiceValue, sent: Collection[str], wire: ChatWire, losses: Losses) -> ToolChoiceValue | UnsetType:
    possible = _can_force(bool(sent), wire, losses) if mode == "required" else bool(sent)
    return mode if possible else UNSET


def _named(
    choice: SpecificFunction | SpecificCustom, sent: Collection[str], names: ToolNames, wire: ChatWire, losses: Losses
) -> ToolOut | UnsetType:
    report_unknown_fields(choice, "tool_choice", losses)
    name = names.wire_name(ToolRef.from_choice(choice))
    if not _can_force(name in sent, wire, losses):
        return UNSET
    if isinstance(choice, SpecificCustom) and wire.custom_tools == "native":
        return ToolOut(type="custom", custom=CustomOut(name=name))
    return ToolOut(function=FunctionOut(name=name))


def _can_force(offered: bool, wire: ChatWire, losses: Losses) -> bool:
    if not offered:
        losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
    elif wire.forced_tools != "native":
        losses.add("tool_choice", "a forced tool call", "the server does not support it")
    return offered and wire.forced_tools == "native"


def _tool_to_hub(tool: ToolIn, path: str, losses: Losses) -> ToolParam:
    match tool:
        case FunctionToolIn():
            report_unknown_fields(tool, path, losses)
            if tool.function:
                return _function_to_hub(tool.function, f"{path}.function", losses)
            if not tool.name:
                raise MissingField(
                    f"{path}.function is missing: expected an object with a name", param=f"{path}.function"
                )
            return FunctionToolParam(
                name=tool.name, description=tool.description, parameters=tool.parameters, strict=bool(tool.strict)
            )
        case CustomToolIn():
            report_unknown_fields(tool, path, losses)
            if tool.custom:
                return _custom_to_hub(tool.custom, f"{path}.custom", losses)
            if not tool.name:
                raise MissingField(f"{path}.custom is missing: expected an object with a name", param=f"{path}.custom")
            return CustomTool(name=tool.name, description=tool.description, format=tool.format)
        case _:
            return tool


def _function_to_hub(function: FunctionIn, path: str, losses: Losses) -> FunctionToolParam:
    report_unknown_fields(function, path, losses)
    return FunctionToolParam(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        strict=bool(function.strict),  # the default of Chat; that of the hub differs
    )


def _custom_to_hub(custom: CustomIn, path: str, losses: Losses) -> CustomTool:
    report_unknown_fields(custom, path, losses)
    format: TextFormatOfTool | GrammarFormat | None | UnsetType
    match custom.format:
        case GrammarFormatIn(grammar=grammar) as nested:
            report_unknown_fields(nested, f"{path}.format", losses)
            report_unknown_fields(grammar, f"{path}.format.grammar", losses)
            format = GrammarFormat(syntax=grammar.syntax, definition=grammar.definition)
        case other:
            format = other
    return CustomTool(name=custom.name, description=custom.description, format=format)


def _choice_to_hub(
    choice: FunctionChoiceIn | CustomChoiceIn | UnknownToolChoice, path: str, losses: Losses
) -> SpecificToolChoice:
    match choice:
        case FunctionChoiceIn():
            return SpecificFunction(name=_chosen(choice, choice.function, f"{path}.function", losses))
        case CustomChoiceIn():
            return SpecificCustom(name=_chosen(choice, choice.custom, f"{path}.custom", losses))
        case UnknownToolChoice():
            return choice
        case _ as never:
            assert_never(never)


def _chosen(choice: FunctionChoiceIn | CustomChoiceIn, nested: NameIn | UnsetType, path: str, losses: Losses) -> str:
    report_unknown_fields(choice, path.rpartition(".")[0], losses)
    if nested:
        report_unknown_fields(nested, path, losses)
        return nested.name
    if not choice.name:
        raise MissingField(f"{path} is missing: expected an object with the name of a tool", param=path)
    return choice.name


NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}
