"""Wire shapes of Messages requests, and the options that differ between servers of the Messages API (`MessagesWire`).

Shapes for client requests end in `In`: the codec reports invalid values and keeps unknown fields. `cache_control` is a
declared field there, because nearly every block of an agent's request has it; as an unknown field it would force a
second decoding. Blocks for servers are plain structs without unknown fields. A block with such a field is sent as a
dict; a block that only this dialect has is sent as its original bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, assert_never

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.model_names import WILDCARD, matches_any
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.protocol import codec
from antiphon.protocol.base import UNKNOWN_TAG, Shape, Unknown
from antiphon.protocol.content import Number, Text10M, UnknownContent
from antiphon.protocol.items import UnknownItem
from antiphon.protocol.request import MAX_OUTPUT_LIMIT, ReasoningEffort
from antiphon.protocol.tools import JsonSchema

PREFIX: Final = "messages:"
#: In the `extra` of a hub response: the stop sequence that ended it, and a stop reason that the hub cannot express.
#: Each is a JSON string.
STOP_SEQUENCE_FIELD: Final = "messages:stop_sequence"
STOP_REASON_FIELD: Final = "messages:stop_reason"
#: In the `extra` of the hub's `input_tokens_details`: the tokens written to the cache, by their lifetime.
CACHE_CREATION_FIELD: Final = "cache_creation"
#: In the `extra` of a system message: true if a client of this dialect sent it between other messages.
SYSTEM_FIELD: Final = "messages:system"
#: The block of a document of text, in the `extra` of the text.
DOCUMENT_FIELD: Final = "messages:document"
WEB_CITATION: Final = "web_search_result_location"
CITATION_SERVER_MEMBERS: Final[tuple[str, ...]] = ("cited_text", "encrypted_index")
ThinkingType = Literal["adaptive", "enabled", "between_tools", "disabled"]


class ModelThinking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thinking settings that some models accept: a row of a profile's `[[wire.models]]`. The first matching row is
    used.
    """

    #: Patterns of the model names that are sent upstream.
    names: tuple[str, ...]
    #: The accepted types of `thinking`. If the client did not choose, the first of `adaptive` and `enabled` is sent.
    thinking: tuple[ThinkingType, ...]
    #: The accepted values of `output_config.effort`; if empty, the models refuse the field.
    efforts: tuple[ReasoningEffort, ...] = ()
    #: Whether a tool call can be forced beside adaptive thinking.
    forced_tools: bool = False


class MessagesWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options that differ between servers of this dialect. A profile's `[wire]` table sets them."""

    #: The maker name in sealed reasoning; the server gets back only thoughts and signatures of this maker.
    maker: str = "messages"
    #: The `max_tokens` of requests that do not set a limit: the API requires one.
    max_tokens: int = 32_000
    #: Whether the server counts tokens, at `/messages/count_tokens`.
    counts_tokens: bool = False
    #: System text after the start: a system message, a marked user text, or moved to the top. With "kept", system
    #: messages of clients of this dialect stay as they are, and those of other clients become a marked user text.
    system: Literal["inline", "kept", "user", "top"] = "kept"
    #: Whether messages of one role may follow each other. If not, those of clients of this dialect are joined too.
    consecutive_turns: bool = False
    #: How thinking is requested: adaptive with an effort, by a token budget, or not at all. `models` overrides it for
    #: single models, unless it is "none".
    thinking: Literal["adaptive", "budget", "none"] = "budget"
    #: The accepted effort values, for adaptive thinking.
    efforts: tuple[ReasoningEffort, ...] = ("low", "medium", "high")
    #: The thinking and effort that single models accept.
    models: tuple[ModelThinking, ...] = ()
    #: Whether the server can be asked for a summary of its thoughts.
    thinking_display: bool = False
    #: Whether the server accepts unsigned thoughts in the history.
    unsigned_thinking: bool = False
    #: Whether the server needs its thoughts back in a tool loop. Thoughts that the client dropped are then looked up.
    wants_reasoning_back: bool = True
    #: The field for the output format; "none": no field, so the system text describes the format.
    json_output: Literal["output_config", "output_format", "none"] = "none"
    #: Whether function tools may set `strict`.
    strict_tools: bool = False
    #: Patterns of models with a web search of the server. The searches of other APIs are sent to them in its form.
    web_search_models: tuple[str, ...] = ()
    #: Whether images and documents are accepted; if not, each becomes a text note and a loss.
    images: bool = True
    documents: bool = True
    #: Tool outputs without a call: refuse the request, add the call, or send the output as text.
    orphan_outputs: Literal["error", "synthesize", "text"] = "error"
    #: Whether a request may set both `temperature` and `top_p`.
    both_samplings: bool = True
    #: Whether a client's cache key or retention becomes a top-level `cache_control`, with which the server chooses the
    #: cache mark itself.
    auto_cache: bool = False
    #: Optional request fields that the server accepts; others are reported as losses.
    fields: tuple[str, ...] = ("temperature", "top_p", "top_k", "stop_sequences", "metadata")
    #: Fields that the hub does not have and the server accepts from clients of every dialect.
    extra_fields: tuple[str, ...] = ()
    #: The longest name of a function that the server takes; longer names are replaced (REQ-8).
    max_name_length: Annotated[int, Meta(ge=16)] = 128

    def can_think(self, model: str) -> bool:
        """Whether the model can be asked for reasoning."""
        return not {"adaptive", "enabled"}.isdisjoint(model_thinking(self, model).thinking)


