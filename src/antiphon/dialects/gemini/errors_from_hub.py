"""Writes errors for gemini clients: status number, status name, and our code, field and retry delay as details."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.dialects.common.response_errors import error_of_event, error_of_response
from antiphon.dialects.gemini.answers import ErrorBodyOut, ErrorOut
from antiphon.errors import ApiError
from antiphon.protocol.errors import Error, ErrorPayload


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """The HTTP status and body of an error."""
    word = WORDS.get(error.status) or ("INTERNAL" if error.status >= 500 else "INVALID_ARGUMENT")
    body = ErrorOut(code=error.status, message=error.message, status=word, details=_details(error))
    return error.status, msgspec.json.encode(ErrorBodyOut(error=body))


def error_frame_data(error: Error | ErrorPayload | None) -> bytes:
    """The data of an error frame in a stream."""
    meant = error_of_event(error) if isinstance(error, ErrorPayload) else error_of_response(error)
    return error_from_hub(meant)[1]


def _details(error: ApiError) -> list[dict[str, Any]]:
    param = {"param": error.param} if error.param else {}
    details: list[dict[str, Any]] = [
        {"@type": f"{KIND}.ErrorInfo", "reason": error.code, "domain": DOMAIN, "metadata": param}
    ]
    if error.param:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": f"{KIND}.BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None:
        details.append({"@type": f"{KIND}.RetryInfo", "retryDelay": f"{error.retry_after:g}s"})
    return details


KIND: Final = "type.googleapis.com/google.rpc"
DOMAIN: Final = "antiphon"
WORDS: Final[dict[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
