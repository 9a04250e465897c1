"""Decodes responses and events as the published specification requires them (HTTP-2).

The types of the protocol accept null in some settings, because the gateway passes on what servers send. The
specification requires a value there.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import InvalidValue
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseEvent, StreamEvent
from antiphon.protocol.response import Response


def decode_response(body: bytes) -> Response:
    """Decode a response. A null that the specification does not allow raises an error."""
    response = codec.decode_response(body)
    _require_values(response, "")
    return response


def decode_event(data: bytes) -> StreamEvent:
    """Decode an event. A null that the specification does not allow in its response raises an error."""
    event = codec.decode_event(data)
    if isinstance(event, ResponseEvent):
        _require_values(event.response, "response.")
    return event


def _require_values(response: Response, prefix: str) -> None:
    for name, expected in EXPECTED_VALUES.items():
        if getattr(response, name) is None:
            raise InvalidValue(f"{prefix}{name}: expected {expected}, got null", param=prefix + name)


EXPECTED_VALUES: Final = {
    "truncation": "'auto' or 'disabled'",
    "text": "an object",
    "top_p": "a number",
    "presence_penalty": "a number",
    "frequency_penalty": "a number",
    "top_logprobs": "an integer",
    "temperature": "a number",
    "service_tier": "a string",
}
