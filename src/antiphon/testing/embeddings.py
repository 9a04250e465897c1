"""Embeddings of the fake servers: a vector that depends on the text only, and what real servers refuse."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from struct import pack
from typing import Any, Final

from antiphon.testing.script import PlainReply, error, whole


def make_vector(text: str, dimensions: int | None = None) -> list[float]:
    """The vector of a text. Its numbers are exact in 32 bits."""
    digest = sha256(text.encode()).digest()
    return [digest[index % len(digest)] / 256 for index in range(dimensions or DIMENSIONS)]


def embed_texts(body: dict[str, Any]) -> PlainReply:
    """Answer `POST /v1/embeddings`."""
    inputs = body.get("input")
    if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and isinstance(inputs[0], int)):
        inputs = [inputs]
    # Public reports: "'$.input' is invalid" for no input and for an empty text, and for more than 2048 inputs.
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= 2048 or not all(inputs):
        return error(400, "'$.input' is invalid. Please check the API reference.", param=None)
    encoding = body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        return error(400, f"{encoding!r} is not one of ['float', 'base64'] - 'encoding_format'")
    vectors = [make_vector(_as_text(value), body.get("dimensions")) for value in inputs]
    data = [
        {"object": "embedding", "index": index, "embedding": _as_base64(vector) if encoding == "base64" else vector}
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(value) for value in inputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return whole({"object": "list", "data": data, "model": body.get("model"), "usage": usage})


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(map(str, value))


def _as_base64(vector: list[float]) -> str:
    return b64encode(pack(f"<{len(vector)}f", *vector)).decode()


def embed_gemini(request: dict[str, Any]) -> list[float]:
    """The vector of one request of the Gemini API."""
    text = "".join(part["text"] for part in request["content"]["parts"])
    return make_vector(text, request.get("outputDimensionality"))


def embed_ollama(body: dict[str, Any]) -> dict[str, Any]:
    """The answer of `POST /api/embed`, or with `prompt` of `POST /api/embeddings`."""
    if "prompt" in body:
        return {"embedding": make_vector(body["prompt"])}
    inputs = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [make_vector(text, body.get("dimensions")) for text in inputs]
    tokens = sum(map(len, inputs))
    return {"model": body["model"], "embeddings": vectors, "total_duration": 1, "prompt_eval_count": tokens}


DIMENSIONS: Final = 8
