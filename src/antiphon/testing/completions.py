"""Legacy text completions of the fake servers: they repeat the prompt."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon import sse
from antiphon.testing.script import PlainReply, error, whole


def complete_text(body: dict[str, Any]) -> PlainReply:
    """Answer `POST /v1/completions`."""
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        return error(400, "you must provide a prompt", param="prompt")
    if body.get("stream_options") and not body.get("stream"):
        return error(400, "stream_options is only allowed with stream", param="stream_options")
    head = {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": body.get("model")}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(prompt), "total_tokens": 2 * len(prompt)}
    if not body.get("stream"):
        return whole({**head, "choices": [_choice(prompt, "stop")], "usage": usage})
    middle = len(prompt) // 2
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [_choice(prompt[:middle], None)]},
        {**head, "choices": [_choice(prompt[middle:], "stop")]},
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**head, "choices": [], "usage": usage})
    events = b"".join(sse.encode_data(msgspec.json.encode(chunk)) for chunk in chunks)
    return PlainReply(status=200, body=events + sse.DONE_FRAME, headers=STREAM_HEADERS)


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


STREAM_HEADERS: Final = {"content-type": "text/event-stream"}
