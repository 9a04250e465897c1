"""One socket to an upstream, plain or TLS, direct or through a proxy. It passes received bytes to the current listener
and knows nothing of HTTP.

All sockets read through one small shared buffer, and each read is passed on before the next one. So a paused socket has
at most one such buffer in flight.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from antiphon.errors import UpstreamFault
from antiphon.upstream.tls import TlsSession, TlsState, tls_fault

READ_SIZE: Final = 32 * 1024
#: Bytes that are encrypted and written in one step of the event loop. TLS takes 5 ms for a MiB.
WRITE_SIZE: Final = 256 * 1024


class Listener(Protocol):
    """Receives the bytes of a socket: a handshake, a proxy's answer, an upstream's answer."""

    def on_data(self, data: memoryview) -> None:
        """Receives bytes, which are valid during the call only."""
        ...

    def on_disconnect(self, is_clean: bool) -> None:
        """The connection ended. `is_clean`: the other side ended it, and nobody else can have."""
        ...


class Connection(asyncio.BufferedProtocol):
    """A socket. Received bytes go to the listener; unexpected bytes close the connection."""

    def __init__(self, read_buffer: memoryview, on_closed: Callable[[Connection], None]) -> None:
        self.is_dropped = False  # unusable, though the socket may not be closed yet
        self._listener: Listener | None = None
        self._read_buffer = read_buffer
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._tls: TlsSession | None = None
        self._unwritten: deque[memoryview] = deque()  # the rest of large data
        self._is_write_paused = False  # the other side does not read as fast
        self._is_write_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_time = 0.0
        self._check_time: Callable[[], None] | None = None

    @property
    def has_sent_all(self) -> bool:
        return self._transport is not None and not self._unwritten and self._transport.get_write_buffer_size() == 0

    def listen(self, listener: Listener | None) -> None:
        """Passes received bytes to `listener` from now on; None: no bytes are expected."""
        self._listener = listener
        if self.is_dropped and listener is not None:  # it may have ended while there was no listener
            listener.on_disconnect(False)

    def check_at(self, time: float, check: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Calls `check` at this time of the event loop, or earlier. A timer that ends earlier stays, also one of an
        earlier exchange: most answers come long before their timeouts, and a timer for each takes 1.3 µs."""
        if self.is_dropped:
            return
        self._check_time = check
        if self._timer is not None:
            if self._timer_time <= time:
                return
            self._timer.cancel()
        self._timer_time = time
        self._timer = loop.call_at(time, self._on_timer)

    def stop_checks(self) -> None:
        self._check_time = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._check_time is not None:
            self._check_time()

    def write(self, data: bytes) -> None:
        """Writes data; large data in parts, so that the event loop serves others in between."""
        if len(data) <= WRITE_SIZE and not self._unwritten:
            self._write_part(data)
        elif data and not self.is_dropped:
            self._unwritten.append(memoryview(data))
            self._schedule_write()

    def _schedule_write(self) -> None:
        if self._unwritten and not self._is_write_paused and not self._is_write_scheduled:
            self._is_write_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_next_part)

    def _write_next_part(self) -> None:
        self._is_write_scheduled = False
        if not self._unwritten or self._is_write_paused:
            return
        data = self._unwritten.popleft()
        if len(data) > WRITE_SIZE:
            self._unwritten.appendleft(data[WRITE_SIZE:])
        self._write_part(data[:WRITE_SIZE])
        self._schedule_write()

    def _write_part(self, data: bytes | memoryview) -> None:
        self.write_raw(data if self._tls is None else self._tls.encrypt(data))

    def write_request(self, head: bytes, body: bytes) -> None:
        """Writes a request. The body is not copied, unless it is small and is encrypted."""
        if len(body) > WRITE_SIZE:
            self.write(head)
            self.write(body)
        elif self._tls is not None or self._unwritten:
            self.write(head + body)
        elif self._transport is not None and not self.is_dropped:
            self._transport.writelines((head, body))

    def write_raw(self, data: bytes | memoryview) -> None:
        """Writes bytes without encrypting them, for the TLS layer itself."""
        if data and self._transport is not None and not self.is_dropped:
            self._transport.write(data)

    def pause(self) -> None:
        """Stops reading until `resume`. The other side blocks once the kernel's buffers are full."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    def drop(self, *, is_clean: bool = False) -> None:
        """Closes the socket at once, discards unsent data, and notifies the listener."""
        self.is_dropped = True
        self._unwritten.clear()
        self._check_time = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        else:
            self._on_closed(self)
        if listener is not None:
            listener.on_disconnect(is_clean)

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Starts TLS and verifies that the server is `host`."""
        await _Handshake(self, TlsSession(context, host)).done

    def finish_handshake(self, session: TlsSession) -> None:
        """Marks the handshake as done: later bytes, even of the same read, are encrypted."""
        self._tls = session
        self._listener = None

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.is_dropped:  # too late; its end need not be reported
            cast(asyncio.Transport, transport).abort()
        else:
            self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        # One buffer serves all sockets: reading into it and `buffer_updated` are one step of the event loop.
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._read_buffer[:nbytes]
        tls_state: TlsState = "open"
        if self._tls is not None:
            data, tls_state = self._decrypt(self._tls, data)
        if data:
            if self._listener is not None:
                self._listener.on_data(data)
            else:
                self.drop()
        if tls_state != "open":
            self.drop(is_clean=tls_state == "done")

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._schedule_write()

    def eof_received(self) -> None:
        # TLS announces its end; an unannounced end may come from anybody on the path.
        self.drop(is_clean=self._tls is None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self.drop(is_clean=False)

    # Inside

    def _decrypt(self, tls: TlsSession, data: memoryview) -> tuple[memoryview, TlsState]:
        """Decrypts `data`. The result is empty for TLS control messages, which may arrive at any time."""
        decrypted, tls_state = tls.decrypt(data)
        self.write_raw(tls.take_outgoing())
        return memoryview(decrypted), tls_state


class _Handshake:
    """Listens until the TLS handshake succeeds or fails."""

    def __init__(self, connection: Connection, session: TlsSession) -> None:
        self._session = session
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        connection.listen(self)
        self._continue_handshake(b"")

    def on_data(self, data: memoryview) -> None:
        self._continue_handshake(data)

    def on_disconnect(self, is_clean: bool) -> None:  # noqa: ARG002
        if not self.done.done():
            self.done.set_exception(
                UpstreamFault(
                    "the upstream closed the connection during the TLS handshake", code="upstream_unavailable"
                )
            )

    def _continue_handshake(self, data: memoryview | bytes) -> None:
        if self.done.done():
            return
        try:
            if self._session.do_handshake(data):
                self._connection.finish_handshake(self._session)
                self.done.set_result(None)
        except ssl.SSLError as error:
            self.done.set_exception(tls_fault(error))
        self._connection.write_raw(self._session.take_outgoing())
