"""The WebSocket server: accepts upgrades, and runs one connection after the upgrade. Knows nothing of messages'
meaning.

An idle socket needs no task and no buffer. Input is limited in size, in time, and in frames per event loop step.
Clients that do not read, or give no sign of life, are disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, assert_never

from msgspec import Struct

from antiphon.errors import ClientDisconnected, ClientFault
from antiphon.gateway.ids import new_id
from antiphon.gateway.request_scope import call_listener
from antiphon.http.access_policy import AccessPolicy, Caller
from antiphon.http.asgi import Headers, Scope
from antiphon.http.websocket_frames import (
    PING,
    BinaryMessage,
    CloseFrame,
    FrameReader,
    InvalidFrame,
    PartialMessage,
    PingFrame,
    PongFrame,
    ReceivedFrame,
    TextMessage,
    close_frame,
    pong_frame,
    text_frame,
)
from antiphon.http.websocket_handshake import check_handshake, switching_protocols

LOG: Final = logging.getLogger("antiphon.http.websocket")


class WebSocketTimeouts(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds."""

    ping_interval: float = 30.0  # of silence, until a ping is sent
    pong_timeout: float = 30.0  # for the pong
    message_timeout: float = 60.0  # for a message from its first byte, plus 1 s per 64 KiB
    stall_timeout: float = 60.0  # for which a client may read nothing while data is pending
    close_timeout: float = 5.0  # from the close frame to the end of the connection
    lifetime: float = 3600.0  # WS-9: until `on_lifetime_exceeded` is called


class WebSocketRoutes:
    """Authorizes upgrades and selects the endpoint. An application with such an object as `websockets` accepts
    upgrades."""

    def __init__(
        self,
        access_policy: AccessPolicy,
        endpoints: Mapping[str, Endpoint],
        max_message: int,
        timeouts: WebSocketTimeouts | None = None,
    ) -> None:
        self._access_policy = access_policy
        self._endpoints = dict(endpoints)
        self._max_message = max_message
        self._timeouts = timeouts or WebSocketTimeouts()

    def accept(self, scope: Scope) -> WebSocket:
        """The socket for an upgrade request. Refuses for the same reasons and in the same order as every other route,
        with HTTP errors."""
        self._access_policy.check_host_and_origin(scope)
        caller = self._access_policy.authenticate(scope)
        endpoint = self._endpoints.get(scope["path"])
        if endpoint is None:
            paths = ", ".join(sorted(self._endpoints))
            raise ClientFault(f"no WebSocket at this path; expected {paths}", type="not_found", code="not_found")
        check_handshake(scope)
        scope["type"] = "websocket"
        return WebSocket(scope, caller, endpoint, self._max_message, self._timeouts)


