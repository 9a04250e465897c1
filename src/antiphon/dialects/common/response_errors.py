"""The exception behind a response that failed: it tells a code and words, and an answer also needs a type and a status (ERR-2)."""

from __future__ import annotations

from typing import Final

from antiphon.errors import STATUS_OF_TYPE, ApiError, ErrorType
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus


def raise_unless_ended(response: Response) -> None:
    """A whole answer is a response that came to its end; of any other the error is raised."""
    if response.status not in ENDED:
        raise error_of_response(response.error, response.status)


def error_of_response(error: Error | None, state: str = "failed") -> ApiError:
    """What a response that did not come to its end failed with."""
    if error is None:
        return ApiError(f"the response is {state}, and does not say why")
    type, status = TYPE_AND_STATUS_OF_CODE.get(error.code, ("server_error", 502 if error.code.startswith("upstream_") else 500))
    return ApiError(error.message, code=error.code, type=type, status=status)


def error_of_event(error: ErrorPayload) -> ApiError:
    """What an `error` event tells of; its type counts where its code is nobody's."""
    meant = error_of_response(Error(code=error.code or "", message=error.message))
    if error.code in TYPE_AND_STATUS_OF_CODE or error.type not in STATUS_OF_TYPE or STATUS_OF_TYPE[error.type] >= 500:
        return ApiError(meant.message, code=error.code, param=error.param, type=meant.type, status=meant.status)
    kind: ErrorType = error.type  # type: ignore[assignment]  # it is among the five
    return ApiError(error.message, code=error.code, param=error.param, type=kind)


#: What a stream ends with that has no end of its own.
STREAM_CUT_ERROR: Final = Error(code="upstream_disconnected", message="the stream broke off before its end")
ENDED: Final = (ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE)
TYPE_AND_STATUS_OF_CODE: Final[dict[str | None, tuple[ErrorType, int]]] = {
    "context_length_exceeded": ("invalid_request", 400),
    "invalid_value": ("invalid_request", 400),
    "unsupported_parameter": ("invalid_request", 400),
    "request_too_large": ("invalid_request", 413),
    "model_not_found": ("not_found", 404),
    "not_found": ("not_found", 404),
    "rate_limit_exceeded": ("too_many_requests", 429),
    "tool_not_allowed": ("model_error", 500),
    "overloaded": ("server_error", 503),
    "storage_unavailable": ("server_error", 503),
    "server_shutdown": ("server_error", 503),
    "server_restarted": ("server_error", 503),
    "upstream_timeout": ("server_error", 504),
}
