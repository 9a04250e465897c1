"""What a strict responses server refuses: the rules of the dialect, and what depends on one server.

`check(request, limits)` returns the body or raises `RequestRefused`. The server is stateless: references to stored
objects and reasoning that it did not encrypt are refused.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from antiphon.rules import responses
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


def make_encrypted_content(id: str, maker: str) -> str:
    """Return the encrypted content of a reasoning item: it has the item's id, and its maker can verify it."""
    checksum = hashlib.sha256(f"{maker}:{id}".encode()).hexdigest()[:32]
    return base64.urlsafe_b64encode(f"{id}:{checksum}".encode()).decode()


def check(request: ReceivedRequest, limits: ServerLimits) -> dict[str, Any]:
    check_key(request, limits)
    body = json_object(request)
    if limits.strict_fields:
        check_fields(body, responses.FIELDS, StrictReport())
    check_model(body, limits)
    if limits.strict:
        _refuse_stored_state(body)
        responses.check(body, StrictReport(), own_tools=limits.own_tools, plain_models=limits.plain_models)
        _check_items(body["input"], limits)
    check_length(prompt_chars(body), limits, "input")
    return body


def prompt_chars(body: dict[str, Any]) -> int:
    """Return the length of the conversation in characters of text."""
    return sum(len(text) for text in responses.prompt_texts(body))


def _refuse_stored_state(body: dict[str, Any]) -> None:
    # A response that is not stored, expired or somebody else's cannot be continued: 400 with a code of its own.
    if body.get("previous_response_id") is not None:
        raise RequestRefused(
            f"previous response {body['previous_response_id']!r} not found",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    # Background work and conversations live in a store; servers without one refuse both.
    for name in ("background", "conversation"):
        if body.get(name) and (name != "background" or body[name] is True):
            raise RequestRefused(
                f"{name} is not supported here: nothing is stored", param=name, code="unsupported_parameter"
            )


def _check_items(input: str | list[dict[str, Any]], limits: ServerLimits) -> None:
    for index, item in enumerate(input if isinstance(input, list) else ()):
        if item.get("type") == "item_reference":
            # "Item with id X not found. Items are not persisted when store is set to false."
            message = f"item {item.get('id')!r} not found: nothing is stored"
            raise RequestRefused(message, param=f"input[{index}]", code="not_found", status=404)
        if item.get("type") == "reasoning" and item.get("encrypted_content"):
            _check_encrypted_content(item, f"input[{index}]", limits.maker)


def _check_encrypted_content(item: dict[str, Any], path: str, maker: str) -> None:
    # "The encrypted content … could not be verified": another server encrypted it, or it was changed.
    content = item["encrypted_content"]
    id = _decode_content(content).partition(":")[0]
    if content != make_encrypted_content(id, maker):
        message = (
            f"the encrypted content {str(content)[:20]}… could not be verified: it could not be decrypted or parsed"
        )
        raise RequestRefused(message, param=f"{path}.encrypted_content", code="invalid_encrypted_content")
    # "Encrypted content item_id did not match the target item id": an item without an id is accepted.
    if item.get("id") not in (None, id):
        message = (
            f"the encrypted content {content[:20]}… could not be verified: its item id did not match the target item id"
        )
        raise RequestRefused(message, param=f"{path}.encrypted_content", code="invalid_encrypted_content")


def _decode_content(content: Any) -> str:
    try:
        return base64.urlsafe_b64decode(content).decode()
    except (ValueError, TypeError):
        return ""