class WebSocket(asyncio.Protocol):
    """One WebSocket after the upgrade.

    The endpoint gets the socket once and sets its callbacks. They run in the event loop and must not block. If one
    raises, the connection is closed with 1011.
    """

    __slots__ = (
        "_connections",
        "_end_timer",
        "_endpoint",
        "_is_choked",
        "_is_paused",
        "_is_reading",
        "_last_read_at",
        "_life_timer",
        "_loop",
        "_message_started_at",
        "_message_timer",
        "_owed_pong",
        "_pinged_at",
        "_reader",
        "_reads_on",
        "_silence_timer",
        "_stall_timer",
        "_state",
        "_timeouts",
        "_transport",
        "_unchoked",
        "_written",
        "id",
        "key_style",
        "on_binary",
        "on_closed",
        "on_lifetime_exceeded",
        "on_message",
        "on_shutdown",
        "owner",
        "scope",
    )

    def __init__(
        self, scope: Scope, caller: Caller, endpoint: Endpoint, max_message: int, timeouts: WebSocketTimeouts
    ) -> None:
        self.scope = scope
        self.owner, self.key_style = caller
        self.id = new_id("req")  # HTTP-8: of the upgrade request
        #: Called with a whole text message.
        self.on_message: Callable[[str], None] = _nothing
        #: Called for a binary message. Not set: the connection is closed with 1003.
        self.on_binary: Callable[[], None] | None = None
        #: Called when the lifetime is over. Not set: the connection is closed with 1001.
        self.on_lifetime_exceeded: Callable[[], None] | None = None
        #: Called when the server stops: `close` with 1001 when ready. Not set: it is closed at once.
        self.on_shutdown: Callable[[], None] | None = None
        #: Called when the connection is over, exactly once, after all other callbacks.
        self.on_closed: Callable[[], None] = _nothing

        self._endpoint = endpoint
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until `open`
        self._connections: set[Any] = set()
        self._reader = FrameReader(max_message)
        self._state: Literal["open", "closing", "leaving"] = "open"
        # Reading
        self._is_paused = False  # by the endpoint
        self._reads_on = False  # the frame limit of one step was reached; `_take` is scheduled
        self._is_reading = True  # the state of the transport
        self._message_started_at = 0.0  # start of the incomplete message
        # Writing
        self._is_choked = False
        self._unchoked: asyncio.Event | None = None  # set once writing was paused
        self._written = 0
        self._owed_pong: bytes | None = None
        # Signs of life
        self._last_read_at = self._loop.time()
        self._pinged_at: float | None = None  # None: no ping is unanswered
        # Timers, where they run
        self._silence_timer: asyncio.TimerHandle | None = None
        self._life_timer: asyncio.TimerHandle | None = None
        self._message_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None

    # What an endpoint uses

    def send(self, text: bytes) -> None:
        """Sends one UTF-8 text message; drops it if the connection is closed."""
        if self._state == "open":
            self._write(text_frame(text))

    @property
    def is_write_paused(self) -> bool:
        """Whether more than 64 KiB wait for the client."""
        return self._is_choked

    async def wait_until_writable(self) -> None:
        """Waits until the client has read most of the pending data; raises `ClientDisconnected` if it is gone."""
        if self._is_choked and self._unchoked is not None:
            await self._unchoked.wait()
        if self._state != "open":
            raise ClientDisconnected

    def pause(self) -> None:
        """Delivers no messages until `resume`. Some input is still read, to notice a disconnect."""
        self._is_paused = True
        self._forget_message()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._take_soon()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Sends a close frame. No messages are sent or delivered afterwards; `on_closed` is called in a later event
        loop step."""
        if self._state != "open":
            return
        self._write(close_frame(code, reason))
        self._end("closing")
        self._loop.call_soon(self._notify_closed)
        self.resume()  # to read the client's close frame

    # What the server calls

    def open(self, transport: asyncio.Transport, connections: set[Any], headers: Headers) -> None:
        """Takes over the connection, which stays in `connections` until it is closed."""
        self._transport = transport
        self._connections = connections
        connections.add(self)
        transport.set_protocol(self)
        self._write(switching_protocols(self.scope, [*headers, (b"x-request-id", self.id.encode())]))
        self._silence_timer = self._loop.call_later(self._timeouts.ping_interval, self._check_life)
        self._life_timer = self._loop.call_later(self._timeouts.lifetime, self._life_is_over)
        self._call(self._endpoint, self)

    def shutdown(self) -> None:
        """The server stops; it waits for its connections for a limited time."""
        if self._state == "open" and self.on_shutdown is not None:
            self._call(self.on_shutdown)
        else:
            self.close(1001, "the server is shutting down")

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        if self._state == "leaving":
            return
        self._last_read_at = self._loop.time()
        self._pinged_at = None
        self._reader.feed(data)
        if self._is_paused or self._reads_on:
            self._set_reading()
        else:
            self._take()

    def eof_received(self) -> None:
        """As in HTTP, EOF counts as a disconnect. The transport closes once pending data is written."""
        self._end("leaving")
        self._notify_closed()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # all causes are treated alike
        self._state = "leaving"
        self._stop_timers()
        self._connections.discard(self)
        self._notify_closed()

    def pause_writing(self) -> None:
        self._is_choked = True
        if self._state == "open":
            self._unchoked = asyncio.Event()
            self._watch_reader()

    def resume_writing(self) -> None:
        self._is_choked = False
        if self._unchoked is not None:
            self._unchoked.set()
        self._last_read_at = self._loop.time()  # reading is a sign of life too
        if self._owed_pong is not None:
            self._pong(self._owed_pong)

    # Reading

    def _take(self) -> None:
        """Processes received frames, at most `MAX_FRAMES_PER_TURN` per step, so that no client blocks others."""
        self._reads_on = False
        for _ in range(MAX_FRAMES_PER_TURN):
            if self._is_paused or self._state == "leaving":
                break
            try:
                received = self._reader.next_frame()
            except InvalidFrame as fault:
                self._fail(fault.code, fault.reason)
                break
            if received is None:
                break
            self._receive(received)
        else:
            self._take_soon()
        self._set_reading()
        self._watch_message()

    def _take_soon(self) -> None:
        if not self._reads_on:
            self._reads_on = True
            self._loop.call_soon(self._take)

    def _receive(self, received: ReceivedFrame) -> None:
        if not self._reader.in_message:  # a message is complete: the next one has its own timeout
            self._forget_message()
        match received:
            case CloseFrame():
                self._part(received.code)
            case PartialMessage() | PongFrame():
                pass
            case _ if self._state != "open":
                pass  # our close frame was sent
            case TextMessage():
                self._call(self.on_message, received.text)
            case BinaryMessage():
                if self.on_binary is not None:
                    self._call(self.on_binary)
                else:
                    self._fail(1003, "only text messages are supported")
            case PingFrame():
                self._pong(received.payload)
            case _:
                assert_never(received)

    def _set_reading(self) -> None:
        """Pauses the transport while unprocessed input exceeds the limit."""
        is_full = self._reads_on or (self._is_paused and self._reader.buffered_bytes > READ_AHEAD)
        wanted = self._state == "leaving" or not is_full
        if wanted == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _watch_message(self) -> None:
        """Starts the timer for an incomplete message. A message in one piece, the usual case, needs none."""
        if (
            self._message_timer is None
            and self._state == "open"
            and not self._is_paused
            and self._reader.has_partial_input
        ):
            self._message_started_at = self._loop.time()
            self._message_timer = self._loop.call_later(self._timeouts.message_timeout, self._message_is_late)

    def _forget_message(self) -> None:
        if self._message_timer is not None:
            self._message_timer.cancel()
            self._message_timer = None

    def _message_is_late(self) -> None:
        self._message_timer = None
        left = (
            self._message_started_at
            + self._timeouts.message_timeout
            + self._reader.size / MIN_BYTES_PER_SECOND
            - self._loop.time()
        )
        if left > 0:
            self._message_timer = self._loop.call_later(left, self._message_is_late)
        else:
            self._fail(1008, "the rest of a message was not received in time")

    # Writing

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)

    def _pong(self, payload: bytes) -> None:
        """RFC 6455, 5.5.3: answers only the latest of several pending pings, so that a client that does not read costs
        little."""
        if self._is_choked:
            self._owed_pong = payload
        elif self._state == "open":
            self._owed_pong = None
            self._write(pong_frame(payload))

    def _watch_reader(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self._loop.call_later(self._timeouts.stall_timeout, self._check_reader, self._taken())

    def _check_reader(self, before: int) -> None:
        self._stall_timer = None
        waiting = self._transport.get_write_buffer_size()
        if waiting and self._taken() == before:
            self._cut(
                "disconnected a client that reads nothing", waiting_bytes=waiting, seconds=self._timeouts.stall_timeout
            )
        elif waiting:
            self._watch_reader()

    def _taken(self) -> int:
        """Bytes that the client or the network has accepted."""
        return self._written - self._transport.get_write_buffer_size()

    # Signs of life

    def _check_life(self) -> None:
        now = self._loop.time()
        silent = now - self._last_read_at
        next_check = self._timeouts.ping_interval
        if self._transport.get_write_buffer_size():  # a ping would wait behind other data, which has its own timeout
            self._watch_reader()
        elif not self._is_reading:
            self._write(PING)  # the pong is not read, but a dead connection is noticed
        elif silent < self._timeouts.ping_interval:
            next_check -= silent
        elif self._pinged_at is None:
            self._pinged_at = now
            self._write(PING)
            next_check = min(next_check, self._timeouts.pong_timeout)
        elif (left := self._pinged_at + self._timeouts.pong_timeout - now) > 0:
            next_check = min(next_check, left)
        else:
            self._cut("disconnected a client that does not respond", seconds=round(silent, 1))
            return
        self._silence_timer = self._loop.call_later(next_check, self._check_life)

    def _life_is_over(self) -> None:
        self._life_timer = None
        if self.on_lifetime_exceeded is not None:
            self._call(self.on_lifetime_exceeded)
        else:
            self.close(1001, "the maximum lifetime of this connection is reached")

    # The end

    def _part(self, code: int | None) -> None:
        """Answers the client's close frame, unless it answers ours. RFC 6455, 7.1.1: the server closes first."""
        if self._state == "open":
            self._write(close_frame(code))
        self._end("leaving")
        self._transport.close()
        self._notify_closed()

    def _fail(self, code: int, reason: str) -> None:
        """Sends a close frame and stops reading. The connection stays open for a moment: closing with unread input
        resets it and discards the close frame."""
        match self._state:
            case "open":
                self._write(close_frame(code, reason))
                self._end("leaving")
                self._transport.write_eof()
                self._set_reading()
                self._notify_closed()
            case "closing":
                self._part(None)
            case "leaving":
                pass

    def _cut(self, why: str, **fields: float) -> None:
        LOG.info(why, extra={"fields": {"request_id": self.id, **fields}})
        self._transport.abort()

    def _end(self, state: Literal["closing", "leaving"]) -> None:
        """Stops all timers and starts the one that limits the closing handshake."""
        self._state = state
        self._stop_timers()
        self._end_timer = self._loop.call_later(self._timeouts.close_timeout, self._end_is_late)

    def _stop_timers(self) -> None:
        for timer in (self._silence_timer, self._life_timer, self._message_timer, self._stall_timer, self._end_timer):
            if timer is not None:
                timer.cancel()

    def _end_is_late(self) -> None:
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def _notify_closed(self) -> None:
        """Calls `on_closed` once, and drops all callbacks, which also breaks reference cycles."""
        on_closed = self.on_closed
        self.on_message = self.on_closed = _nothing
        self.on_binary = self.on_lifetime_exceeded = self.on_shutdown = None
        if self._unchoked is not None:
            self._unchoked.set()
        self._call(on_closed)

    def _call(self, listener: Callable[..., None], *arguments: object) -> None:
        call_listener(self._on_fault, listener, *arguments)

    def _on_fault(self, error: Exception) -> None:
        """Logs an internal error of the endpoint, and closes the connection without details."""
        LOG.error("a WebSocket endpoint failed", exc_info=error, extra={"fields": {"request_id": self.id}})
        self._fail(1011, "internal error")


def _nothing(*_: object) -> None:
    """The default callback."""


Endpoint = Callable[[WebSocket], None]
MAX_FRAMES_PER_TURN: Final = 64
READ_AHEAD: Final = 64 * 1024
MIN_BYTES_PER_SECOND: Final = 64 * 1024  # the slowest accepted message rate
