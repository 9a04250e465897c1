"""Errors of gemini servers: `{"error": {"code", "message", "status", "details"}}`, alone or in a stream or array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.testing.script import PlainReply, whole


class GeminiRequestRefused(Exception):
    """A real server would refuse the request."""

    def __init__(self, message: str, *, status: int = 400, details: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.reply: PlainReply = gemini_error(status, message, details=details)


def gemini_error(
    status: int,
    message: str = "scripted",
    *,
    details: Sequence[dict[str, Any]] = (),
    headers: dict[str, str] | None = None,
) -> PlainReply:
    """Return an error as a whole answer, for a script or a refusal."""
    return whole(error_body(status, message, details), status, headers)


def error_frame(status: int, message: str = "scripted") -> bytes:
    """Return an error as an event inside a 200 stream, for `raw`."""
    return b"data: " + msgspec.json.encode(error_body(status, message)) + b"\r\n\r\n"


def error_body(status: int, message: str, details: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    error: dict[str, Any] = {"code": status, "message": message, "status": STATUS_NAMES.get(status, "UNKNOWN")}
    if details:
        error["details"] = list(details)
    return {"error": error}


def error_info(reason: str) -> dict[str, Any]:
    """Return a detail with the reason, such as `API_KEY_INVALID`."""
    return {"@type": f"{DETAIL_TYPE_PREFIX}.ErrorInfo", "reason": reason, "domain": "googleapis.com", "metadata": {}}


def retry_info(seconds: float) -> dict[str, Any]:
    """Return a detail with the retry delay, for `gemini_error(429, details=[retry_info(30)])`. No header has it."""
    return {"@type": f"{DETAIL_TYPE_PREFIX}.RetryInfo", "retryDelay": f"{seconds:g}s"}


def field_violations(violations: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return a detail with invalid fields: the path of each, and its problem."""
    entries = [
        {"field": field, "description": problem} if field else {"description": problem} for field, problem in violations
    ]
    return {"@type": f"{DETAIL_TYPE_PREFIX}.BadRequest", "fieldViolations": entries}


STATUS_NAMES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
DETAIL_TYPE_PREFIX: Final = "type.googleapis.com/google.rpc"
