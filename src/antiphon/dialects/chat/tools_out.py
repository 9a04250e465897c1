"""Translates tools and tool choices for a Chat server: flat in the hub, nested in Chat (C-3, TOOL-1, TOOL-2).

Namespaces are flattened, and custom tools become functions with one string. Hosted tools are losses, except a web
search, if the server has one. `dialects/common` translates the calls back.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, assert_never

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.chat.wire import (
    ChatWire,
    CustomFormatOut,
    CustomOut,
    FunctionOut,
    GrammarOut,
    ToolOut,
)
from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.model_names import matches_any
from antiphon.dialects.common.offered_tools import ToolsByName, tools_with_paths
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.tool_names import ToolNames, ToolRef
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.common.web_search import CHAT_OPTIONS, ServerSearch, WebSearch
from antiphon.protocol import codec
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
    TextFormatOfTool,
    ToolChoiceParam,
    ToolChoiceValue,
    UnknownTool,
    UnknownToolChoice,
)


def tools_from_hub(request: Request, names: ToolNames, wire: ChatWire, losses: Losses) -> dict[str, ToolOut | Raw]:
    """Every tool that can be offered, by the name it is sent under. Offered twice, the last one counts. Tools of other
    types have no name: their key is their path."""
    sent: ToolsByName[ToolOut | Raw] = ToolsByName(losses)
    for path, tool, namespace in tools_with_paths(request, losses, "the API has no namespaces of tools"):
        match tool:
            case FunctionToolParam():
                name = names.wire_name(("function", tool.name, namespace))
                offered = _function_tool(tool, name, path, wire, losses)
            case CustomTool():
                name = names.wire_name(("custom", tool.name, namespace))
                offered = _custom_tool(tool, name, path, wire, losses)
            case UnknownTool() if matches_any(tool.kind, wire.own_tools):
                sent.add(tool.kind, tool.raw, path)
                continue
            case UnknownTool(kind=kind) if kind == CHAT_OPTIONS:
                continue  # a field of the request, not a tool
            case _ if wire.native_types:
                sent.add(path, Raw(codec.encode(tool)), path)
                continue
            case _:
                losses.add(path, f"a tool of type {type_of(tool)!r}", "the API has no equivalent")
                continue
        report_unknown_fields(tool, path, losses)
        if tool.defer_loading:
            losses.add(f"{path}.defer_loading", "deferred loading of the tool", "every tool is offered at once")
        sent.add(name, offered, path)
    return sent.by_name


def tool_choice_from_hub(
    choice: ToolChoiceParam, sent: Collection[str], names: ToolNames, wire: ChatWire, losses: Losses
) -> ToolChoiceValue | ToolOut | Raw | UnsetType:
    """Translate the tool choice. A choice of a tool that is not sent is a loss."""
    match choice:
        case str():
            return _mode_or_unset(choice, sent, wire, losses)
        case UnknownToolChoice() if wire.native_types:
            return choice.raw
        case UnknownToolChoice():
            losses.add("tool_choice", f"the tool choice {choice.kind!r}", "the API has no equivalent")
            return UNSET
        case SpecificFunction() | SpecificCustom() as only:
            return _named_choice(only, sent, names, wire, losses)
        case AllowedToolsParam(tools=[SpecificFunction() | SpecificCustom() as only], mode="required"):
            return _named_choice(only, sent, names, wire, losses)
        case AllowedToolsParam(mode=mode):  # TOOL-3: all tools are sent, calls outside the set are withheld by policy
            report_unknown_fields(choice, "tool_choice", losses)
            return _mode_or_unset(mode or "auto", sent, wire, losses)
        case _ as never:
            assert_never(never)


def search_options(request: Request) -> Raw | None:
    """The `web_search_options` of a web search that a client of another API offers."""
    for tool in request.tools or ():
        if type(tool) is UnknownTool and tool.kind == CHAT_OPTIONS:
            return tool.raw_members().get(SEARCH_OPTIONS, Raw(b"{}"))
    return None


def report_tool_loss(request: Request, losses: Losses, what: str, why: str) -> None:
    """Report the same loss for each list of tools in the request."""
    if request.tools:
        losses.add("tools", what, why)
    for index, item in enumerate(input_items(request)):
        if type(item) is AdditionalTools:
            losses.add(f"input[{index}].tools", what, why)


def _write_search(search: WebSearch, losses: Losses) -> UnknownTool:
    options = search.take(("search_context_size", "user_location"), losses)
    location = options.get("user_location")
    if isinstance(location, dict):
        members = {name: value for name, value in location.items() if name != "type"}
        options["user_location"] = {"type": "approximate", "approximate": members}
    return UnknownTool(kind=CHAT_OPTIONS, raw=Raw(codec.encode({"type": CHAT_OPTIONS, SEARCH_OPTIONS: options})))


def _function_tool(tool: FunctionToolParam, name: str, path: str, wire: ChatWire, losses: Losses) -> ToolOut:
    if tool.strict and not wire.strict_tools:
        losses.add(f"{path}.strict", "strict arguments", "the server does not support it")
    return ToolOut(
        function=FunctionOut(
            name=name,
            description=tool.description or UNSET,
            parameters=tool.parameters or NO_PARAMETERS,
            strict=_strict_value(bool(tool.strict), wire),
        )
    )


def _strict_value(is_strict: bool, wire: ChatWire) -> bool | UnsetType:
    """Return an explicit value, because the default of `strict` differs between servers."""
    return is_strict if wire.strict_tools else UNSET


def _custom_tool(tool: CustomTool, name: str, path: str, wire: ChatWire, losses: Losses) -> ToolOut:
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
            strict=_strict_value(False, wire),
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


def _mode_or_unset(
    mode: ToolChoiceValue, sent: Collection[str], wire: ChatWire, losses: Losses
) -> ToolChoiceValue | UnsetType:
    is_possible = _can_force_call(bool(sent), wire, losses) if mode == "required" else bool(sent)
    return mode if is_possible else UNSET


def _named_choice(
    choice: SpecificFunction | SpecificCustom, sent: Collection[str], names: ToolNames, wire: ChatWire, losses: Losses
) -> ToolOut | UnsetType:
    report_unknown_fields(choice, "tool_choice", losses)
    name = names.wire_name(ToolRef.from_choice(choice))
    if not _can_force_call(name in sent, wire, losses):
        return UNSET
    if isinstance(choice, SpecificCustom) and wire.custom_tools == "native":
        return ToolOut(type="custom", custom=CustomOut(name=name))
    return ToolOut(function=FunctionOut(name=name))


def _can_force_call(offered: bool, wire: ChatWire, losses: Losses) -> bool:
    if not offered:
        losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
    elif wire.forced_tools != "native":
        losses.add("tool_choice", "a forced tool call", "the server does not support it")
    return offered and wire.forced_tools == "native"


SEARCH_OPTIONS: Final = "web_search_options"
SEARCH: Final = ServerSearch(re.compile(CHAT_OPTIONS), _write_search)
NO_PARAMETERS: Final[dict[str, Any]] = {"type": "object", "properties": {}}
