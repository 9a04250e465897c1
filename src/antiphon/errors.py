"""Exceptions of the package, grouped by whose fault they are: the client's, the upstream's, or ours.

Every error that can reach a client is an `ApiError` with type, code, message and param (ERR-1, B-6), and an HTTP
status. The dialects define how an error is written on the wire.
"""

from __future__ import annotations

from copy import copy
from typing import Final, Literal, NamedTuple, Self

ErrorType = Literal["invalid_request", "not_found", "too_many_requests", "server_error", "model_error"]

# ERR-2: the status of each type, unless an error sets a more precise one.
STATUS_OF_TYPE: Final[dict[str, int]] = {
    "invalid_request": 400,
    "not_found": 404,
    "too_many_requests": 429,
    "server_error": 500,
    "model_error": 500,
}


class OriginalError(NamedTuple):
    """The error body of an upstream, and the upstream's dialect."""

    dialect: str
    body: bytes


class AntiphonError(Exception):
    """Base class of all exceptions that this package raises on purpose."""


class ClientDisconnected(AntiphonError):
    """The client disconnected before its answer was complete. Nobody can be answered."""


class ApiError(AntiphonError):
    """An error for a client, with status, type, code, message and param.

    `request_id` and `upstream_name` are set by the client: with the first the request can be found in the log of the
    server; the second is the upstream of a gateway that the error comes from.

    Example:
        try:
            client.retrieve("resp_unknown")
        except ApiError as error:
            print(error.type, error.code, error.status)
    """

    default_type: ErrorType = "server_error"
    default_code = "internal_error"
    default_status: int | None = None  # a more precise status than that of the type (ERR-2)

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
        self.request_id: str | None = None  # of the request, if a server named it in its answer
        self.upstream_name: str | None = None  # the configured name, if a gateway named it in its answer
        self.original: OriginalError | None = None
        self.was_paid = False  # whether the model had answered: a retry would cost as much again
        self.billed_tokens: tuple[int, int] | None = None  # input and output, if the server reported them

    def without_traceback(self) -> Self:
        """A copy without a traceback, for an error that is stored.

        A traceback refers to all its frames. A stored error with a traceback would keep a whole request, and itself, in
        memory until the garbage collector runs.
        """
        return copy(self)


class ClientFault(ApiError):
    """The client sent something that cannot be served."""

    default_type: ErrorType = "invalid_request"
    default_code = "invalid_value"


class InvalidJson(ClientFault):
    """The body is not JSON, or not a JSON object."""

    default_code = "invalid_json"


class JsonTooDeep(ClientFault):
    """The JSON is nested too deeply."""

    default_code = "json_too_deep"


class InvalidUnicode(ClientFault):
    """The JSON has invalid UTF-8 or an unpaired surrogate. Both are always refused."""

    default_code = "invalid_unicode"


class InvalidValue(ClientFault):
    """The value of a field is not allowed; `param` is the path of the field (ERR-3)."""


class MissingField(ClientFault):
    """A required field is absent; `param` is the path of the field (ERR-3)."""

    default_code = "missing_field"


class UnsupportedParameter(ClientFault):
    """A valid setting that the chosen upstream does not support, and that changes the meaning if left out (REQ-6)."""

    default_code = "unsupported_parameter"


class OrphanToolOutput(ClientFault):
    """A tool output without a matching call."""

    default_code = "orphan_tool_output"


class UpstreamFault(ApiError):
    """The upstream failed, refused, or broke its own protocol."""

    default_code = "upstream_error"
    default_status = 502


class AnswerTooLarge(UpstreamFault):
    """The answer is larger than the gateway accepts. The upstream is not at fault, and others would not do better."""

    default_code = "upstream_invalid_response"


class NoAnswer(UpstreamFault):
    """The upstream closed the connection before the head of an answer."""

    default_code = "upstream_disconnected"


class StorageUnavailable(ApiError):
    """The store cannot be read or written."""

    default_code = "storage_unavailable"
    default_status = 503


class InvalidTransition(AntiphonError):
    """An internal error: a status transition that the life cycle does not allow (B-1, ITEM-4)."""


class ProfileError(AntiphonError):
    """A profile cannot be loaded. The message names the file and the setting."""


class ConfigError(AntiphonError):
    """A configuration is invalid. The message names the place, the value, the allowed values, and a remedy."""
