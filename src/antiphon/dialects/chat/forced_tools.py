"""Forced tools on servers that enforce a JSON schema but no `tool_choice` (`ChatWire.forced_tools = "schema"`).

The model is asked for a text of the schema of the call, and the text is translated back into a call. For one tool the
text is its arguments; for several it is `{"name": …, "arguments": …}`. Request writer and response reader derive the
tools from the same request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.chat.call_tracker import CallPiece
from antiphon.dialects.chat.tools_out import report_tool_loss, tools_from_hub
from antiphon.dialects.chat.wire import ChatWire, FunctionOut, JsonSchemaOut, ResponseFormatOut, ToolOut
from antiphon.dialects.common.offered_tools import tools_with_paths
from antiphon.dialects.common.schema_budget import SchemaBudget, SchemaCounter
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolKind, ToolNames, ToolRef
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
)

#: The index of the forced call. Servers do not use negative indexes.
FORCED_INDEX: Final = -1


class ForcedTools(Struct, frozen=True):
    """The tools of which one must be called, by their wire names."""

    tools: Mapping[str, ToolOut]
    #: The path of each tool in the request.
    paths: Mapping[str, str]

    @classmethod
    def from_request(cls, request: Request, names: ToolNames, wire: ChatWire, losses: Losses) -> ForcedTools | None:
        """Return the tools that the request forces, or None if it forces none. For servers that enforce a schema."""
        if not request.tool_choice or request.tool_choice in ("auto", "none"):
            return None
        tool_losses = Losses()
        # Custom tools are sent as functions, because only functions have a schema.
        offered = tools_from_hub(request, names, replace(wire, custom_tools="function"), tool_losses)
        forced_names = _forced_names(request.tool_choice, offered, names)
        tools = {name: tool for name, tool in offered.items() if name in forced_names and isinstance(tool, ToolOut)}
        if not tools:
            return None
        losses.extend(tool_losses)
        if len(tools) < len(offered):
            report_tool_loss(request, losses, "tools that are not forced", "another tool must be called")
        return cls(tools, _paths_by_name(request, names))

    def response_format(self) -> ResponseFormatOut:
        """Return the output format of the text that stands for the call."""
        name, *others = self.tools
        schema = self._schema_of_several() if others else _parameters(self.tools[name])
        return ResponseFormatOut(
            type="json_schema", json_schema=JsonSchemaOut(name="call" if others else name, schema=schema)
        )

    def system_text(self) -> str:
        """Return the description of the tools for the system text, because the tools themselves are not sent."""
        descriptions = [
            f"- {name}: {_function(tool).description or ''}".rstrip(": ") for name, tool in self.tools.items()
        ]
        return "\n".join([RULE_FOR_ONE if len(descriptions) == 1 else RULE_FOR_SEVERAL, *descriptions])

    def call_reader(self) -> ForcedCallReader:
        """Return a reader that translates the text back into a call."""
        return ForcedCallReader(list(self.tools))

    def _schema_of_several(self) -> JsonSchema:
        # References inside a tool's schema are relative to its root, which moves.
        roots = {name: f"#/$defs/{name}" for name in self.tools}
        budget = SchemaBudget()
        return {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"name": {"const": name}, "arguments": {"$ref": root}},
                    "required": ["name", "arguments"],
                    "additionalProperties": False,
                }
                for name, root in roots.items()
            ],
            "$defs": {name: self._arguments_of(name, roots[name], budget) for name in self.tools},
        }

    def _arguments_of(self, name: str, root: str, budget: SchemaBudget) -> JsonSchema:
        """Return the schema of a tool's arguments, with references to its new root."""
        schema = _parameters(self.tools[name])
        if b'"$ref"' not in ENCODER.encode(schema):
            return schema
        moved_schema: JsonSchema = _move_references(schema, root, budget.counter(f"{self.paths[name]}.parameters"))
        return moved_schema


