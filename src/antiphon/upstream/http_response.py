"""One HTTP/1.1 response: a socket fills it, a reader empties it, the timer of the socket watches it.

A slow reader pauses the socket, so that little is buffered, and the pause does not count as idle time of the upstream.
Invalid HTTP, too many or too long headers, a protocol switch and an early end are `UpstreamFault`s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httptools
from msgspec import Struct

from antiphon.config import Timeouts
from antiphon.errors import NoAnswer, UpstreamFault
from antiphon.upstream.connection import Connection
from antiphon.upstream.transport import Sink

# The socket is paused at this size. One more read, part of a TLS record and the piece at the reader may add to it;
# together they stay far below 256 KiB.
MAX_BUFFERED_BYTES: Final = 32 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256


_LATER: Final[Any] = None  # the value of a field before `__post_init__` sets it


class StaleConnection(Exception):
    """The connection ended before the first byte of an answer."""


class HttpResponse(Struct, eq=False):
    """An `UpstreamResponse` from a socket. `head` is done when status and headers are known; `give_back` gets a socket
    that can be reused."""

    _connection: Connection | None
    _give_back: Callable[[Connection], None]
    _timeouts: Timeouts
    _started_at: float
    _loop: asyncio.AbstractEventLoop
    head: asyncio.Future[None] = _LATER
    on_body: Callable[[bytes], None] = _LATER  # called for every chunk: the fastest possible callback
    status: int = 0
    headers: dict[str, str] = {}
    _parser: httptools.HttpResponseParser | None = None
    _is_reusable: bool = False  # whether the connection can carry another exchange
    _buffer: list[bytes] = []
    _buffer_size: int = 0
    _body_piece_count: int | None = None  # number of buffered pieces that are body, once complete
    _is_paused: bool = False
    _waiter: asyncio.Future[None] | None = None
    _sink: Sink | None = None  # gets pieces while `flow` waits
    _fault: UpstreamFault | None = None
    _head_problem: str = ""  # what is wrong with a head that the parser accepts
    _is_complete: bool = False
    _header_count: int = 0
    _overhead_bytes: int = 0  # bytes since the last body byte
    _last_read: float = 0.0
    _is_silent: bool = True  # until the first byte

    def __post_init__(self) -> None:
        loop, connection = self._loop, self._connection
        assert connection is not None  # it is set at first
        self.head = loop.create_future()
        self.on_body = self._buffer.append
        # Binds `on_body` now. Parser and response reference each other, so the parser is released at the end.
        self._parser = httptools.HttpResponseParser(self)
        self._last_read = loop.time()
        connection.check_at(self._next_timeout(self._last_read), self._check_timeouts, loop)
        connection.listen(self)

    # The reader's side

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in pieces. Leaving the iteration early closes the connection."""
        try:
            while True:
                if self._buffer:
                    yield self._take_buffered()
                elif self._fault is not None:
                    raise self._fault.without_traceback()
                elif self._is_complete:
                    return
                else:
                    self._waiter = self._loop.create_future()
                    await self._waiter
        finally:
            self.abort()

    async def flow(self, sink: Sink) -> bool:
        """Passes the body to `sink`, each piece in the event loop step that received it. Sink errors are raised."""
        while True:
            if self._buffer:
                if not sink(self._take_buffered()):
                    return False
            elif self._fault is not None:
                raise self._fault.without_traceback()
            elif self._is_complete:
                return True
            elif not await self._flow_to(sink):
                return False

    def abort(self) -> None:
        """Closes the connection if the body is not complete; a task that waits for pieces gets an error."""
        if self._buffer or not self._is_complete:
            self._fail("the gateway aborted the exchange with the upstream", "upstream_disconnected")
        self._buffer.clear()
        self._buffer_size = 0

    def take_body(self) -> bytes | None:
        """The rest of the body if it is complete; None if it must be awaited."""
        return self._take_buffered() if self._is_complete and self._buffer else None

    @property
    def is_complete(self) -> bool:
        """Whether the last byte was received; the reader may not have taken it yet."""
        return self._is_complete

    @property
    def buffered_bytes(self) -> int:
        """Received body bytes that the reader has not taken."""
        return self._buffer_size

    # The socket's side

    def on_data(self, data: memoryview) -> None:
        self._last_read = self._loop.time()
        was_silent, self._is_silent = self._is_silent, False
        old_piece_count = len(self._buffer)
        is_valid = True
        assert self._parser is not None  # set while the connection is open
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            is_valid = self._is_reusable = False
        if self._body_piece_count is not None:
            del self._buffer[self._body_piece_count :]  # bytes of a second response
        new_pieces = len(self._buffer) - old_piece_count
        if new_pieces:
            self._buffer_size += (
                len(self._buffer[old_piece_count]) if new_pieces == 1 else sum(map(len, self._buffer[old_piece_count:]))
            )
        if not is_valid and not self._is_complete:
            self._fail(self._head_problem or "the upstream's answer is not valid HTTP", "upstream_invalid_response")
            return
        if self._is_complete:
            self._release_connection()
            self._wake_reader()
            return
        if was_silent:
            self._check_later(self._last_read)  # the idle timeout may be shorter than the first-byte timeout
        if not new_pieces:
            self._count_overhead(len(data))
        else:
            self._overhead_bytes = 0
            if self._sink is not None and self._feed_sink(self._sink):
                return
            if self._buffer_size >= MAX_BUFFERED_BYTES and not self._is_paused:
                self._pause()
            self._wake_reader()

    def on_disconnect(self, is_clean: bool) -> None:
        self._connection = None
        if self._is_complete or self._fault is not None:
            return
        if self._is_silent:
            self._stop_watching()
            if not self.head.done():
                self.head.set_exception(StaleConnection())
        elif is_clean and self.head.done() and not self._has_length:
            self._is_complete = True
            self._stop_watching()
            self._wake_reader()
        else:
            message = "the upstream closed the connection in the middle of its answer"
            self._fail_with(
                UpstreamFault(message, code="upstream_disconnected") if self.head.done() else NoAnswer(message)
            )

    # The parser's side

    def on_message_begin(self) -> None:
        if self._is_complete:  # a second response to one request
            self._is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._reject_head(f"the upstream sent more than {MAX_HEADERS} headers")
        if self.status:  # a trailer, or a second response
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self.status:
            return
        assert self._parser is not None  # it calls
        status = self._parser.get_status_code()
        if status < 100 or self._parser.get_http_version() not in SUPPORTED_VERSIONS:
            self._reject_head("the upstream's answer is not valid HTTP/1.1")
        if status == 101:
            self._reject_head("the upstream switched to another protocol without a request to do so")
        if status < 200:  # an interim response
            self.headers.clear()
            return
        self.status = status
        if not self.head.done():
            self.head.set_result(None)

    def on_message_complete(self) -> None:
        if self.status and not self._is_complete:
            assert self._parser is not None  # it calls
            self._is_complete = True
            self._body_piece_count = len(self._buffer)
            self._is_reusable = self._parser.should_keep_alive()

    # Inside

    @property
    def _has_length(self) -> bool:
        """Whether the response has a length or is chunked; otherwise it ends with the connection."""
        return "content-length" in self.headers or self.headers.get("transfer-encoding", "").lower().endswith("chunked")

    def _reject_head(self, problem: str) -> None:
        """Stops the parser from a callback."""
        self._head_problem = problem
        raise ValueError(problem)

    def _count_overhead(self, count: int) -> None:
        """Limits the bytes of headers, trailers and chunk extensions, which the parser would buffer."""
        self._overhead_bytes += count
        if self._overhead_bytes > MAX_HEAD_BYTES:
            self._fail(f"the upstream sent more than {MAX_HEAD_BYTES} bytes of headers", "upstream_invalid_response")

    async def _flow_to(self, sink: Sink) -> bool:
        """Waits until the sink stops or the response needs attention; False if the sink wants no more."""
        self._sink = sink
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
            return self._sink is not None
        finally:
            self._sink = None

    def _feed_sink(self, sink: Sink) -> bool:
        """Passes new pieces to the sink; False if the waiting task must wake up."""
        assert self._waiter is not None  # set in `_flow_to`
        if self._waiter.done():  # cancelled
            return False
        try:
            piece = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
            self._buffer.clear()
            self._buffer_size = 0
            if sink(piece):
                return True
        except Exception as error:  # the caller is the socket, which must not get it
            self._waiter.set_exception(error)
        self._sink = None
        return False

    def _take_buffered(self) -> bytes:
        piece = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        self._buffer.clear()
        self._buffer_size = 0
        if self._is_paused:
            self._resume()
        return piece

    def _pause(self) -> None:
        assert self._connection is not None  # it delivered data
        self._connection.pause()
        self._is_paused = True

    def _resume(self) -> None:
        self._is_paused = False
        self._last_read = self._loop.time()  # the pause was ours, not the upstream's
        if self._connection is not None:
            self._connection.resume()

    def _release_connection(self) -> None:
        """Releases the connection of a complete response; the reader may still have pieces to take."""
        self._stop_watching()
        if self._is_paused:
            self._resume()  # an idle socket must notice a disconnect
        connection, self._connection = self._connection, None
        assert connection is not None  # it delivered the last byte
        connection.listen(None)
        if self._is_reusable and connection.has_sent_all:
            self._give_back(connection)
        else:
            connection.drop()

    def _fail(self, message: str, code: str, status: int | None = None) -> None:
        self._fail_with(UpstreamFault(message, code=code, status=status))

    def _fail_with(self, fault: UpstreamFault) -> None:
        """Ends the response with a fault. Pieces received before can still be read."""
        self._stop_watching()
        self._fault = self._fault or fault
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()
        if not self.head.done():
            self.head.set_exception(self._fault.without_traceback())
            self.head.exception()  # mark as retrieved: nobody may be waiting for the head
        self._wake_reader()

    def _stop_watching(self) -> None:
        """Stops the timer and releases the parser."""
        if self._connection is not None:
            self._connection.stop_checks()
        self._parser = None

    def _wake_reader(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _check_timeouts(self) -> None:
        now = self._loop.time()
        timeouts = self._timeouts
        if now >= self._started_at + timeouts.total:  # the same sum as in `_next_timeout`: rounding must not differ
            self._fail(f"the upstream's answer took longer than {timeouts.total:g} s", "upstream_timeout", 504)
        elif self._next_timeout(now) > now:
            self._check_later(now)
        elif self._is_silent:
            self._fail(f"the upstream did not answer within {timeouts.first_byte:g} s", "upstream_timeout", 504)
        else:
            self._fail(f"the upstream sent nothing for {timeouts.idle:g} s", "upstream_timeout", 504)

    def _check_later(self, now: float) -> None:
        if self._connection is not None:
            self._connection.check_at(self._next_timeout(now), self._check_timeouts, self._loop)

    def _next_timeout(self, now: float) -> float:
        """The time of the next timeout."""
        timeouts = self._timeouts
        allowed_silence = timeouts.first_byte if self._is_silent else timeouts.idle
        last_read = now if self._is_paused else self._last_read
        return min(last_read + allowed_silence, self._started_at + timeouts.total)


SUPPORTED_VERSIONS: Final = frozenset({"1.0", "1.1"})
