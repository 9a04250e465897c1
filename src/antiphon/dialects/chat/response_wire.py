"""The shapes of chat responses: chunks of a stream and complete responses, for reading and for writing.

The shapes for reading are lenient: every field may be absent or null, and unused fields are ignored.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from antiphon.protocol.content import Number

# Shapes for reading. They have no reference cycles, so `gc=False` saves the garbage collector work.


class FunctionDelta(Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: Any = None  # a string; some servers send the object itself


class CustomDelta(Struct, frozen=True, gc=False):
    name: str | None = None
    input: str | None = None


class ToolCallDelta(Struct, frozen=True, gc=False):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: FunctionDelta | None = None
    custom: CustomDelta | None = None


class TokenLogProb(Struct, frozen=True, gc=False):
    token: str
    logprob: Number | None = None  # null where a server has minus infinity
    bytes: list[int] | None = None
    top_logprobs: list[TokenLogProb] | None = None


class ChoiceLogProbs(Struct, frozen=True, gc=False):
    content: list[TokenLogProb] | None = None
    refusal: list[TokenLogProb] | None = None


class Delta(Struct, frozen=True, gc=False):
    """A piece of the message, or the complete message if the response is not streamed."""

    content: Any = None  # a string; some servers send parts
    tool_calls: list[ToolCallDelta] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None  # a string; some servers send an object
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    function_call: FunctionDelta | None = None  # the form before `tool_calls`
    annotations: list[dict[str, Any]] | None = None
    audio: Any = None
    images: Any = None


class PromptTokensDetails(Struct, frozen=True, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionTokensDetails(Struct, frozen=True, gc=False):
    reasoning_tokens: int | None = None


class ChatUsage(Struct, frozen=True, gc=False):
    """Token counts. Servers report tokens read from the cache in three places, and tokens written to it in two."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Choice(Struct, frozen=True, gc=False):
    delta: Delta | None = None
    message: Delta | None = None
    index: int | None = None
    finish_reason: str | None = None
    logprobs: ChoiceLogProbs | None = None
    usage: ChatUsage | None = None  # some servers put it here


class Chunk(Struct, frozen=True, gc=False):
    """One frame of a stream, or a complete response."""

    choices: list[Choice | None] | None = None
    usage: ChatUsage | None = None
    error: Any = None
    service_tier: str | None = None


# The most common chunk: a piece of text, and nothing else. The decode fails if any other member that `Chunk` reads is
# set, so that the members need no check.


class TextDelta(Struct, frozen=True, gc=False):
    content: str
    tool_calls: None = None
    reasoning_content: None = None
    reasoning: None = None
    reasoning_details: None = None
    refusal: None = None
    function_call: None = None
    annotations: None = None
    audio: None = None
    images: None = None


class TextChoice(Struct, frozen=True, gc=False):
    delta: TextDelta
    message: None = None
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None
    usage: None = None


class TextChunk(Struct, frozen=True, gc=False):
    choices: tuple[TextChoice]
    usage: None = None
    error: None = None


# Shapes for writing.


class FunctionPiece(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CustomPiece(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    input: str | UnsetType = UNSET


class ToolCallPiece(Struct, frozen=True, kw_only=True):
    """A call, or a piece of one; only pieces have an index."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET
    function: FunctionPiece | UnsetType = UNSET
    custom: CustomPiece | UnsetType = UNSET


class DetailOut(Struct, frozen=True, kw_only=True):
    """Encrypted reasoning, and the id of the call that follows it, if any."""

    type: Literal["reasoning.encrypted"] = "reasoning.encrypted"
    id: str | UnsetType = UNSET
    data: str
    index: int


class MessagePiece(Struct, frozen=True, kw_only=True):
    """A message, or a piece of one."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | None | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[DetailOut] | UnsetType = UNSET
    refusal: str | None | UnsetType = UNSET
    annotations: list[Any] | UnsetType = UNSET
    tool_calls: list[ToolCallPiece] | UnsetType = UNSET


class CitationOut(Struct, frozen=True, kw_only=True):
    start_index: int
    end_index: int
    url: str
    title: str


class AnnotationOut(Struct, frozen=True, kw_only=True):
    type: Literal["url_citation"] = "url_citation"
    url_citation: CitationOut


class TokenOut(Struct, frozen=True, kw_only=True):
    token: str
    logprob: Number
    bytes: list[int] | None
    top_logprobs: list[TokenOut] | UnsetType = UNSET


class LogProbsOut(Struct, frozen=True, kw_only=True):
    content: list[TokenOut]
    refusal: None = None


class ChoiceOut(Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: MessagePiece | UnsetType = UNSET
    message: MessagePiece | UnsetType = UNSET
    logprobs: LogProbsOut | None = None
    finish_reason: str | None = None


class PromptDetailsOut(Struct, frozen=True, kw_only=True):
    cached_tokens: int
    cache_write_tokens: int | UnsetType = UNSET


class CompletionDetailsOut(Struct, frozen=True, kw_only=True):
    reasoning_tokens: int


class UsageOut(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetailsOut
    completion_tokens_details: CompletionDetailsOut


class CompletionOut(Struct, frozen=True, kw_only=True):
    """A complete response, or a chunk of a stream. They differ in `object` and in the members of the choice."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChoiceOut]
    service_tier: str | UnsetType = UNSET
    usage: UsageOut | UnsetType = UNSET


class ErrorOut(Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBodyOut(Struct, frozen=True, kw_only=True):
    error: ErrorOut
