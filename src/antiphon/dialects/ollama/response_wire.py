"""The shapes of Ollama's answers, for reading and for writing. A line of a stream and a whole answer have one shape."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

# Answers of servers: every field may be absent.


class AnswerFunctionIn(Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: dict[str, Any] | str | None = None  # an object; some servers send JSON text


class AnswerCallIn(Struct, frozen=True, gc=False):
    id: str | None = None
    function: AnswerFunctionIn | None = None


class AnswerMessageIn(Struct, frozen=True, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[AnswerCallIn] | None = None
    images: list[Any] | None = None


class TopTokenIn(Struct, frozen=True, gc=False):
    token: str = ""
    logprob: float = 0.0
    bytes: list[int] | None = None


class TokenIn(TopTokenIn, frozen=True, gc=False):
    top_logprobs: list[TopTokenIn] | None = None


class Chunk(Struct, frozen=True, gc=False):
    """One line of a stream, or a whole answer. `response` and `thinking` are those of `/api/generate`."""

    message: AnswerMessageIn | None = None
    response: str | None = None
    thinking: str | None = None
    tool_calls: list[AnswerCallIn] | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[TokenIn] | None = None
    error: Any = None


# Answers to clients.


class AnswerFunctionOut(Struct, frozen=True, kw_only=True):
    index: int
    name: str
    arguments: Raw


class AnswerCallOut(Struct, frozen=True, kw_only=True):
    id: str
    function: AnswerFunctionOut


class AnswerMessageOut(Struct, frozen=True, kw_only=True):
    role: str = "assistant"
    content: str = ""
    thinking: str | UnsetType = UNSET
    tool_calls: list[AnswerCallOut] | UnsetType = UNSET


class TopTokenOut(Struct, frozen=True, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenOut(TopTokenOut, frozen=True, kw_only=True):
    top_logprobs: list[TopTokenOut]


class LineOut(Struct, frozen=True, kw_only=True):
    """One line of a stream, or a whole answer. `response` and `thinking` are those of `/api/generate`."""

    model: str
    created_at: str
    message: AnswerMessageOut | UnsetType = UNSET
    response: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    tool_calls: list[AnswerCallOut] | UnsetType = UNSET
    logprobs: list[TokenOut] | UnsetType = UNSET
    done: bool = False
    done_reason: str | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
