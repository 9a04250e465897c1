"""Translates a client's tools and tool choice to the hub. Tools that only this dialect has travel unchanged."""

from __future__ import annotations

from typing import assert_never

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.messages.content_in import extra_fields_of
from antiphon.dialects.messages.wire import (
    AnyChoiceIn,
    AutoChoiceIn,
    NoneChoiceIn,
    SpecificToolChoiceIn,
    ToolChoiceIn,
    ToolIn,
)
from antiphon.errors import MissingField
from antiphon.protocol import codec
from antiphon.protocol.losses import Losses
from antiphon.protocol.tools import (
    FunctionToolParam,
    SpecificFunction,
    ToolChoiceParam,
    ToolParam,
    UnknownTool,
    UnknownToolChoice,
)


def tools_to_hub(tools: list[ToolIn]) -> list[ToolParam]:
    """The client's own tools become functions; the server runs all others or knows their schema."""
    return [_tool_to_hub(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def tool_choice_to_hub(
    choice: ToolChoiceIn | None | UnsetType, tools: list[ToolIn], losses: Losses
) -> ToolChoiceParam | UnsetType:
    """The tool choice. The hub has a separate field for parallel calls."""
    if not choice:
        return UNSET
    report_unknown_fields(choice, "tool_choice", losses)
    match choice:
        case AutoChoiceIn():
            return "auto"
        case AnyChoiceIn():
            return "required"
        case NoneChoiceIn():
            return "none"
        case SpecificToolChoiceIn(name=name):
            if any(tool.name == name and not _is_client_tool(tool) for tool in tools):
                return UnknownToolChoice(kind="tool", raw=Raw(codec.encode({"type": "tool", "name": name})))
            return SpecificFunction(name=name)
        case _ as never:
            assert_never(never)


def parallel_tool_calls_to_hub(choice: ToolChoiceIn | None | UnsetType) -> bool | UnsetType:
    """TOOL-4: the hub's field has the opposite meaning."""
    if not choice or isinstance(choice, NoneChoiceIn) or choice.disable_parallel_tool_use is UNSET:
        return UNSET
    return not choice.disable_parallel_tool_use


def _tool_to_hub(tool: ToolIn, path: str) -> ToolParam:
    if not _is_client_tool(tool):
        return UnknownTool(kind=str(tool.type), raw=Raw(codec.encode(tool)))
    for name, value, expected in (("name", tool.name, "a string"), ("input_schema", tool.input_schema, "an object")):
        if value is UNSET:
            raise MissingField(f"{path}.{name} is missing: expected {expected}", param=f"{path}.{name}")
    return FunctionToolParam(
        name=tool.name or "",
        description=tool.description,
        parameters=tool.input_schema,
        strict=bool(tool.strict),  # this API's default, which differs from the hub's
        defer_loading=UNSET if tool.defer_loading is None else tool.defer_loading,
        extra=extra_fields_of(tool),
    )


def _is_client_tool(tool: ToolIn) -> bool:
    return not tool.type or tool.type == "custom"
