"""The HTTP/1.1 server protocol that uvicorn runs, hardened for open networks. Knows no endpoint.

Parser errors are answered as JSON errors (ERR-1). Heads are limited in size and time, ambiguous framing is refused, and
clients that do not read are disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final

import httptools
import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.admission import InputQueue
from antiphon.gateway.client_body import dialect_at_path
from antiphon.gateway.ids import new_id
from antiphon.http.asgi import (
    BODY_HIGH,
    HEADERS_BY_NAME,
    Headers,
    RequestCycle,
    Scope,
    connection_error_headers,
    encode_head,
    headers_by_name,
)
from antiphon.http.websocket import WebSocket, WebSocketRoutes
from antiphon.http.websocket_protocol import BadHandshake

HEAD_LIMIT: Final = 64 * 1024
MAX_HEADERS: Final = 100
MAX_PIPELINED: Final = 8  # requests queued behind the current one
# Together with the upstream buffer and one event being written, this stays under 256 KiB per client.
WRITE_HIGH: Final = 64 * 1024
WRITE_LOW: Final = 16 * 1024

LOG: Final = logging.getLogger("antiphon.http")


class HttpProtocol(asyncio.Protocol):
    """One client connection. Until its first request it does as little as possible: while many connections are
    accepted, those that come later wait."""

    #: Seconds for a head from its first byte, or for a new connection until its first head.
    head_timeout = 20.0
    #: Seconds between two pieces of a body.
    body_timeout = 60.0
    #: Seconds for a whole body; an application with a `body_timeout` sets its own.
    body_total_timeout = 300.0
    #: Seconds for which a client may read nothing while data is pending.
    stall_timeout = 60.0
    #: Seconds for a client to read the error that ends the connection.
    drain_timeout = 1.5

    transport: asyncio.Transport
    flow: FlowControl
    scope: Scope
    headers: Headers

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: Mapping[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.app: Any = config.loaded_app
        self.loop = _loop or asyncio.get_running_loop()
        self.server_state = server_state
        self.connections: set[Any] = server_state.connections
        self.tasks = server_state.tasks
        self.timeout_keep_alive = config.timeout_keep_alive
        self._app_state = app_state
        self.parser = self._new_parser()
        self.url = b""
        self._newest_cycle: RequestCycle | None = None  # the request with the last head
        self._current_cycle: RequestCycle | None = None  # the request being answered
        self._pipelined_cycles: list[RequestCycle] = []  # pipelined requests
        self._is_in_head = True  # from the end of a request to the end of the next head
        self._bytes_since_callback = 0  # bytes fed to the parser since its last callback
        self._is_closing = False  # no more input is processed
        self._final_response = b""
        self._idle_since: float | None = None  # None while a request is active
        self._idle_timer: asyncio.TimerHandle | None = None
        self._input_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None  # for the whole body
        self._stall_timer: asyncio.TimerHandle | None = None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._socket: WebSocket | None = None  # set after an upgrade
        self._input_queue: InputQueue | None = getattr(self.app, "input_queue", None)
        self._queued_input = b""  # waits for its turn in the queue
        self._owner = ""  # of the queued input

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        transport.set_write_buffer_limits(WRITE_HIGH, WRITE_LOW)
        self._input_timer = self.loop.call_later(self.head_timeout, self._on_head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        running, self._current_cycle, self._newest_cycle = self._current_cycle, None, None
        self._queued_input = b""
        if running is not None:
            running.on_disconnect()
        self._pipelined_cycles.clear()
        self.connections.discard(self)
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        del self.parser  # breaks a reference cycle
        self._stop_timers()

    def _stop_timers(self) -> None:
        for timer in (self._input_timer, self._body_timer, self._idle_timer, self._stall_timer, self._drain_timer):
            if timer is not None:
                timer.cancel()

    @cached_property
    def client(self) -> tuple[str, int] | None:
        """The address of the client."""
        return _address(self.transport.get_extra_info("peername"))

    @cached_property
    def server(self) -> tuple[str, int] | None:
        """The address that the client has connected to."""
        return _address(self.transport.get_extra_info("sockname"))

    # EOF counts as a disconnect (asyncio's own `eof_received` closes): closing a socket sends the same FIN as closing
    # half of it, and a client that has disconnected must not keep its upstream busy (docs/decisions/0005).

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._idle_since = None
        if self._input_queue is None or (not self._queued_input and self._input_queue.take_place(self.loop.time())):
            self._process_input(data)
        else:
            self._queue_input(self._input_queue, data)

    def _queue_input(self, queue: InputQueue, data: bytes) -> None:
        """Many requests arrive: input waits until it is its owner's turn."""
        is_first = not self._queued_input
        self._queued_input += data
        if is_first:
            guess_owner: Callable[[bytes], str | None] = self.app.guess_owner
            self._owner = guess_owner(data) or self._owner
            queue.add(self._owner, self._process_queued_input)
        if len(self._queued_input) > BODY_HIGH:
            self.flow.pause_reading()

    def _process_queued_input(self) -> None:
        data, self._queued_input = self._queued_input, b""
        if data and not self.transport.is_closing():
            self.flow.resume_reading()
            self._process_input(data)

    def _process_input(self, data: bytes) -> None:
        for start in range(0, len(data), HEAD_LIMIT):  # a read may exceed the head limit, so it is checked in parts
            rest = data[start : start + HEAD_LIMIT]
            while rest and not self._is_closing:
                rest = self._feed_parser(rest)
        self._set_input_timer()

    def _feed_parser(self, data: bytes) -> bytes:
        """Feeds bytes to the parser; returns the bytes that must be fed again."""
        if self._socket is not None:  # bytes after the upgrade
            self._socket.data_received(data)
            return b""
        self._bytes_since_callback += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as pause:
            rest = data[pause.args[0] :]
            if self._socket is None:
                return self._head_without_upgrade() + rest
            self._switch_to_websocket(self._socket)
            return rest
        except httptools.HttpParserError as error:
            self._refuse_input(_error_behind(error))
        else:
            if self._bytes_since_callback > HEAD_LIMIT:  # head, trailers, or chunk extensions
                self._refuse_input(_too_large())
        return b""

    def _head_without_upgrade(self) -> bytes:
        """The head without its upgrade header, for a new parser. An unknown upgrade is ignored."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = self._new_parser()
        return b"\r\n".join([*lines, b"", b""])

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # The response to a request with `connection: close` comes before the pipelined bytes behind it are refused.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _admit_websocket(self, method: str, version: str) -> WebSocket:
        """Asks the application's `websockets` to accept the upgrade."""
        websockets: WebSocketRoutes | None = getattr(self.app, "websockets", None)
        if websockets is None:
            raise ClientFault(
                "WebSockets are disabled: send the request with POST", code="upgrade_required", status=426
            )
        if self._current_cycle is not None:
            raise BadHandshake("earlier requests on this connection are still in flight")
        self.scope["method"] = method
        self.scope["http_version"] = version
        self._set_target()
        return websockets.accept(self.scope)

    def _switch_to_websocket(self, socket: WebSocket) -> None:
        """Turns the connection into a WebSocket and stops all HTTP timers."""
        self._stop_timers()
        self.connections.discard(self)
        del self.parser  # breaks a reference cycle
        socket.open(self.transport, self.connections, self.server_state.default_headers)
        if self.flow.write_paused:  # by an earlier response
            socket.pause_writing()

    # Parser callbacks

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.scope = {
            "type": "http",
            "asgi": ASGI,
            "server": self.server,
            "client": self.client,
            "scheme": "http",
            "root_path": "",
            "headers": self.headers,
            "state": {**self._app_state},
        }

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # a trailer: ignored, so that headers do not change after they were read
        if len(self.headers) == MAX_HEADERS:
            raise _too_large()
        self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self._bytes_since_callback = 0
        _check_size(self.url, self.headers)
        version = self.parser.get_http_version()
        method = self.parser.get_method().decode("ascii")
        by_name = headers_by_name(self.headers)
        _check_framing(version, by_name)
        if self.parser.should_upgrade():
            if method == "CONNECT":
                raise ClientFault("CONNECT: this server is not a proxy")
            if _is_websocket_upgrade(self.headers):
                self._socket = self._admit_websocket(method, version)
            return  # the parser stops here; `_feed_parser` continues
        scope = self.scope
        scope["method"] = method
        scope["http_version"] = version
        scope[HEADERS_BY_NAME] = by_name
        self._set_target()
        self._is_in_head = False
        keep_alive = version == "1.1" and self.parser.should_keep_alive()
        expects_continue = b"expect" in by_name and b"100-continue" in map(bytes.lower, by_name[b"expect"])
        cycle = self._newest_cycle = RequestCycle(self, scope, keep_alive=keep_alive, expects_continue=expects_continue)
        if self._current_cycle is None:
            self._start_cycle(cycle)
            return
        self._pipelined_cycles.append(cycle)
        if len(self._pipelined_cycles) >= MAX_PIPELINED:  # not earlier: a paused socket does not notice a disconnect
            self.flow.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._bytes_since_callback = 0
        assert self._newest_cycle is not None  # set by its head
        self._newest_cycle.add_body(body)

    def on_message_complete(self) -> None:
        self._bytes_since_callback = 0
        if not self._is_in_head:
            self._is_in_head = True
            assert self._newest_cycle is not None
            self._newest_cycle.end_body()
            if self._body_timer is not None:
                self._body_timer.cancel()
                self._body_timer = None

    def _set_target(self) -> None:
        target = _cached_target(self.url) if len(self.url) <= MAX_CACHED_URL else _target(self.url)
        if target.host:  # RFC 9112, 3.2.2: an absolute target replaces the Host header
            self.headers[:] = [(b"host", target.host), *(header for header in self.headers if header[0] != b"host")]
            self.scope[HEADERS_BY_NAME] = headers_by_name(self.headers)
        self.scope["path"] = target.path
        self.scope["raw_path"] = target.raw_path
        self.scope["query_string"] = target.query

    # Responses, in the order of their requests

    @property
    def default_headers(self) -> Headers:
        return self.server_state.default_headers

    def on_response_complete(self) -> None:
        self._current_cycle = None
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self._pipelined_cycles:
                self._start_cycle(self._pipelined_cycles.pop(0))
                return
            if self._is_closing and self._drain_timer is None:
                self._send_final_response()
            else:
                self._start_idle_timer()
        self._start_stall_timer()

    def shutdown(self) -> None:
        """The server stops: this connection finishes its current request. Also notifies the application, which nothing
        else does before all connections have drained."""
        start_shutdown = getattr(self.app, "start_shutdown", None)
        if start_shutdown is not None:
            start_shutdown()
        self._process_queued_input()
        if self._newest_cycle is None or self._newest_cycle.is_complete:
            self.transport.close()
        else:
            self._newest_cycle.keep_alive = False

    def _start_cycle(self, cycle: RequestCycle) -> None:
        self._current_cycle = cycle
        if not self.flow.write_paused:  # the write buffer may grow again
            self._stop_stall_timer()
        cycle.start(self.app)

    def _start_idle_timer(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_timer is None:  # one timer for many requests: it checks the time when it fires
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._close_if_idle)
        else:
            self.transport.close()

    def _refuse_input(self, fault: ApiError) -> None:
        """Stops reading and sends an error, after the responses to earlier requests."""
        self._is_closing = True
        self._final_response = self._encode_error_response(fault)
        if not self._is_in_head:
            self._drop_incomplete_request()
        if self._current_cycle is None:
            self._send_final_response()

    def _drop_incomplete_request(self) -> None:
        """Drops the request whose body is invalid."""
        if self._pipelined_cycles:
            self._pipelined_cycles.pop()
            return
        running, self._current_cycle = self._current_cycle, None
        assert running is not None  # a request answered before its body ended closes the connection
        if running.is_started:
            self._final_response = b""
        running.on_disconnect()

    def _send_final_response(self) -> None:
        self.transport.write(self._final_response)
        self.close()

    def close(self) -> None:
        """Closes the connection once everything is written. A client that is still sending gets time to read the
        response: closing with unread input resets the connection and discards the response."""
        self._idle_since = None
        self._pipelined_cycles.clear()
        if self._is_in_head and not self._is_closing:
            self.transport.close()
        else:
            self._is_closing = True
            self._set_input_timer()
            self.transport.write_eof()
            self.flow.resume_reading()
            self._drain_timer = self.loop.call_later(self.drain_timeout, self.transport.close)
        self._start_stall_timer()

    def _encode_error_response(self, fault: ApiError) -> bytes:
        """HTTP-8: an error response of the connection itself, with a request id for the log."""
        status, body = dialect_at_path(self._path).error_from_hub(fault)
        id = new_id("req")
        peer = self.client[0] if self.client else None
        LOG.info(
            "refused",
            extra={
                "fields": {"request_id": id, "status": status, "error": fault.code, "why": fault.message, "peer": peer}
            },
        )
        headers = [
            *self.server_state.default_headers,
            *connection_error_headers(id, body),
            *(
                fault.headers
                if isinstance(fault, BadHandshake)
                else CLOSING_HEADERS.get(status, [(b"connection", b"close")])
            ),
        ]
        return encode_head(status, headers) + b"\r\n" + body

    @property
    def _path(self) -> str:
        """The path of the last head, as far as it was received."""
        return self.url.partition(b"?")[0].decode("latin-1")

    # Slow clients

    def _set_input_timer(self) -> None:
        """Sets the timer for a head (as a whole) or for the next piece of a body. A request in one piece, the usual
        case, needs none."""
        waits_for_head = self._is_in_head and self._bytes_since_callback > 0 and not self._is_closing
        if waits_for_head and self._input_timer is not None:
            return
        if self._input_timer is not None:
            self._input_timer.cancel()
            self._input_timer = None
        if waits_for_head:
            self._input_timer = self.loop.call_later(self.head_timeout, self._on_head_timeout)
        elif not self._is_in_head and not self._is_closing:
            self._input_timer = self.loop.call_later(self.body_timeout, self._on_body_timeout)
            if self._body_timer is None:
                timeout = getattr(self.app, "body_timeout", self.body_total_timeout)
                self._body_timer = self.loop.call_later(timeout, self._on_late_body, timeout)

    def _on_head_timeout(self) -> None:
        self._input_timer = None
        if self._queued_input:
            self._input_timer = self.loop.call_later(self.head_timeout, self._on_head_timeout)
            return
        if self._bytes_since_callback > 0:
            self._refuse_input(_too_late(f"the head of the request was not received within {self.head_timeout:g} s"))
            return
        self._is_closing = True  # nothing was sent: there is no request to answer
        if self._current_cycle is None:
            self.transport.close()

    def _on_late_body(self, timeout: float) -> None:
        self._body_timer = None
        if not self._is_closing:
            self._refuse_input(_too_late(f"the whole body was not received within {timeout:g} s"))

    def _on_body_timeout(self) -> None:
        self._input_timer = None
        if self.flow.read_paused or self._queued_input:  # by us, the client did its part
            self._input_timer = self.loop.call_later(self.body_timeout, self._on_body_timeout)
        else:
            self._refuse_input(_too_late(f"the rest of the body was not received within {self.body_timeout:g} s"))

    def pause_writing(self) -> None:
        self.flow.pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        self.flow.resume_writing()
        if self._current_cycle is None:
            self._start_stall_timer()  # until it has read everything
        else:
            self._stop_stall_timer()

    def _start_stall_timer(self) -> None:
        """Starts the stall timer; nothing is written until `_stop_stall_timer`."""
        self._stop_stall_timer()
        if waiting := self.transport.get_write_buffer_size():
            self._stall_timer = self.loop.call_later(self.stall_timeout, self._check_stall, waiting)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _check_stall(self, before: int) -> None:
        """Disconnects a client that has read nothing since the last check."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._stall_timer = None
        elif waiting < before:
            self._start_stall_timer()
        else:
            LOG.info(
                "disconnected a client that reads nothing",
                extra={"fields": {"waiting_bytes": waiting, "seconds": self.stall_timeout}},
            )
            self.transport.abort()


def _address(name: Any) -> tuple[str, int] | None:
    """Host and port in the name of a TCP socket, which has more parts for IPv6."""
    return name[:2] if isinstance(name, tuple) else None


class _Target(Struct, frozen=True):
    """The target of a request line."""

    path: str
    raw_path: bytes
    query: bytes
    host: bytes


def _target(url: bytes) -> _Target:
    try:
        parsed = httptools.parse_url(url)
        raw_path = parsed.path or b""
        path = raw_path.decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise ClientFault("the request line: the target is not a path") from None
    host = b""
    if parsed.schema:
        host = parsed.host if not parsed.port else b"%b:%d" % (parsed.host, parsed.port)
    return _Target(urllib.parse.unquote(path) if "%" in path else path, raw_path, parsed.query or b"", host)


# Few distinct targets occur.
_cached_target: Final = lru_cache(maxsize=256)(_target)


def _check_size(url: bytes, headers: Headers) -> None:
    """Refuses a head that is too large. It has at most twice the allowed size, because `_feed_parser` counts too."""
    if len(url) + 4 * len(headers) + len(b"".join(chain.from_iterable(headers))) > HEAD_LIMIT:
        raise _too_large()


def _check_framing(version: str, headers: Mapping[bytes, Sequence[bytes]]) -> None:
    """RFC 9112, 6: refuses framing that the parser accepts but other readers may interpret differently."""
    if version not in ("1.0", "1.1"):
        raise ClientFault(f"expected HTTP/1.1, got HTTP/{version}")
    codings = headers.get(b"transfer-encoding")
    if codings and (version == "1.0" or [coding.lower() for coding in codings] != [b"chunked"]):
        raise ClientFault("transfer-encoding: expected `chunked`, once, in HTTP/1.1")


def _is_websocket_upgrade(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers)


def _error_behind(error: httptools.HttpParserError) -> ApiError:
    """The error behind a parser error, which may come from one of our callbacks."""
    if isinstance(error.__context__, ApiError):
        return error.__context__
    if isinstance(error, httptools.HttpParserCallbackError):
        LOG.error("failed to parse a request", exc_info=error)
        return ApiError("internal error; see the log for this request id")
    return ClientFault(f"invalid HTTP/1.1 request: {error}")


def _too_late(message: str) -> ClientFault:
    return ClientFault(message, code="request_timeout", status=408)


def _too_large() -> ClientFault:
    message = f"the headers are too large: expected at most {HEAD_LIMIT} bytes and {MAX_HEADERS} headers"
    return ClientFault(message, code="headers_too_large", status=431)


ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
# RFC 9110, 15.5.22: a 426 response names the required upgrade.
CLOSING_HEADERS: Final[dict[int, Headers]] = {426: [(b"upgrade", b"HTTP/1.1"), (b"connection", b"close, upgrade")]}
MAX_CACHED_URL: Final = 200
