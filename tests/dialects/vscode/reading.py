"""Shared by the tests of this dialect: request bodies of an editor, and the lines of a stream."""

from __future__ import annotations

import base64
import json
from typing import Any

from antiphon.dialects.vscode import request_to_hub
from antiphon.protocol.codec import encode
from antiphon.protocol.request import Request

USER, ASSISTANT, SYSTEM = 1, 2, 3
CALL = {"callId": "call_1", "name": "look", "input": {"path": "a.py"}}
RESULT = {"callId": "call_1", "content": [{"value": "done"}]}


def message(role: Any, *parts: Any) -> dict[str, Any]:
    return {"role": role, "content": [{"value": part} if isinstance(part, str) else part for part in parts]}


def data(content: bytes, mime_type: str) -> dict[str, Any]:
    return {"mimeType": mime_type, "data": base64.b64encode(content).decode()}


def read(*messages: Any, **members: Any) -> tuple[Request, list[str]]:
    """A body's request, and where something was lost."""
    request, losses = request_to_hub(json.dumps({"model": "m", "messages": messages, **members}).encode())
    return request, [loss.path for loss in losses]


def items_of(*messages: Any, **members: Any) -> list[Any]:
    """The items of a conversation of which nothing is lost, as JSON."""
    request, loss_paths = read(*messages, **members)
    assert loss_paths == []
    items: list[Any] = json.loads(encode(request.input))
    return items


def lines_in(stream: bytes) -> list[dict[str, Any]]:
    assert not stream or stream.endswith(b"\n")
    return [json.loads(line) for line in stream.decode().splitlines()]
