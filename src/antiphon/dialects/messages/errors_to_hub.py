"""What a Messages server's error says; what it means is told by `common.upstream_errors` (ERR-4).

The API has one form, `{"type": "error", "error": {"type", "message"}}`; proxies and servers that only speak like it have others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from antiphon.dialects.common.upstream_errors import error_text, status_from_codes, upstream_error
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.nesting import decode_json


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that a server's answer of this status means. `headers` are lower-cased."""
    told = _read(body)
    if status in (404, 405) and not told.is_of_api:
        # Nobody at that address speaks this dialect: the gateway's fault, or its configuration's, and not the client's.
        return UpstreamFault(f"the upstream has no messages where they were looked for (status {status})")
    return upstream_error(status, headers, told.code, told.message, told.param)


def error_in_answer(error: Any) -> ApiError:
    """The error that an error object inside a stream or a body of status 200 means."""
    told = _told(error)
    status = STATUS_OF_TYPE.get(told.type or "") or status_from_codes(told.code, told.type)
    return upstream_error(status, {}, told.code, told.message, told.param)


class _Told(NamedTuple):
    message: str | None = None
    type: str | None = None
    code: str | None = None  # of gateways like ours, which put one beside the type
    param: str | None = None
    is_of_api: bool = True


def _read(body: bytes) -> _Told:
    try:
        return _told(decode_json(body))
    except ValueError:
        return _Told(error_text(body), is_of_api=False)


def _told(value: Any) -> _Told:
    for _ in range(MAX_WRAPS):
        match value:
            case {"error": dict() | str() as inner}:
                value = inner
    match value:
        case str():
            return _Told(value)
        case dict():
            words = value.get("message") or value.get("detail")
            is_of_api = isinstance(words, str) and words not in ROUTER_WORDS
            return _Told(_word(words), _word(value.get("type")), _word(value.get("code")), _word(value.get("param")), is_of_api)
        case _:
            return _Told(is_of_api=False)


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


MAX_WRAPS: Final = 4
# What a web framework says for itself where no route matches.
ROUTER_WORDS: Final = frozenset({"Not Found", "Method Not Allowed"})
#: The API's types that other servers do not use.
STATUS_OF_TYPE: Final[dict[str, int]] = {"billing_error": 402, "api_error": 500}
