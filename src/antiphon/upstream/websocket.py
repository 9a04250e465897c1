"""A WebSocket client (RFC 6455) on the connections of `http`, with the same TLS and proxies. `websocket_protocol`
reads and makes the frames.

Text messages only, no extensions. Messages are queued until they are received; a long queue pauses the socket. Every
failure is an `UpstreamFault`; a refused upgrade is `UpgradeRefused`, with the server's response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import httptools

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.upstream.connection import Connection
from antiphon.upstream.http import HttpTransport

if TYPE_CHECKING:  # it imports websockets, so it is imported when a WebSocket is opened
    from antiphon.upstream.websocket_protocol import WebSocketProtocol

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
MAX_BUFFERED_BYTES: Final = 256 * 1024  # bytes of queued messages; one may be larger
MAX_REFUSAL_BYTES: Final = 256 * 1024
SWITCHING_PROTOCOLS: Final = 101
# Close codes (RFC 6455, 7.4.1)
NORMAL_CLOSURE: Final = 1000
MESSAGE_TOO_BIG: Final = 1009


class UpgradeRefused(Exception):
    """The server refused the upgrade."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"the server refused the upgrade with status {status}")
        self.status = status
        self.headers = headers
        self.body = body


async def open_websocket(network: HttpTransport, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> WebSocket:
    """Opens a WebSocket at an http:// or https:// URL."""
    from antiphon.upstream.websocket_protocol import WebSocketProtocol

    protocol = WebSocketProtocol(MAX_MESSAGE_BYTES)
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": protocol.key,
    }
    connection, request = await network.open_connection(url, {**headers, **upgrade}, timeouts)
    socket = WebSocket(connection, protocol, timeouts)
    connection.write(request)
    try:
        async with asyncio.timeout(timeouts.first_byte):
            await socket.upgraded
    except BaseException as error:
        connection.drop()
        if isinstance(error, TimeoutError):
            raise _timeout_fault(timeouts.first_byte) from None
        raise
    return socket


class WebSocket:
    """One WebSocket. `upgraded` is done when messages can be sent."""

    def __init__(self, connection: Connection, protocol: WebSocketProtocol, timeouts: Timeouts) -> None:
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._timeouts = timeouts
        self._upgrade: _UpgradeResponseReader | None = _UpgradeResponseReader(protocol)
        self._protocol = protocol
        self._messages: deque[str] = deque()
        self._buffered_size = 0
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._fault: UpstreamFault | None = None
        connection.listen(self)

    @property
    def is_open(self) -> bool:
        return self._fault is None

    def send(self, text: str) -> None:
        """Sends one message."""
        if self._fault is not None:
            raise self._fault.without_traceback()
        self._protocol.send_text(text.encode())
        self._write_pending()

    async def receive(self) -> str:
        """The next message. Messages received before the end of the connection can still be read."""
        while not self._messages:
            if self._fault is not None:
                raise self._fault.without_traceback()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(self._timeouts.idle):
                    await self._waiter
            except TimeoutError:
                self._fail(_timeout_fault(self._timeouts.idle))
        message = self._messages.popleft()
        self._buffered_size -= len(message)
        if self._is_paused and self._buffered_size < MAX_BUFFERED_BYTES:
            self._is_paused = False
            self._connection.resume()
        return message

    def close(self) -> None:
        """Sends a close frame and closes the connection. Can be called at any time."""
        if self._fault is None:
            self._protocol.send_close(NORMAL_CLOSURE)
            self._write_pending()
            self._fail(UpstreamFault("the WebSocket is closed", code="upstream_disconnected"))

    # The socket's side

    def on_data(self, data: memoryview) -> None:
        received = bytes(data)
        if self._upgrade is not None:
            try:
                rest = self._upgrade.feed(received)
            except (UpgradeRefused, UpstreamFault) as error:
                self._fail_upgrade(error)
                return
            if rest is None:
                return
            self._upgrade = None
            self.upgraded.set_result(None)
            received = rest
        self._read_frames(received)

    def on_disconnect(self, is_clean: bool) -> None:  # noqa: ARG002
        if self._upgrade is not None:
            self._fail_upgrade(self._upgrade.error_at_end())
        self._fail(
            UpstreamFault("the server closed the connection without a close frame", code="upstream_disconnected")
        )

    # Inside

    def _write_pending(self) -> None:
        self._connection.write(b"".join(self._protocol.data_to_send()))

    def _read_frames(self, data: bytes) -> None:
        for message in self._protocol.receive_texts(data):
            self._queue_message(message)
        self._write_pending()
        self._check_close()

    def _queue_message(self, message: str) -> None:
        self._messages.append(message)
        self._buffered_size += len(message)
        if self._buffered_size >= MAX_BUFFERED_BYTES and not self._is_paused:
            self._is_paused = True
            self._connection.pause()
        self._wake_reader()

    def _check_close(self) -> None:
        """RFC 6455, 7.1.7 and 5.5.1: the protocol object has sent a close frame, for invalid data or as an answer."""
        received, sent = self._protocol.close_rcvd, self._protocol.close_sent
        if received is not None:
            message = f"the server closed the WebSocket with code {int(received.code)}"
            reason = f": {received.reason}" if received.reason else ""
            self._fail(UpstreamFault(message + reason, code="upstream_disconnected"))
        elif sent is not None:
            message = "the server sent invalid WebSocket data"
            if sent.code == MESSAGE_TOO_BIG:
                message = f"the server sent a message of more than {MAX_MESSAGE_BYTES} bytes"
            self._fail(UpstreamFault(message, code="upstream_invalid_response"))

    def _fail_upgrade(self, error: Exception) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(error)
        self._connection.drop()

    def _fail(self, fault: UpstreamFault) -> None:
        if self._fault is None:
            self._fault = fault
            self._connection.drop()
            self._wake_reader()

    def _wake_reader(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _UpgradeResponseReader:
    """Reads the response to the upgrade."""

    def __init__(self, protocol: WebSocketProtocol) -> None:
        self._protocol = protocol
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[str, str]] = []
        self._body = bytearray()
        self._received_size = 0
        self._is_complete = False

    def feed(self, data: bytes) -> bytes | None:
        """The bytes after a successful response; None if it is incomplete. Raises for any other response."""
        self._received_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._protocol.is_valid_response(self._parser.get_status_code(), self._headers):
                raise self._invalid_response() from None
            return data[upgrade.args[0] :]
        except httptools.HttpParserError:
            raise self._invalid_response() from None
        if self._is_complete or self._received_size > MAX_REFUSAL_BYTES:
            raise UpgradeRefused(self._parser.get_status_code(), dict(self._headers), bytes(self._body))
        return None

    def error_at_end(self) -> Exception:
        """The error if the connection ends here."""
        if self._headers and self._parser.get_status_code() != SWITCHING_PROTOCOLS:
            return UpgradeRefused(self._parser.get_status_code(), dict(self._headers), bytes(self._body))
        return UpstreamFault("the server closed the connection without a whole response", code="upstream_disconnected")

    def _invalid_response(self) -> UpstreamFault:
        return UpstreamFault("the server's response to the upgrade is not valid", code="upstream_invalid_response")

    # The parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._is_complete = True


def _timeout_fault(seconds: float) -> UpstreamFault:
    return UpstreamFault(f"the server sent nothing for {seconds:g} s", code="upstream_timeout", status=504)
