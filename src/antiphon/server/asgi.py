"""The little of ASGI that we use, with names; and the answers that are made in one piece.

Every answer that is not 2xx is a JSON error (faults.md, invariant 3), every answer has the id of its request (HTTP-8).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from antiphon.errors import ApiError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

LEAVING: Final = "antiphon.leaving"  # where a scope of our own server takes a function to call when the client leaves
JSON: Final = (b"content-type", b"application/json")
ErrorFromHub = Callable[[ApiError], tuple[int, bytes]]


def values_of(scope: Scope, name: bytes) -> list[bytes]:
    """Every value of a header, in the order of arrival."""
    return [value for key, value in scope["headers"] if key == name]


def first_of(scope: Scope, name: bytes) -> bytes:
    """A header's first value, empty if there is none."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


async def send_whole(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """An answer in one piece."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def headers_of_error(error: ApiError) -> Headers:
    """What goes with an error besides its body. ERR-2: whoever is told to wait is told how long."""
    headers = [JSON]
    if error.status == 429 or (error.status == 503 and error.retry_after is not None):
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after or 0))).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed))
    return headers


class MethodNotAllowed(ApiError):
    """The path exists, the method does not; `allowed` goes into `Allow`."""

    default_type = "invalid_request"
    default_code = "method_not_allowed"
    default_status = 405

    def __init__(self, message: str, allowed: bytes) -> None:
        super().__init__(message)
        self.allowed = allowed
