"""Translates tools and tool choices of a Chat client, in the nested form of Chat or the flat form of the hub (C-3)."""

from __future__ import annotations

from typing import assert_never

from msgspec import UNSET, UnsetType

from antiphon.dialects.chat.wire import (
    AllowedToolsChoiceIn,
    CustomChoiceIn,
    CustomIn,
    CustomToolIn,
    FunctionChoiceIn,
    FunctionIn,
    FunctionToolIn,
    GrammarFormatIn,
    NameIn,
    RequestIn,
    ToolIn,
)
from antiphon.dialects.common.cache_marks import take_any_mark, with_mark
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import MissingField
from antiphon.protocol.losses import Losses
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
    ToolParam,
    UnknownToolChoice,
)


def tools_to_hub(chat: RequestIn, losses: Losses) -> list[ToolParam] | UnsetType:
    """Translate the tools of a client's request, and the older `functions`."""
    if not chat.tools and not chat.functions:
        return UNSET
    tools = [_tool_to_hub(tool, f"tools[{index}]", losses) for index, tool in enumerate(chat.tools or ())]
    functions = [
        _function_to_hub(function, f"functions[{index}]", losses) for index, function in enumerate(chat.functions or ())
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
            tools = [_choice_to_hub(tool, f"{path}.tools[{index}]", losses) for index, tool in enumerate(allowed.tools)]
            return AllowedToolsParam(tools=tools, mode=allowed.mode)
        case None | UnsetType():
            return UNSET
        case "any":
            return "required"
        case choice:
            return choice


def _tool_to_hub(tool: ToolIn, path: str, losses: Losses) -> ToolParam:
    if not isinstance(tool, FunctionToolIn | CustomToolIn):
        return tool
    unmarked, mark = take_any_mark(tool)
    converted: ToolParam = with_mark(_client_tool_to_hub(unmarked, path, losses), mark)
    return converted


def _client_tool_to_hub(tool: FunctionToolIn | CustomToolIn, path: str, losses: Losses) -> ToolParam:
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
        case _ as never:
            assert_never(never)


def _function_to_hub(function: FunctionIn, path: str, losses: Losses) -> FunctionToolParam:
    function, mark = take_any_mark(function)
    report_unknown_fields(function, path, losses)
    tool: FunctionToolParam = with_mark(
        FunctionToolParam(
            name=function.name,
            description=function.description,
            parameters=function.parameters,
            strict=bool(function.strict),  # the default of Chat; that of the hub differs
        ),
        mark,
    )
    return tool


def _custom_to_hub(custom: CustomIn, path: str, losses: Losses) -> CustomTool:
    custom, mark = take_any_mark(custom)
    report_unknown_fields(custom, path, losses)
    format: TextFormatOfTool | GrammarFormat | None | UnsetType
    match custom.format:
        case GrammarFormatIn(grammar=grammar) as nested:
            report_unknown_fields(nested, f"{path}.format", losses)
            report_unknown_fields(grammar, f"{path}.format.grammar", losses)
            format = GrammarFormat(syntax=grammar.syntax, definition=grammar.definition)
        case other:
            format = other
    tool: CustomTool = with_mark(CustomTool(name=custom.name, description=custom.description, format=format), mark)
    return tool


def _choice_to_hub(
    choice: FunctionChoiceIn | CustomChoiceIn | UnknownToolChoice, path: str, losses: Losses
) -> SpecificToolChoice:
    match choice:
        case FunctionChoiceIn():
            return SpecificFunction(name=_chosen_name(choice, choice.function, f"{path}.function", losses))
        case CustomChoiceIn():
            return SpecificCustom(name=_chosen_name(choice, choice.custom, f"{path}.custom", losses))
        case UnknownToolChoice():
            return choice
        case _ as never:
            assert_never(never)


def _chosen_name(
    choice: FunctionChoiceIn | CustomChoiceIn, nested: NameIn | UnsetType, path: str, losses: Losses
) -> str:
    report_unknown_fields(choice, path.rpartition(".")[0], losses)
    if nested:
        report_unknown_fields(nested, path, losses)
        return nested.name
    if not choice.name:
        raise MissingField(f"{path} is missing: expected an object with the name of a tool", param=path)
    return choice.name
