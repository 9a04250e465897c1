"""The shapes of Messages answers and of the events of a stream, and where the hub keeps what only this dialect says.

What servers send is read with shapes that take more than the documentation promises (`…In`); what we write has exactly one form
(`…Out`). A block that nobody else knows (a hosted tool's call, its result) travels through the hub as an item of its own and comes
out as it went in: `block_to_item` and `block_from_item` are the two ends of that.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.protocol import codec
from antiphon.protocol.items import UnknownItem

PREFIX: Final = "messages:"
#: In `extra` of a hub response: the sequence that ended it, and a stop reason that the hub has no word for, each a JSON string.
STOP_SEQUENCE_FIELD: Final = "messages:stop_sequence"
STOP_REASON_FIELD: Final = "messages:stop_reason"
#: In `extra` of the hub's `input_tokens_details`: tokens that were written to the cache, a part of `input_tokens` there.
CACHE_CREATION_FIELD: Final = "cache_creation_input_tokens"


def block_to_item(kind: str, block: Raw, *, id: str | None = None, status: str = "completed") -> UnknownItem:
    """A block that only this dialect knows, as an item of the hub; items of an answer have an id."""
    members: dict[str, Any] = {"type": PREFIX + kind}
    if id is not None:
        members |= {"id": id, "status": status}
    return UnknownItem(kind=PREFIX + kind, raw=Raw(codec.encode({**members, "block": block})))


def block_from_item(item: UnknownItem) -> Raw | None:
    """The block in such an item; None if it is another kind of item."""
    return item.raw_members().get("block") if item.kind.startswith(PREFIX) else None


# Answers, as servers send them.


class AnswerBlockIn(Struct, frozen=True, kw_only=True, gc=False):
    """A content block, whole or as it begins in a stream; which members count, its type says."""

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
    """Counts so far; cached tokens stand beside `input_tokens`, not inside."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: OutputDetailsIn | None = None
    service_tier: str | None = None


class StopDetailsIn(Struct, frozen=True, kw_only=True, gc=False):
    """Why the model refused, in words for people."""

    explanation: str | None = None


class AnswerIn(Struct, frozen=True, kw_only=True, gc=False):
    """A whole answer, or the message that a stream begins with; an error stands in its place."""

    type: str | None = None
    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None  # of `AnswerBlockIn`, each still to be read: a block may be of any kind
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: StopDetailsIn | None = None
    usage: UsageIn | None = None
    error: Any = None


class DeltaIn(Struct, frozen=True, kw_only=True, gc=False):
    """What a delta brings: a piece of a block, or what the message ends with."""

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


# Answers, as we send them.


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


#: A block that was carried comes back as its bytes.
AnswerBlockOut = AnswerTextBlock | AnswerThinkingBlock | AnswerRedactedThinkingBlock | AnswerToolUseBlock | Raw


class OutputDetailsOut(Struct, frozen=True, kw_only=True, gc=False):
    thinking_tokens: int


class UsageOut(Struct, frozen=True, kw_only=True, gc=False):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetailsOut | UnsetType = UNSET


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
    """Nothing but that the connection is alive."""


class FinalDeltaOut(Struct, frozen=True, kw_only=True, gc=False):
    stop_reason: str
    stop_sequence: str | None


class MessageDelta(Struct, frozen=True, kw_only=True, gc=False, tag="message_delta"):
    delta: FinalDeltaOut
    usage: UsageOut


class MessageStop(Struct, frozen=True, kw_only=True, gc=False, tag="message_stop"):
    """The end of a message that is whole."""


BlockEvent = BlockStart | BlockDelta | BlockStop


class ErrorDetailsOut(Struct, frozen=True, kw_only=True, gc=False):
    error_code: str
    unsupported: list[str]


class ErrorOut(Struct, frozen=True, kw_only=True, gc=False):
    type: str
    message: str
    details: ErrorDetailsOut | UnsetType = UNSET
    code: str | UnsetType = UNSET  # ours, beside what this API says; its SDKs pass over them
    param: str | UnsetType = UNSET


class ErrorBodyOut(Struct, frozen=True, kw_only=True, gc=False, tag="error"):
    error: ErrorOut
