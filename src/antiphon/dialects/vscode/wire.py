"""The shapes of an editor's request, and the lines of a stream for an editor, with the editor's names.

JSON does not keep the classes of the editor's parts. A part of a request is identified by its members, or by `type` if
the client sends one. `$mid` and `audience` are left by the editor's serialization and are ignored. A stream has
response parts and one of two kinds of last line. One line is one JSON object.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.dialects.common.output_limit import OutputLimit
from antiphon.protocol.base import Shape
from antiphon.protocol.content import Number, Text10M
from antiphon.protocol.request import ReasoningConfigParam, TextParam
from antiphon.protocol.tools import JsonSchema

EditorPartKind = Literal["text", "thinking", "tool_call", "tool_result", "data"]


class PartIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """A part of any kind: text, thinking, a call, a result or data."""

    type: str | UnsetType = UNSET
    value: Any = UNSET
    id: str | None | UnsetType = UNSET
    metadata: dict[str, Any] | None | UnsetType = UNSET
    call_id: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    input: dict[str, Any] | None | UnsetType = UNSET
    content: list[Any] | UnsetType = UNSET
    is_error: bool | None | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    data: Any = UNSET
    marshal_id: Any = field(default=UNSET, name="$mid")
    audience: Any = UNSET


class MessageIn(Shape, frozen=True, kw_only=True):
    role: Any
    content: Text10M | list[Text10M | PartIn]
    name: str | None | UnsetType = UNSET


class ToolIn(Shape, frozen=True, kw_only=True, rename="camel"):
    name: Annotated[str, Meta(min_length=1)]
    description: str | None | UnsetType = UNSET
    input_schema: JsonSchema | None | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET  # used in the editor only


class ModelOptionsIn(Shape, frozen=True, kw_only=True):
    """Options for the model. The names are those of the hub, and `max_tokens`."""

    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    presence_penalty: Number | None | UnsetType = UNSET
    frequency_penalty: Number | None | UnsetType = UNSET
    max_output_tokens: OutputLimit | None | UnsetType = UNSET
    max_tokens: OutputLimit | None | UnsetType = UNSET
    parallel_tool_calls: bool | None | UnsetType = UNSET
    reasoning: ReasoningConfigParam | None | UnsetType = UNSET
    text: TextParam | None | UnsetType = UNSET


class OptionsIn(Shape, frozen=True, kw_only=True, rename="camel"):
    model_options: ModelOptionsIn | None | UnsetType = UNSET
    tools: list[ToolIn] | None | UnsetType = UNSET
    tool_mode: int | None | UnsetType = UNSET
    # Ignored: used in the editor only.
    justification: str | None | UnsetType = UNSET
    request_initiator: Any = UNSET


class ContentChoicesIn(Shape, frozen=True, kw_only=True, rename="camel"):
    """How to read ambiguous content."""

    json: Literal["text", "file"] = "text"
    leading_assistant: Literal["auto", "system", "turn"] = "auto"
    images_in_results: Literal["keep", "note"] = "keep"


class RequestIn(Shape, frozen=True, kw_only=True):
    """The body of `POST /v1/vscode/chat`, and of `/v1/vscode/count_tokens` for a whole conversation."""

    messages: Annotated[list[MessageIn], Meta(min_length=1)]
    model: str | None | UnsetType = UNSET
    options: OptionsIn | None | UnsetType = UNSET
    choices: ContentChoicesIn = ContentChoicesIn()
    stream: bool = True


_encode: Final = msgspec.json.Encoder().encode


class TextPart(Struct, frozen=True, kw_only=True, tag="text"):
    value: str


class ThinkingPart(Struct, frozen=True, kw_only=True, tag="thinking"):
    """A piece of thinking. The last piece of an item has the signature, which the editor must send back (RSN-2)."""

    value: str
    id: str
    metadata: dict[str, str] | UnsetType = UNSET


class ToolCallPart(Struct, frozen=True, kw_only=True, tag="tool_call", rename="camel"):
    call_id: str
    name: str
    input: Raw


class DataPart(Struct, frozen=True, kw_only=True, tag="data", rename="camel"):
    mime_type: str
    data: str  # base64


ResponsePart = TextPart | ThinkingPart | ToolCallPart | DataPart


class UsageOut(Struct, frozen=True, kw_only=True, rename="camel"):
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


class DoneLine(Struct, frozen=True, kw_only=True, tag="done", rename="camel"):
    """The end of a response: status, reason and usage."""

    response_id: str
    model: str
    status: str
    reason: str | UnsetType = UNSET
    usage: UsageOut | UnsetType = UNSET


class ErrorOut(Struct, frozen=True, kw_only=True):
    """An error. `name` is the editor's name for errors of this kind, if it has one."""

    name: str | UnsetType = UNSET
    type: str
    code: str
    message: str
    param: str | None


class ErrorLine(Struct, frozen=True, kw_only=True, tag="error"):
    """The end of a stream that failed."""

    error: ErrorOut


class ResponseOut(Struct, frozen=True, kw_only=True):
    parts: list[ResponsePart]
    end: DoneLine


def encode_line(line: ResponsePart | DoneLine | ErrorLine) -> bytes:
    return escape_line_ends(_encode(line)) + b"\n"
