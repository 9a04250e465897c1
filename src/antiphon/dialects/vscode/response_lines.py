"""The lines of a stream for an editor: response parts, and the two kinds of last line. One line is one JSON object."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.dialects.common.json_lines import escape_line_ends

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


def encode_line(line: ResponsePart | DoneLine | ErrorLine) -> bytes:
    return escape_line_ends(_encode(line)) + b"\n"
