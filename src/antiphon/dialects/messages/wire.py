"""What differs between servers of the Messages API (`MessagesWire`), and the shapes of the requests we send them.

Blocks are plain structs with no room for unknown fields; one that carries such (`cache_control`, say) is sent as a dict, and one
that only this dialect knows as the bytes it came in.
"""

from __future__ import annotations

from typing import Any, Literal, assert_never

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.model_names import WILDCARD, matches_any
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.protocol.content import Number
from antiphon.protocol.request import ReasoningEffort
from antiphon.protocol.tools import JsonSchema

ThinkingType = Literal["adaptive", "enabled", "between_tools", "disabled"]


class ModelThinking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What models of some names take of thinking: a row of a profile's `[[wire.models]]`. The first row that fits counts."""

    #: Patterns of the names that are sent upstream.
    names: tuple[str, ...]
    #: The types of `thinking` that they take. Of `adaptive` and `enabled`, the first is sent where the client did not choose one.
    thinking: tuple[ThinkingType, ...]
    #: The words of `output_config.effort` that they know; none: they refuse the field.
    efforts: tuple[ReasoningEffort, ...] = ()


class MessagesWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between servers of this dialect. A profile's `[wire]` table fills it."""

    #: Whose thoughts and signatures the server takes back: those that were sealed under this name.
    maker: str = "messages"
    #: How many tokens to ask for at most where the client does not say: this API wants to be told.
    max_tokens: int = 32_000
    #: Whether it counts the tokens of a request, at `/messages/count_tokens`.
    counts_tokens: bool = False
    #: System text in mid-conversation: a message of that role, the user's text between marks, or moved to the top.
    system: Literal["inline", "user", "top"] = "user"
    #: How it is told to think: as it sees fit and how hard, by a budget of tokens, or not at all. Models in `models` are told as it
    #: stands there, unless this is "none".
    thinking: Literal["adaptive", "budget", "none"] = "budget"
    #: The words for how hard to think that it knows, where it is told by words.
    efforts: tuple[ReasoningEffort, ...] = ("low", "medium", "high")
    #: What single models take of thinking and effort.
    models: tuple[ModelThinking, ...] = ()
    #: Whether it can be asked to show a summary of its thoughts.
    thinking_display: bool = False
    #: Whether it takes back thoughts that it has not signed.
    unsigned_thinking: bool = False
    #: Whether it needs its thoughts back in a tool loop, so that they are looked for where the client dropped them.
    wants_reasoning_back: bool = True
    #: Where the form of the output is asked for; "none": nowhere, so the model is told in the system text.
    json_output: Literal["output_config", "output_format", "none"] = "none"
    #: Whether function tools may say `strict`.
    strict_tools: bool = False
    #: Whether images and documents can be sent at all; if not, each becomes a note and a loss.
    images: bool = True
    documents: bool = True
    #: Tool outputs whose call is nowhere: refuse, make up the call, or send as text.
    orphan_outputs: Literal["error", "synthesize", "text"] = "error"
    #: Whether a request may say both `temperature` and `top_p`.
    both_samplings: bool = True
    #: Whether it caches a prompt if `cache_control` stands at the top of the request.
    auto_cache: bool = False
    #: Optional request fields that the server has a place for; others are reported as lost.
    fields: tuple[str, ...] = ("temperature", "top_p", "top_k", "stop_sequences", "metadata")
    #: Unknown fields of the client's request that are passed on all the same.
    pass_fields: tuple[str, ...] = ()


def model_thinking(wire: MessagesWire, model: str) -> ModelThinking:
    """What a model takes of thinking: what its row says, else what the server's models commonly take."""
    match wire.thinking:
        case "none":
            return ModelThinking(names=(WILDCARD,), thinking=())
        case "adaptive":
            common = ModelThinking(names=(WILDCARD,), thinking=("adaptive", "disabled"), efforts=wire.efforts)
        case "budget":
            common = ModelThinking(names=(WILDCARD,), thinking=("enabled", "disabled"))
        case _ as never:
            assert_never(never)
    return next((row for row in wire.models if matches_any(model, row.names)), common)


def wire_after_refusal(wire: MessagesWire, model: str, refused: RefusedPart) -> MessagesWire | None:
    """The options under which a model is not sent the type of thinking that the server refused, but the other one."""
    taken = model_thinking(wire, model)
    remaining = tuple(kind for kind in taken.thinking if f"thinking.{kind}" != refused)
    if len(remaining) == len(taken.thinking):
        return None
    row = replace(taken, names=(WILDCARD,), thinking=remaining)
    if refused == "thinking.adaptive":
        row = replace(row, thinking=("enabled", *remaining) if "enabled" not in remaining else remaining, efforts=())
    elif refused == "thinking.enabled" and "adaptive" not in remaining:
        row = replace(row, thinking=("adaptive", *remaining), efforts=taken.efforts or wire.efforts)
    return replace(wire, models=(row,))


class SourceOut(Struct, frozen=True, kw_only=True, gc=False):
    """Where an image or a document comes from."""

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
    content: str | list[Any] | UnsetType = UNSET  # of blocks


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
    content: list[Any]  # of `Block`


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
    messages: list[MessageOut]
    system: list[Any] | UnsetType = UNSET  # of `Block`
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
    cache_control: dict[str, str] | UnsetType = UNSET
    stream: bool | UnsetType = UNSET
