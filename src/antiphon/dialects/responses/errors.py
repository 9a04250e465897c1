"""Errors of this API: a server's as exceptions, mapped by meaning (ERR-4), and exceptions as a client is told them (ERR-1)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon.dialects.common.upstream_errors import mask_keys, status_of_words, upstream_error, words_of
from antiphon.dialects.responses.answers import NOTHING, ServerError, checked, read, text_of, value_of, word
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.errors import ErrorBody, payload_of


class _Body(Struct, frozen=True):
    """Where servers put what they have to say."""

    error: Raw = NOTHING
    detail: Raw = NOTHING


def error_to_hub(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """What an answer that is not 2xx means to our client. `headers` are lower-cased."""
    told = _told_in(body)
    code = word(told.code)
    says_more = code is not None and not code.isdecimal()
    return upstream_error(status, headers, code if says_more else told.type, told.message, told.param)


def error_from_hub(error: ApiError) -> tuple[int, bytes]:
    """ERR-1: status and body."""
    told = payload_of(error)
    return error.status, codec.encode(ErrorBody(error=replace(told, message=mask_keys(told.message))))


def error_inside(told: ServerError) -> ApiError:
    """An error inside an answer of 200: there is no status but what its words stand for."""
    code = word(told.code)
    return upstream_error(status_of_words(code, told.type), {}, code or told.type, told.message, told.param)


def error_said(raw: Raw) -> ServerError | None:
    """The error object of an answer or an event; some servers have a string there. None if there is none."""
    match value_of(raw):
        case str() as text:
            return ServerError(message=text)
        case dict():
            return read(raw, ServerError)
        case _:
            return None


def _told_in(body: bytes) -> ServerError:
    try:
        members = read(checked(body), _Body)
        for raw in (members.error, members.detail):
            told = error_said(raw)
            if told is not None:
                return told
        flat = read(body, ServerError)
        return flat if flat.message else replace(flat, message=text_of(members.detail))
    except UpstreamFault:
        return ServerError(message=words_of(body))
