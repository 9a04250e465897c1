"""Plain requests and answers of every dialect, for the half of an exchange that was not recorded."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.recorded_traffic.exchanges import EVENT_STREAM, JSON_LINES
from tests.recorded_traffic.play import ClientRequest, UpstreamAnswer

from antiphon import sse
from antiphon.dialects.dialect import ServerDialectName

QUESTION: Final = "Answer as you like."
ANSWER: Final = "Agreed."


def plain_request(dialect: ServerDialectName, model: str, *, is_stream: bool) -> ClientRequest:
    """One question, with the settings that ask for everything an answer can hold."""
    body = {**REQUESTS[dialect]}
    if dialect != "gemini":
        body |= {"model": model, "stream": is_stream}
    if dialect == "chat" and is_stream:
        body["stream_options"] = {"include_usage": True}
    return ClientRequest(dialect=dialect, model=model, body=body, is_stream=is_stream)


def plain_answer(dialect: ServerDialectName, *, is_stream: bool) -> UpstreamAnswer:
    """A short text."""
    if is_stream:
        content_type = JSON_LINES if dialect == "ollama" else EVENT_STREAM
        return UpstreamAnswer(status=200, headers={"content-type": content_type}, pieces=[STREAMS[dialect]])
    body = json.dumps(ANSWERS[dialect]).encode()
    return UpstreamAnswer(status=200, headers={"content-type": "application/json"}, pieces=[body])


REQUESTS: Final[dict[ServerDialectName, dict[str, Any]]] = {
    "chat": {"messages": [{"role": "user", "content": QUESTION}], "reasoning_effort": "high"},
    "responses": {
        "input": QUESTION,
        "store": False,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    },
    "messages": {
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 4096,
        "thinking": {"type": "adaptive"},
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": QUESTION}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
    },
    "ollama": {"messages": [{"role": "user", "content": QUESTION}], "think": True},
}
_CHAT_HEAD: Final = {"id": "chatcmpl-1", "created": 1, "model": "m"}
_RESPONSE: Final[dict[str, Any]] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}
_MESSAGE: Final[dict[str, Any]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": ANSWER}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
_LINE: Final = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
_LINE_END: Final = {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2}
ANSWERS: Final[dict[ServerDialectName, dict[str, Any]]] = {
    "chat": {
        **_CHAT_HEAD,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    },
    "responses": _RESPONSE,
    "messages": _MESSAGE,
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": ANSWER}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
    },
    "ollama": {**_LINE, "message": {"role": "assistant", "content": ANSWER}, **_LINE_END},
}


def _encode_events(events: list[dict[str, Any]]) -> bytes:
    return b"".join(sse.encode_frame(event["type"], json.dumps(event).encode()) for event in events)


STREAMS: Final[dict[ServerDialectName, bytes]] = {
    "chat": sse.encode_data(
        json.dumps(
            {
                **_CHAT_HEAD,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            }
        ).encode()
    )
    + sse.DONE_FRAME,
    "responses": _encode_events(
        [
            {
                "type": "response.created",
                "sequence_number": 0,
                "response": {**_RESPONSE, "status": "in_progress", "output": []},
            },
            {
                "type": "response.output_item.done",
                "sequence_number": 1,
                "output_index": 0,
                "item": _RESPONSE["output"][0],
            },
            {"type": "response.completed", "sequence_number": 2, "response": _RESPONSE},
        ]
    ),
    "messages": _encode_events(
        [
            {"type": "message_start", "message": {**_MESSAGE, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 2},
            },
            {"type": "message_stop"},
        ]
    ),
    "gemini": sse.encode_data(json.dumps(ANSWERS["gemini"]).encode()),
    "ollama": b"".join(
        json.dumps({**_LINE, "message": {"role": "assistant", "content": text}, **rest}).encode() + b"\n"
        for text, rest in ((ANSWER, {"done": False}), ("", _LINE_END))
    ),
}
