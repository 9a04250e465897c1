"""The little of ASGI that we use, with names; and the answers that are made in one piece.

Every answer that is not 2xx is a JSON error (docs/errors.md, invariant 3), every answer has the id of its request (HTTP-8).
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

DIRECT: Final = "antiphon.direct"  # where a scope of our own server has a `DirectConnection`
HEADERS_BY_NAME: Final = "antiphon.headers"  # where a scope has its headers by name, once somebody asked for one
JSON: Final = (b"content-type", b"application/json")


class DirectConnection(Protocol):
    """What our own server offers beyond ASGI, to spare tasks and coroutines."""

    task: asyncio.Task[None] | None  # that runs the application for this request, if there is one for it alone

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not read what waits for it: now is no time to send."""
        ...

    def respond_now(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer, at once."""
        ...

    def send_now(self, message: Message) -> None:
        """Sends at once. The first bytes of a body must follow their head in the same step."""
        ...

    def write_now(self, data: bytes) -> bool:
        """The next piece of a body whose head is sent. False if the client does not read: nothing was sent."""
        ...

    def call_on_disconnect(self, call: Callable[[], None]) -> None:
        """`call` is called once, if the client leaves before the end of the answer."""
        ...

    def abort_response(self) -> None:
        """Ends an answer that was begun where it is, so that its client sees that it was cut."""
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
    """A header's first value, empty if there is none."""
    values = header_values(scope, name)
    return values[0] if values else b""


async def send_response(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """An answer in one piece."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def error_headers(error: ApiError) -> Headers:
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
