"""Chat errors, both ways. What a server's error body says is read here, what it means is told by `common.upstream_errors` (ERR-4).

Servers of this dialect agree on little: an object under `error`, a string there, `detail`, `message`, a list, a page of HTML or
nothing at all. What we write is always the one form that clients of this dialect parse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.dialects.chat.answers import ErrorBodyOut, ErrorOut
from antiphon.dialects.common.response_errors import error_of_response
from antiphon.dialects.common.upstream_errors import OVERFLOW_CODES, STATUS_OF_CODE, error_text, upstream_error
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.nesting import decode_json


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that a server's answer of this status means. `headers` are lower-cased."""
    fields = _fields_in_body(body)
    if status in (404, 405) and not fields.is_of_api:
        # Nobody at that address speaks this dialect: the gateway's fault, or its configuration's, and not the client's.
        return UpstreamFault(f"the upstream has no chat completions where they were looked for (status {status})")
    return upstream_error(status, headers, _code(fields), fields.message, fields.param)


def error_in_answer(error: Any) -> ApiError:
    """The error that an error object inside a stream or a body of status 200 means."""
    fields = _error_fields(error)
    return upstream_error(_status(fields), {}, _code(fields), fields.message, fields.param)


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """Status and body, as clients of this dialect expect them."""
    type = TYPE_OF_STATUS.get(error.status) or TYPE_OF_TYPE[error.type]
    return error.status, _body(error.message, type, error.code, error.param)


def error_frame_data(error: Error | ErrorPayload | None) -> bytes:
    """An error as it stands in a stream."""
    if isinstance(error, ErrorPayload):
        type = TYPE_OF_TYPE.get(error.type, "server_error")
        return _body(error.message, type, error.code, error.param)
    return error_from_hub(error_of_response(error))[1]


class _ErrorFields(NamedTuple):
    """What an error body says, in whichever form."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    is_of_api: bool = True


def _fields_in_body(body: bytes) -> _ErrorFields:
    try:
        return _error_fields(decode_json(body))
    except ValueError:
        return _ErrorFields(error_text(body), is_of_api=False)


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
            return _ErrorFields(detail, is_of_api=detail not in ROUTER_WORDS)
        case {"loc": list() as place, "msg": str() as message}:
            return _ErrorFields(message, param=_path(place))
        case dict():
            raw_message = value.get("message") or value.get("msg")
            message_text = _with_source(raw_message, value) if isinstance(raw_message, str) else None
            return _ErrorFields(
                message_text,
                _text_or_none(value.get("type")),
                _text_or_none(value.get("code")),
                _text_or_none(value.get("param")),
            )
        case _:
            return _ErrorFields(is_of_api=False)


def _with_source(message: str, error: dict[str, Any]) -> str:
    """Routers of several providers pass on what the provider said, beside words of their own that say nothing."""
    match error:
        case {"metadata": {"raw": str() as raw}} if raw:
            return f"{message}: {raw}"
        case _:
            return message


def _path(place: list[Any]) -> str:
    """`["body", "messages", 0, "role"]` as `messages[0].role`."""
    steps = place[1:] if place[:1] == ["body"] else place
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _text_or_none(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and value not in ("", True, False) else None


def _status(fields: _ErrorFields) -> int:
    """The status that an error inside an answer of 200 would have had."""
    for word in (fields.code, fields.type):
        if word and STATUS.fullmatch(word):
            return int(word)
        if word in STATUS_OF_CODE:
            return STATUS_OF_CODE[word]
    return 500


def _code(fields: _ErrorFields) -> str | None:
    """The word for what went wrong: the code if it is one, or a type that says as much."""
    if fields.code and not fields.code.isdecimal():
        return fields.code
    return fields.type if fields.type in OVERFLOW_CODES else None


def _body(message: str, type: str, code: str | None, param: str | None) -> bytes:
    return msgspec.json.encode(ErrorBodyOut(error=ErrorOut(message=message, type=type, param=param, code=code)))


MAX_WRAPS: Final = 4
STATUS: Final = re.compile("[45][0-9]{2}")
# What a web framework says for itself where no route matches.
ROUTER_WORDS: Final = frozenset({"Not Found", "Method Not Allowed"})
TYPE_OF_STATUS: Final[dict[int, str]] = {401: "authentication_error", 403: "permission_error"}
TYPE_OF_TYPE: Final[dict[str, str]] = {
    "invalid_request": "invalid_request_error",
    "not_found": "invalid_request_error",
    "too_many_requests": "rate_limit_error",
    "server_error": "server_error",
    "model_error": "server_error",
}
