"""Exceptions, and whose fault each is: the client's, the upstream's, or ours.

Every error that can reach a client is an `ApiError`: it knows its type, code, message and param (ERR-1, B-6) and the HTTP
status that goes with it. Nothing here knows how a dialect spells an error on the wire.
"""

from __future__ import annotations

from copy import copy
from typing import Final, Literal, Self

ErrorType = Literal["invalid_request", "not_found", "too_many_requests", "server_error", "model_error"]

# ERR-2: the status that goes with a type when the error does not name a more precise one.
STATUS_OF_TYPE: Final[dict[str, int]] = {
    "invalid_request": 400,
    "not_found": 404,
    "too_many_requests": 429,
    "server_error": 500,
    "model_error": 500,
}


class AntiphonError(Exception):
    """Anything this package raises on purpose."""


class ApiError(AntiphonError):
    """An error with the five things a client is told: status, type, code, message, param."""

    default_type: ErrorType = "server_error"
    default_code = "internal_error"
    default_status: int | None = None  # where the fault's own type has a more precise one than ERR-2 says

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        type: ErrorType | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param
        self.type: ErrorType = type or self.default_type
        self.status = status or (self.type == self.default_type and self.default_status) or STATUS_OF_TYPE[self.type]
        self.retry_after = retry_after

    def without_traceback(self) -> Self:
        """The same error, raised nowhere yet. An error knows the frames it came through: one that is raised by who keeps it, or
        kept by who caught it, would hold itself and a whole request until the collector comes by."""
        return copy(self)


class ClientFault(ApiError):
    """The client sent something that cannot be served."""

    default_type: ErrorType = "invalid_request"
    default_code = "invalid_value"


class InvalidJson(ClientFault):
    """Not JSON, or not a JSON object."""

    default_code = "invalid_json"


class JsonTooDeep(ClientFault):
    """Brackets nested beyond what any reader downstream would take."""

    default_code = "json_too_deep"


class InvalidUnicode(ClientFault):
    """Bytes that are no UTF-8, or half of a surrogate pair: the policy is to refuse them, everywhere alike."""

    default_code = "invalid_unicode"


class InvalidValue(ClientFault):
    """A field holds what it may not hold; `param` is its path (ERR-3)."""


class MissingField(ClientFault):
    """A required field is absent; `param` is its path (ERR-3)."""

    default_code = "missing_field"


class UnsupportedParameter(ClientFault):
    """Well formed, but the chosen upstream cannot honour it and leaving it out would change the meaning (REQ-6)."""

    default_code = "unsupported_parameter"


class OrphanToolOutput(ClientFault):
    """A tool output whose call nobody knows."""

    default_code = "orphan_tool_output"


class UpstreamFault(ApiError):
    """The upstream failed, refused, or broke its own protocol."""

    default_code = "upstream_error"
    default_status = 502


class StorageUnavailable(ApiError):
    """What should be kept cannot be, or what is kept cannot be reached."""

    default_code = "storage_unavailable"
    default_status = 503


class InvalidTransition(AntiphonError):
    """Our own fault: somebody drove a lifecycle where it cannot go (B-1, ITEM-4)."""


class ProfileError(AntiphonError):
    """A profile that cannot be loaded; the message names the file and the setting."""


class ConfigError(AntiphonError):
    """A configuration that cannot be used; the message says where, what came, what was wanted, and what to do."""
