"""Decodes a `response.create` message of a WebSocket (WS-1, WS-2)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from antiphon.errors import ApiError, ClientFault, InvalidJson, MissingField
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json
from antiphon.protocol.error_messages import fault_from_decode_error
from antiphon.protocol.request import Request


class InvalidMessage(Exception):
    """The fault of a message that names the response which it continues (WS-7)."""

    def __init__(self, error: ApiError, previous_id: str | None) -> None:
        super().__init__(error, previous_id)
        self.error = error
        self.previous_id = previous_id


def decode_create_message(message: bytes) -> Request:
    """Decodes the request. `stream` is ignored, because many clients send it with every message."""
    request = codec.decode_create_message(message)
    previous_id: str | None = None
    try:
        if request is None:  # it has unknown fields or a fault
            members = _decode_object(message)
            previous_id = _text_in(members, "previous_response_id")
            request = _decode_members(members)
        previous_id = request.previous_response_id or None
        if request.stream_options is not UNSET:
            raise ClientFault(STREAM_OPTIONS_REFUSED, param="stream_options")
        if request.background:
            raise ClientFault(BACKGROUND_REFUSED, param="background")
    except ApiError as error:
        if previous_id is None:
            raise
        raise InvalidMessage(error.without_traceback(), previous_id) from None
    return request


def _decode_members(members: dict[str, Any]) -> Request:
    """Decodes a message that has unknown fields, or raises its fault. The fault of the type comes first."""
    if "type" not in members:
        raise MissingField("type is missing: expected 'response.create'", param="type")
    message_type = _text_in(members, "type")
    if message_type != "response.create":
        description = repr(message_type[:50]) if message_type is not None else "a value that is not a string"
        raise ClientFault(f"type: expected 'response.create', got {description}", param="type")
    if "stream_options" in members:
        raise ClientFault(STREAM_OPTIONS_REFUSED, param="stream_options")
    return codec.decode_request(codec.encode({name: raw for name, raw in members.items() if name != "type"}))


def _decode_object(message: bytes) -> dict[str, Any]:
    try:
        return decode_json(message, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidJson("expected a JSON object of type 'response.create', got another JSON value") from None
    except msgspec.DecodeError as error:
        raise fault_from_decode_error(error, message) from None


def _text_in(members: dict[str, Any], name: str) -> str | None:
    """A member that is a string; None if it is missing or not a string."""
    try:
        return decode_json(members.get(name, b"null"), type=str)
    except msgspec.DecodeError:
        return None


STREAM_OPTIONS_REFUSED: Final = "stream_options: not supported on a WebSocket, where every turn is streamed: remove it"
BACKGROUND_REFUSED: Final = (
    "background: expected false, got true: a WebSocket runs no background turns; use POST /v1/responses"
)
