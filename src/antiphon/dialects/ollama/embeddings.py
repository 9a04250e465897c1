"""Embeddings of Ollama's API: `/api/embed`, and its older form for one text, `/api/embeddings`."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from antiphon.dialects.common.embeddings import (
    check_dimensions,
    check_inputs,
    decode_answer,
    replace_model,
    report_task,
    restore_model,
    texts_of,
    unknown_members,
)
from antiphon.protocol import codec
from antiphon.protocol.embeddings import EmbeddingOperation, EmbeddingRequest, EmbeddingResult
from antiphon.protocol.losses import Losses


class _Request(Struct, frozen=True, kw_only=True):
    model: str | None = None
    input: str | list[str]
    dimensions: int | None = None
    truncate: bool | None = None


class _OldRequest(Struct, frozen=True, kw_only=True):
    model: str | None = None
    prompt: str


class _OutgoingRequest(Struct, frozen=True, kw_only=True):
    model: str
    input: list[str]
    dimensions: int | UnsetType = UNSET


class _Answer(Struct, frozen=True, kw_only=True):
    embeddings: list[list[float]] = []
    embedding: list[float] | None = None
    prompt_eval_count: int | None = None


class _AnswerUsage(Struct, frozen=True, kw_only=True):
    prompt_eval_count: int | None = None


def request_to_hub(body: bytes) -> tuple[EmbeddingRequest, Losses]:
    """Reads the body of `/api/embed`. Texts that are too long are cut by default, which no other API can be told."""
    request: _Request = codec.decode_as(body, _Request)
    texts = (request.input,) if isinstance(request.input, str) else tuple(request.input)
    dimensions = check_dimensions(request.dimensions, "dimensions")
    losses = unknown_members(body, (*_Request.__struct_fields__, *IGNORED_MEMBERS))
    inputs = check_inputs(texts, "input")
    return EmbeddingRequest(model=request.model, inputs=inputs, dimensions=dimensions), losses


def old_request_to_hub(body: bytes) -> tuple[EmbeddingRequest, Losses]:
    """Reads the body of `/api/embeddings`."""
    request: _OldRequest = codec.decode_as(body, _OldRequest)
    losses = unknown_members(body, (*_OldRequest.__struct_fields__, *IGNORED_MEMBERS))
    return EmbeddingRequest(model=request.model, inputs=check_inputs((request.prompt,), "prompt")), losses


def request_from_hub(request: EmbeddingRequest, model: str) -> tuple[bytes, Losses]:
    """Writes the body of `/api/embed`."""
    losses = Losses()
    report_task(request, losses)
    dimensions = UNSET if request.dimensions is None else request.dimensions
    texts = texts_of(request, "Ollama's API")
    return codec.encode(_OutgoingRequest(model=model, input=texts, dimensions=dimensions)), losses


def answer_to_hub(body: bytes) -> EmbeddingResult:
    answer = decode_answer(body, _Answer)
    vectors = answer.embeddings if answer.embedding is None else [answer.embedding]
    return EmbeddingResult(vectors=vectors, input_tokens=answer.prompt_eval_count)


def answer_from_hub(result: EmbeddingResult, request: EmbeddingRequest) -> bytes:
    usage = {} if result.input_tokens is None else {"prompt_eval_count": result.input_tokens}
    return codec.encode({"model": request.model, "embeddings": result.vectors, **usage})


def old_answer_from_hub(result: EmbeddingResult, request: EmbeddingRequest) -> bytes:
    del request
    return codec.encode({"embedding": result.vectors[0]})


def read_usage(body: bytes) -> int | None:
    tokens: int | None = decode_answer(body, _AnswerUsage).prompt_eval_count
    return tokens


IGNORED_MEMBERS: Final = ("keep_alive",)  # how long a model stays in memory, which a gateway does not decide
EMBED: Final = EmbeddingOperation(
    path="/api/embed",
    request_to_hub=request_to_hub,
    request_from_hub=request_from_hub,
    answer_to_hub=answer_to_hub,
    answer_from_hub=answer_from_hub,
    replace_model=replace_model,
    restore_model=restore_model,
    read_usage=read_usage,
)
OLD_EMBEDDINGS: Final = EmbeddingOperation(
    path="/api/embeddings",
    request_to_hub=old_request_to_hub,
    answer_to_hub=answer_to_hub,
    answer_from_hub=old_answer_from_hub,
    replace_model=replace_model,
    restore_model=restore_model,
    read_usage=read_usage,
)
