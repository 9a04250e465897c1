"""Translates gemini errors in both directions. `common.upstream_errors` decides what a server's error means (ERR-4).

The body is an object under `error` with a number, a status name and details; a stream without SSE has it inside a list.
Of a server's details only the reason, the retry delay and the field are read. Clients get our code, field and retry
delay as details.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.dialects.common.response_errors import error_in_stream
from antiphon.dialects.common.upstream_errors import error_text, upstream_error
from antiphon.dialects.gemini.response_wire import ErrorBodyOut, ErrorOut
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import Error, ErrorPayload


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Translate an error response. The names in `headers` are lower-case."""
    error_body = _decode_body(body)
    if status in (404, 405) and not error_body.status:
        # The URL does not serve this dialect: a fault of the gateway or its configuration, not of the client.
        return UpstreamFault(f"the upstream does not serve generateContent at the configured URL (status {status})")
    return _translate_error(status, headers, error_body)


def error_in_answer(error: Any) -> ApiError:
    """Translate an error object in a stream or in a body of status 200."""
    error_body = _parse_error(error)
    return _translate_error(STATUS_OF_WORD.get(error_body.status, error_body.number), {}, error_body)


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """The HTTP status and body of an error."""
    word = WORD_OF_STATUS.get(error.status) or ("INTERNAL" if error.status >= 500 else "INVALID_ARGUMENT")
    body = ErrorOut(code=error.status, message=error.message, status=word, details=_error_details(error))
    return error.status, msgspec.json.encode(ErrorBodyOut(error=body))


def error_frame_data(error: Error | ErrorPayload | None) -> bytes:
    """The data of an error frame in a stream."""
    return error_from_hub(error_in_stream(error))[1]


class _ErrorBody(NamedTuple):
    """The fields of an error body that are read."""

    message: str | None = None
    status: str = ""
    number: int = 500
    reason: str = ""
    retry_delay: str = ""
    field: str | None = None


def _translate_error(status: int, headers: Mapping[str, str], error_body: _ErrorBody) -> ApiError:
    code = None
    if error_body.reason in KEY_REASONS or (error_body.message and ACCOUNT_ERROR.search(error_body.message)):
        status = 401  # the server blames the client, but the cause is the gateway's key or account
    elif status == 404 and error_body.message and NAMES_MODEL.search(error_body.message):
        code = "model_not_found"
    if error_body.retry_delay and "retry-after" not in headers:
        headers = {**headers, "retry-after": error_body.retry_delay}
    return upstream_error(status, headers, code, error_body.message, error_body.field)


def _decode_body(body: bytes) -> _ErrorBody:
    try:
        value = decode_json(body)
    except ValueError:
        return _ErrorBody(error_text(body))
    match value:
        case {"error": error} | [{"error": error}, *_]:
            return _parse_error(error)
        case _:
            return _ErrorBody()


def _parse_error(error: Any) -> _ErrorBody:
    if not isinstance(error, dict):
        return _ErrorBody(error if isinstance(error, str) else None)
    parsed = _ErrorBody(
        _string_or_none(error.get("message")),
        _string_or_none(error.get("status")) or "",
        _status_number(error.get("code")),
    )
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        match detail:
            case {"reason": str() as reason}:
                parsed = parsed._replace(reason=reason)
            case {"retryDelay": str() as retry_delay}:
                parsed = parsed._replace(retry_delay=retry_delay.removesuffix("s"))
            case {"fieldViolations": [{"field": str() as field}, *_]}:
                parsed = parsed._replace(field=field)
    return parsed


def _string_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _status_number(value: Any) -> int:
    return value if type(value) is int and 400 <= value < 600 else 500


def _error_details(error: ApiError) -> list[dict[str, Any]]:
    param = {"param": error.param} if error.param else {}
    details: list[dict[str, Any]] = [
        {"@type": f"{DETAIL_TYPE}.ErrorInfo", "reason": error.code, "domain": DOMAIN, "metadata": param}
    ]
    if error.param:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": f"{DETAIL_TYPE}.BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None:
        details.append({"@type": f"{DETAIL_TYPE}.RetryInfo", "retryDelay": f"{error.retry_after:g}s"})
    return details


NAMES_MODEL: Final = re.compile(r"\bmodels?\b")
KEY_REASONS: Final = frozenset(
    {"API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "ACCESS_TOKEN_EXPIRED", "CREDENTIALS_MISSING"}
)
ACCOUNT_ERROR: Final = re.compile(
    r"(?i)location is not supported|enable billing|api key (?:not valid|expired|not found)"
)
STATUS_OF_WORD: Final[dict[str, int]] = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
DETAIL_TYPE: Final = "type.googleapis.com/google.rpc"
DOMAIN: Final = "antiphon"
WORD_OF_STATUS: Final[dict[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
