"""The text that is sent in place of an empty message of the user, for APIs that refuse an empty text."""

from __future__ import annotations

from typing import Final

from antiphon.errors import InvalidValue
from antiphon.protocol.items import ItemParam, MessageParam
from antiphon.protocol.losses import Losses


def has_user_message(items: list[ItemParam]) -> bool:
    return any(isinstance(item, MessageParam) and item.role == "user" for item in items)


def ends_with_user_message(items: list[ItemParam]) -> bool:
    """Whether the user speaks last. If that message is empty, the model must not continue its own message."""
    last = items[-1] if items else None
    return isinstance(last, MessageParam) and last.role == "user"


def text_for_empty_conversation(items: list[ItemParam], losses: Losses) -> str:
    """Return the text in place of an empty user message, which is a loss. Raises if there is no user message."""
    if not has_user_message(items):
        raise InvalidValue("input: no content to send: expected at least one message with content", param="input")
    losses.add("input", "an empty user message", f"the API requires a text; {CONTINUE!r} is sent")
    return CONTINUE


CONTINUE: Final = "Continue."
