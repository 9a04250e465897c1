"""What a server's refusal means to our client, by meaning and not by number (ERR-4).

Every dialect reads its own error body and asks here: status and words go in, an `ApiError` comes out. Trouble with the gateway's
own key is never told as the client's, and no key, trace or inner address of an upstream's message is passed on (ERR-5).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Final

from antiphon.errors import ApiError, ClientFault, ErrorType, UpstreamFault

MAX_MESSAGE: Final = 1000  # characters that a client is told
# What is longer is cut before any pattern is looked for in it.
MAX_MATCHED: Final = 4_000
MAX_NAME: Final = 512  # of paths and names
MAX_WAIT: Final = 86_400.0


def upstream_error(
    status: int, headers: Mapping[str, str], code: str | None, message: str | None, param: str | None
) -> ApiError:
    """The error that a client is told. `headers` are lower-cased; an error inside an answer of 200 has its meaning in `code`."""
    if status < 400:
        status = status_from_codes(code)
    message = truncate(message or "")
    text = sanitize(message)
    param = sanitize(param) if param else param
    wait = retry_after(headers)
    if _is_overflow(status, code, message):
        description = text or "the input is longer than the model's context"
        return ClientFault(description, code="context_length_exceeded", param=param or "input")
    if status in (400, 422, 500) and UNSEEN.search(message):  # some servers call it their own fault, and it is not
        return ClientFault(text, code="unsupported_parameter", param=param or "input")
    match status:
        case _ if status >= 500 and code in GATEWAY_CODES:
            # A gateway like ours stands there: what it says of its own upstream is as true here.
            kind: ErrorType = "model_error" if code == "tool_not_allowed" else "server_error"
            description = text or f"the upstream failed with status {status}"
            return UpstreamFault(description, type=kind, code=code, status=GATEWAY_CODES[code], retry_after=wait)
        case 401 | 402 | 403:
            # ERR-4: it is the gateway's key or account, not the client's; what the upstream says of it stays here.
            return UpstreamFault("the upstream refused the gateway's credentials", code="upstream_auth_failed")
        case 400 | 422:
            description = text or f"the upstream refused the request with status {status}"
            return ClientFault(description, code=_own_code(code) or "invalid_value", param=param)
        case 404:
            not_found_code = "model_not_found" if code == "model_not_found" or NAMES_MODEL.search(text) else "not_found"
            return ClientFault(
                text or "the upstream knows no such thing", type="not_found", code=not_found_code, param=param
            )
        case 413:
            return ClientFault(
                text or "the request is too large for the upstream", code="request_too_large", status=413
            )
        case 429:
            description = text or "the upstream's rate limit is reached"
            return UpstreamFault(
                description, type="too_many_requests", code="rate_limit_exceeded", status=429, retry_after=wait
            )
        case 408 | 504:
            return UpstreamFault(
                text or "the upstream timed out", code="upstream_timeout", status=504, retry_after=wait
            )
        case 503 | 529:
            return UpstreamFault(text or "the upstream is overloaded", code="overloaded", status=503, retry_after=wait)
        case _:
            return UpstreamFault(text or f"the upstream failed with status {status}", retry_after=wait)


def status_from_codes(*words: str | None) -> int:
    """The status that an error inside an answer of 200 would have had, from its code, its type, or whatever it says of itself."""
    for word in words:
        if word and word.isdecimal() and 400 <= int(word[:4]) < 600:
            return int(word)
        if word in STATUS_OF_CODE:
            return STATUS_OF_CODE[word]
    return 500


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from whichever form the upstream chose; None if it said nothing that can be understood."""
    wait = _number(headers.get("retry-after-ms"))
    if wait is not None:
        wait /= 1000
    else:
        value = headers.get("retry-after")
        wait = _number(value)
        if wait is None:
            wait = _between(headers.get("date"), value)
    return None if wait is None else min(max(wait, 0.0), MAX_WAIT)


def sanitize(text: str) -> str:
    """An upstream's words as they may be told (ERR-5): no trace, key or address, and not too many of them."""
    text = truncate(text)
    if not text.isascii():  # halves of characters, which no answer of ours could hold
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = ADDRESS.sub("[address]", mask_keys(text.partition(TRACE)[0]))
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "…"


