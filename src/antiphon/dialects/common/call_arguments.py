"""Converts the arguments of a call, which are a text in the hub, for APIs that accept only a JSON object, and tells
whether they are whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from antiphon.protocol.codec import JSON_WHITESPACE, decode_json
from antiphon.protocol.items import FunctionCall, Item, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.status import ItemStatus


def arguments_as_object(arguments: str) -> Raw | None:
    """The arguments as a JSON object; None if they are not one. Empty arguments count as `{}`."""
    arguments = arguments.strip(JSON_WHITESPACE) or "{}"
    try:
        return Raw(arguments.encode()) if isinstance(decode_json(arguments), dict) else None
    except ValueError:
        return None


def arguments_or_wrapper(arguments: str, path: str, losses: Losses) -> Raw:
    """The arguments as a JSON object. A text that is not one is wrapped in one, which is a loss."""
    own_object = arguments_as_object(arguments)
    if own_object is not None:
        return own_object
    losses.add(f"{path}.arguments", "arguments that are not a JSON object", "they are wrapped in one")
    return wrap_arguments(arguments)


def is_whole_call(call: FunctionCall) -> bool:
    """Whether the arguments are a JSON object to its end."""
    return bool(call.arguments) and arguments_as_object(call.arguments) is not None


def are_whole_calls(items: Sequence[Item]) -> bool:
    """Whether the items are whole calls, and reasoning before them. The end of a free-form input cannot be seen."""
    calls = [item for item in items if not isinstance(item, Reasoning)]
    return bool(calls) and all(
        isinstance(item, FunctionCall) and item.status != ItemStatus.INCOMPLETE and is_whole_call(item)
        for item in calls
    )


def wrap_arguments(arguments: str) -> Raw:
    """An object that holds the text, so that no tool reads it as empty arguments."""
    return Raw(msgspec.json.encode({"arguments": arguments}))
