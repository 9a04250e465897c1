"""One HTTP/1.1 answer: filled by a socket, emptied by a reader, watched by one timer.

A reader that is slow stops the socket, so that little waits in user space, and that time is not counted as the upstream's silence.
Anything that is not an HTTP/1.x answer, too many or too long headers, a protocol switch and an early end are `UpstreamFault`s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import httptools

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.upstream.connection import Connection
from antiphon.upstream.transport import Sink

# The socket stops when this much waits. One more read may have come by then, and a TLS record that was cut in two; and the reader
# may still have in its hands what it took last. Together that stays far below 256 KiB.
MAX_BUFFERED: Final = 32 * 1024
MAX_HEAD: Final = 64 * 1024
MAX_HEADERS: Final = 256


class StaleConnection(Exception):
    """The connection ended before the first byte of an answer."""


class HttpResponse:
    """An `Answer` from a socket. `head` is done when status and headers are known; `give_back` gets a socket that is in order."""

    def __init__(
        self,
        connection: Connection,
        give_back: Callable[[Connection], None],
        timeouts: Timeouts,
        started_at: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._loop = loop
        self.head: asyncio.Future[None] = self._loop.create_future()
        self._connection: Connection | None = connection
        self._give_back = give_back
        self._is_reusable = False  # whether the upstream left the connection in a state for another exchange
        self._buffer: list[bytes] = []
        self._buffer_size = 0
        self.on_body = self._buffer.append  # called for every chunk of a stream: no function of ours could be as quick
        # Looks for `on_body` here and now. Each holds the other: it is let go at the end, or only the collector would find the two.
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._end: int | None = None  # how many pieces of what is held were its body, once it is complete
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None  # for what comes while somebody waits in `flow`
        self._fault: UpstreamFault | None = None
        self._complaint = ""  # what is wrong with a head that the parser itself has nothing against
        self._complete = False
        self._header_count = 0
        self._without_body = 0  # bytes that came since the last byte of a body
        self._timeouts = timeouts
        self._started_at = started_at
        self._last_read = self._loop.time()
        self._is_silent = True  # until the first byte
        self._timer = self._loop.call_later(self._time_left(self._last_read), self._check_timeouts)
        connection.listen(self)

    # The reader's side

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Whoever leaves before the end hangs up on the upstream."""
        try:
            while True:
                if self._buffer:
                    yield self._take()
                elif self._fault is not None:
                    raise self._fault.without_traceback()
                elif self._complete:
                    return
                else:
                    self._waiter = self._loop.create_future()
                    await self._waiter
        finally:
            self.abort()

    async def flow(self, sink: Sink) -> bool:
        """The body to `sink`, each piece in the step of the event loop that brings it. What the sink raises is raised here."""
        while True:
            if self._buffer:
                if not sink(self._take()):
                    return False
            elif self._fault is not None:
                raise self._fault.without_traceback()
            elif self._complete:
                return True
            elif not await self._flow_to(sink):
                return False

    def abort(self) -> None:
        """Hangs up, if there is anything to hang up on; another task that waits for pieces is told."""
        if self._buffer or not self._complete:
            self._break("the exchange with the upstream was ended on our side", "upstream_disconnected")
        self._buffer.clear()
        self._buffer_size = 0

    def take_body(self) -> bytes | None:
        """The rest of the body, if the last of it has come; None if it has to be waited for."""
        return self._take() if self._complete and self._buffer else None

    @property
    def is_complete(self) -> bool:
        """Whether the last byte has come, though a reader may not have taken it."""
        return self._complete

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the body that came and wait for the reader."""
        return self._buffer_size

    # The socket's side

    def on_data(self, data: memoryview) -> None:
        self._last_read = self._loop.time()
        was_silent, self._is_silent = self._is_silent, False
        before = len(self._buffer)
        is_valid = True
        assert self._parser is not None  # which is there for as long as the connection is
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            is_valid = self._is_reusable = False
        if self._end is not None:
            del self._buffer[self._end :]  # a second answer's
        new_pieces = len(self._buffer) - before
        if new_pieces:
            self._buffer_size += len(self._buffer[before]) if new_pieces == 1 else sum(map(len, self._buffer[before:]))
        if not is_valid and not self._complete:
            self._break(self._complaint or "the upstream's answer is not valid HTTP", "upstream_invalid_response")
            return
        if self._complete:
            self._let_go()
            self._wake()
            return
        if was_silent:
            self._timer.cancel()  # from here on it is another limit, which may be shorter
            self._timer = self._loop.call_later(self._time_left(self._last_read), self._check_timeouts)
        if not new_pieces:
            self._count_without_body(len(data))
        else:
            self._without_body = 0
            if self._sink is not None and self._feed_sink(self._sink):
                return
            if self._buffer_size >= MAX_BUFFERED and not self._paused:
                self._pause()
            self._wake()

    def on_disconnect(self, is_clean: bool) -> None:
        self._connection = None
        if self._complete or self._fault is not None:
            return
        if self._is_silent:
            self._end_watch()
            if not self.head.done():
                self.head.set_exception(StaleConnection())
        elif is_clean and self.head.done() and not self._has_length:
            self._complete = True
            self._end_watch()
            self._wake()
        else:
            self._break("the upstream closed the connection in the middle of its answer", "upstream_disconnected")

    # The parser's side

    def on_message_begin(self) -> None:
        if self._complete:  # a second answer to one question
            self._is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            self._complain(f"the upstream sent more than {MAX_HEADERS} headers")
        if self.status:  # a trailer, or a second answer
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self.status:
            return
        assert self._parser is not None  # it calls
        status = self._parser.get_status_code()
        if status < 100 or self._parser.get_http_version() not in KNOWN_VERSIONS:
            self._complain("the upstream's answer is not valid HTTP/1.1")
        if status == 101:
            self._complain("the upstream switched to another protocol, unasked")
        if status < 200:  # an interim answer: the real one follows
            self.headers.clear()
            return
        self.status = status
        if not self.head.done():
            self.head.set_result(None)

    def on_message_complete(self) -> None:
        if self.status and not self._complete:
            assert self._parser is not None  # it calls
            self._complete = True
            self._end = len(self._buffer)
            self._is_reusable = self._parser.should_keep_alive()

    # Inside

    @property
    def _has_length(self) -> bool:
        """Whether the answer itself says where it ends, or its end is the end of the connection."""
        return "content-length" in self.headers or self.headers.get("transfer-encoding", "").lower().endswith("chunked")

    def _complain(self, what: str) -> None:
        """Stops the parser from inside one of its calls."""
        self._complaint = what
        raise ValueError(what)

    def _count_without_body(self, count: int) -> None:
        """Headers, trailers and the extensions of chunks may be so long and no longer, and a parser would keep them."""
        self._without_body += count
        if self._without_body > MAX_HEAD:
            self._break(f"the upstream sent more than {MAX_HEAD} bytes of headers", "upstream_invalid_response")

    async def _flow_to(self, sink: Sink) -> bool:
        """Until there is something to do for who waits here; false if the sink wanted no more."""
        self._sink = sink
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
            return self._sink is not None
        finally:
            self._sink = None

    def _feed_sink(self, sink: Sink) -> bool:
        """What has just come, to the sink; false if the sink is not to have more, and then whoever waits is to be woken."""
        assert self._waiter is not None  # it waits in `_flow_to`
        if self._waiter.done():  # it was cancelled, and will take note in a moment
            return False
        try:
            piece = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
            self._buffer.clear()
            self._buffer_size = 0
            if sink(piece):
                return True
        except Exception as error:  # not a fault of the socket, which is what called
            self._waiter.set_exception(error)
        self._sink = None
        return False

    def _take(self) -> bytes:
        piece = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
        self._buffer.clear()
        self._buffer_size = 0
        if self._paused:
            self._resume()
        return piece

    def _pause(self) -> None:
        assert self._connection is not None  # it has just brought something
        self._connection.pause()
        self._paused = True

    def _resume(self) -> None:
        self._paused = False
        self._last_read = self._loop.time()  # while we did not listen, the silence was ours
        if self._connection is not None:
            self._connection.resume()

    def _let_go(self) -> None:
        """The answer is complete: the connection is free, though a reader may still have pieces to take."""
        self._end_watch()
        if self._paused:
            self._resume()  # an idle socket must hear the other side hang up
        connection, self._connection = self._connection, None
        assert connection is not None  # it has just brought the last byte
        connection.listen(None)
        if self._is_reusable and connection.has_sent_all:
            self._give_back(connection)
        else:
            connection.drop()

    def _break(self, message: str, code: str, status: int | None = None) -> None:
        """The answer ends here, for this reason. What came before may still be read."""
        self._end_watch()
        if self._fault is None:
            self._fault = UpstreamFault(message, code=code, status=status)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()
        if not self.head.done():
            self.head.set_exception(self._fault.without_traceback())
            self.head.exception()  # told to whoever waits for the head; if nobody does any more, that is no news
        self._wake()

    def _end_watch(self) -> None:
        """Nothing more will come, or nothing that is wanted."""
        self._timer.cancel()
        self._parser = None

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _check_timeouts(self) -> None:
        now = self._loop.time()
        limits = self._timeouts
        if now >= self._started_at + limits.total:  # added up as below: a difference may round to less
            self._break(f"the upstream's answer took longer than {limits.total:g} s", "upstream_timeout", 504)
        elif self._time_left(now) > 0:
            self._timer = self._loop.call_later(self._time_left(now), self._check_timeouts)
        elif self._is_silent:
            self._break(f"the upstream did not answer within {limits.first_byte:g} s", "upstream_timeout", 504)
        else:
            self._break(f"the upstream fell silent for {limits.idle:g} s", "upstream_timeout", 504)

    def _time_left(self, now: float) -> float:
        """Seconds until the next limit is reached if nothing comes."""
        limits = self._timeouts
        allowed = limits.first_byte if self._is_silent else limits.idle
        last_read = now if self._paused else self._last_read
        return min(last_read + allowed, self._started_at + limits.total) - now


KNOWN_VERSIONS: Final = frozenset({"1.0", "1.1"})
