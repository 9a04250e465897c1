"""Translates Chat errors in both directions. `common.upstream_errors` maps them to hub errors (ERR-4).

Servers send an object or a string under `error`, or `detail`, `message`, a list, an HTML page or an empty body. Clients
always get the one form that they parse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.dialects.chat.response_wire import ErrorBodyOut, ErrorOut
from antiphon.dialects.common.response_errors import error_of_response
from antiphon.dialects.common.upstream_errors import OVERFLOW_CODES, STATUS_OF_CODE, error_text, upstream_error
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import Error, ErrorPayload


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Translate an error response of a server. `headers` are lower-cased."""
    fields = _fields_in_body(body)
    if status in (404, 405) and not fields.has_api_form:
        # The address does not serve this dialect. The configuration is wrong, not the request of the client.
        return UpstreamFault(f"the upstream does not serve Chat Completions at the configured URL (status {status})")
    return upstream_error(status, headers, _error_code(fields), fields.message, fields.param)


def error_in_answer(error: Any) -> ApiError:
    """Translate an error object inside a stream or a body with status 200."""
    fields = _error_fields(error)
    return upstream_error(_error_status(fields), {}, _error_code(fields), fields.message, fields.param)


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """Return the status and the body."""
    type = TYPE_OF_STATUS.get(error.status) or TYPE_OF_TYPE[error.type]
    return error.status, _encode_error(error.message, type, error.code, error.param)


def error_frame_data(error: Error | ErrorPayload | None) -> bytes:
    """Encode an error for a stream."""
    if isinstance(error, ErrorPayload):
        type = TYPE_OF_TYPE.get(error.type, "server_error")
        return _encode_error(error.message, type, error.code, error.param)
    return error_from_hub(error_of_response(error))[1]


class _ErrorFields(NamedTuple):
    """The fields of an error body of any form."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    has_api_form: bool = True


def _fields_in_body(body: bytes) -> _ErrorFields:
    try:
        return _error_fields(decode_json(body))
    except ValueError:
        return _ErrorFields(error_text(body), has_api_form=False)


def _error_fields(value: Any) -> _ErrorFields:
    for _ in range(MAX_WRAPS):
        match value:
            case (
                {"error": dict() | str() | list() as inner}
                | {"detail": dict() | list() as inner}
                | [dict() | str() as inner, *_]
            ):
                value = inner
            case _:
                break
    match value:
        case str():
            return _ErrorFields(value)
        case {"detail": str() as detail}:
            return _ErrorFields(detail, has_api_form=detail not in ROUTER_MESSAGES)
        case {"loc": list() as location, "msg": str() as message}:
            return _ErrorFields(message, param=_format_path(location))
        case dict():
            raw_message = value.get("message") or value.get("msg")
            message_text = _with_provider_message(raw_message, value) if isinstance(raw_message, str) else None
            return _ErrorFields(
                message_text,
                _text_or_none(value.get("type")),
                _text_or_none(value.get("code")),
                _text_or_none(value.get("param")),
            )
        case _:
            return _ErrorFields(has_api_form=False)


def _with_provider_message(message: str, error: dict[str, Any]) -> str:
    """Append the error text of the provider that a router of several providers passes on."""
    match error:
        case {"metadata": {"raw": str() as raw}} if raw:
            return f"{message}: {raw}"
        case _:
            return message


def _format_path(location: list[Any]) -> str:
    """`["body", "messages", 0, "role"]` as `messages[0].role`."""
    steps = location[1:] if location[:1] == ["body"] else location
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _text_or_none(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and value not in ("", True, False) else None


def _error_status(fields: _ErrorFields) -> int:
    """Return the HTTP status that fits an error inside a response with status 200."""
    for code_or_type in (fields.code, fields.type):
        if code_or_type and STATUS_PATTERN.fullmatch(code_or_type):
            return int(code_or_type)
        if code_or_type in STATUS_OF_CODE:
            return STATUS_OF_CODE[code_or_type]
    return 500


def _error_code(fields: _ErrorFields) -> str | None:
    """Return the error code: a code that is no number, or a type that marks an overflow."""
    if fields.code and not fields.code.isdecimal():
        return fields.code
    return fields.type if fields.type in OVERFLOW_CODES else None


def _encode_error(message: str, type: str, code: str | None, param: str | None) -> bytes:
    return msgspec.json.encode(ErrorBodyOut(error=ErrorOut(message=message, type=type, param=param, code=code)))


MAX_WRAPS: Final = 4
STATUS_PATTERN: Final = re.compile("[45][0-9]{2}")
# The texts of web frameworks for an unknown route.
ROUTER_MESSAGES: Final = frozenset({"Not Found", "Method Not Allowed"})
TYPE_OF_STATUS: Final[dict[int, str]] = {401: "authentication_error", 403: "permission_error"}
TYPE_OF_TYPE: Final[dict[str, str]] = {
    "invalid_request": "invalid_request_error",
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
    "server_error": "server_error",
    "model_error": "server_error",
}
