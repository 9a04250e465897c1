"""Embeddings in the form of the hub: a request for the vectors of some texts, and the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from antiphon.protocol.losses import Losses


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


MAX_INPUTS: Final = 2048  # of one request, as most servers of `/v1/embeddings` have it
