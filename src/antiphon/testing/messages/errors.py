"""Errors of servers of the Messages API: as an answer, and as the event that ends a stream."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon import sse
from antiphon.testing.script import PlainReply, whole


class MessagesRequestRefused(Exception):
    """A real server would refuse the request."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.reply: PlainReply = messages_error(status, message)


def messages_error(
    status: int, message: str = "scripted", *, type: str | None = None, headers: dict[str, str] | None = None
) -> PlainReply:
    """Return an error in the form of this API. The status determines its type unless `type` is set."""
    body = {**_error_body(type or ERROR_TYPES.get(status, "api_error"), message), "request_id": REQUEST_ID}
    return whole(body, status, {"request-id": REQUEST_ID, **(headers or {})})


def error_event(type: str = "overloaded_error", message: str = "Overloaded") -> bytes:
    """Return an error as an event inside a 200 stream, for `raw`."""
    return sse.encode_frame("error", msgspec.json.encode(_error_body(type, message)))


def _error_body(type: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message}}


ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
REQUEST_ID: Final = "req_fake"
