"""Reads a Messages server's errors. `common.upstream_errors` decides what they mean (ERR-4).

The API has one form, `{"type": "error", "error": {"type", "message"}}`; proxies and compatible servers have others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from antiphon.dialects.common.upstream_errors import error_text, status_from_codes, upstream_error
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.nesting import decode_json


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Translate an error response. The names in `headers` are lower-case."""
    error_body = _decode_body(body)
    if status in (404, 405) and not error_body.is_api_error:
        # The URL does not serve this dialect: a fault of the gateway or its configuration, not of the client.
        return UpstreamFault(f"the upstream does not serve the Messages API at the configured URL (status {status})")
    return upstream_error(status, headers, error_body.code, error_body.message, error_body.param)


def error_in_answer(error: Any) -> ApiError:
    """Translate an error object in a stream or in a body of status 200."""
    error_body = _parse_error(error)
    status = STATUS_OF_TYPE.get(error_body.type or "") or status_from_codes(error_body.code, error_body.type)
    return upstream_error(status, {}, error_body.code, error_body.message, error_body.param)


class _ErrorBody(NamedTuple):
    message: str | None = None
    type: str | None = None
    code: str | None = None  # set by gateways like this one
    param: str | None = None
    is_api_error: bool = True


def _decode_body(body: bytes) -> _ErrorBody:
    try:
        return _parse_error(decode_json(body))
    except ValueError:
        return _ErrorBody(error_text(body), is_api_error=False)


def _parse_error(value: Any) -> _ErrorBody:
    for _ in range(MAX_WRAPS):
        match value:
            case {"error": dict() | str() as inner}:
                value = inner
    match value:
        case str():
            return _ErrorBody(value)
        case dict():
            message = value.get("message") or value.get("detail")
            is_api_error = isinstance(message, str) and message not in ROUTER_MESSAGES
            return _ErrorBody(
                _nonempty_string(message),
                _nonempty_string(value.get("type")),
                _nonempty_string(value.get("code")),
                _nonempty_string(value.get("param")),
                is_api_error,
            )
        case _:
            return _ErrorBody(is_api_error=False)


def _nonempty_string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


MAX_WRAPS: Final = 4
# Messages of web frameworks for an unknown route.
ROUTER_MESSAGES: Final = frozenset({"Not Found", "Method Not Allowed"})
#: The API's error types that other servers do not use.
STATUS_OF_TYPE: Final[dict[str, int]] = {"billing_error": 402, "api_error": 500}
