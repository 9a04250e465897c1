"""Request types of `/responses` and `/responses/compact`, with the limits of the schema (REQ-8).

`UNSET` means that a field was not sent, `None` that it was sent as null. Fields below "beyond the specification" are
sent by real clients; any other field is kept in `extra` (REQ-7).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from antiphon.errors import ClientFault
from antiphon.protocol.base import Shape
from antiphon.protocol.content import Number, Text10M
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.tools import JsonSchema, ToolChoiceParam, ToolParam

Include = Literal["reasoning.encrypted_content", "message.output_text.logprobs"]
#: A value of `include` that only the hub uses: send encrypted reasoning if there is any. Clients of other dialects
#: always get it and cannot ask for it, so their translators add this value. A server without encrypted reasoning is
#: then no loss.
ENCRYPTED_IF_ANY: Final = "antiphon:reasoning.encrypted_content"
#: The largest `max_output_tokens`: servers read a 32-bit integer.
MAX_OUTPUT_LIMIT: Final = 2**31 - 1
Verbosity = Literal["low", "medium", "high"]
# The schema lists five efforts and describes a sixth, `minimal`; `max` is one provider's name above `xhigh`.
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ReasoningSummary = Literal["concise", "detailed", "auto"]
Truncation = Literal["auto", "disabled"]
ServiceTier = Literal["auto", "default", "flex", "priority", "scale", "fast", "ultrafast"]

ShortKey = Annotated[str, Meta(max_length=64)]
Metadata = Annotated[dict[ShortKey, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)]


class TextFormat(Shape, frozen=True, kw_only=True, tag="text"):
    """Plain text."""


class JsonObjectFormat(Shape, frozen=True, kw_only=True, tag="json_object"):
    """Any JSON object."""


class JsonSchemaFormatParam(Shape, frozen=True, kw_only=True, tag="json_schema"):
    """An answer that follows a JSON schema."""

    name: str | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    schema: JsonSchema | None | UnsetType = UNSET
    strict: bool | None | UnsetType = UNSET


TextFormatParam = TextFormat | JsonObjectFormat | JsonSchemaFormatParam


class TextParam(Shape, frozen=True, kw_only=True):
    """The settings of the text output: its format and its verbosity."""

    format: TextFormatParam | None | UnsetType = UNSET
    verbosity: Verbosity | None | UnsetType = UNSET


class StreamOptions(Shape, frozen=True, kw_only=True):
    """The settings of a stream."""

    include_obfuscation: bool | UnsetType = UNSET


class ReasoningConfigParam(Shape, frozen=True, kw_only=True):
    """The settings of reasoning: its effort and its summary."""

    effort: ReasoningEffort | None | UnsetType = UNSET
    summary: ReasoningSummary | None | UnsetType = UNSET


class PromptCacheOptions(Shape, frozen=True, kw_only=True):
    """Beyond the specification: whether the server chooses a cache mark itself, and the lifetime of all marks (E-4)."""

    mode: str | UnsetType = UNSET
    ttl: str | None | UnsetType = UNSET


class Request(Shape, frozen=True, kw_only=True):
    """The body of `POST /responses`, and of every turn in the hub."""

    model: str | None | UnsetType = UNSET
    input: Text10M | list[ItemParam] | None | UnsetType = UNSET
    previous_response_id: str | None | UnsetType = UNSET
    include: list[str] | None | UnsetType = UNSET
    tools: list[ToolParam] | None | UnsetType = UNSET
    tool_choice: ToolChoiceParam | None | UnsetType = UNSET
    metadata: Metadata | None | UnsetType = UNSET
    text: TextParam | None | UnsetType = UNSET
    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    presence_penalty: Number | None | UnsetType = UNSET
    frequency_penalty: Number | None | UnsetType = UNSET
    parallel_tool_calls: bool | None | UnsetType = UNSET
    stream: bool | None | UnsetType = UNSET
    stream_options: StreamOptions | None | UnsetType = UNSET
    background: bool | None | UnsetType = UNSET
    max_output_tokens: Annotated[int, Meta(ge=16, le=MAX_OUTPUT_LIMIT)] | None | UnsetType = UNSET
    max_tool_calls: Annotated[int, Meta(ge=1)] | None | UnsetType = UNSET
    reasoning: ReasoningConfigParam | None | UnsetType = UNSET
    safety_identifier: ShortKey | None | UnsetType = UNSET
    prompt_cache_key: ShortKey | None | UnsetType = UNSET
    truncation: Truncation | None | UnsetType = UNSET
    instructions: str | None | UnsetType = UNSET
    store: bool | None | UnsetType = UNSET
    service_tier: ServiceTier | None | UnsetType = UNSET
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None | UnsetType = UNSET
    # Beyond the specification:
    conversation: str | dict[str, Any] | None | UnsetType = UNSET
    context_management: list[dict[str, Any]] | None | UnsetType = UNSET
    client_metadata: dict[str, Any] | None | UnsetType = UNSET
    prompt_cache_retention: str | None | UnsetType = UNSET
    prompt_cache_options: PromptCacheOptions | None | UnsetType = UNSET
    user: str | None | UnsetType = UNSET
    generate: bool | UnsetType = UNSET


class CompactRequest(Shape, frozen=True, kw_only=True):
    """The body of `POST /responses/compact`."""

    model: str
    input: Text10M | list[ItemParam] | None | UnsetType = UNSET
    previous_response_id: str | None | UnsetType = UNSET
    instructions: str | None | UnsetType = UNSET
    prompt_cache_key: ShortKey | None | UnsetType = UNSET


def input_items(request: Request) -> list[ItemParam]:
    """The input as items: a string is one user message (ITEM-8)."""
    items = request.input
    if type(items) is list:
        return items
    return [MessageParam(role="user", content=items)] if isinstance(items, str) else []


def conversation_id_of(request: Request) -> str | None:
    """The id of the conversation that a request names, as text or as an object; None if it names none."""
    reference = request.conversation
    if reference is UNSET or reference is None:
        return None
    id: Any = reference.get("id") if isinstance(reference, dict) else reference
    if not isinstance(id, str) or not id:
        param = "conversation.id" if isinstance(reference, dict) else "conversation"
        raise ClientFault(
            f'{param}: expected the id of a conversation, as "conv_…" or as {{"id": "conv_…"}}', param=param
        )
    if request.previous_response_id:
        raise ClientFault(
            "conversation: expected either conversation or previous_response_id, got both",
            param="conversation",
        )
    return id
