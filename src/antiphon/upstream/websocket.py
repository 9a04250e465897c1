"""A WebSocket client (RFC 6455) on the connections of `http`, with the same TLS and proxies. wsproto reads frames.

Text messages only, no extensions. Messages are queued until they are received; a long queue pauses the socket. Every
failure is an `UpstreamFault`; a refused upgrade is `UpgradeRefused`, with the server's response.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from typing import Final, cast

import httptools
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed
from wsproto.utilities import generate_accept_token

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.upstream.connection import Connection
from antiphon.upstream.http import HttpTransport

MAX_MESSAGE: Final = 64 * 1024 * 1024
MAX_BUFFERED: Final = 256 * 1024  # bytes of queued messages; one may be larger
MAX_REFUSAL: Final = 256 * 1024


class UpgradeRefused(Exception):
    """The server refused the upgrade."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        super().__init__(f"the server refused the upgrade with status {status}")
        self.status = status
        self.headers = headers
        self.body = body


async def open_websocket(network: HttpTransport, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> WebSocket:
    """Opens a WebSocket at an http:// or https:// URL."""
    key = b64encode(os.urandom(16))
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": key.decode(),
    }
    connection, request = await network.open_connection(url, {**headers, **upgrade}, timeouts)
    socket = WebSocket(connection, key, timeouts)
    connection.write(request)
    try:
        async with asyncio.timeout(timeouts.first_byte):
            await socket.upgraded
    except BaseException as error:
        connection.drop()
        if isinstance(error, TimeoutError):
            raise _silent(timeouts.first_byte) from None
        raise
    return socket


class WebSocket:
    """One WebSocket. `upgraded` is done when messages can be sent."""

    def __init__(self, connection: Connection, key: bytes, timeouts: Timeouts) -> None:
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._timeouts = timeouts
        self._upgrade: _Upgrade | None = _Upgrade(generate_accept_token(key).decode())
        self._frames = FrameProtocol(client=True, extensions=[])
        self._parts: list[str] = []
        self._length = 0  # of the incomplete message
        self._messages: deque[str] = deque()
        self._buffered = 0
        self._paused = False
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
        self._write(self._frames.send_data(text, fin=True))

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
                self._break(_silent(self._timeouts.idle))
        message = self._messages.popleft()
        self._buffered -= len(message)
        if self._paused and self._buffered < MAX_BUFFERED:
            self._paused = False
            self._connection.resume()
        return message

    def close(self) -> None:
        """Sends a close frame and closes the connection. Can be called at any time."""
        if self._fault is None:
            self._write(self._frames.close(CloseReason.NORMAL_CLOSURE))
            self._break(UpstreamFault("the WebSocket is closed", code="upstream_disconnected"))

    # The socket's side

    def on_data(self, data: memoryview) -> None:
        received = bytes(data)
        if self._upgrade is not None:
            try:
                rest = self._upgrade.feed(received)
            except (UpgradeRefused, UpstreamFault) as error:
                self._refuse(error)
                return
            if rest is None:
                return
            self._upgrade = None
            self.upgraded.set_result(None)
            received = rest
        try:
            self._read(received)
        except ParseFailed:
            self._break(UpstreamFault("the server sent invalid WebSocket data", code="upstream_invalid_response"))

    def on_disconnect(self, is_clean: bool) -> None:  # noqa: ARG002
        if self._upgrade is not None:
            self._refuse(self._upgrade.cut_off())
        self._break(
            UpstreamFault("the server closed the connection without a close frame", code="upstream_disconnected")
        )

    # Inside

    def _write(self, frame: bytes | bytearray) -> None:
        self._connection.write(bytes(frame))

    def _read(self, data: bytes) -> None:
        self._frames.receive_bytes(data)
        for frame in self._frames.received_frames():
            match frame.opcode:
                case Opcode.TEXT:
                    self._take(cast(str, frame.payload), frame.message_finished)
                case Opcode.PING:
                    self._write(self._frames.pong(cast(bytes, frame.payload)))
                case Opcode.CLOSE:
                    code, reason = cast(tuple[int, str], frame.payload)
                    self._write(self._frames.close(CloseReason.NORMAL_CLOSURE))
                    message = f"the server closed the WebSocket with code {int(code)}" + (
                        f": {reason}" if reason else ""
                    )
                    self._break(UpstreamFault(message, code="upstream_disconnected"))
                    return
                case _:
                    pass  # pongs, and binary messages, which this API does not use

    def _take(self, piece: str, is_last: bool) -> None:
        self._parts.append(piece)
        self._length += len(piece)
        if self._length > MAX_MESSAGE:
            message = f"the server sent a message of more than {MAX_MESSAGE} characters"
            self._break(UpstreamFault(message, code="upstream_invalid_response"))
        elif is_last:
            self._messages.append("".join(self._parts))
            self._buffered += self._length
            self._parts.clear()
            self._length = 0
            if self._buffered >= MAX_BUFFERED and not self._paused:
                self._paused = True
                self._connection.pause()
            self._wake()

    def _refuse(self, why: Exception) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(why)
        self._connection.drop()

    def _break(self, fault: UpstreamFault) -> None:
        if self._fault is None:
            self._fault = fault
            self._connection.drop()
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class _Upgrade:
    """Reads the response to the upgrade."""

    def __init__(self, accept: str) -> None:
        self._accept = accept
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._length = 0
        self._is_whole = False

    def feed(self, data: bytes) -> bytes | None:
        """The bytes after a successful response; None if it is incomplete. Raises for any other response."""
        self._length += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switch:
            if self._parser.get_status_code() != 101 or self._headers.get("sec-websocket-accept") != self._accept:
                raise self._nonsense() from None
            return data[switch.args[0] :]
        except httptools.HttpParserError:
            raise self._nonsense() from None
        if self._is_whole or self._length > MAX_REFUSAL:
            raise UpgradeRefused(self._parser.get_status_code(), self._headers, bytes(self._body))
        return None

    def cut_off(self) -> Exception:
        """The error if the connection ends here."""
        if self._headers:
            return UpgradeRefused(self._parser.get_status_code(), self._headers, bytes(self._body))
        return UpstreamFault("the server closed the connection without a response", code="upstream_disconnected")

    def _nonsense(self) -> UpstreamFault:
        return UpstreamFault("the server's response to the upgrade is not valid", code="upstream_invalid_response")

    # The parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._is_whole = True


def _silent(seconds: float) -> UpstreamFault:
    return UpstreamFault(f"the server sent nothing for {seconds:g} s", code="upstream_timeout", status=504)
