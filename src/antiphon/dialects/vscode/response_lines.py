"""The lines of an answer to an editor: its response parts by their own names, and the two lines that end a stream.

One line is one JSON object, whatever its texts hold.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.dialects.common.json_lines import escape_line_ends

_encode: Final = msgspec.json.Encoder().encode


class TextPart(Struct, frozen=True, kw_only=True, tag="text"):
    value: str


class ThinkingPart(Struct, frozen=True, kw_only=True, tag="thinking"):
    """A piece of a thought; with its last one comes the seal, which has to come back with it (RSN-2)."""

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
    """The end of an answer: whether it is whole, if not why, and what it cost."""

    response_id: str
    model: str
    status: str
    reason: str | UnsetType = UNSET
    usage: UsageOut | UnsetType = UNSET


class ErrorOut(Struct, frozen=True, kw_only=True):
    """`name` is what the editor calls errors of this kind, if it has a word for them."""

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
