"""The part of ASGI that is used: types, request headers, responses in one piece, and the requests of our own server.

Every response that is not 2xx is a JSON error (docs/errors.md, invariant 3), and every response has the id of its
request (HTTP-8).

`scope[DIRECT]` is the `RequestCycle`. Applications that know it send without waiting, which saves a coroutine per piece
and a task per request. All others get plain ASGI: `receive` and `send`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol

from msgspec import Struct

from antiphon.errors import ApiError
from antiphon.gateway.client_body import dialect_at_path
from antiphon.gateway.ids import new_id

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
Headers = list[tuple[bytes, bytes]]

DIRECT: Final = "antiphon.direct"  # scope key of the `RequestCycle` of our own server
HEADERS_BY_NAME: Final = "antiphon.headers"  # scope key of the headers by name
JSON: Final = (b"content-type", b"application/json")
BODY_HIGH: Final = 64 * 1024  # bytes of unread body at which reading is paused
LARGE_PIECE: Final = 1024 * 1024  # bytes of a body that are written without a copy
LOG: Final = logging.getLogger("antiphon.http")


def headers_of(scope: Scope) -> Mapping[bytes, list[bytes]]:
    """Every value of each header, in the order of arrival."""
    by_name: dict[bytes, list[bytes]] | None = scope.get(HEADERS_BY_NAME)
    if by_name is None:  # a request of another server
        by_name = scope[HEADERS_BY_NAME] = headers_by_name(scope["headers"])
    return by_name


def header_values(scope: Scope, name: bytes) -> Sequence[bytes]:
    """Every value of a header, in the order of arrival."""
    return headers_of(scope).get(name, ())


def headers_by_name(headers: Headers) -> dict[bytes, list[bytes]]:
    """The values of each header, in the order of arrival."""
    by_name = {name: [value] for name, value in headers}
    if len(by_name) < len(headers):  # some are repeated
        by_name = {name: [value for other, value in headers if other == name] for name in by_name}
    return by_name


def first_header(scope: Scope, name: bytes) -> bytes:
    """The first value of a header; empty if there is none."""
    values = headers_of(scope).get(name)
    return values[0] if values else b""


async def send_response(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """Sends a response in one piece."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def error_headers(error: ApiError) -> Headers:
    """The headers of an error. ERR-2: whether and when the client should retry, in the headers that SDKs read."""
    headers = [JSON]
    is_temporary = error.status in TEMPORARY_STATUSES and not error.was_paid
    if error.status == 429 or (is_temporary and error.retry_after is not None):
        seconds = DEFAULT_RETRY_SECONDS if error.retry_after is None else error.retry_after
        headers.append((b"retry-after", str(max(1, math.ceil(seconds))).encode()))
        headers.append((b"retry-after-ms", str(max(1, math.ceil(seconds * 1000))).encode()))
    if is_temporary:
        headers.append((b"x-should-retry", b"true"))
    elif error.was_paid or error.status < 500:
        headers.append((b"x-should-retry", b"false"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed))
    return headers


#: Of errors that pass by themselves, so that a retry may succeed.
TEMPORARY_STATUSES: Final = (429, 503, 504)
DEFAULT_RETRY_SECONDS: Final = 1.0


class MethodNotAllowed(ApiError):
    """The path does not support the method; `allowed` is the value of `Allow`."""

    default_type = "invalid_request"
    default_code = "method_not_allowed"
    default_status = 405

    def __init__(self, message: str, allowed: bytes) -> None:
        super().__init__(message)
        self.allowed = allowed


