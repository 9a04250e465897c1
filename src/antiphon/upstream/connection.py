"""One socket to an upstream, plain or TLS, direct or through a proxy: bytes to whoever listens at the moment, bytes out.

What HTTP is, it does not know. All sockets are read through one small buffer, and what was read is given away before the next read;
so a socket that is told to stop has at most one such buffer's worth on its way.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol, cast

from antiphon.errors import UpstreamFault
from antiphon.upstream.tls import TlsSession, TlsState, tls_fault

READ_SIZE: Final = 32 * 1024


class Listener(Protocol):
    """Whoever a socket's bytes are for: a handshake, a proxy's answer, an upstream's answer."""

    def on_data(self, data: memoryview) -> None:
        """Bytes came; they are gone after the call."""
        ...

    def on_disconnect(self, is_clean: bool) -> None:
        """Nothing will come any more. `is_clean`: the other side said so, and nobody else can have."""
        ...


class Connection(asyncio.BufferedProtocol):
    """A socket. Who listens gets what comes; bytes that nobody waits for end it."""

    def __init__(self, room: memoryview, on_closed: Callable[[Connection], None]) -> None:
        self.is_dropped = False  # no use any more, though the socket may take another moment to close
        self._listener: Listener | None = None
        self._room = room
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._tls: TlsSession | None = None

    @property
    def has_sent_all(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def listen(self, listener: Listener | None) -> None:
        """What comes from now on is for `listener`; for None, nothing is expected."""
        self._listener = listener
        if self.is_dropped and listener is not None:  # it may have died a moment ago, when nobody listened
            listener.on_disconnect(False)

    def write(self, data: bytes) -> None:
        self.write_raw(data if self._tls is None else self._tls.encrypt(data))

    def write_raw(self, data: bytes) -> None:
        """Bytes as they are, for the handshake and whatever else TLS has to say by itself."""
        if data and self._transport is not None and not self.is_dropped:
            self._transport.write(data)

    def pause(self) -> None:
        """Reads no more, until `resume`: the other side will notice when the kernel's own buffers are full."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    def drop(self, *, is_clean: bool = False) -> None:
        """Closes the socket at once, whatever is on its way, and tells the listener."""
        self.is_dropped = True
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        else:
            self._on_closed(self)
        if listener is not None:
            listener.on_disconnect(is_clean)

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Speaks TLS from here on, with a server that can prove it is `host`."""
        await _Handshake(self, TlsSession(context, host)).done

    def finish_handshake(self, session: TlsSession) -> None:
        """The handshake is done: whatever comes next, be it in the same moment, is encrypted."""
        self._tls = session
        self._listener = None

    # From the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.is_dropped:  # and the loss of a socket that comes too late need not be reported
            cast(asyncio.Transport, transport).abort()
        else:
            self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        # One buffer serves all sockets: reading into it and `buffer_updated` are one step of the event loop.
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        data = self._room[:nbytes]
        condition: TlsState = "open"
        if self._tls is not None:
            data, condition = self._decrypt(self._tls, data)
        if data:
            if self._listener is not None:
                self._listener.on_data(data)
            else:
                self.drop()
        if condition != "open":
            self.drop(is_clean=condition == "done")

    def eof_received(self) -> None:
        # Inside TLS the end is announced; an end without that can come from anybody on the way.
        self.drop(is_clean=self._tls is None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self.drop(is_clean=False)

    # Inside

    def _decrypt(self, tls: TlsSession, data: memoryview) -> tuple[memoryview, TlsState]:
        """What `data` says: nothing, if it was TLS talking about itself, which it may do at any time."""
        plain, condition = tls.decrypt(data)
        self.write_raw(tls.to_send())
        return memoryview(plain), condition


class _Handshake:
    """Listens until both sides agree on keys, or do not."""

    def __init__(self, connection: Connection, session: TlsSession) -> None:
        self._session = session
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        connection.listen(self)
        self._go_on(b"")

    def on_data(self, data: memoryview) -> None:
        self._go_on(data)

    def on_disconnect(self, is_clean: bool) -> None:  # noqa: ARG002
        if not self.done.done():
            self.done.set_exception(UpstreamFault("the upstream hung up during the TLS handshake", code="upstream_unavailable"))

    def _go_on(self, data: memoryview | bytes) -> None:
        if self.done.done():
            return
        try:
            if self._session.do_handshake(data):
                self._connection.finish_handshake(self._session)
                self.done.set_result(None)
        except ssl.SSLError as error:
            self.done.set_exception(tls_fault(error))
        self._connection.write_raw(self._session.to_send())