def model_thinking(wire: MessagesWire, model: str) -> ModelThinking:
    """The thinking that a model accepts: from its row in `models`, else the server's default."""
    match wire.thinking:
        case "none":
            return ModelThinking(names=(WILDCARD,), thinking=())
        case "adaptive":
            default = ModelThinking(
                names=(WILDCARD,), thinking=("adaptive", "disabled"), efforts=wire.efforts, forced_tools=True
            )
        case "budget":
            default = ModelThinking(names=(WILDCARD,), thinking=("enabled", "disabled"))
        case _ as never:
            assert_never(never)
    return next((row for row in wire.models if matches_any(model, row.names)), default)


def wire_after_refusal(wire: MessagesWire, model: str, refused: RefusedPart) -> MessagesWire | None:
    """The options after the server refused a type of thinking: the model is sent the other type; after it refused all
    thinking, none. After it refused system messages, they are sent as user text. None if nothing changes.
    """
    if refused == "system_messages":
        return replace(wire, system="user") if wire.system in ("inline", "kept") else None
    accepted = model_thinking(wire, model)
    if refused == "thinking" and accepted.thinking:
        return replace(wire, models=(ModelThinking(names=(WILDCARD,), thinking=()),))
    remaining = tuple(kind for kind in accepted.thinking if f"thinking.{kind}" != refused)
    if len(remaining) == len(accepted.thinking):
        return None
    row = replace(accepted, names=(WILDCARD,), thinking=remaining)
    if refused == "thinking.adaptive":
        row = replace(row, thinking=("enabled", *remaining) if "enabled" not in remaining else remaining, efforts=())
    elif refused == "thinking.enabled" and "adaptive" not in remaining:
        row = replace(row, thinking=("adaptive", *remaining), efforts=accepted.efforts or wire.efforts)
    return replace(wire, models=(row,))


class SourceOut(Struct, frozen=True, kw_only=True, gc=False):
    """The source of an image or a document."""

    type: Literal["base64", "url", "text", "file"]
    media_type: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class TextBlock(Struct, frozen=True, kw_only=True, gc=False, tag="text"):
    text: str


class ImageBlock(Struct, frozen=True, kw_only=True, gc=False, tag="image"):
    source: SourceOut


class DocumentBlock(Struct, frozen=True, kw_only=True, gc=False, tag="document"):
    source: SourceOut
    title: str | UnsetType = UNSET


class ToolUseBlock(Struct, frozen=True, kw_only=True, gc=False, tag="tool_use"):
    id: str
    name: str
    input: Raw


class ToolResultBlock(Struct, frozen=True, kw_only=True, gc=False, tag="tool_result"):
    tool_use_id: str
    content: str | list[Any] | UnsetType = UNSET  # or a list of blocks


