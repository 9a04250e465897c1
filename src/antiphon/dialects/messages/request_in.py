"""Wire shapes of Messages requests from clients. The codec reports invalid values and keeps unknown fields.

`cache_control` is a declared field because nearly every block of an agent's request has it; as an unknown field it
would force a second decoding.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown
from antiphon.protocol.content import Number, Text10M, UnknownContent
from antiphon.protocol.tools import JsonSchema

CacheControl = dict[str, Any] | None | UnsetType


class Base64SourceIn(Shape, frozen=True, kw_only=True, tag="base64"):
    media_type: str
    data: str


class UrlSourceIn(Shape, frozen=True, kw_only=True, tag="url"):
    url: str


class FileSourceIn(Shape, frozen=True, kw_only=True, tag="file"):
    file_id: str


class TextSourceIn(Shape, frozen=True, kw_only=True, tag="text"):
    """A document that is plain text."""

    data: Text10M
    media_type: str | UnsetType = UNSET


class UnknownSource(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """A source that only the server can read (a document made of blocks, for example)."""


class TextBlockIn(Shape, frozen=True, kw_only=True, tag="text"):
    text: Text10M
    citations: list[dict[str, Any]] | None | UnsetType = UNSET
    cache_control: CacheControl = UNSET


class ImageBlockIn(Shape, frozen=True, kw_only=True, tag="image"):
    source: Base64SourceIn | UrlSourceIn | FileSourceIn | UnknownSource
    cache_control: CacheControl = UNSET


class DocumentBlockIn(Shape, frozen=True, kw_only=True, tag="document"):
    source: Base64SourceIn | UrlSourceIn | FileSourceIn | TextSourceIn | UnknownSource
    title: str | None | UnsetType = UNSET
    cache_control: CacheControl = UNSET


class ThinkingBlockIn(Shape, frozen=True, kw_only=True, tag="thinking"):
    thinking: Text10M
    signature: str | None | UnsetType = UNSET


class RedactedThinkingBlockIn(Shape, frozen=True, kw_only=True, tag="redacted_thinking"):
    data: str


class ToolUseBlockIn(Shape, frozen=True, kw_only=True, tag="tool_use"):
    id: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    input: dict[str, Any]
    cache_control: CacheControl = UNSET


PlainBlockIn = TextBlockIn | ImageBlockIn | DocumentBlockIn | UnknownContent


class ToolResultBlockIn(Shape, frozen=True, kw_only=True, tag="tool_result"):
    tool_use_id: Annotated[str, Meta(min_length=1)]
    content: Text10M | list[PlainBlockIn] | None | UnsetType = UNSET
    is_error: bool | None | UnsetType = UNSET
    cache_control: CacheControl = UNSET


BlockIn = PlainBlockIn | ThinkingBlockIn | RedactedThinkingBlockIn | ToolUseBlockIn | ToolResultBlockIn


class MessageIn(Shape, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "system"]
    content: Text10M | list[BlockIn]


class ToolIn(Shape, frozen=True, kw_only=True):
    """A tool: the client's own, or one that the server knows by its type."""

    type: str | None | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    input_schema: JsonSchema | UnsetType = UNSET
    strict: bool | None | UnsetType = UNSET
    defer_loading: bool | None | UnsetType = UNSET
    cache_control: CacheControl = UNSET


class AutoChoiceIn(Shape, frozen=True, kw_only=True, tag="auto"):
    disable_parallel_tool_use: bool | UnsetType = UNSET


class AnyChoiceIn(Shape, frozen=True, kw_only=True, tag="any"):
    disable_parallel_tool_use: bool | UnsetType = UNSET


class SpecificToolChoiceIn(Shape, frozen=True, kw_only=True, tag="tool"):
    name: str
    disable_parallel_tool_use: bool | UnsetType = UNSET


class NoneChoiceIn(Shape, frozen=True, kw_only=True, tag="none"):
    """No tool may be called."""


ToolChoiceIn = AutoChoiceIn | AnyChoiceIn | SpecificToolChoiceIn | NoneChoiceIn


class ThinkingEnabledIn(Shape, frozen=True, kw_only=True, tag="enabled"):
    budget_tokens: int
    display: str | None | UnsetType = UNSET


class ThinkingAdaptiveIn(Shape, frozen=True, kw_only=True, tag="adaptive"):
    display: str | None | UnsetType = UNSET


class ThinkingDisabledIn(Shape, frozen=True, kw_only=True, tag="disabled"):
    """No thinking."""


class UnknownThinking(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """A thinking type that is not known here."""


class JsonSchemaFormatIn(Shape, frozen=True, kw_only=True, tag="json_schema"):
    schema: JsonSchema


class UnknownFormat(Unknown, frozen=True, kw_only=True, tag=UNKNOWN_TAG):
    """An output format that is not known here."""


class OutputConfigIn(Shape, frozen=True, kw_only=True):
    effort: str | None | UnsetType = UNSET
    format: JsonSchemaFormatIn | UnknownFormat | None | UnsetType = UNSET


class MetadataIn(Shape, frozen=True, kw_only=True):
    user_id: str | None | UnsetType = UNSET


class RequestIn(Shape, frozen=True, kw_only=True):
    """The body of `POST /messages` and of `POST /messages/count_tokens`."""

    messages: Annotated[list[MessageIn], Meta(min_length=1)]
    model: str | None | UnsetType = UNSET
    system: Text10M | list[PlainBlockIn] | None | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=0)] | None | UnsetType = UNSET
    tools: list[ToolIn] | None | UnsetType = UNSET
    tool_choice: ToolChoiceIn | None | UnsetType = UNSET
    thinking: ThinkingEnabledIn | ThinkingAdaptiveIn | ThinkingDisabledIn | UnknownThinking | None | UnsetType = UNSET
    output_config: OutputConfigIn | None | UnsetType = UNSET
    output_format: JsonSchemaFormatIn | UnknownFormat | None | UnsetType = UNSET  # used before `output_config` existed
    temperature: Number | None | UnsetType = UNSET
    top_p: Number | None | UnsetType = UNSET
    metadata: MetadataIn | None | UnsetType = UNSET
    service_tier: str | None | UnsetType = UNSET
    stream: bool | None | UnsetType = UNSET
    # Fields that only this dialect has:
    stop_sequences: list[str] | None | UnsetType = UNSET
    top_k: int | None | UnsetType = UNSET
    context_management: dict[str, Any] | None | UnsetType = UNSET
    # A conversation that the server stores; not supported here.
    thread: dict[str, Any] | None | UnsetType = UNSET
