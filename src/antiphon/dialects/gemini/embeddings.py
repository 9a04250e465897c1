"""Embeddings of the Gemini API: `embedContent` for one input, `batchEmbedContents` for several."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from antiphon.dialects.common.embeddings import (
    check_dimensions,
    check_inputs,
    decode_answer,
    texts_of,
    unknown_members,
)
from antiphon.dialects.gemini.models import model_resource_name
from antiphon.errors import InvalidValue, UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.embeddings import EmbeddingOperation, EmbeddingRequest, EmbeddingResult
from antiphon.protocol.losses import Losses


class _Part(Struct, frozen=True, kw_only=True):
    text: str | None = None


class _Content(Struct, frozen=True, kw_only=True):
    parts: list[_Part]


class _Request(Struct, frozen=True, kw_only=True, rename="camel"):
    content: _Content
    model: str | None = None
    task_type: str | None = None
    title: str | None = None
    output_dimensionality: int | None = None


class _BatchRequest(Struct, frozen=True, kw_only=True):
    requests: list[_Request]


class _RawBatchRequest(Struct, frozen=True, kw_only=True):
    requests: list[Raw]


class _Vector(Struct, frozen=True, kw_only=True):
    values: list[float]


class _Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int | None = field(default=None, name="promptTokenCount")


class _Answer(Struct, frozen=True, kw_only=True):
    embedding: _Vector | None = None
    embeddings: list[_Vector] = []
    usage: _Usage | None = field(default=None, name="usageMetadata")


class _AnswerUsage(Struct, frozen=True, kw_only=True):
    usage: _Usage | None = field(default=None, name="usageMetadata")


def request_to_hub(body: bytes) -> tuple[EmbeddingRequest, Losses]:
    """Reads the body of `embedContent`."""
    return _to_hub([codec.decode_as(body, _Request)], "", unknown_members(body, REQUEST_MEMBERS))


def batch_to_hub(body: bytes) -> tuple[EmbeddingRequest, Losses]:
    """Reads the body of `batchEmbedContents`."""
    requests: list[_Request] = codec.decode_as(body, _BatchRequest).requests
    losses = unknown_members(body, ("requests",))
    for request in msgspec.json.decode(body, type=_RawBatchRequest).requests:
        losses.extend(unknown_members(request, REQUEST_MEMBERS))
    return _to_hub(requests, "requests", losses)


def _to_hub(requests: list[_Request], param: str, losses: Losses) -> tuple[EmbeddingRequest, Losses]:
    inputs = tuple(_text_of(request, f"{param}[{index}]." if param else "") for index, request in enumerate(requests))
    check_inputs(inputs, param or "content")
    first = requests[0]
    if any(_settings(request) != _settings(first) for request in requests):
        message = "requests: expected the same settings in all requests, because the server takes them once"
        raise UnsupportedParameter(message, param="requests")
    return EmbeddingRequest(
        model=None,  # it is in the path
        inputs=inputs,
        dimensions=check_dimensions(first.output_dimensionality, "outputDimensionality"),
        task=first.task_type,
        title=first.title,
    ), losses


def _text_of(request: _Request, prefix: str) -> str:
    texts = [part.text for part in request.content.parts]
    for index, text in enumerate(texts):
        if text is None:
            path = f"{prefix}content.parts[{index}]"
            raise InvalidValue(f"{path}: expected a text; no other part can be translated", param=path)
    return "\n".join(text for text in texts if text)


def _settings(request: _Request) -> tuple[Any, ...]:
    return request.task_type, request.title, request.output_dimensionality


def request_from_hub(request: EmbeddingRequest, model: str) -> tuple[bytes, Losses]:
    """Writes the body of `batchEmbedContents`."""
    settings = {"taskType": request.task, "title": request.title, "outputDimensionality": request.dimensions}
    given_settings = {name: value for name, value in settings.items() if value is not None}
    name = model_resource_name(model)
    requests = [
        {"model": name, "content": {"parts": [{"text": text}]}, **given_settings}
        for text in texts_of(request, "the Gemini API")
    ]
    return codec.encode({"requests": requests}), Losses()


def answer_to_hub(body: bytes) -> EmbeddingResult:
    answer = decode_answer(body, _Answer)
    vectors = [answer.embedding] if answer.embedding is not None else answer.embeddings
    tokens = None if answer.usage is None else answer.usage.prompt_tokens
    return EmbeddingResult(vectors=[vector.values for vector in vectors], input_tokens=tokens)


def answer_from_hub(result: EmbeddingResult, request: EmbeddingRequest) -> bytes:
    del request
    return codec.encode({"embedding": {"values": result.vectors[0]}, **_usage_members(result)})


def batch_from_hub(result: EmbeddingResult, request: EmbeddingRequest) -> bytes:
    del request
    return codec.encode({"embeddings": [{"values": vector} for vector in result.vectors], **_usage_members(result)})


def _usage_members(result: EmbeddingResult) -> dict[str, Any]:
    return {} if result.input_tokens is None else {"usageMetadata": {"promptTokenCount": result.input_tokens}}


def replace_model(body: bytes, model: str) -> bytes:
    """The body of a Gemini client with the server's name of the model, where the body names one."""
    members = codec.decode_as(body, dict[str, Raw])
    return codec.encode(_with_model(members, model_resource_name(model)))


def replace_batch_model(body: bytes, model: str) -> bytes:
    members: dict[str, Any] = codec.decode_as(body, dict[str, Raw])
    requests = msgspec.json.decode(members.get("requests", b"[]"), type=list[dict[str, Raw]])
    name = model_resource_name(model)
    return codec.encode({**members, "requests": [_with_model(request, name) for request in requests]})


def _with_model(members: dict[str, Any], name: str) -> dict[str, Any]:
    return {**members, "model": name} if "model" in members else members


def restore_model(body: bytes, model: str) -> bytes:
    """Answers do not name the model."""
    del model
    return body


def read_usage(body: bytes) -> int | None:
    usage = decode_answer(body, _AnswerUsage).usage
    return None if usage is None else usage.prompt_tokens


REQUEST_MEMBERS: Final = ("model", "content", "taskType", "title", "outputDimensionality")
EMBED_CONTENT: Final = EmbeddingOperation(
    path="/{model}:embedContent",
    request_to_hub=request_to_hub,
    answer_to_hub=answer_to_hub,
    answer_from_hub=answer_from_hub,
    replace_model=replace_model,
    restore_model=restore_model,
    read_usage=read_usage,
)
BATCH_EMBED_CONTENTS: Final = EmbeddingOperation(
    path="/{model}:batchEmbedContents",
    input_field="requests",
    request_to_hub=batch_to_hub,
    request_from_hub=request_from_hub,
    answer_to_hub=answer_to_hub,
    answer_from_hub=batch_from_hub,
    replace_model=replace_batch_model,
    restore_model=restore_model,
    read_usage=read_usage,
    max_inputs=100,
)
