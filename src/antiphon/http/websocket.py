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
from antiphon.http.asgi import LARGE_PIECE, Headers, Scope
from antiphon.http.body_budget import BodyBudget
from antiphon.http.websocket_protocol import (
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
    check_handshake,
    close_frame,
    handshake_response,
    pong_frame,
    text_frame,
    text_frame_head,
)

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
        body_budget: BodyBudget | None = None,
    ) -> None:
        self._body_budget = body_budget or BodyBudget(max_message)
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
        return WebSocket(scope, caller, endpoint, self._max_message, self._timeouts, self._body_budget)


class WebSocket(asyncio.Protocol):
    """One WebSocket after the upgrade.

    The endpoint gets the socket once and sets its callbacks. They run in the event loop and must not block. If one
    raises, the connection is closed with 1011.
    """

    __slots__ = (
        "_body_budget",
        "_close_timer",
        "_connections",
        "_endpoint",
        "_is_paused_by_endpoint",
        "_is_reading",
        "_is_step_scheduled",
        "_is_writing_paused",
        "_last_read_at",
        "_lifetime_timer",
        "_loop",
        "_max_message",
        "_message_started_at",
        "_message_timer",
        "_pending_pong",
        "_pinged_at",
        "_read_ahead_bytes",
        "_reader",
        "_silence_timer",
        "_stall_timer",
        "_state",
        "_timeouts",
        "_transport",
        "_writable_event",
        "_written_bytes",
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
        self,
        scope: Scope,
        caller: Caller,
        endpoint: Endpoint,
        max_message: int,
        timeouts: WebSocketTimeouts,
        body_budget: BodyBudget,
    ) -> None:
        self.scope = scope
        self.owner, self.key_style = caller
        self.id = new_id("req")  # HTTP-8: of the upgrade request
        #: Called with a whole text message.
        self.on_message: Callable[[bytes], None] = _ignore
        #: Called for a binary message. Not set: the connection is closed with 1003.
        self.on_binary: Callable[[], None] | None = None
        #: Called when the lifetime is over. Not set: the connection is closed with 1001.
        self.on_lifetime_exceeded: Callable[[], None] | None = None
        #: Called when the server stops: `close` with 1001 when ready. Not set: it is closed at once.
        self.on_shutdown: Callable[[], None] | None = None
        #: Called when the connection is over, exactly once, after all other callbacks.
        self.on_closed: Callable[[], None] = _ignore

        self._endpoint = endpoint
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # until `open`
        self._connections: set[Any] = set()
        self._reader = FrameReader(max_message)
        self._state: Literal["open", "closing", "leaving"] = "open"
        # Reading
        self._max_message = max_message
        self._body_budget = body_budget
        self._read_ahead_bytes = 0  # of the budget, for input that waits behind a turn
        self._is_paused_by_endpoint = False  # by the endpoint
        self._is_step_scheduled = False  # the frame limit of one step was reached; `_process_frames` is scheduled
        self._is_reading = True  # the state of the transport
        self._message_started_at = 0.0  # start of the incomplete message
        # Writing
        self._is_writing_paused = False
        self._writable_event: asyncio.Event | None = None  # set once writing was paused
        self._written_bytes = 0
        self._pending_pong: bytes | None = None
        # Signs of life
        self._last_read_at = self._loop.time()
        self._pinged_at: float | None = None  # None: no ping is unanswered
        # Timers, where they run
        self._silence_timer: asyncio.TimerHandle | None = None
        self._lifetime_timer: asyncio.TimerHandle | None = None
        self._message_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None

    # For the endpoint

    def send(self, text: bytes) -> None:
        """Sends one UTF-8 text message; drops it if the connection is closed."""
        if self._state != "open":
            return
        if len(text) > LARGE_PIECE:  # it is not copied
            head = text_frame_head(len(text))
            self._written_bytes += len(head) + len(text)
            self._transport.writelines((head, text))
        else:
            self._write(text_frame(text))

    @property
    def is_write_paused(self) -> bool:
        """Whether more than 64 KiB wait for the client."""
        return self._is_writing_paused

    async def wait_until_writable(self) -> None:
        """Waits until the client has read most of the pending data; raises `ClientDisconnected` if it is gone."""
        if self._is_writing_paused and self._writable_event is not None:
            await self._writable_event.wait()
        if self._state != "open":
            raise ClientDisconnected

    def pause(self) -> None:
        """Delivers no messages until `resume`. Some input is still read, to notice a disconnect."""
        self._is_paused_by_endpoint = True
        self._stop_message_timer()

    def resume(self) -> None:
        if self._is_paused_by_endpoint:
            self._is_paused_by_endpoint = False
            self._schedule_step()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Sends a close frame. No messages are sent or delivered afterwards; `on_closed` is called in a later event
        loop step."""
        if self._state != "open":
            return
        self._write(close_frame(code, reason))
        self._start_closing("closing")
        self._loop.call_soon(self._notify_closed)
        self.resume()  # to read the client's close frame

    # For the server

    def open(self, transport: asyncio.Transport, connections: set[Any], headers: Headers) -> None:
        """Takes over the connection, which stays in `connections` until it is closed."""
        self._transport = transport
        self._connections = connections
        connections.add(self)
        transport.set_protocol(self)
        self._write(handshake_response(self.scope, [*headers, (b"x-request-id", self.id.encode())]))
        self._silence_timer = self._loop.call_later(self._timeouts.ping_interval, self._check_liveness)
        self._lifetime_timer = self._loop.call_later(self._timeouts.lifetime, self._on_lifetime_end)
        self._call_listener(self._endpoint, self)

    def shutdown(self) -> None:
        """The server stops; it waits for its connections for a limited time."""
        if self._state == "open" and self.on_shutdown is not None:
            self._call_listener(self.on_shutdown)
        else:
            self.close(1001, "the server is shutting down")

    # Callbacks of the transport

    def data_received(self, data: bytes) -> None:
        if self._state == "leaving":
            return
        self._last_read_at = self._loop.time()
        self._pinged_at = None
        self._reader.feed(data)
        if self._is_paused_by_endpoint or self._is_step_scheduled:
            self._update_reading()
        else:
            self._process_frames()

    def eof_received(self) -> None:
        """As in HTTP, EOF counts as a disconnect. The transport closes once pending data is written."""
        self._start_closing("leaving")
        self._notify_closed()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # all causes are treated alike
        self._state = "leaving"
        self._stop_timers()
        self._take_read_ahead()  # gives it back
        self._connections.discard(self)
        self._notify_closed()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        if self._state == "open":
            self._writable_event = asyncio.Event()
            self._start_stall_timer()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._writable_event is not None:
            self._writable_event.set()
        self._last_read_at = self._loop.time()  # reading is a sign of life too
        if self._pending_pong is not None:
            self._send_pong(self._pending_pong)

    # Reading

    def _process_frames(self) -> None:
        """Processes received frames, at most `MAX_FRAMES_PER_STEP` per step, so that no client blocks others."""
        self._is_step_scheduled = False
        for _ in range(MAX_FRAMES_PER_STEP):
            if self._is_paused_by_endpoint or self._state == "leaving":
                break
            try:
                frame = self._reader.next_frame()
            except InvalidFrame as fault:
                self._close_with_error(fault.code, fault.reason)
                break
            if frame is None:
                break
            self._process_frame(frame)
        else:
            self._schedule_step()
        self._update_reading()
        self._start_message_timer()

    def _schedule_step(self) -> None:
        if not self._is_step_scheduled:
            self._is_step_scheduled = True
            self._loop.call_soon(self._process_frames)

    def _process_frame(self, frame: ReceivedFrame) -> None:
        if not self._reader.is_in_message:  # a message is complete: the next one has its own timeout
            self._stop_message_timer()
        match frame:
            case CloseFrame():
                self._answer_close_frame(frame.code)
            case PartialMessage() | PongFrame():
                pass
            case _ if self._state != "open":
                pass  # our close frame was sent
            case TextMessage():
                self._call_listener(self.on_message, frame.text)
            case BinaryMessage():
                if self.on_binary is not None:
                    self._call_listener(self.on_binary)
                else:
                    self._close_with_error(1003, "only text messages are supported")
            case PingFrame():
                self._send_pong(frame.payload)
            case _:
                assert_never(frame)

    def _update_reading(self) -> None:
        """Pauses the transport while unprocessed input exceeds the limit."""
        is_full = not self._take_read_ahead() or self._is_step_scheduled
        should_read = self._state == "leaving" or not is_full
        if should_read == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = should_read
        if should_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _take_read_ahead(self) -> bool:
        """Whether more input may be read. Input that waits behind a turn is read too, up to one message, because the
        end of the connection is behind it: a client that has left is noticed only there."""
        waiting_bytes = self._reader.buffered_bytes if self._is_paused_by_endpoint and self._state == "open" else 0
        if waiting_bytes <= READ_AHEAD:
            if self._read_ahead_bytes:
                self._body_budget.release(self._read_ahead_bytes)
                self._read_ahead_bytes = 0
            return True
        missing_bytes = waiting_bytes - self._read_ahead_bytes
        if waiting_bytes > self._max_message or not self._body_budget.try_take(missing_bytes):
            return False
        self._read_ahead_bytes += missing_bytes
        return True

    def _start_message_timer(self) -> None:
        """Starts the timer for an incomplete message. A message in one piece, the usual case, needs none."""
        if (
            self._message_timer is None
            and self._state == "open"
            and not self._is_paused_by_endpoint
            and self._reader.has_partial_input
        ):
            self._message_started_at = self._loop.time()
            self._message_timer = self._loop.call_later(self._timeouts.message_timeout, self._on_message_timeout)

    def _stop_message_timer(self) -> None:
        if self._message_timer is not None:
            self._message_timer.cancel()
            self._message_timer = None

    def _on_message_timeout(self) -> None:
        self._message_timer = None
        remaining_seconds = (
            self._message_started_at
            + self._timeouts.message_timeout
            + self._reader.size / MIN_BYTES_PER_SECOND
            - self._loop.time()
        )
        if remaining_seconds > 0:
            self._message_timer = self._loop.call_later(remaining_seconds, self._on_message_timeout)
        else:
            self._close_with_error(1008, "the rest of a message was not received in time")

    # Writing

    def _write(self, data: bytes) -> None:
        self._written_bytes += len(data)
        self._transport.write(data)

    def _send_pong(self, payload: bytes) -> None:
        """RFC 6455, 5.5.3: answers only the latest of several pending pings, so that a client that does not read costs
        little."""
        if self._is_writing_paused:
            self._pending_pong = payload
        elif self._state == "open":
            self._pending_pong = None
            self._write(pong_frame(payload))

    def _start_stall_timer(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self._loop.call_later(
                self._timeouts.stall_timeout, self._check_stall, self._delivered_bytes()
            )

    def _check_stall(self, previous_bytes: int) -> None:
        self._stall_timer = None
        pending_bytes = self._transport.get_write_buffer_size()
        if pending_bytes and self._delivered_bytes() == previous_bytes:
            self._abort(
                "disconnected a client that reads nothing",
                waiting_bytes=pending_bytes,
                seconds=self._timeouts.stall_timeout,
            )
        elif pending_bytes:
            self._start_stall_timer()

    def _delivered_bytes(self) -> int:
        """Bytes that the client or the network has accepted."""
        return self._written_bytes - self._transport.get_write_buffer_size()

    # Liveness

    def _check_liveness(self) -> None:
        now = self._loop.time()
        silent_seconds = now - self._last_read_at
        next_check = self._timeouts.ping_interval
        if self._transport.get_write_buffer_size():  # a ping would wait behind other data, which has its own timeout
            self._start_stall_timer()
        elif not self._is_reading:
            self._write(PING)  # the pong is not read, but a dead connection is noticed
        elif silent_seconds < self._timeouts.ping_interval:
            next_check -= silent_seconds
        elif self._pinged_at is None:
            self._pinged_at = now
            self._write(PING)
            next_check = min(next_check, self._timeouts.pong_timeout)
        elif (remaining_seconds := self._pinged_at + self._timeouts.pong_timeout - now) > 0:
            next_check = min(next_check, remaining_seconds)
        else:
            self._abort("disconnected a client that does not respond", seconds=round(silent_seconds, 1))
            return
        self._silence_timer = self._loop.call_later(next_check, self._check_liveness)

    def _on_lifetime_end(self) -> None:
        self._lifetime_timer = None
        if self.on_lifetime_exceeded is not None:
            self._call_listener(self.on_lifetime_exceeded)
        else:
            self.close(1001, "the maximum lifetime of this connection is reached")

    # The end

    def _answer_close_frame(self, code: int | None) -> None:
        """Answers the client's close frame, unless it answers ours. RFC 6455, 7.1.1: the server closes first."""
        if self._state == "open":
            self._write(close_frame(code))
        self._start_closing("leaving")
        self._transport.close()
        self._notify_closed()

    def _close_with_error(self, code: int, reason: str) -> None:
        """Sends a close frame and stops reading. The connection stays open for a moment: closing with unread input
        resets it and discards the close frame."""
        match self._state:
            case "open":
                self._write(close_frame(code, reason))
                self._start_closing("leaving")
                self._transport.write_eof()
                self._update_reading()
                self._notify_closed()
            case "closing":
                self._answer_close_frame(None)
            case "leaving":
                pass

    def _abort(self, reason: str, **fields: float) -> None:
        LOG.info(reason, extra={"fields": {"request_id": self.id, **fields}})
        self._transport.abort()

    def _start_closing(self, state: Literal["closing", "leaving"]) -> None:
        """Stops all timers and starts the one that limits the closing handshake."""
        self._state = state
        self._stop_timers()
        self._close_timer = self._loop.call_later(self._timeouts.close_timeout, self._on_close_timeout)

    def _stop_timers(self) -> None:
        for timer in (
            self._silence_timer,
            self._lifetime_timer,
            self._message_timer,
            self._stall_timer,
            self._close_timer,
        ):
            if timer is not None:
                timer.cancel()

    def _on_close_timeout(self) -> None:
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def _notify_closed(self) -> None:
        """Calls `on_closed` once, and drops all callbacks, which also breaks reference cycles."""
        on_closed = self.on_closed
        self.on_message = self.on_closed = _ignore
        self.on_binary = self.on_lifetime_exceeded = self.on_shutdown = None
        if self._writable_event is not None:
            self._writable_event.set()
        self._call_listener(on_closed)

    def _call_listener(self, listener: Callable[..., None], *arguments: object) -> None:
        call_listener(self._on_fault, listener, *arguments)

    def _on_fault(self, error: Exception) -> None:
        """Logs an internal error of the endpoint, and closes the connection without details."""
        LOG.error("a WebSocket endpoint failed", exc_info=error, extra={"fields": {"request_id": self.id}})
        self._close_with_error(1011, "internal error")


def _ignore(*_: object) -> None:
    """The default callback."""


Endpoint = Callable[[WebSocket], None]
MAX_FRAMES_PER_STEP: Final = 64
READ_AHEAD: Final = 64 * 1024
MIN_BYTES_PER_SECOND: Final = 64 * 1024  # the slowest accepted message rate
