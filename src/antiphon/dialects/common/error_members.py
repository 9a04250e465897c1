"""Keeps the members of a server's error for clients of the same dialect.

The translation of an error has a message, a type and a code by its meaning (ERR-4). Servers have more members: the
details of a quota, the provider behind a router, the id of the request.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.redaction import sanitize_text, truncate_text

Json = Any


def keep_error_members(original: bytes, translation: bytes) -> bytes:
    """The translation of an error, with the members of the server's own error that it does not have. Keys and inner
    addresses in them are removed (ERR-5)."""
    if len(original) > MAX_ORIGINAL_BYTES:
        return translation
    try:
        server_error = decode_json(original)
    except ValueError:
        return translation
    return msgspec.json.encode(_merge(server_error, decode_json(translation)))


def _merge(server_value: Json, translation: Json) -> Json:
    match server_value, translation:
        case dict(), dict():
            added = {name: _sanitize(member) for name, member in server_value.items() if name not in translation}
            common = {name: _merge(server_value.get(name), member) for name, member in translation.items()}
            return {**common, **added}
        case list(), list():
            own_types = [_type_of(element) for element in server_value]
            return [*_sanitize(server_value), *(each for each in translation if _type_of(each) not in own_types)]
        case _:
            return translation


def _type_of(detail: Json) -> Json:
    """The type of one of the details that Gemini's errors have."""
    return detail.get("@type") if isinstance(detail, dict) else None


def _sanitize(value: Json) -> Json:
    match value:
        case dict():
            return {name: _sanitize(member) for name, member in value.items()}
        case list():
            return [_sanitize(member) for member in value]
        case str():
            return sanitize_text(truncate_text(value))
        case _:
            return value


MAX_ORIGINAL_BYTES: Final = 16 * 1024  # of an error whose members are kept
