"""Converts the arguments of a call, which are a text in the hub, for APIs that accept only a JSON object."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from antiphon.protocol.codec import JSON_WHITESPACE, decode_json
from antiphon.protocol.losses import Losses


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


def wrap_arguments(arguments: str) -> Raw:
    """An object that holds the text, so that no tool reads it as empty arguments."""
    return Raw(msgspec.json.encode({"arguments": arguments}))
