"""Wire types of errors (ERR-1, STR-8). The exceptions are in `antiphon.errors`."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from antiphon.errors import ApiError
from antiphon.protocol.base import Shape


class Error(Shape, frozen=True, kw_only=True):
    """The error of a failed response."""

    code: str
    message: str


class ErrorPayload(Shape, frozen=True, kw_only=True):
    """The error of an HTTP answer or of an error event."""

    type: str
    code: str | None
    message: str
    param: str | None
    headers: dict[str, str] | UnsetType = UNSET


class ErrorBody(Shape, frozen=True, kw_only=True):
    """The body of every HTTP answer that is not 2xx."""

    error: ErrorPayload


def error_payload(error: ApiError) -> ErrorPayload:
    """The wire form of an exception."""
    return ErrorPayload(type=error.type, code=error.code, message=error.message, param=error.param)
