"""Types and helpers for the part of ASGI that is used, and responses that are sent in one piece.

Every response that is not 2xx is a JSON error (docs/errors.md, invariant 3), and every response has the id of its
request (HTTP-8).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, Final, Protocol

from antiphon.errors import ApiError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

DIRECT: Final = "antiphon.direct"  # scope key of the `DirectConnection` of our own server
HEADERS_BY_NAME: Final = "antiphon.headers"  # scope key of the headers by name, set at the first lookup
JSON: Final = (b"content-type", b"application/json")


class DirectConnection(Protocol):
    """Extensions of our own server beyond ASGI, which save tasks and coroutines."""

    task: asyncio.Task[None] | None  # runs the application for this request, if it has its own

    @property
    def is_write_paused(self) -> bool:
        """Whether the write buffer is full because the client does not read."""
        ...

    def respond_now(self, status: int, headers: Headers, body: bytes) -> None:
        """Sends a whole response without waiting."""
        ...

    def send_now(self, message: Message) -> None:
        """Sends without waiting. The first bytes of a body must follow their head in the same event loop step."""
        ...

    def write_now(self, data: bytes) -> bool:
        """Writes a piece of a body whose head was sent. False if the client does not read; then nothing was sent."""
        ...

    def call_on_disconnect(self, call: Callable[[], None]) -> None:
        """Calls `call` once if the client disconnects before the end of the response."""
        ...

    def abort_response(self) -> None:
        """Closes the connection in the middle of a response, so that the client sees that it was cut."""
        ...


def header_values(scope: Scope, name: bytes) -> Sequence[bytes]:
    """Every value of a header, in the order of arrival."""
    named: dict[bytes, list[bytes]] | None = scope.get(HEADERS_BY_NAME)
    if named is None:
        named = scope[HEADERS_BY_NAME] = {}
        for key, value in scope["headers"]:
            named.setdefault(key, []).append(value)
    return named.get(name, ())


def first_header(scope: Scope, name: bytes) -> bytes:
    """The first value of a header; empty if there is none."""
    values = header_values(scope, name)
    return values[0] if values else b""


async def send_response(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """Sends a response in one piece."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def error_headers(error: ApiError) -> Headers:
    """The headers of an error. ERR-2: `retry-after` for errors that the client should retry."""
    headers = [JSON]
    if error.status == 429 or (error.status == 503 and error.retry_after is not None):
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after or 0))).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed))
    return headers


class MethodNotAllowed(ApiError):
    """The path does not support the method; `allowed` is the value of `Allow`."""

    default_type = "invalid_request"
    default_code = "method_not_allowed"
    default_status = 405

    def __init__(self, message: str, allowed: bytes) -> None:
        super().__init__(message)
        self.allowed = allowed
