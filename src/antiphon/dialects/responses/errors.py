"""Translates errors of this API: server errors to exceptions (ERR-4), and exceptions to client errors (ERR-1)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.dialects.common.upstream_errors import error_text, status_from_codes, upstream_error
from antiphon.dialects.responses.response_wire import (
    ABSENT_JSON,
    ServerError,
    decode_struct,
    decode_value,
    require_valid_json,
    string_or_number,
    text_or_json,
)
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.errors import ErrorBody, error_payload
from antiphon.redaction import mask_keys


class _Body(Struct, frozen=True):
    """The members in which servers put an error."""

    error: Raw = ABSENT_JSON
    detail: Raw = ABSENT_JSON


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Translate a response with a status other than 2xx. `headers` are lower-cased."""
    server_error = _error_in_body(body)
    code = string_or_number(server_error.code)
    has_named_code = code is not None and not code.isdecimal()
    return upstream_error(
        status, headers, code if has_named_code else server_error.type, server_error.message, server_error.param
    )


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """ERR-1: return the status and the body."""
    payload = error_payload(error)
    return error.status, codec.encode(ErrorBody(error=replace(payload, message=mask_keys(payload.message))))


def error_in_answer(server_error: ServerError) -> ApiError:
    """Translate an error inside a response with status 200. The status follows from its code and type."""
    code = string_or_number(server_error.code)
    return upstream_error(
        status_from_codes(code, server_error.type),
        {},
        code or server_error.type,
        server_error.message,
        server_error.param,
    )


def decode_error(raw: Raw) -> ServerError | None:
    """Decode the error object of a response or an event. A string counts as its message. None if there is no error."""
    match decode_value(raw):
        case str() as text:
            return ServerError(message=text)
        case dict():
            return decode_struct(raw, ServerError)
        case _:
            return None


def _error_in_body(body: bytes) -> ServerError:
    try:
        members = decode_struct(require_valid_json(body), _Body)
        for raw in (members.error, members.detail):
            server_error = decode_error(raw)
            if server_error is not None:
                return server_error
        flat = decode_struct(body, ServerError)
        return flat if flat.message else replace(flat, message=text_or_json(members.detail))
    except UpstreamFault:
        return ServerError(message=error_text(body))
