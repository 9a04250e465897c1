"""The shapes of Chat Completions, and what differs between its servers (`ChatWire`).

Requests from clients are read strictly enough to say where they are wrong; answers from servers are read as leniently as can be:
every field may be absent or null, and fields nobody uses are not read at all.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.protocol.content import Number


class ChatWire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What differs between servers of this dialect. A profile's `[wire]` table fills it."""

    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    #: What becomes of `developer` messages: servers that do not know the role get `system`.
    developer: Literal["developer", "system"] = "system"
    #: Where system text may stand: anywhere, or in one message at the very beginning.
    system: Literal["anywhere", "first"] = "anywhere"
    #: A user message of text alone: one string, or parts all the same.
    text_content: Literal["string", "parts"] = "string"
    #: What `content` is in an assistant turn that only calls tools.
    empty_content: Literal["null", "empty", "absent"] = "null"
    #: Where a server wants its own reasoning back, and when; "none" reports it as lost.
    reasoning_field: Literal["reasoning_content", "reasoning", "none"] = "none"
    reasoning_history: Literal["tool_loop", "all"] = "tool_loop"
    #: Reasoning inside the text: at its beginning, anywhere, begun before the first byte, or not looked for.
    think_tags: Literal["leading", "anywhere", "implied", "off"] = "leading"
    #: Images in tool results: lifted into a user message after the tool block, or kept where they are.
    tool_images: Literal["lift", "keep"] = "lift"
    #: Whether images can be sent at all; if not, each becomes a note and a loss.
    images: bool = True
    #: Custom tools: as functions of one string, or in the form of the API's maker.
    custom_tools: Literal["function", "native"] = "function"
    #: Tool outputs whose call is nowhere: refuse, make up the call, or send as text.
    orphan_outputs: Literal["error", "synthesize", "text"] = "error"
    #: Structured output the server has: by schema, any JSON object, or none (then REQ-1 refuses).
    json_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    #: Whether `tool_choice: required` and a named function are understood.
    forced_tools: bool = True
    #: Whether function tools may say `strict`.
    strict_tools: bool = True
    #: Whether `stream_options.include_usage` may be asked for.
    stream_usage: bool = True
    #: Optional request fields that the server has a place for; others are reported as lost.
    fields: list[str] = [
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "parallel_tool_calls",
        "reasoning_effort",
        "top_logprobs",
        "logprobs",
        "stop",
        "seed",
        "user",
        "metadata",
        "service_tier",
    ]
    #: Unknown fields of the client's request that are passed on all the same (`top_k`, say).
    pass_fields: list[str] = []


# Answers: chunks of a stream. Everything may be missing.


class FunctionDelta(Struct, frozen=True):
    name: str | None = None
    arguments: Any = None  # a string; some servers send the object itself


class CustomDelta(Struct, frozen=True):
    name: str | None = None
    input: str | None = None


class ToolCallDelta(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: FunctionDelta | None = None
    custom: CustomDelta | None = None


class TokenLogProb(Struct, frozen=True):
    token: str
    logprob: Number
    bytes: list[int] | None = None
    top_logprobs: list[TokenLogProb] | None = None


class ChoiceLogProbs(Struct, frozen=True):
    content: list[TokenLogProb] | None = None
    refusal: list[TokenLogProb] | None = None


class Delta(Struct, frozen=True):
    """A piece of the message, or in an answer that does not stream the whole of it: the members are the same."""

    content: Any = None  # a string; some servers send parts
    tool_calls: list[ToolCallDelta] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None  # a string; some servers send an object
    refusal: str | None = None
    function_call: FunctionDelta | None = None  # the form before `tool_calls`
    annotations: list[dict[str, Any]] | None = None
    role: str | None = None


class Choice(Struct, frozen=True):
    delta: Delta | None = None
    message: Delta | None = None
    index: int | None = None
    finish_reason: str | None = None
    logprobs: ChoiceLogProbs | None = None


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int | None = None


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int | None = None


class ChatUsage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class Chunk(Struct, frozen=True):
    """One frame of a stream, or a whole answer."""

    choices: list[Choice] | None = None
    usage: ChatUsage | None = None
    error: Any = None
    service_tier: str | None = None
    model: str | None = None


# Requests, as we send them.


class FunctionOut(Struct, frozen=True, kw_only=True):
    name: str
    description: str | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CustomOut(Struct, frozen=True, kw_only=True):
    name: str
    description: str | UnsetType = UNSET
    format: Any = UNSET
    input: str | UnsetType = UNSET


class ToolCallOut(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["function", "custom"] = "function"
    function: FunctionOut | UnsetType = UNSET
    custom: CustomOut | UnsetType = UNSET


class ToolOut(Struct, frozen=True, kw_only=True):
    type: Literal["function", "custom"] = "function"
    function: FunctionOut | UnsetType = UNSET
    custom: CustomOut | UnsetType = UNSET


class PartOut(Struct, frozen=True, kw_only=True):
    type: str
    text: str | UnsetType = UNSET
    image_url: dict[str, str] | UnsetType = UNSET
    file: dict[str, str] | UnsetType = UNSET
    input_audio: dict[str, str] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class MessageOut(Struct, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[PartOut] | None | UnsetType = UNSET
    tool_calls: list[ToolCallOut] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
