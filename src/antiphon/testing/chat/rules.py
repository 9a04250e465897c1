"""What a strict chat server refuses: the rules of the dialect, and what depends on one server (key, models, context).

`check(request, limits)` returns the body or raises `RequestRefused`.
"""

from __future__ import annotations

from typing import Any

from antiphon.rules import chat
from antiphon.rules.content import texts_in
from antiphon.rules.settings import check_fields
from antiphon.testing.rules import (
    RequestRefused,
    ServerLimits,
    StrictReport,
    check_key,
    check_length,
    check_model,
    json_object,
)
from antiphon.testing.script import ReceivedRequest


def check(request: ReceivedRequest, limits: ServerLimits) -> dict[str, Any]:
    check_key(request, limits)
    body = json_object(request)
    if limits.strict_fields:
        check_fields(body, chat.FIELDS, StrictReport())
    check_model(body, limits)
    if limits.strict:
        chat.check(body, StrictReport())
        if limits.wants_reasoning:
            _check_reasoning(body["messages"])
    check_length(prompt_chars(body), limits, "messages")
    return body


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    messages = body.get("messages")
    contents = (
        [message.get("content") for message in messages if isinstance(message, dict)]
        if isinstance(messages, list)
        else []
    )
    return sum(len(text) for content in contents for text in texts_in(content))


def _check_reasoning(messages: list[dict[str, Any]]) -> None:
    # One provider: "The `reasoning_content` in the thinking mode must be passed back to the API", in every turn that
    # called tools.
    for index, message in enumerate(messages):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            raise RequestRefused(
                "the `reasoning_content` in the thinking mode must be passed back to the API",
                param=f"messages[{index}].reasoning_content",
                code="invalid_request_error",
            )
