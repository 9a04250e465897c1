"""Translates Messages errors in both directions. `common.upstream_errors` decides what a server's error means (ERR-4).

The API has one form, `{"type": "error", "error": {"type", "message"}}`; proxies and compatible servers have others.
Clients get the API's types and statuses, with our code and param beside them. Two errors use the text or details that
clients recognize. After "prompt is too long" clients shorten the conversation; after an unsupported `thread` the SDKs
send the whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from antiphon.dialects.common.response_errors import error_of_event, error_of_response
from antiphon.dialects.common.upstream_errors import error_text, status_from_codes, upstream_error
from antiphon.dialects.messages.response_wire import ErrorBodyOut, ErrorDetailsOut, ErrorOut
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import Error, ErrorPayload


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


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """The HTTP status and body of an error."""
    status = _status_for_client(error)
    return status, _encode_error(_type_of_status(status), error.message, error.code, error.param)


def error_frame_data(error: Error | ErrorPayload | None) -> bytes:
    """The data of an error event in a stream."""
    if isinstance(error, ErrorPayload):
        return _encode_error(
            _type_of_status(_status_for_client(error_of_event(error))), error.message, error.code, error.param
        )
    return error_from_hub(error_of_response(error))[1]


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


def _status_for_client(error: ApiError) -> int:
    return OVERLOADED if error.code == "overloaded" else error.status


def _type_of_status(status: int) -> str:
    return TYPE_OF_STATUS.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def _encode_error(type: str, message: str, code: str | None, param: str | None) -> bytes:
    if code == "context_length_exceeded" and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"
    is_about_thread = (code, param) == ("unsupported_parameter", "thread")
    if code == "previous_response_not_found":
        is_about_thread, param = True, "thread.previous_message_id"
        message = f"{param}: {message.replace('no response', 'no message').replace('resp_', 'msg_', 1)}"
    details = THREADS_UNSUPPORTED if is_about_thread else UNSET
    error = ErrorOut(type=type, message=message, details=details, code=code or UNSET, param=param or UNSET)
    return msgspec.json.encode(ErrorBodyOut(error=error))


MAX_WRAPS: Final = 4
# Messages of web frameworks for an unknown route.
ROUTER_MESSAGES: Final = frozenset({"Not Found", "Method Not Allowed"})
#: The API's error types that other servers do not use.
STATUS_OF_TYPE: Final[dict[str, int]] = {"billing_error": 402, "api_error": 500}
TOO_LONG: Final = "prompt is too long"
OVERLOADED: Final = 529
#: The details that the SDKs of this API look for (seen in the Python SDK 2.8 and the Node SDK 1.8).
THREADS_UNSUPPORTED: Final = ErrorDetailsOut(error_code="thread_unsupported_request", unsupported=["thread"])
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
