"""Errors as clients of this dialect expect them: the API's own types and statuses, with our code and param beside.

A prompt that is too long is told in the words by which clients know it: they then shorten the conversation and go on.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from antiphon.dialects.messages.answers import ErrorBodyOut, ErrorOut
from antiphon.errors import ApiError, ErrorType
from antiphon.protocol.errors import Error, ErrorPayload


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """Status and body."""
    status = OVERLOADED if error.code == "overloaded" else error.status
    return status, _body(_type_of(status), error.message, error.code, error.param)


def error_of_response(error: Error | None, state: str = "failed") -> ApiError:
    """The exception behind the error that a failed response tells of itself."""
    if error is None:
        return ApiError(f"the response is {state}, and does not say why")
    status = STATUS_OF_CODE.get(error.code, 502 if error.code.startswith("upstream_") else 500)
    return ApiError(error.message, code=error.code, type=HUB_TYPE.get(status, "server_error"), status=status)


def error_event_data(error: Error | ErrorPayload | None) -> bytes:
    """An error as it stands in a stream."""
    if isinstance(error, ErrorPayload):
        code = error.code or ""
        type = _type_of(STATUS_OF_CODE[code]) if code in STATUS_OF_CODE else TYPE_OF_TYPE.get(error.type, "api_error")
        return _body(type, error.message, error.code, error.param)
    return error_from_hub(error_of_response(error))[1]


def _type_of(status: int) -> str:
    return TYPE_OF_STATUS.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def _body(type: str, message: str, code: str | None, param: str | None) -> bytes:
    if code == "context_length_exceeded" and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"
    return msgspec.json.encode(ErrorBodyOut(error=ErrorOut(type=type, message=message, code=code or UNSET, param=param or UNSET)))


TOO_LONG: Final = "prompt is too long"
OVERLOADED: Final = 529
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
TYPE_OF_TYPE: Final[dict[str, str]] = {
    "invalid_request": "invalid_request_error",
    "not_found": "not_found_error",
    "too_many_requests": "rate_limit_error",
}
HUB_TYPE: Final[dict[int, ErrorType]] = {
    400: "invalid_request",
    404: "not_found",
    413: "invalid_request",
    429: "too_many_requests",
}
STATUS_OF_CODE: Final[dict[str, int]] = {
    "context_length_exceeded": 400,
    "invalid_value": 400,
    "unsupported_parameter": 400,
    "request_too_large": 413,
    "model_not_found": 404,
    "not_found": 404,
    "rate_limit_exceeded": 429,
    "overloaded": OVERLOADED,
    "storage_unavailable": 503,
    "server_shutdown": 503,
    "server_restarted": 503,
    "upstream_timeout": 504,
}
