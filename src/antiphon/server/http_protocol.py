"""HTTP/1.1 as we speak it: uvicorn's protocol, with edges that a server on the open network needs.

What the parser refuses is told in our own shape (ERR-1); heads are bounded in size and in time, framing that two readers could
understand in two ways is refused, and a client that does not read is cut in the end. Nothing here knows any endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import math
import urllib.parse
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import httptools
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from antiphon.dialects.responses import error_from_hub
from antiphon.errors import ApiError, ClientFault
from antiphon.server.asgi import LEAVING
from antiphon.server.services import new_id

HEAD_LIMIT: Final = 64 * 1024
MAX_HEADERS: Final = 100
MAX_WAITING: Final = 8  # requests that may wait behind one that is being answered
# Together with what is held of the upstream, and one event that is being written, this stays under 256 KiB for each client.
WRITE_HIGH: Final = 64 * 1024
WRITE_LOW: Final = 16 * 1024

LOG: Final = logging.getLogger("antiphon.server.http")


class Protocol(HttpToolsProtocol):
    """One connection of a client."""

    #: Seconds a head may take from its first byte (or a new connection until its first head).
    head_timeout = 20.0
    #: Seconds between two pieces of a body.
    body_timeout = 60.0
    #: Seconds a client may take nothing of what waits for it.
    stall_timeout = 60.0
    #: Seconds a client has to read the answer that cuts it short.
    linger = 1.5

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None  # the request that is being answered; others wait in `pipeline`
        self._in_head = True  # between the end of one request and the end of the next one's head
        self._head_size = 0
        self._taken = 0  # bytes that the parser took and has given nothing for
        self._parting = False  # nothing more is read from this client
        self._last_words = b""
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITE_HIGH, WRITE_LOW)
        self._head_timer = self.loop.call_later(self.head_timeout, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        running = self._running
        if running is not None and not running.response_complete:  # uvicorn tells only the latest request, which may still wait
            cast(_Cycle, running).client_left()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._head_timer, self._stall_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()

    # The end of a client's bytes is taken as its leaving (`eof_received` is uvicorn's, which closes): whoever closes a socket sends
    # the same FIN as whoever closes half of it, and a client that left must not go on costing its upstream (docs/decisions/0005).

    def data_received(self, data: bytes) -> None:
        if self._parting:
            return
        self._unset_keepalive_if_required()
        for start in range(0, len(data), HEAD_LIMIT):  # a read may be larger than any head, and is measured in between
            rest = data[start : start + HEAD_LIMIT]
            while rest and not self._parting:
                rest = self._feed(rest)
        self._watch_head()

    def _feed(self, data: bytes) -> bytes:
        """Gives bytes to the parser; returns those that have to be given again."""
        self._taken += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as pause:
            return self._head_without_upgrade() + data[pause.args[0] :]
        except httptools.HttpParserError as error:
            self._refuse(_fault_of(error))
        else:
            if self._taken > HEAD_LIMIT:  # of a head, of trailers, of what stands between chunks
                self._refuse(_too_large())
        return b""

    def _head_without_upgrade(self) -> bytes:
        """The head once more, for a parser that is not to stop behind it: an upgrade that we do not know is no upgrade."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([*lines, b"", b""])

    # What the parser says

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = 0

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: nobody asked for any, and no header may change behind the back of who read it
        self._head_size += len(name) + len(value) + 4
        if self._head_size > HEAD_LIMIT or len(self.headers) == MAX_HEADERS:
            raise _too_large()
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._taken = 0
        version = self.parser.get_http_version()
        method = self.parser.get_method().decode("ascii")
        _check_framing(version, self.headers)
        if self.parser.should_upgrade():
            if method == "CONNECT":
                raise ClientFault("CONNECT: this is no proxy")
            if _asks_for_websocket(self.headers):
                raise ClientFault("there is no WebSocket here: send the request with POST", code="upgrade_required", status=426)
            return  # the parser stops here; `_feed` goes on without the upgrade
        self.scope["method"] = method
        self.scope["http_version"] = version
        self._set_target()
        self._in_head = False
        cycle = self.cycle = _Cycle(
            scope=self.scope,
            transport=cast(asyncio.Transport, _Outlet(self.transport, self._close, self.loop)),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if self._running is None:
            self._start_asgi_task(cycle, self.app)
            return
        self.pipeline.appendleft((cycle, self.app))
        if len(self.pipeline) >= MAX_WAITING:  # not earlier: who does not read does not see that the client left
            self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._taken = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._taken = 0
        if not self._in_head:
            self._in_head = True
            super().on_message_complete()

    def _set_target(self) -> None:
        try:
            url = httptools.parse_url(self.url)
            path = (url.path or b"").decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            raise ClientFault("the request line: its target is no path") from None
        if url.schema:  # RFC 9112, 3.2.2: a target that names its host does so in place of the header
            named = url.host if not url.port else b"%b:%d" % (url.host, url.port)
            self.headers[:] = [(b"host", named), *(header for header in self.headers if header[0] != b"host")]
        self.scope["path"] = self.root_path + (urllib.parse.unquote(path) if "%" in path else path)
        self.scope["raw_path"] = self.root_path.encode("ascii") + path.encode("ascii")
        self.scope["query_string"] = url.query or b""

    # One answer after the other

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        if not self.flow.write_paused:  # what waits may grow from here on
            self._forget_reader()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._running = None
        super().on_response_complete()
        if self._running is not None:
            return
        if self._parting and not self.transport.is_closing() and self._linger_timer is None:
            self._part()
        self._watch_reader()

    def _refuse(self, fault: ApiError) -> None:
        """Nothing more is read from this client. It is told why, after everything that it asked for before."""
        self._parting = True
        self._last_words = self._answer(fault)
        if not self._in_head:
            self._give_up_body()
        if self._running is None:
            self._part()

    def _give_up_body(self) -> None:
        """The request whose body broke is served no further."""
        if self.cycle is not self._running:
            self.pipeline.popleft()
            return
        if self.cycle.response_started:
            self._last_words = b""
        cast(_Cycle, self.cycle).client_left()
        self._running = None

    def _part(self) -> None:
        self.transport.write(self._last_words)
        self._close()

    def _close(self) -> None:
        """Closes, once everything is written. A client in the middle of sending gets a moment to read what it was told: closing on
        bytes that nobody read resets the connection, and takes the answer along."""
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        if self._in_head and not self._parting:
            self.transport.close()
        else:
            self._parting = True
            self.transport.write_eof()
            self.flow.resume_reading()
            self._linger_timer = self.loop.call_later(self.linger, self.transport.close)
        self._watch_reader()

    def _answer(self, fault: ApiError) -> bytes:
        """HTTP-8: a refusal of our own, with the id by which the log has it."""
        status, body = error_from_hub(fault)
        id = new_id("req")
        peer = self.client[0] if self.client else None
        LOG.info(
            "refused",
            extra={"fields": {"request_id": id, "status": status, "error": fault.code, "why": fault.message, "peer": peer}},
        )
        headers = [
            *self.server_state.default_headers,
            *_headers_of(id, body),
            # RFC 9110, 15.5.22: who asks for an upgrade names it.
            *([(b"upgrade", b"HTTP/1.1"), (b"connection", b"close, upgrade")] if status == 426 else [(b"connection", b"close")]),
        ]
        return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body

    # Clients that are slow

    def _watch_head(self) -> None:
        """A request that came in one piece, as most do, costs no timer. A head has its time as a whole, a body for each piece."""
        waits_for_head = self._in_head and self._taken > 0 and not self._parting
        if waits_for_head and self._head_timer is not None:
            return
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if waits_for_head:
            self._head_timer = self.loop.call_later(self.head_timeout, self._head_is_late)
        elif not self._in_head and not self._parting:
            self._head_timer = self.loop.call_later(self.body_timeout, self._body_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._parting = True
        if self._running is None:
            self.transport.close()

    def _body_is_late(self) -> None:
        self._head_timer = None
        if self.flow.read_paused:  # it is us who do not read
            self._head_timer = self.loop.call_later(self.body_timeout, self._body_is_late)
        else:
            self._refuse(ClientFault(f"the rest of the body did not come within {self.body_timeout:g} s"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._running is None:
            self._watch_reader()  # until it has taken the last of it
        else:
            self._forget_reader()

    def _watch_reader(self) -> None:
        """From here on nothing is written, until `_forget_reader`."""
        self._forget_reader()
        waiting = self.transport.get_write_buffer_size() or math.inf  # what was written just now is not counted yet
        self._stall_timer = self.loop.call_later(self.stall_timeout, self._check_reader, waiting)

    def _forget_reader(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _check_reader(self, before: float) -> None:
        """What waits can only have become less."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._stall_timer = None
        elif waiting < before:
            self._watch_reader()
        else:
            LOG.info(
                "a client that takes nothing is cut", extra={"fields": {"waiting_bytes": waiting, "seconds": self.stall_timeout}}
            )
            self.transport.abort()


class _Cycle(RequestResponseCycle):
    """One request and its answer. `scope["antiphon.leaving"]` takes one function that is called if the client leaves before the
    end, which spares an application a task that waits for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_leaving: Callable[[], None] | None = None
        cast(dict[str, Any], self.scope)[LEAVING] = self._call_when_leaving

    def client_left(self) -> None:
        self.disconnected = True
        self.message_event.set()
        if self._on_leaving is not None:
            self._on_leaving()

    def _call_when_leaving(self, call: Callable[[], None]) -> None:
        self._on_leaving = call
        self.flow.resume_reading()  # who does not read does not see that the client left
        if self.disconnected:
            call()

    async def run_asgi(self, app: ASGI3Application) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:  # by the server, when its patience at the end is over
            await self._fail(ApiError("the server is shutting down", code="server_shutdown", status=503), None)
        except Exception as error:  # the last edge: whatever it is, a client sees no trace of it
            await self._fail(ApiError("something went wrong on our side"), error)
        else:
            if not self.response_complete and not self.disconnected:
                await self._fail(
                    ApiError("something went wrong on our side"), RuntimeError("the application left an answer unfinished")
                )
        finally:
            self.on_response = _nothing
            self._on_leaving = None
            cast(dict[str, Any], self.scope).pop(LEAVING)  # a circle that nobody has to collect

    def send(self, message: ASGISendEvent) -> Coroutine[Any, Any, None]:
        if not self.response_started and self.more_body:
            # An answer before the end of the question: what else comes of it must not be read as the next request.
            self.keep_alive = False
        if message["type"] == "http.response.start" and self.scope["method"] != "HEAD":
            cast(_Outlet, self.transport).holds = True
        return super().send(message)

    async def _fail(self, fault: ApiError, error: Exception | None) -> None:
        id = new_id("req")
        fields = {"request_id": id, "method": self.scope["method"], "path": self.scope["path"], "error": fault.code}
        LOG.log(logging.ERROR if error else logging.WARNING, "an answer failed", exc_info=error, extra={"fields": fields})
        if self.disconnected:
            return
        if self.response_started:
            self.transport.close()
            return
        status, body = error_from_hub(fault)
        headers = [*_headers_of(id, body), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})


class _Outlet:
    """The transport as an answer sees it. The head of an answer waits for its first bytes, which are mostly right behind it: one
    write for both. Closing is the protocol's business."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self.holds = False
        self._write = transport.write
        self._close = close
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self.holds:
            self._head, self.holds = data, False
            self._loop.call_soon(self._flush)
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._write(data)

    def close(self) -> None:
        self._flush()
        self._close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")


def _check_framing(version: str, headers: list[tuple[bytes, bytes]]) -> None:
    """RFC 9112, 6: what the parser lets through although not every reader would find the same end of the request."""
    if version not in ("1.0", "1.1"):
        raise ClientFault(f"HTTP/{version}: wanted HTTP/1.1")
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or [coding.lower() for coding in codings] != [b"chunked"]):
        raise ClientFault("transfer-encoding: wanted `chunked`, once, in HTTP/1.1")


def _asks_for_websocket(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers)


def _fault_of(error: httptools.HttpParserError) -> ApiError:
    """What the parser, or one of our answers to it, has to say."""
    if isinstance(error.__context__, ApiError):
        return error.__context__
    if isinstance(error, httptools.HttpParserCallbackError):
        LOG.error("reading a request failed", exc_info=error)
        return ApiError("something went wrong on our side")
    return ClientFault(f"this is no HTTP/1.1 request: {error}")


def _too_large() -> ClientFault:
    said = f"the head of the request is too large: at most {HEAD_LIMIT} bytes and {MAX_HEADERS} headers"
    return ClientFault(said, code="headers_too_large", status=431)


def _headers_of(id: str, body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"x-request-id", id.encode())]


def _nothing() -> None:
    """Where a finished answer reports to."""
