"""One request and its answer on a connection of our own server: ASGI's two functions, and sending without waiting.

`scope[DIRECT]` is the cycle itself, for an application that knows it: `send_now` spares a stream a coroutine for each piece, and
`call_on_disconnect` spares it a task that waits for the client to leave. Whoever knows only ASGI gets what ASGI promises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, Protocol

from antiphon.errors import ApiError
from antiphon.gateway.client_dialect import dialect_at_path
from antiphon.gateway.ids import new_id
from antiphon.http.asgi import DIRECT, Headers, Message, Receive, Scope, Send

BODY_HIGH: Final = 64 * 1024  # of a body that nobody has asked for yet, until no more of it is read

LOG: Final = logging.getLogger("antiphon.http")


class FlowControl(Protocol):
    """Whether the client reads, and whether we do."""

    write_paused: bool

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class ClientConnection(Protocol):
    """The connection that a cycle is on."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop

    @property
    def flow(self) -> FlowControl: ...

    @property
    def default_headers(self) -> Headers: ...

    def close(self) -> None:
        """Closes, once everything is written."""
        ...

    def on_response_complete(self) -> None:
        """The answer is complete: the next request may have its turn."""
        ...


class RequestCycle:
    """From the end of a request's head to the last byte of its answer."""

    __slots__ = (
        *(
            "scope",
            "task",
            "is_disconnected",
            "is_started",
            "is_complete",
            "more_body",
            "keep_alive",
            "_connection",
            "_expects_continue",
            "_body",
        ),
        *("_body_size", "_has_news", "_news", "_on_leaving", "_head", "_is_chunked", "_length", "_bodyless"),
    )

    def __init__(self, connection: ClientConnection, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.task: asyncio.Task[None] | None = None  # that runs it
        self.is_disconnected = False  # the client went away, or the application is through
        self.is_started = False
        self.is_complete = False
        self.more_body = True
        self.keep_alive = keep_alive
        self._connection = connection
        self._expects_continue = expects_continue
        self._body: list[bytes] = []
        self._body_size = 0
        self._has_news = False  # for `receive`
        self._news: asyncio.Event | None = None  # only if somebody had to wait
        self._on_leaving: Callable[[], None] | None = None
        self._head = b""  # of the answer, which waits for its first bytes: one write for both
        self._is_chunked = False
        self._length = 0  # of what is still to come of a body whose length was told
        self._bodyless = False

    async def run(self, app: Callable[[Scope, Receive, Send], Any]) -> None:
        """The application's turn. Whatever it does, the client gets an answer or an end."""
        self.scope[DIRECT] = self
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:  # by the server, when its patience at the end is over
            await self._fail(ApiError("the server is shutting down", code="server_shutdown", status=503), None)
        except Exception as error:  # the last edge: whatever it is, a client sees no trace of it
            await self._fail(ApiError("something went wrong on our side"), error)
        else:
            if not self.is_complete and not self.is_disconnected:
                await self._fail(
                    ApiError("something went wrong on our side"), RuntimeError("the application left an answer unfinished")
                )
        finally:
            self.is_disconnected = True
            self._on_leaving = None
            self.scope.pop(DIRECT)  # a circle that nobody has to collect

    # The connection's side

    def add_body(self, data: bytes) -> None:
        self._body.append(data)
        self._body_size += len(data)
        if self._body_size > BODY_HIGH:
            self._connection.flow.pause_reading()
        self._set_news()

    def end_body(self) -> None:
        self.more_body = False
        self._set_news()

    def on_disconnect(self) -> None:
        self.is_disconnected = True
        self._set_news()
        if self._on_leaving is not None:
            self._on_leaving()

    # The application's side

    async def receive(self) -> Message:
        if self._expects_continue and not self._connection.transport.is_closing():
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._expects_continue = False
        if not self.is_disconnected and not self.is_complete:
            self._connection.flow.resume_reading()
            while not self._has_news:
                if self._news is None:
                    self._news = asyncio.Event()
                self._news.clear()
                await self._news.wait()
            self._has_news = False
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._body_size = 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        while self.is_write_paused:
            await self._connection.flow.drain()
        self.send_now(message)
        if self._head:  # the first bytes are mostly right behind it
            self._connection.loop.call_soon(self._flush)

    @property
    def is_write_paused(self) -> bool:
        return self._connection.flow.write_paused and not self.is_disconnected

    def send_now(self, message: Message) -> None:
        if self.is_disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.is_started and not self.is_complete:
            if message.get("more_body"):
                self._write(message.get("body", b""), b"")
            else:
                self._end(message.get("body", b""))
        elif kind == "http.response.start" and not self.is_started:
            self._begin(message["status"], message.get("headers", []))
        else:
            raise RuntimeError(f"an answer cannot go on with {kind} here")

    def respond_now(self, status: int, headers: Headers, body: bytes) -> None:
        if self.is_disconnected:
            return
        if self.is_started:
            raise RuntimeError("an answer cannot begin twice")
        self._begin(status, headers)
        self._end(body)

    def write_now(self, data: bytes) -> bool:
        if self._connection.flow.write_paused and not self.is_disconnected:
            return False
        if self._head or not self._is_chunked or self.is_disconnected:
            self.send_now({"type": "http.response.body", "body": data, "more_body": True})
        else:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def call_on_disconnect(self, call: Callable[[], None]) -> None:
        """`call` is called once, if the client leaves before the end of the answer."""
        self._on_leaving = call
        self._connection.flow.resume_reading()  # who does not read does not see that the client left
        if self.is_disconnected:
            call()

    def abort_response(self) -> None:
        """Ends an answer that was begun where it is, so that its client sees that it was cut."""
        if self.is_started and not self.is_complete and not self.is_disconnected:
            self._flush()
            self._connection.close()
            self.is_disconnected = True

    # Inside

    def _set_news(self) -> None:
        self._has_news = True
        if self._news is not None:
            self._news.set()

    def _begin(self, status: int, headers: Headers) -> None:
        self.is_started = True
        self._expects_continue = False
        if self.more_body:
            # An answer before the end of the question: what else comes of it must not be read as the next request.
            self.keep_alive = False
        self._bodyless = self.scope["method"] == "HEAD"
        self._is_chunked = not self._bodyless and status not in (204, 304)
        has_close_header = False
        for name, value in headers:
            if name == b"content-length":
                self._is_chunked = False
                self._length = int(value)
            elif name == b"connection" and b"close" in value:
                self.keep_alive, has_close_header = False, True
        self._head = encode_head(status, [*self._connection.default_headers, *headers])
        if not self.keep_alive and not has_close_header:
            self._head += b"connection: close\r\n"
        self._head += b"transfer-encoding: chunked\r\n\r\n" if self._is_chunked else b"\r\n"

    def _write(self, data: bytes, end: bytes) -> None:
        head, self._head = self._head, b""
        if self._is_chunked:
            data = b"%b%x\r\n%b\r\n%b" % (head, len(data), data, end) if data else head + end
        elif self._bodyless:
            data = head
        else:
            self._length -= len(data)
            if self._length < 0:
                raise RuntimeError("the answer is longer than it said")
            data = head + data
        self._connection.transport.write(data)

    def _end(self, data: bytes) -> None:
        self._write(data, b"0\r\n\r\n")
        if self._length and not self._bodyless:
            raise RuntimeError("the answer is shorter than it said")
        self.is_complete = True
        self._set_news()
        if not self.keep_alive:
            self._connection.close()
        self._connection.on_response_complete()

    def _flush(self) -> None:
        if self._head and not self.is_disconnected:
            self._write(b"", b"")

    async def _fail(self, fault: ApiError, error: Exception | None) -> None:
        id = new_id("req")
        fields = {"request_id": id, "method": self.scope["method"], "path": self.scope["path"], "error": fault.code}
        LOG.log(logging.ERROR if error else logging.WARNING, "an answer failed", exc_info=error, extra={"fields": fields})
        if self.is_disconnected or self.is_started:
            self.abort_response()
            return
        status, body = dialect_at_path(self.scope["path"]).error_from_hub(fault)
        headers = [*connection_error_headers(id, body), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


def encode_head(status: int, headers: Headers) -> bytes:
    """The status line and these headers."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if lines.translate(None, IN_HEADERS) != b"\r\n" * len(headers):
        raise RuntimeError("a header of the answer holds a line break or another character that HTTP cannot carry")
    # Some APIs have statuses of their own, such as 529; a reason may be left out.
    return STATUS_LINES.get(status, b"HTTP/1.1 %d \r\n" % status) + lines


def connection_error_headers(id: str, body: bytes) -> Headers:
    """Of an error that is told by the connection itself."""
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"x-request-id", id.encode())]


IN_HEADERS: Final = bytes([9, *range(0x20, 0x7F), *range(0x80, 0x100)])
STATUS_LINES: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