def error_text(body: bytes) -> str | None:
    """What an error body says that is not read otherwise; a page is a proxy's, and tells nothing that a client could use."""
    text = (
        body[: 4 * (MAX_MATCHED + 1)].decode("utf-8", "replace").strip()
    )  # too much for `cut` to take it for all there is
    return None if text.startswith("<") else text


def mask_keys(text: str, most: int = MAX_MATCHED) -> str:
    """`text`, cut after `most` characters, without anything that looks like a key."""
    return KEY.sub("[key]", NAMED_KEY.sub(r"\1[key]", truncate(text, most)))


def truncate(text: str, most: int = MAX_MATCHED) -> str:
    """At most `most` characters. A word that the cut goes through is masked whole: it may be a key, of which too little is left to
    look like one."""
    return text if len(text) <= most else text[:most].rstrip(KEY_CHARACTERS) + "[key]…"


def _is_overflow(status: int, code: str | None, message: str) -> bool:
    # Some servers answer 500 here: what they say counts, unless they complain of something else with the same words.
    return code in OVERFLOW_CODES or (status in (400, 413, 422, 500) and OVERFLOW.search(message) is not None)


def _own_code(code: str | None) -> str | None:
    """The upstream's code where it says more than the status does."""
    return None if code is None or code.isdecimal() or code in GENERIC_CODES else sanitize(code)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _between(now: str | None, then: str | None) -> float | None:
    """The seconds between two HTTP dates, both of the upstream's clock: ours is not asked."""
    start, end = _moment(now), _moment(then)
    return None if start is None or end is None else float(end - start)


def _moment(date: str | None) -> int | None:
    parsed = parsedate_tz(date or "")
    try:
        return mktime_tz(parsed) if parsed else None
    except (ValueError, OverflowError):  # a year that no calendar has
        return None


TRACE: Final = "Traceback (most recent call last)"
ADDRESS: Final = re.compile(
    r"(?:https?://)?(?:\b(?:\d{1,3}\.){3}\d{1,3}\b|\blocalhost\b|\[[0-9a-f]*+(?::[0-9a-f]++)*+::[0-9a-f:]*+\])"
    r"(?::\d+)?(?:/[^\s\"')]*)?"
)
# The prefixes that providers give their keys, tokens that are JSON in base64, and whatever stands behind "key:" or "Bearer". These
# patterns meet any text of any stranger: each takes time in proportion to it, since a match that fails has read a few characters
# only, or ones that no other begins with.
KEY_CHARACTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_*.-"
KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|nvapi|csk|pplx|fw|r8|vck|glpat|ghp|tgp)[-_][A-Za-z0-9_*.\-]{6,}"
    r"|\bAIza[A-Za-z0-9_\-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\beyJ[A-Za-z0-9_\-]{6}[A-Za-z0-9_.\-]*"
)
NAMED_KEY: Final = re.compile(
    r"(?i)(\bBearer\s++|(?:key|secret|password|authorization|access[-_ ]token)(?: provided)?+[\"']?+\s*+[:=]\s*+[\"']?+)"
    r"(?!\[key\]|Bearer\b)[^\s\"',;)…]{6,}+"
)
NAMES_MODEL: Final = re.compile(r"(?i)\bmodel\b")
OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
GENERIC_CODES: Final = frozenset({"invalid_request", "invalid_request_error", "BadRequestError"})
OVERFLOW: Final = re.compile(
    r"(?i)maximum context length|context (?:length|size|window)|prompt is too long|input is too long"
    r"|(?:input|prompt) (?:token count|length|tokens?)\b.{0,40}\bexceed|too many tokens in"
)
UNSEEN: Final = re.compile(r"(?i)\b(?:image|audio|video|file)s? inputs? (?:is|are) not supported")
GATEWAY_CODES: Final[dict[str | None, int]] = {
    "upstream_unavailable": 502,
    "upstream_invalid_response": 502,
    "upstream_disconnected": 502,
    "upstream_auth_failed": 502,
    "upstream_error": 502,
    "tool_not_allowed": 500,
    "storage_unavailable": 503,
    "server_shutdown": 503,
    "server_restarted": 503,
}
# Words for an error that stand where a status would: codes and types of several servers.
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