class ForcedCallReader:
    """Reads text and returns pieces of the call. Text of another form stays in `unconsumed_text`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._state: Literal["head", "arguments", "after", "other"] = "head"
        self._buffer = ""  # the incomplete head; later the text after the call
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> CallPiece | None:
        """Return the next piece of the call, if any. The first piece has the name."""
        if self._state == "arguments":
            return self._take_piece("", text)
        if self._state != "head":
            self._buffer += text[: max(0, MAX_HEAD_LENGTH - len(self._buffer))]  # enough for the report of the loss
            return None
        self._buffer += text
        if len(self._names) == 1:
            name, head = self._names[0], ARGUMENTS_START.match(self._buffer)
        else:
            head = NAME_AND_ARGUMENTS_START.match(self._buffer)
            name = head["name"] if head else ""
        if head is None or name not in self._names:
            if (
                head is not None
                or len(self._buffer) > MAX_HEAD_LENGTH
                or (self._buffer.strip() and not self._buffer.lstrip().startswith("{"))
            ):
                self._state = "other"
            return None
        self._state, rest, self._buffer = "arguments", self._buffer[head.end() :], ""
        return self._take_piece(name, rest)

    @property
    def is_ordinary_text(self) -> bool:
        """Whether the server wrote text of another form, which is in `unconsumed_text`."""
        return self._state == "other"

    @property
    def has_started(self) -> bool:
        return self._state in ("arguments", "after")

    @property
    def unconsumed_text(self) -> str:
        """Text that is no part of the call: an incomplete head, text of another form, or text after the call."""
        return "" if self._state == "after" and CLOSING_BRACE.fullmatch(self._buffer) else self._buffer

    def _take_piece(self, name: str, text: str) -> CallPiece:
        end = self._end_in(text)
        if end is not None:
            self._state, self._buffer = "after", text[end:]
        return CallPiece(FORCED_INDEX, "", name, text[:end])

    def _end_in(self, text: str) -> int | None:
        """Return the position after the end of the arguments object, or None if it does not end in `text`."""
        for index, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return index + 1
        return None


def _forced_names(choice: ToolChoiceParam, offered: Collection[str], names: ToolNames) -> Collection[str]:
    """Return the wire names of the tools that a choice forces."""
    match choice:
        case "required":
            return offered
        case SpecificFunction() | SpecificCustom():
            return [names.wire_name(ToolRef.from_choice(choice))]
        case AllowedToolsParam(mode="required", tools=allowed):
            return [
                names.wire_name(ToolRef.from_choice(tool))
                for tool in allowed
                if isinstance(tool, SpecificFunction | SpecificCustom)
            ]
        case _:
            return ()


def _function(tool: ToolOut) -> FunctionOut:
    assert tool.function  # `from_request` translates all tools to functions
    return tool.function


def _parameters(tool: ToolOut) -> JsonSchema:
    """Return the schema of the arguments, which is always an object."""
    return {**(_function(tool).parameters or {}), "type": "object"}


def _paths_by_name(request: Request, names: ToolNames) -> dict[str, str]:
    """Return the paths of the tools by wire name. The last tool of a name counts."""
    paths: dict[str, str] = {}
    for path, tool, namespace in tools_with_paths(request, Losses(), ""):
        if isinstance(tool, FunctionToolParam | CustomTool):
            kind: ToolKind = "custom" if isinstance(tool, CustomTool) else "function"
            paths[names.wire_name((kind, tool.name, namespace))] = path
    return paths


def _move_references(schema: Any, root: str, counter: SchemaCounter) -> Any:
    """Return `schema` with its references moved to `root`."""
    match schema:
        case dict():
            counter.add_members(schema)
            return {name: _move_member(name, value, root, counter) for name, value in schema.items()}
        case list():
            counter.add_members(schema)
            return [_move_references(member, root, counter) for member in schema]
        case _:
            return schema


def _move_member(name: str, value: Any, root: str, counter: SchemaCounter) -> Any:
    if name == "$ref" and isinstance(value, str) and value.startswith("#"):
        return root + value[1:]
    return value if name in VALUE_KEYWORDS else _move_references(value, root, counter)


ENCODER: Final = msgspec.json.Encoder()
MAX_HEAD_LENGTH: Final = 500
ARGUMENTS_START: Final = re.compile(r"\s*(?=\{)")
NAME_AND_ARGUMENTS_START: Final = re.compile(
    rf'\s*\{{\s*"name"\s*:\s*"(?P<name>{PLAIN_NAMES.legal_name.pattern})"\s*,\s*"arguments"\s*:\s*(?=\{{)'
)
CLOSING_BRACE: Final = re.compile(r"\s*+\}?+\s*+")  # the closing brace after name and arguments
RULE_FOR_ONE: Final = "Call this function: answer with its arguments, as one JSON object."
RULE_FOR_SEVERAL: Final = (
    'Call one of these functions: answer with {"name": its name, "arguments": its arguments}, as JSON.'
)
# Members of a schema that contain values, not schemas.
VALUE_KEYWORDS: Final = frozenset({"const", "default", "enum", "examples"})
