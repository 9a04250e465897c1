"""The types of the official SDKs in strict mode. The SDKs themselves do not validate answers, or convert values."""

from __future__ import annotations

import json
from typing import Any, Final, get_args

from anthropic.types import Message, RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from ollama import ChatResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, ValidationError
from tests.identity.sdk_types import members_of

from antiphon import sse
from antiphon.dialects.common.json_lines import JsonLinesDecoder


def find_type_errors(dialect: str, body: bytes, *, is_stream: bool) -> list[str]:
    """What the types of a client's SDK do not allow in an answer: one line for each value."""
    values = _values(dialect, body, is_stream)
    return [error for value in values for error in _errors(_type(dialect, value, is_stream), value)]


def _values(dialect: str, body: bytes, is_stream: bool) -> list[bytes]:
    if not is_stream:
        return [body]
    decoder = JsonLinesDecoder() if dialect == "ollama" else sse.Decoder()
    frames = [*decoder.feed(body), *decoder.finish()]
    return [frame.data for frame in frames if frame.data != b"[DONE]" and frame.event not in UNTYPED_EVENTS]


def _type(dialect: str, value: bytes, is_stream: bool) -> type[BaseModel]:
    """The type of an answer, or of an event by its name, so that errors are those of one type."""
    if not is_stream:
        return ANSWERS[dialect]
    kinds: tuple[type[BaseModel], ...] = members_of(EVENTS[dialect])
    return kinds[0] if len(kinds) == 1 else {_type_word(kind): kind for kind in kinds}[json.loads(value)["type"]]


def _type_word(kind: type[BaseModel]) -> str:
    (word,) = get_args(kind.model_fields["type"].annotation)
    return str(word)


def _errors(kind: type[BaseModel], value: bytes) -> list[str]:
    try:
        kind.model_validate_json(value, strict=True)
    except ValidationError as invalid:
        return [
            f"{'.'.join(map(str, error['loc']))}: {error['msg']}, got {error['input']!r:.80}"
            for error in invalid.errors()
        ]
    return []


#: Events without a type in the SDK, which ignores them.
UNTYPED_EVENTS: Final = frozenset({"ping"})
ANSWERS: Final[dict[str, type[BaseModel]]] = {
    "responses": Response,
    "chat": ChatCompletion,
    "messages": Message,
    "gemini": GenerateContentResponse,
    "ollama": ChatResponse,
}
EVENTS: Final[dict[str, Any]] = {
    "responses": ResponseStreamEvent,
    "chat": ChatCompletionChunk,
    "messages": RawMessageStreamEvent,
    "gemini": GenerateContentResponse,
    "ollama": ChatResponse,
}