class FlowControl(Protocol):
    """Read and write flow control of a connection."""

    write_paused: bool

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ClientConnection(Protocol):
    """The connection of a cycle."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]  # for which the server waits before it stops

    @property
    def flow(self) -> FlowControl: ...

    @property
    def default_headers(self) -> Headers: ...

    def close(self) -> None:
        """Closes the connection once everything is written."""
        ...

    def on_response_complete(self) -> None:
        """The response is complete; the next request may start."""
        ...


class RequestCycle(Struct, eq=False):
    """One request, from the end of its head to the last byte of its response."""

    _connection: ClientConnection
    scope: Scope
    keep_alive: bool
    expects_continue: bool  # the client waits for `100 Continue` before it sends the body
    task: asyncio.Task[None] | None = None  # runs the application
    is_disconnected: bool = False  # the client disconnected, or the application has returned
    is_started: bool = False
    is_complete: bool = False
    more_body: bool = True
    _body_pieces: list[bytes] = []
    _body_size: int = 0
    _has_message: bool = False  # for `receive`
    _message_event: asyncio.Event | None = None  # created at the first wait
    _disconnect_callback: Callable[[], None] | None = None
    _head: bytes = b""  # of the response; sent together with the first bytes
    _is_chunked: bool = False
    _remaining_length: int = 0  # remaining bytes of a body with content-length
    _is_bodyless: bool = False

    def start(self, app: Application) -> None:
        """Runs the application in a task. The client always gets a response or a disconnect."""
        self.scope[DIRECT] = self
        self.task = self._connection.loop.create_task(app(self.scope, self.receive, self.send))
        self._connection.tasks.add(self.task)
        self.task.add_done_callback(self._on_task_done)

    # For the connection

    def add_body(self, data: bytes) -> None:
        self._body_pieces.append(data)
        self._body_size += len(data)
        if self._body_size > BODY_HIGH:
            self._connection.flow.pause_reading()
        self._wake_receive()

    def end_body(self) -> None:
        self.more_body = False
        self._wake_receive()

    def on_disconnect(self) -> None:
        self.is_disconnected = True
        self._wake_receive()
        if self._disconnect_callback is not None:
            self._disconnect_callback()

    # For the application

    async def receive(self) -> Message:
        if self.expects_continue and not self._connection.transport.is_closing():
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.expects_continue = False
        if not self.is_disconnected and not self.is_complete:
            self._connection.flow.resume_reading()
            while not self._has_message:
                if self._message_event is None:
                    self._message_event = asyncio.Event()
                self._message_event.clear()
                await self._message_event.wait()
            self._has_message = False
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body = self._body_pieces[0] if len(self._body_pieces) == 1 else b"".join(self._body_pieces)
        self._body_pieces.clear()
        self._body_size = 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def take_arrived_body(self) -> bytes | None:
        """The whole body, if it has arrived in one piece and nothing of it was received yet; else None."""
        if self.more_body or len(self._body_pieces) != 1 or self.expects_continue or self.is_disconnected:
            return None
        self._has_message = False
        self._body_size = 0
        return self._body_pieces.pop()

    async def send(self, message: Message) -> None:
        while self.is_write_paused:
            await self._connection.flow.drain()
        self.send_now(message)
        if self._head:  # the first bytes usually follow at once
            self._connection.loop.call_soon(self._flush_head)

    @property
    def is_write_paused(self) -> bool:
        """Whether the write buffer is full because the client does not read."""
        return self._connection.flow.write_paused and not self.is_disconnected

    def send_now(self, message: Message) -> None:
        """Sends without waiting. The first bytes of a body must follow their head in the same event loop step."""
        if self.is_disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.is_started and not self.is_complete:
            if message.get("more_body"):
                self._write_body(message.get("body", b""), b"")
            else:
                self._end_response(message.get("body", b""))
        elif kind == "http.response.start" and not self.is_started:
            self._start_response(message["status"], message.get("headers", []))
        else:
            raise RuntimeError(f"unexpected ASGI message {kind}")

    def respond_now(self, status: int, headers: Headers, body: bytes) -> None:
        """Sends a whole response without waiting. `headers` has the length of the body, and nothing about the
        connection."""
        if self.is_disconnected:
            return
        if self.is_started:
            raise RuntimeError("the response was already started")
        self.is_started = True
        self.expects_continue = False
        head = encode_head(status, [*self._connection.default_headers, *headers])
        if self.more_body or not self.keep_alive:
            self.keep_alive = False  # see `_start_response`
            head += b"connection: close\r\n"
        if self.scope["method"] == "HEAD":
            body = b""
        if len(body) > LARGE_PIECE:
            self._connection.transport.writelines((head, b"\r\n", body))
        else:
            self._connection.transport.write(b"%b\r\n%b" % (head, body))
        self._complete_response()

    def write_now(self, data: bytes) -> bool:
        """Writes a piece of a body whose head was sent. False if the client does not read; then nothing was sent."""
        if self._connection.flow.write_paused and not self.is_disconnected:
            return False
        if self._head or not self._is_chunked or self.is_disconnected or len(data) > LARGE_PIECE:
            self.send_now({"type": "http.response.body", "body": data, "more_body": True})
        else:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def call_on_disconnect(self, call: Callable[[], None]) -> None:
        """Calls `call` once if the client disconnects before the end of the response."""
        self._disconnect_callback = call
        self._connection.flow.resume_reading()  # a paused socket does not notice a disconnect
        if self.is_disconnected:
            call()

    def abort_response(self) -> None:
        """Closes the connection in the middle of a response, so that the client sees that it was cut."""
        if self.is_started and not self.is_complete and not self.is_disconnected:
            self._flush_head()
            self._connection.close()
            self.is_disconnected = True

    # Helpers

    def _wake_receive(self) -> None:
        self._has_message = True
        if self._message_event is not None:
            self._message_event.set()

    def _start_response(self, status: int, headers: Headers) -> None:
        self.is_started = True
        self.expects_continue = False
        if self.more_body:
            # The response starts before the end of the request: the rest must not be read as the next request.
            self.keep_alive = False
        self._is_bodyless = self.scope["method"] == "HEAD"
        self._is_chunked = not self._is_bodyless and status not in (204, 304)
        has_close_header = False
        for name, value in headers:
            if name == b"content-length":
                self._is_chunked = False
                self._remaining_length = int(value)
            elif name == b"connection" and b"close" in value:
                self.keep_alive, has_close_header = False, True
        self._head = encode_head(status, [*self._connection.default_headers, *headers])
        if not self.keep_alive and not has_close_header:
            self._head += b"connection: close\r\n"
        self._head += b"transfer-encoding: chunked\r\n\r\n" if self._is_chunked else b"\r\n"

    def _write_body(self, data: bytes, end: bytes) -> None:
        head, self._head = self._head, b""
        if self._is_chunked:
            if len(data) > LARGE_PIECE:
                self._connection.transport.writelines((b"%b%x\r\n" % (head, len(data)), data, b"\r\n" + end))
                return
            data = b"%b%x\r\n%b\r\n%b" % (head, len(data), data, end) if data else head + end
        elif self._is_bodyless:
            data = head
        else:
            self._remaining_length -= len(data)
            if self._remaining_length < 0:
                raise RuntimeError("the body is longer than content-length")
            if len(data) > LARGE_PIECE:
                self._connection.transport.writelines((head, data))
                return
            data = head + data
        self._connection.transport.write(data)

    def _end_response(self, data: bytes) -> None:
        self._write_body(data, b"0\r\n\r\n")
        if self._remaining_length and not self._is_bodyless:
            raise RuntimeError("the body is shorter than content-length")
        self._complete_response()

    def _complete_response(self) -> None:
        self.is_complete = True
        self._wake_receive()
        if not self.keep_alive:
            self._connection.close()
        self._connection.on_response_complete()

    def _flush_head(self) -> None:
        if self._head and not self.is_disconnected:
            self._write_body(b"", b"")

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._connection.tasks.discard(task)
        if task.cancelled():  # by the server, when the shutdown grace period is over
            self._end_with_error(ApiError("the server is shutting down", code="server_shutdown", status=503), None)
        elif (error := task.exception()) is not None:  # clients never see internal errors
            self._end_with_error(ApiError("internal error; see the log for this request id"), error)
        elif not self.is_complete and not self.is_disconnected:
            self._end_with_error(
                ApiError("internal error; see the log for this request id"),
                RuntimeError("the application did not finish the response"),
            )
        self.is_disconnected = True
        self._disconnect_callback = self.task = None
        self.scope.pop(DIRECT)  # breaks a reference cycle

    def _end_with_error(self, fault: ApiError, error: BaseException | None) -> None:
        id = new_id("req")
        fields = {"request_id": id, "method": self.scope["method"], "path": self.scope["path"], "error": fault.code}
        LOG.log(
            logging.ERROR if error else logging.WARNING, "a request failed", exc_info=error, extra={"fields": fields}
        )
        if self.is_disconnected or self.is_started:
            self.abort_response()
            return
        status, body = dialect_at_path(self.scope["path"]).error_from_hub(fault)
        self.keep_alive = False
        self.respond_now(status, connection_error_headers(id, body), body)


def encode_head(status: int, headers: Headers) -> bytes:
    """Encodes the status line and the headers."""
    lines = b"\r\n".join([*map(b": ".join, headers), b""])
    if lines.translate(None, HEADER_BYTES) != b"\r\n" * len(headers):
        raise RuntimeError("a response header contains a line break or another character that HTTP cannot carry")
    # Some APIs have their own statuses, such as 529; the reason phrase is optional.
    return STATUS_LINES.get(status, b"HTTP/1.1 %d \r\n" % status) + lines


def connection_error_headers(id: str, body: bytes) -> Headers:
    """The headers of an error that the connection itself sends."""
    return [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", id.encode()),
    ]


HEADER_BYTES: Final = bytes([9, *range(0x20, 0x7F), *range(0x80, 0x100)])
STATUS_LINES: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
