"""Finds the dialect of a recorded exchange by its path or by the shape of its answer, and makes a `Recording`."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from tests.recorded_traffic.recording import ReadResult, Recording, Skipped

from antiphon.dialects.dialect import ServerDialectName


class Exchange(Struct, frozen=True, kw_only=True):
    """An exchange as a file has it: bodies without their content encoding."""

    url: str  # empty if it was not recorded
    request: bytes
    status: int
    headers: dict[str, str]  # names are lower-cased
    answer: bytes
    source: str


def recording_of(exchange: Exchange) -> ReadResult:
    """The recording of an exchange, or the reason why there is none."""
    url = urlsplit(exchange.url)
    dialect = _dialect_of_path(url.path)
    if dialect is None:
        return Skipped(source=exchange.source, reason="the request is for another endpoint")
    request = decode_object(exchange.request)
    if request is None:
        return Skipped(source=exchange.source, reason="the request is no JSON object")
    if not exchange.answer.strip():
        return Skipped(source=exchange.source, reason="the answer is empty")
    model = _model_in_path(url.path) if dialect == "gemini" else str(request.get("model", ""))
    return make_recording(exchange, dialect, request=request, model=model, host=url.hostname or "")


def make_recording(
    exchange: Exchange,
    dialect: ServerDialectName,
    *,
    request: dict[str, Any] | None = None,
    model: str = "",
    host: str = "",
) -> ReadResult:
    """A recording of a known dialect. The answer must be JSON or server-sent events."""
    is_event_stream, has_lines = _is_event_stream(exchange.answer), _has_json_lines(exchange.answer)
    is_stream = is_event_stream or has_lines or "streamGenerateContent" in exchange.url
    if not is_stream and not _is_json(exchange.answer):
        return Skipped(source=exchange.source, reason="the answer is neither JSON nor a stream of events")
    if exchange.status >= 400:
        is_stream = False
    content_type = EVENT_STREAM if is_event_stream else JSON_LINES if has_lines else JSON
    return Recording(
        dialect=dialect,
        kind="error" if exchange.status >= 400 else "stream" if is_stream else "whole",
        request=request,
        model=model or "recorded-model",
        host=host,
        status=exchange.status,
        headers={**exchange.headers, "content-type": exchange.headers.get("content-type", content_type)},
        answer=exchange.answer,
        is_stream=is_stream,
        source=exchange.source,
    )


def dialect_of_answer(answer: dict[str, Any]) -> ServerDialectName | None:
    """The dialect of a whole answer or of one event of a stream, by its shape."""
    match answer:
        case {"object": "chat.completion" | "chat.completion.chunk"} | {"choices": [{"message": _} | {"delta": _}, *_]}:
            return "chat"
        case {"object": "response"} | {"type": "response.created" | "response.in_progress"}:
            return "responses"
        case {"type": "message", "role": "assistant"} | {"type": "message_start"}:
            return "messages"
        case {"message": {"role": "assistant"}, "done": bool()}:
            return "ollama"
        case {"candidates": [*_]} | {"error": {"code": int(), "status": str()}}:
            return "gemini"
        case _:
            return None


def decode_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object; None if the bytes are something else."""
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _dialect_of_path(path: str) -> ServerDialectName | None:
    for pattern, dialect in PATHS:
        if pattern.search(path):
            return dialect
    return None


def _model_in_path(path: str) -> str:
    return path.rpartition("/models/")[2].rpartition(":")[0]


def _is_event_stream(answer: bytes) -> bool:
    return answer.lstrip().startswith((b"data:", b"event:", b":"))


def _has_json_lines(answer: bytes) -> bool:
    lines = answer.strip().split(b"\n")
    return len(lines) > 1 and all(decode_object(line) is not None for line in lines if line.strip())


def _is_json(answer: bytes) -> bool:
    try:
        json.loads(answer)
    except ValueError:
        return False
    return True


EVENT_STREAM: Final = "text/event-stream"
JSON_LINES: Final = "application/x-ndjson"
JSON: Final = "application/json"
PATHS: Final[list[tuple[re.Pattern[str], ServerDialectName]]] = [
    (re.compile(r"/chat/completions$"), "chat"),
    (re.compile(r"/responses$"), "responses"),
    (re.compile(r"/messages$"), "messages"),
    (re.compile(r"/api/chat$"), "ollama"),
    (re.compile(r"/models/[^/]+:(generateContent|streamGenerateContent)$"), "gemini"),
]
