"""Writes errors for Messages clients: the API's types and statuses, with our code and param beside them.

Two errors use the text or details that clients recognize. After "prompt is too long" clients shorten the conversation;
after an unsupported `thread` the SDKs send the whole conversation.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from antiphon.dialects.common.response_errors import error_of_event, error_of_response
from antiphon.dialects.messages.answers import ErrorBodyOut, ErrorDetailsOut, ErrorOut
from antiphon.errors import ApiError
from antiphon.protocol.errors import Error, ErrorPayload


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """The HTTP status and body of an error."""
    status = _status_of(error)
    return status, _body(_type_of(status), error.message, error.code, error.param)


def error_event_data(error: Error | ErrorPayload | None) -> bytes:
    """The data of an error event in a stream."""
    if isinstance(error, ErrorPayload):
        return _body(_type_of(_status_of(error_of_event(error))), error.message, error.code, error.param)
    return error_from_hub(error_of_response(error))[1]


def _status_of(error: ApiError) -> int:
    return OVERLOADED if error.code == "overloaded" else error.status


def _type_of(status: int) -> str:
    return TYPE_OF_STATUS.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def _body(type: str, message: str, code: str | None, param: str | None) -> bytes:
    if code == "context_length_exceeded" and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"
    details = THREADS_UNSUPPORTED if (code, param) == ("unsupported_parameter", "thread") else UNSET
    error = ErrorOut(type=type, message=message, details=details, code=code or UNSET, param=param or UNSET)
    return msgspec.json.encode(ErrorBodyOut(error=error))


TOO_LONG: Final = "prompt is too long"
OVERLOADED: Final = 529
#: The details that the SDKs of this API look for (seen in the Python SDK 2.8 and the Node SDK 1.8).
THREADS_UNSUPPORTED: Final = ErrorDetailsOut(error_code="thread_unsupported_request", unsupported=["thread"])
TYPE_OF_STATUS: Final[dict[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
