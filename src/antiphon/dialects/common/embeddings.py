"""`POST /v1/embeddings`, the embeddings of servers of Chat Completions and of Responses, and what the embeddings of
other APIs share with them."""

from __future__ import annotations

from base64 import b64encode
from struct import pack
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from antiphon.errors import InvalidValue, UnsupportedParameter, UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.embeddings import MAX_INPUTS, EmbeddingOperation, EmbeddingRequest, EmbeddingResult
from antiphon.protocol.losses import Losses

INVALID_ANSWER: Final = "upstream_invalid_response"


class _Request(Struct, frozen=True, kw_only=True):
    """The members of a request. `input` has one of four forms, which `_read_inputs` reads."""

    input: Raw
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None


class _OutgoingRequest(Struct, frozen=True, kw_only=True):
    model: str
    input: tuple[str | tuple[int, ...], ...]
    encoding_format: str = "float"
    dimensions: int | UnsetType = UNSET


class _Vector(Struct, frozen=True, kw_only=True):
    embedding: list[float]
    index: int = 0


class _Usage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int | None = None


class _Answer(Struct, frozen=True, kw_only=True):
    data: list[_Vector]
    usage: _Usage | None = None


class _AnswerVector(Struct, frozen=True, kw_only=True):
    embedding: Raw = Raw(b"null")


class _AnswerVectors(Struct, frozen=True, kw_only=True):
    data: list[_AnswerVector] = []


class _AnswerUsage(Struct, frozen=True, kw_only=True):
    usage: _Usage | None = None


def request_to_hub(body: bytes) -> tuple[EmbeddingRequest, Losses]:
    request: _Request = codec.decode_as(body, _Request)
    losses = unknown_members(body, _Request.__struct_fields__)
    if request.user is not None:
        losses.add("user", "the id of the user", "the server has no place for it")
    return EmbeddingRequest(
        model=request.model,
        inputs=_read_inputs(request.input),
        dimensions=check_dimensions(request.dimensions, "dimensions"),
        is_base64=request.encoding_format == "base64",
    ), losses


def _read_inputs(raw: Raw) -> tuple[str | tuple[int, ...], ...]:
    for form in INPUT_FORMS:
        try:
            value = msgspec.json.decode(raw, type=form)
        except msgspec.DecodeError:
            continue
        if isinstance(value, str) or (value and isinstance(value[0], int)):
            value = (value,)
        return check_inputs(value, "input")
    raise InvalidValue(
        "input: expected a text, a list of texts, a list of tokens or a list of such lists", param="input"
    )


def check_inputs(inputs: tuple[Any, ...], param: str) -> tuple[str | tuple[int, ...], ...]:
    """Refuses a request without inputs, with an empty one, or with too many."""
    if not 1 <= len(inputs) <= MAX_INPUTS:
        raise InvalidValue(f"{param}: expected 1 to {MAX_INPUTS} inputs, got {len(inputs)}", param=param)
    for index, value in enumerate(inputs):
        if not value:
            raise InvalidValue(f"{param}[{index}]: expected an input that is not empty", param=f"{param}[{index}]")
    return inputs


def check_dimensions(value: int | None, param: str) -> int | None:
    if value is not None and not 1 <= value <= MAX_DIMENSIONS:
        raise InvalidValue(f"{param}: expected 1 to {MAX_DIMENSIONS}, got {value}", param=param)
    return value


def texts_of(request: EmbeddingRequest, api: str) -> list[str]:
    """The inputs for an API that takes no tokens."""
    texts = [value for value in request.inputs if isinstance(value, str)]
    if len(texts) != len(request.inputs):
        message = f"input: {api} takes texts, not tokens; send the text of each input"
        raise UnsupportedParameter(message, param="input")
    return texts


def request_from_hub(request: EmbeddingRequest, model: str) -> tuple[bytes, Losses]:
    losses = Losses()
    report_task(request, losses)
    dimensions = UNSET if request.dimensions is None else request.dimensions
    return codec.encode(_OutgoingRequest(model=model, input=request.inputs, dimensions=dimensions)), losses


def report_task(request: EmbeddingRequest, losses: Losses) -> None:
    """Reports what only Gemini has."""
    if request.task is not None:
        losses.add("taskType", request.task, "the server has no setting for it")
    if request.title is not None:
        losses.add("title", "the title of the document", "the server has no place for it")


def answer_to_hub(body: bytes) -> EmbeddingResult:
    answer = decode_answer(body, _Answer)
    vectors = [vector.embedding for vector in sorted(answer.data, key=lambda vector: vector.index)]
    return EmbeddingResult(vectors=vectors, input_tokens=None if answer.usage is None else answer.usage.prompt_tokens)


def answer_from_hub(result: EmbeddingResult, request: EmbeddingRequest) -> bytes:
    encode_vector = _as_base64 if request.is_base64 else list
    data = [
        {"object": "embedding", "index": index, "embedding": encode_vector(vector)}
        for index, vector in enumerate(result.vectors)
    ]
    tokens = result.input_tokens or 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return codec.encode({"object": "list", "data": data, "model": request.model, "usage": usage})


def _as_base64(vector: list[float]) -> str:
    return b64encode(pack(f"<{len(vector)}f", *vector)).decode()


def decode_answer(body: bytes, type: Any) -> Any:
    """Decodes the answer of a server."""
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.DecodeError as error:
        raise UpstreamFault(f"the upstream's answer has no embeddings: {error}", code=INVALID_ANSWER) from None


def replace_model(body: bytes, model: str) -> bytes:
    """A request with another name of the model, in its place."""
    return codec.encode({**codec.decode_as(body, dict[str, Raw]), "model": model})


def restore_model(body: bytes, model: str) -> bytes:
    """An answer with another name of the model, if it has one."""
    members = decode_answer(body, dict[str, Raw])
    return codec.encode({**members, "model": model}) if "model" in members else body


def read_usage(body: bytes) -> int | None:
    usage = decode_answer(body, _AnswerUsage).usage
    return None if usage is None else usage.prompt_tokens


def count_vectors(body: bytes) -> int:
    """The number of vectors. They may be lists or base64."""
    vectors = decode_answer(body, _AnswerVectors).data
    return sum(bytes(vector.embedding) != b"null" for vector in vectors)


def unknown_members(body: bytes, member_names: tuple[str, ...]) -> Losses:
    """Reports the members of a request that no translation knows."""
    losses = Losses()
    for name in msgspec.json.decode(body, type=dict[str, Raw]):
        if name not in member_names:
            losses.add(name, "a setting of the client's API", "it has no equivalent")
    return losses


MAX_DIMENSIONS: Final = 65_536
INPUT_FORMS: Final[tuple[Any, ...]] = (
    str,
    tuple[str, ...],
    tuple[int, ...],
    tuple[tuple[int, ...], ...],
)
TEXT_EMBEDDINGS: Final = EmbeddingOperation(
    path="/embeddings",
    request_to_hub=request_to_hub,
    request_from_hub=request_from_hub,
    answer_to_hub=answer_to_hub,
    answer_from_hub=answer_from_hub,
    replace_model=replace_model,
    restore_model=restore_model,
    read_usage=read_usage,
    count_vectors=count_vectors,
)
