"""Wire shapes of Messages answers and stream events. Shapes for reading (`…In`) accept more than the documentation
promises; shapes for writing (`…Out`) have exactly one form.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

# Answer shapes for reading.


class AnswerBlockIn(Struct, frozen=True, kw_only=True, gc=False):
    """A content block, whole or at its start in a stream. Its type decides which members are used."""

    type: str
    text: str | None = None
    citations: list[Raw] | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw(b"{}")


class OutputDetailsIn(Struct, frozen=True, kw_only=True, gc=False):
    thinking_tokens: int | None = None


class UsageIn(Struct, frozen=True, kw_only=True, gc=False):
    """Token counts so far. `input_tokens` excludes cached tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: dict[str, Any] | None = None  # the same, by lifetime
    output_tokens_details: OutputDetailsIn | None = None
    service_tier: str | None = None


class StopDetailsIn(Struct, frozen=True, kw_only=True, gc=False):
    """Why the model refused, as text for people."""

    explanation: str | None = None


class AnswerIn(Struct, frozen=True, kw_only=True, gc=False):
    """A whole answer, or the message at the start of a stream. `error` is set in place of an answer."""

    type: str | None = None
    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None  # `AnswerBlockIn`s, decoded later: a block may be of any kind
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetailsIn | None = None
    usage: UsageIn | None = None
    error: Any = None


class DeltaIn(Struct, frozen=True, kw_only=True, gc=False):
    """The content of a delta: a piece of a block, or the end of the message."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: Raw | UnsetType = UNSET
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetailsIn | None = None


class EventIn(Struct, frozen=True, kw_only=True, gc=False):
    """Any event of a stream."""

    type: str | None = None
    index: int = 0
    message: AnswerIn | None = None
    content_block: Raw | UnsetType = UNSET
    delta: DeltaIn | None = None
    usage: UsageIn | None = None
    error: Any = None


# Answer shapes for writing.


class AnswerTextBlock(Struct, frozen=True, kw_only=True, gc=False, tag="text"):
    text: str
    citations: list[Any] | UnsetType = UNSET


class AnswerThinkingBlock(Struct, frozen=True, kw_only=True, gc=False, tag="thinking"):
    thinking: str
    signature: str


class AnswerRedactedThinkingBlock(Struct, frozen=True, kw_only=True, gc=False, tag="redacted_thinking"):
    data: str


class AnswerToolUseBlock(Struct, frozen=True, kw_only=True, gc=False, tag="tool_use"):
    id: str
    name: str
    input: Any


#: A block that only this dialect has is sent as its original bytes.
AnswerBlockOut = AnswerTextBlock | AnswerThinkingBlock | AnswerRedactedThinkingBlock | AnswerToolUseBlock | Raw


class OutputDetailsOut(Struct, frozen=True, kw_only=True, gc=False):
    thinking_tokens: int


class UsageOut(Struct, frozen=True, kw_only=True, gc=False):
    input_tokens: int
    cache_creation_input_tokens: int | None  # None: the server does not report it
    cache_read_input_tokens: int
    output_tokens: int
    cache_creation: Raw | UnsetType = UNSET
    output_tokens_details: OutputDetailsOut | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET


class AnswerOut(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlockOut]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: UsageOut


class TextDeltaOut(Struct, frozen=True, kw_only=True, gc=False, tag="text_delta"):
    text: str


class ThinkingDeltaOut(Struct, frozen=True, kw_only=True, gc=False, tag="thinking_delta"):
    thinking: str


class SignatureDeltaOut(Struct, frozen=True, kw_only=True, gc=False, tag="signature_delta"):
    signature: str


class InputJsonDeltaOut(Struct, frozen=True, kw_only=True, gc=False, tag="input_json_delta"):
    partial_json: str


class CitationsDeltaOut(Struct, frozen=True, kw_only=True, gc=False, tag="citations_delta"):
    citation: Any


DeltaOut = TextDeltaOut | ThinkingDeltaOut | SignatureDeltaOut | InputJsonDeltaOut | CitationsDeltaOut


class BlockStart(Struct, frozen=True, kw_only=True, gc=False, tag="content_block_start"):
    index: int
    content_block: AnswerBlockOut


class BlockDelta(Struct, frozen=True, kw_only=True, gc=False, tag="content_block_delta"):
    index: int
    delta: DeltaOut


class BlockStop(Struct, frozen=True, kw_only=True, gc=False, tag="content_block_stop"):
    index: int


class MessageStart(Struct, frozen=True, kw_only=True, gc=False, tag="message_start"):
    message: AnswerOut


class Ping(Struct, frozen=True, kw_only=True, gc=False, tag="ping"):
    """Keeps the connection alive."""


class FinalDeltaOut(Struct, frozen=True, kw_only=True, gc=False):
    stop_reason: str
    stop_sequence: str | None


class MessageDelta(Struct, frozen=True, kw_only=True, gc=False, tag="message_delta"):
    delta: FinalDeltaOut
    usage: UsageOut


class MessageStop(Struct, frozen=True, kw_only=True, gc=False, tag="message_stop"):
    """The end of a complete message."""


BlockEvent = BlockStart | BlockDelta | BlockStop


class ErrorDetailsOut(Struct, frozen=True, kw_only=True, gc=False):
    error_code: str
    unsupported: list[str]


class ErrorOut(Struct, frozen=True, kw_only=True, gc=False):
    type: str
    message: str
    details: ErrorDetailsOut | UnsetType = UNSET
    code: str | UnsetType = UNSET  # our fields beside the API's; its SDKs ignore them
    param: str | UnsetType = UNSET


class ErrorBodyOut(Struct, frozen=True, kw_only=True, gc=False, tag="error"):
    error: ErrorOut
