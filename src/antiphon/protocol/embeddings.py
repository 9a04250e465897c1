"""Embeddings in the form of the hub: a request for the vectors of some texts, and the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.losses import Losses

MAX_INPUTS: Final = 2048  # of one request, as most servers of `/v1/embeddings` have it


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """A request for vectors, one for each input. An input is a text, or the ids of its tokens."""

    model: str | None
    inputs: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None  # of each vector; None: the model's own
    task: str | None = None  # what the vectors are for, in the words of Gemini
    title: str | None = None  # of a document
    is_base64: bool = False  # whether the client wants each vector as base64 of 32-bit numbers


class EmbeddingResult(Struct, frozen=True, kw_only=True):
    """The vectors, in the order of the inputs."""

    vectors: list[list[float]]
    input_tokens: int | None = None  # None: the server did not say


class EmbeddingOperation(Struct, frozen=True, kw_only=True):
    """One operation of an API that returns vectors, for its clients and for its servers. `path` begins after the base
    URL of a server."""

    path: str
    request_to_hub: Callable[[bytes], tuple[EmbeddingRequest, Losses]]
    answer_to_hub: Callable[[bytes], EmbeddingResult]
    answer_from_hub: Callable[[EmbeddingResult, EmbeddingRequest], bytes]
    #: Writes a request with the server's name of the model. None: servers of the API are asked by another operation.
    request_from_hub: Callable[[EmbeddingRequest, str], tuple[bytes, Losses]] | None = None
    #: The body of a client of the same operation, with the server's name of the model.
    replace_model: Callable[[bytes, str], bytes]
    #: The answer for a client of the same operation, with the client's name of the model.
    restore_model: Callable[[bytes, str], bytes]
    #: The number of input tokens in an answer; None if it has none.
    read_usage: Callable[[bytes], int | None]
    #: The number of vectors in an answer that passes as it came; None: it is not checked.
    count_vectors: Callable[[bytes], int] | None = None
    #: The client's name of the list of inputs.
    input_field: str = "input"
    #: The number of inputs that servers take in one request.
    max_inputs: int = MAX_INPUTS


def split_request(request: EmbeddingRequest, max_inputs: int) -> list[EmbeddingRequest]:
    """Requests with at most so many inputs each, in order."""
    inputs = request.inputs
    return [replace(request, inputs=inputs[start : start + max_inputs]) for start in range(0, len(inputs), max_inputs)]


def join_results(results: list[EmbeddingResult]) -> EmbeddingResult:
    """The vectors of all parts of a request, and the sum of their tokens, if every part has some."""
    token_counts = [result.input_tokens for result in results if result.input_tokens is not None]
    return EmbeddingResult(
        vectors=[vector for result in results for vector in result.vectors],
        input_tokens=sum(token_counts) if len(token_counts) == len(results) else None,
    )
