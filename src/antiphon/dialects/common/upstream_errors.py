"""Translates an upstream's error to an `ApiError` by its meaning, not only by its status (ERR-4).

Every dialect reads its own error body and passes status and texts to this module. Trouble with the gateway's own key is
never reported as the client's. Keys, traces and inner addresses in the upstream's message are removed (ERR-5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.redaction import MAX_SEARCHED_LENGTH, sanitize_text, truncate_text

MAX_RETRY_SECONDS: Final = 86_400.0


def upstream_error(
    status: int, headers: Mapping[str, str], code: str | None, message: str | None, param: str | None
) -> ApiError:
    """The error for a client. `headers` are lower-cased; an error in an answer with status 200 is classified by
    `code`."""
    if status < 400:
        status = status_from_codes(code)
    message = truncate_text(message or "")
    text = sanitize_text(message)
    param = sanitize_text(param) if param else param
    retry_seconds = retry_after(headers)
    if _is_overflow(status, code, message):
        description = text or "the input is longer than the context of the model"
        return ClientFault(description, code="context_length_exceeded", param=param or "input")
    if status in (400, 422) and REFUSED_KEY.search(message):  # some servers blame the request for a wrong key
        status = 401
    if status in (400, 422, 500) and UNSUPPORTED_MEDIA.search(message):  # some servers report it as a server error
        return ClientFault(text, code="unsupported_parameter", param=param or "input")
    match status:
        case _ if status >= 500 and code in GATEWAY_CODES:
            # The upstream is a gateway too: its error about its own upstream is passed on.
            description = text or f"the upstream failed with status {status}"
            return UpstreamFault(description, code=code, status=GATEWAY_CODES[code], retry_after=retry_seconds)
        case 401 | 402 | 403:
            # ERR-4: the gateway's key or account is refused, not the client's. The upstream's message is not passed on.
            return UpstreamFault("the upstream refused the gateway's credentials", code="upstream_auth_failed")
        case 400 | 422:
            description = text or f"the upstream refused the request with status {status}"
            return ClientFault(description, code=_specific_code(code) or "invalid_value", param=param)
        case 404:
            not_found_code = "model_not_found" if code == "model_not_found" or NAMES_MODEL.search(text) else "not_found"
            return ClientFault(
                text or "the upstream found no such resource", type="not_found", code=not_found_code, param=param
            )
        case 413:
            return ClientFault(
                text or "the request is too large for the upstream", code="request_too_large", status=413
            )
        case 429:
            description = text or "the upstream's rate limit is reached"
            return UpstreamFault(
                description, type="too_many_requests", code="rate_limit_exceeded", status=429, retry_after=retry_seconds
            )
        case 408 | 504:
            return UpstreamFault(
                text or "the upstream timed out", code="upstream_timeout", status=504, retry_after=retry_seconds
            )
        case 503 | 529:
            return UpstreamFault(
                text or "the upstream is overloaded", code="overloaded", status=503, retry_after=retry_seconds
            )
        case _:
            return UpstreamFault(text or f"the upstream failed with status {status}", retry_after=retry_seconds)


def status_from_codes(*words: str | None) -> int:
    """The status for an error in an answer with status 200, from its code or its type."""
    for word in words:
        if word and word.isdecimal() and 400 <= int(word[:4]) < 600:
            return int(word)
        if word in STATUS_OF_CODE:
            return STATUS_OF_CODE[word]
    return 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds to wait, from any form of the header; None if there is no valid one."""
    retry_seconds = _number(headers.get("retry-after-ms"))
    if retry_seconds is not None:
        retry_seconds /= 1000
    else:
        value = headers.get("retry-after")
        retry_seconds = _number(value)
        if retry_seconds is None:
            retry_seconds = _seconds_between(headers.get("date"), value)
    return None if retry_seconds is None else min(max(retry_seconds, 0.0), MAX_RETRY_SECONDS)


def error_text(body: bytes) -> str | None:
    """The text of an error body that is not JSON. None for an HTML page of a proxy, which is of no use to a client."""
    text = (
        body[: 4 * (MAX_SEARCHED_LENGTH + 1)].decode("utf-8", "replace").strip()
    )  # more than `truncate_text` keeps, so that it marks the cut
    return None if text.startswith("<") else text


def _is_overflow(status: int, code: str | None, message: str) -> bool:
    # Some servers answer 500 here, so the message decides too. A failing server may mention its context otherwise.
    pattern = OVERFLOW if status in (400, 413, 422) else CERTAIN_OVERFLOW if status == 500 else None
    return code in OVERFLOW_CODES or (pattern is not None and pattern.search(message) is not None)


def _specific_code(code: str | None) -> str | None:
    """The upstream's code if it is more specific than the status."""
    return None if code is None or code.isdecimal() or code in GENERIC_CODES else sanitize_text(code)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _seconds_between(now: str | None, then: str | None) -> float | None:
    """The seconds between two HTTP dates, both of the upstream's clock. The local clock is not read."""
    start, end = _timestamp(now), _timestamp(then)
    return None if start is None or end is None else float(end - start)


def _timestamp(date: str | None) -> int | None:
    parsed = parsedate_tz(date or "")
    try:
        return mktime_tz(parsed) if parsed else None
    except (ValueError, OverflowError):  # a year out of range
        return None


NAMES_MODEL: Final = re.compile(r"(?i)\bmodel\b")
OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "too_many_prompt_tokens"})
#: A refusal of the gateway's own key: `Incorrect API key provided`, `API key not valid`.
REFUSED_KEY: Final = re.compile(
    r"(?i)\b(?:incorrect|invalid|missing|expired)(?: |%20)api(?: |%20|-|_)?key\b"
    r"|\bapi[ _-]?key (?:is )?(?:not valid|invalid|incorrect|expired)\b"
)
GENERIC_CODES: Final = frozenset({"invalid_request", "invalid_request_error", "BadRequestError"})
CERTAIN_OVERFLOW: Final = re.compile(
    r"(?i)maximum context length|\bexceed\w*\b.{0,40}\bcontext (?:length|size|window)"
    r"|context (?:length|size|window)\b.{0,20}\bexceed|prompt is too long|input is too long"
    r"|(?:input|prompt) (?:token count|length|tokens?)\b.{0,40}\bexceed|too many tokens(?: in|:)"
    r"|total length of all messages is too long"
)
OVERFLOW: Final = re.compile(rf"{CERTAIN_OVERFLOW.pattern}|context (?:length|size|window)")
UNSUPPORTED_MEDIA: Final = re.compile(r"(?i)\b(?:image|audio|video|file)s? inputs? (?:is|are) not supported")
GATEWAY_CODES: Final[dict[str | None, int]] = {
    "upstream_unavailable": 502,
    "upstream_invalid_response": 502,
    "upstream_disconnected": 502,
    "upstream_auth_failed": 502,
    "upstream_credentials_exhausted": 502,
    "model_refusal": 502,
    "upstream_error": 502,
    "storage_unavailable": 503,
    "server_shutdown": 503,
    "server_restarted": 503,
}
# The status for error codes and types of several servers.
STATUS_OF_CODE: Final[dict[str, int]] = {
    "invalid_request": 400,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "BadRequestError": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "permission_denied_error": 403,
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "not_found": 404,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "server_error": 500,
    "internal_server_error": 500,
    "model_error": 500,
    "overloaded_error": 503,
    "overloaded": 503,
    "unavailable_error": 503,
    "service_unavailable": 503,
    "timeout_error": 504,
    "upstream_timeout": 504,
}
