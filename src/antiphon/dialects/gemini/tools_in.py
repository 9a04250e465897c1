"""Translates a gemini client's tools and tool choice to the hub.

The API's own tools (`googleSearch`, `codeExecution`, `urlContext` …) travel as one unknown tool each. They reach
servers of this dialect unchanged and are losses for others.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, UnsetType

from antiphon.dialects.common.schema_budget import SchemaBudget
from antiphon.dialects.gemini.schemas import schema_to_hub
from antiphon.dialects.gemini.wire import (
    PREFIX,
    FunctionCallingConfigIn,
    FunctionDeclarationIn,
    RequestIn,
    ToolIn,
    native_fields_of,
    unknown_fields_of,
)
from antiphon.errors import InvalidValue
from antiphon.protocol import codec
from antiphon.protocol.tools import (
    AllowedToolsParam,
    FunctionToolParam,
    JsonSchema,
    SpecificFunction,
    ToolChoiceParam,
    ToolChoiceValue,
    ToolParam,
    UnknownTool,
)


def tools_to_hub(tools: list[ToolIn]) -> list[ToolParam] | UnsetType:
    """Every function and every tool of the API's own, in their order."""
    hub_tools: list[ToolParam] = []
    budget = SchemaBudget()
    for index, tool in enumerate(tools):
        path = f"tools[{index}].functionDeclarations"
        hub_tools += [
            _function(declaration, f"{path}[{declaration_index}]", budget)
            for declaration_index, declaration in enumerate(tool.function_declarations or ())
        ]
        hub_tools += [_native_tool(name, raw) for name, raw in unknown_fields_of(tool).items()]
    return hub_tools or UNSET


def tool_choice_to_hub(request: RequestIn) -> ToolChoiceParam | UnsetType:
    """The tool choice. `VALIDATED` leaves the choice to the model."""
    calling_config = request.tool_config.function_calling_config if request.tool_config else UNSET
    if not calling_config:
        return UNSET
    mode_name = (calling_config.mode or "MODE_UNSPECIFIED").upper()
    if mode_name not in MODES:
        path = "toolConfig.functionCallingConfig.mode"
        raise InvalidValue(f"{path}: expected one of {', '.join(MODES)}, got {mode_name[:40]!r}", param=path)
    mode = MODES[mode_name]
    names = calling_config.allowed_function_names or []
    if not names or mode_name in MODES_WITHOUT_NAMES:
        return UNSET if mode_name == "MODE_UNSPECIFIED" else mode
    if len(names) == 1 and mode == "required":
        return SpecificFunction(name=names[0])
    return AllowedToolsParam(tools=[SpecificFunction(name=name) for name in names], mode=mode)


def native_tool_config(request: RequestIn) -> Raw | None:
    """The whole `toolConfig` if a tool choice cannot express all of it."""
    config = request.tool_config
    if not config:
        return None
    calling_config = config.function_calling_config or FunctionCallingConfigIn()
    has_native_settings = (
        unknown_fields_of(config)
        or unknown_fields_of(calling_config)
        or (calling_config.mode or "").upper() == "VALIDATED"
    )
    return Raw(codec.encode(config)) if has_native_settings else None


def _function(declared: FunctionDeclarationIn, path: str, budget: SchemaBudget) -> FunctionToolParam:
    """A function tool. Its result schema and other own members travel in `extra`."""
    parameters = NO_PARAMETERS
    if declared.parameters_json_schema:
        parameters = schema_to_hub(declared.parameters_json_schema, f"{path}.parametersJsonSchema", budget)
    elif declared.parameters:
        parameters = schema_to_hub(declared.parameters, f"{path}.parameters", budget)
    return FunctionToolParam(
        name=declared.name,
        description=declared.description or UNSET,
        parameters=NO_PARAMETERS if _is_empty_object(parameters) else parameters,
        strict=False,  # the API has no strict mode; without a value, servers would apply different defaults
        extra=native_fields_of(declared),
    )


def _is_empty_object(schema: JsonSchema) -> bool:
    return not schema.get("properties") and schema.keys() <= {"type", "properties", "required"}


def _native_tool(name: str, raw: Raw) -> UnknownTool:
    kind = PREFIX + name
    return UnknownTool(kind=kind, raw=Raw(codec.encode({"type": kind, name: raw})))


#: An object without properties, which some servers of other dialects require. Clients may also send no parameters.
NO_PARAMETERS: Final[JsonSchema] = {"type": "object", "properties": {}}
MODES: Final[dict[str, ToolChoiceValue]] = {
    "MODE_UNSPECIFIED": "auto",
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
    "VALIDATED": "auto",
}
#: Modes for which the API ignores `allowedFunctionNames`.
MODES_WITHOUT_NAMES: Final = ("MODE_UNSPECIFIED", "AUTO", "NONE")
