"""Reads a gemini server's errors. `common.upstream_errors` decides what they mean (ERR-4).

The body is an object under `error` with a number, a status name and details; a stream without SSE has it inside a list.
Of the details only the reason, the retry delay and the field are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from antiphon.dialects.common.upstream_errors import error_text, upstream_error
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.nesting import decode_json


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


class _ErrorBody(NamedTuple):
    """The fields of an error body that are read."""

    message: str | None = None
    status: str = ""
    number: int = 500
    reason: str = ""
    wait: str = ""
    field: str | None = None


def _translate_error(status: int, headers: Mapping[str, str], error_body: _ErrorBody) -> ApiError:
    code = None
    if error_body.reason in KEY_REASONS or (error_body.message and ACCOUNT_ERROR.search(error_body.message)):
        status = 401  # the server blames the client, but the cause is the gateway's key or account
    elif status == 404 and error_body.message and MODEL_WORD.search(error_body.message):
        code = "model_not_found"
    if error_body.wait and "retry-after" not in headers:
        headers = {**headers, "retry-after": error_body.wait}
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
    parsed = _ErrorBody(_text(error.get("message")), _text(error.get("status")) or "", _number(error.get("code")))
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        match detail:
            case {"reason": str() as reason}:
                parsed = parsed._replace(reason=reason)
            case {"retryDelay": str() as wait}:
                parsed = parsed._replace(wait=wait.removesuffix("s"))
            case {"fieldViolations": [{"field": str() as field}, *_]}:
                parsed = parsed._replace(field=field)
    return parsed


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> int:
    return value if type(value) is int and 400 <= value < 600 else 500


MODEL_WORD: Final = re.compile(r"\bmodels?\b")
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