class ThinkingBlock(Struct, frozen=True, kw_only=True, gc=False, tag="thinking"):
    thinking: str
    signature: str


class RedactedThinkingBlock(Struct, frozen=True, kw_only=True, gc=False, tag="redacted_thinking"):
    data: str


KnownBlock = (
    TextBlock | ImageBlock | DocumentBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock
)
Block = KnownBlock | dict[str, Any] | Raw
Role = Literal["user", "assistant", "system"]


class MessageOut(Struct, frozen=True, kw_only=True, gc=False):
    role: Role
    content: list[Any]  # `Block`s

    def with_members(self) -> MessageOut | dict[str, Any]:
        """The message as it is sent."""
        return self


class SystemMessageOut(MessageOut, frozen=True, kw_only=True, gc=False):
    """A system message of a client of this dialect, in its place. It may have only settings, without content."""

    members: dict[str, Raw]

    def with_members(self) -> dict[str, Any]:
        content = {"content": self.content} if self.content else {}
        return {"role": self.role, **content, **self.members}


class ToolOut(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    description: str | UnsetType = UNSET
    input_schema: JsonSchema
    strict: bool | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET


class ToolChoiceOut(Struct, frozen=True, kw_only=True, gc=False):
    type: Literal["auto", "any", "tool", "none"]
    name: str | UnsetType = UNSET
    disable_parallel_tool_use: bool | UnsetType = UNSET


class ThinkingConfigOut(Struct, frozen=True, kw_only=True, gc=False):
    type: ThinkingType
    budget_tokens: int | UnsetType = UNSET
    display: Literal["summarized"] | UnsetType = UNSET


class RequestOut(Struct, frozen=True, kw_only=True, gc=False):
    """The body of `POST /messages`."""

    model: str | UnsetType = UNSET
    max_tokens: int
    messages: list[MessageOut | dict[str, Any]]
    system: list[Any] | UnsetType = UNSET  # `Block`s
    tools: Raw | UnsetType = UNSET
    tool_choice: ToolChoiceOut | UnsetType = UNSET
    thinking: ThinkingConfigOut | Raw | UnsetType = UNSET
    output_config: dict[str, Any] | UnsetType = UNSET
    output_format: dict[str, Any] | UnsetType = UNSET
    temperature: Number | UnsetType = UNSET
    top_p: Number | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    cache_control: dict[str, Any] | UnsetType = UNSET
    stream: bool | UnsetType = UNSET


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
    content: Text10M | list[BlockIn] | UnsetType = UNSET  # a system message may have only settings


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

    messages: list[MessageIn]  # empty only if a thread continues
    model: str | None | UnsetType = UNSET
    system: Text10M | list[PlainBlockIn] | None | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_OUTPUT_LIMIT)] | None | UnsetType = UNSET
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
    cache_control: CacheControl = UNSET
    # A conversation that the gateway stores.
    thread: dict[str, Any] | None | UnsetType = UNSET


def block_to_item(kind: str, block: Raw, *, id: str | None = None, status: str = "completed") -> UnknownItem:
    """A block that only this dialect has, as a hub item. Items of an answer have an id."""
    members: dict[str, Any] = {"type": PREFIX + kind}
    if id is not None:
        members |= {"id": id, "status": status}
    return UnknownItem(kind=PREFIX + kind, raw=Raw(codec.encode({**members, "block": block})))


def block_from_item(item: UnknownItem) -> Raw | None:
    """The block in an item of `block_to_item`; None for any other item."""
    return item.raw_members().get("block") if item.kind.startswith(PREFIX) else None


#: Blocks of this dialect that the hub has no part for, by type.
NATIVE_BLOCKS: Final = frozenset(
    {"search_result", "container_upload", "tool_reference", "browser_state", "document", "image"}
)
#: Types of content blocks in the input of a user, a system or a tool.
PART_TYPES: Final = NATIVE_BLOCKS | {
    *("text", "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use"),
    *("mcp_tool_result", "mcp_tool_listing", "web_search_tool_result", "web_fetch_tool_result"),
    *("code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
    *("tool_search_tool_result", "advisor_tool_result", "compaction", "fallback", "tool_addition", "tool_removal"),
}
