"""A server-sent event stream to one client: late head, keep-alive comments, one end (HTTP-7).

The 200 is sent with the first bytes of the body. After `FIRST_BYTE_TIMEOUT` seconds without any, it is sent with a
comment line. A comment is also sent after each `KEEPALIVE_INTERVAL` seconds without a write. One timer does both; it
never interrupts a write. `try_write` is `write` for callers that cannot wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon.dialects.dialect import KEEPALIVE_COMMENT
from antiphon.http.asgi import Headers, Message, Send
from antiphon.ops.services import FIRST_BYTE_TIMEOUT, KEEPALIVE_INTERVAL

SSE_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # keeps proxies from buffering events
]


class EventStream:
    """Writes a stream to a client."""

    def __init__(
        self,
        send: Send,
        headers: Callable[[], Headers],
        first_byte_timeout: float = FIRST_BYTE_TIMEOUT,
        keepalive_interval: float = KEEPALIVE_INTERVAL,
        send_now: Callable[[Message], bool] = lambda _: False,
        write_now: Callable[[bytes], bool] | None = None,
        keepalive: bytes = KEEPALIVE_COMMENT,
    ) -> None:
        self._send = send
        self._send_now = send_now  # sends without waiting; False if that is not possible
        self._write_now = write_now  # writes a piece of the body without waiting, if available
        self._headers = headers
        self._keepalive = keepalive  # bytes that clients ignore
        self._keepalive_interval = keepalive_interval
        self._loop = asyncio.get_running_loop()
        self._last_write_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(first_byte_timeout, self._on_timer)
        self._keepalive_task: asyncio.Task[None] | None = None
        self.has_started = False
        self.has_ended = False

    async def write(self, data: bytes) -> None:
        """Writes data, after the head if it is the first."""
        if self._keepalive_task is not None:
            await self._keepalive_task
        if not self.has_started:
            await self._start()
        self._last_write_at = self._loop.time()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def try_write(self, data: bytes) -> bool:
        """Writes data without waiting; False if that is not possible, and nothing was written."""
        if self._write_now is None or self._keepalive_task is not None:
            return False
        if not self.has_started:
            if not self._send_now({"type": "http.response.start", "status": 200, "headers": self._headers()}):
                return False
            self.has_started = True
        self._last_write_at = self._loop.time()
        return self._write_now(data)

    async def end(self, data: bytes) -> None:
        """Writes the last bytes and ends the stream."""
        self.close()
        if self._keepalive_task is not None:
            await self._keepalive_task
        if not self.has_started:
            await self._start()
        self.has_ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def close(self) -> None:
        """Stops keep-alive comments. Can be called at any time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _start(self) -> None:
        self.has_started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers()})

    def _on_timer(self) -> None:
        silent_seconds = self._loop.time() - self._last_write_at
        if self.has_started and silent_seconds < self._keepalive_interval:
            self._timer = self._loop.call_later(self._keepalive_interval - silent_seconds, self._on_timer)
            return
        self._timer = self._loop.call_later(self._keepalive_interval, self._on_timer)
        # A pending comment means that the client does not read.
        if self._keepalive_task is None and not self.try_write(self._keepalive):
            self._keepalive_task = self._loop.create_task(self._send_keepalive())

    async def _send_keepalive(self) -> None:
        try:
            if not self.has_started:
                await self._start()
            self._last_write_at = self._loop.time()
            await self._send({"type": "http.response.body", "body": self._keepalive, "more_body": True})
        finally:
            self._keepalive_task = None
