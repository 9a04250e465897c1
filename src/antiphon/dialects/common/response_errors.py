"""Builds the exception for a failed response, including the type and status that the response does not have (ERR-2)."""

from __future__ import annotations

from typing import Final

from antiphon.errors import STATUS_OF_TYPE, ApiError, ErrorType
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus


def raise_unless_ended(response: Response) -> None:
    """Raises the error of a response that is neither completed nor incomplete."""
    if response.status not in ENDED:
        raise error_of_response(response.error, response.status)


def error_of_response(error: Error | None, state: str = "failed") -> ApiError:
    """The exception for a response that failed or did not end."""
    if error is None:
        return ApiError(f"the response is {state} without a reason")
    type, status = TYPE_AND_STATUS_OF_CODE.get(
        error.code, ("server_error", 502 if error.code.startswith("upstream_") else 500)
    )
    return ApiError(error.message, code=error.code, type=type, status=status)


def error_of_event(error: ErrorPayload) -> ApiError:
    """The exception for an `error` event. Its type is used if its code is unknown."""
    by_code = error_of_response(Error(code=error.code or "", message=error.message))
    if error.code in TYPE_AND_STATUS_OF_CODE or error.type not in STATUS_OF_TYPE or STATUS_OF_TYPE[error.type] >= 500:
        return ApiError(by_code.message, code=error.code, param=error.param, type=by_code.type, status=by_code.status)
    kind: ErrorType = error.type  # type: ignore[assignment]  # one of the five types
    return ApiError(error.message, code=error.code, param=error.param, type=kind)


def error_in_stream(error: Error | ErrorPayload | None) -> ApiError:
    """The exception for the error of an `error` event or of a failed response."""
    return error_of_event(error) if isinstance(error, ErrorPayload) else error_of_response(error)


#: The error of a stream without a terminal event.
STREAM_CUT_ERROR: Final = Error(
    code="upstream_disconnected", message="the stream ended before the response was complete"
)
ENDED: Final = (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE)
TYPE_AND_STATUS_OF_CODE: Final[dict[str | None, tuple[ErrorType, int]]] = {
    "context_length_exceeded": ("invalid_request", 400),
    "invalid_value": ("invalid_request", 400),
    "unsupported_parameter": ("invalid_request", 400),
    "request_too_large": ("invalid_request", 413),
    "model_not_found": ("not_found", 404),
    "not_found": ("not_found", 404),
    "rate_limit_exceeded": ("too_many_requests", 429),
    "overloaded": ("server_error", 503),
    "storage_unavailable": ("server_error", 503),
    "server_shutdown": ("server_error", 503),
    "server_restarted": ("server_error", 503),
    "upstream_timeout": ("server_error", 504),
}
