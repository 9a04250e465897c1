"""A client's tools and its choice among them, for the hub. Tools that only a server of this dialect knows go as they are."""

from __future__ import annotations

from typing import assert_never

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.messages.blocks_to_hub import extra_fields_of
from antiphon.dialects.messages.request_in import (
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
from antiphon.protocol.tools import FunctionToolParam, SpecificFunction, ToolChoiceParam, ToolParam, UnknownTool, UnknownToolChoice


def tools_to_hub(tools: list[ToolIn]) -> list[ToolParam]:
    """The client's own tools are functions, every other is one that the server runs or has a schema for."""
    return [_tool_to_hub(tool, f"tools[{at}]") for at, tool in enumerate(tools)]


def tool_choice_to_hub(choice: ToolChoiceIn | None | UnsetType, tools: list[ToolIn], losses: Losses) -> ToolChoiceParam | UnsetType:
    """The choice; whether calls may be parallel is another field there."""
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
            if any(tool.name == name and not _is_own(tool) for tool in tools):
                return UnknownToolChoice(kind="tool", raw=Raw(codec.encode({"type": "tool", "name": name})))
            return SpecificFunction(name=name)
        case _ as never:
            assert_never(never)


def parallel_tool_calls_to_hub(choice: ToolChoiceIn | None | UnsetType) -> bool | UnsetType:
    """TOOL-4: said the other way round."""
    if not choice or isinstance(choice, NoneChoiceIn) or choice.disable_parallel_tool_use is UNSET:
        return UNSET
    return not choice.disable_parallel_tool_use


def _tool_to_hub(tool: ToolIn, path: str) -> ToolParam:
    if not _is_own(tool):
        return UnknownTool(kind=str(tool.type), raw=Raw(codec.encode(tool)))
    for name, value, wanted in (("name", tool.name, "a string"), ("input_schema", tool.input_schema, "an object")):
        if value is UNSET:
            raise MissingField(f"{path}.{name} is missing: wanted {wanted}", param=f"{path}.{name}")
    return FunctionToolParam(
        name=tool.name or "",
        description=tool.description,
        parameters=tool.input_schema,
        strict=bool(tool.strict),  # this API's default; the hub's would be another
        defer_loading=UNSET if tool.defer_loading is None else tool.defer_loading,
        extra=extra_fields_of(tool),
    )


def _is_own(tool: ToolIn) -> bool:
    return not tool.type or tool.type == "custom"
