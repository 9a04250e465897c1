"""A stream to one client: begun late, never silent for long, ended once (HTTP-7).

The 200 is sent with the first bytes of the body. Without any bytes for `FIRST_BYTE_TIMEOUT` seconds it is sent with a comment line,
and so is a comment after each `KEEPALIVE_INTERVAL` seconds without a write. One timer does both; it never interrupts a write.
`try_write` is `write` for callers that cannot wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon import sse
from antiphon.http.asgi import Headers, Message, Send
from antiphon.ops.services import FIRST_BYTE_TIMEOUT, KEEPALIVE_INTERVAL

SSE_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # proxies that would hold events back
]
KEEPALIVE_COMMENT: Final = sse.comment("waiting for the model")


class EventStream:
    """The client's side of a stream."""

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
        self._send_now = send_now  # the same at once, false if that cannot be
        self._write_now = write_now  # the same for a piece of the body, if there is such a way
        self._headers = headers
        self._keepalive = keepalive  # what a client reads over
        self._keepalive_interval = keepalive_interval
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(first_byte_timeout, self._on_time)
        self._comment: asyncio.Task[None] | None = None
        self.has_started = False
        self.has_ended = False

    async def write(self, data: bytes) -> None:
        """Sends what there is, after the head if it is the first."""
        if self._comment is not None:
            await self._comment
        if not self.has_started:
            await self._start()
        self._last = self._loop.time()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def try_write(self, data: bytes) -> bool:
        """Sends what there is in this very moment; false if that is not possible, and then it is still to be written."""
        if self._write_now is None or self._comment is not None:
            return False
        if not self.has_started:
            if not self._send_now({"type": "http.response.start", "status": 200, "headers": self._headers()}):
                return False
            self.has_started = True
        self._last = self._loop.time()
        return self._write_now(data)

    async def end(self, data: bytes) -> None:
        """The last bytes, and the end."""
        self.close()
        if self._comment is not None:
            await self._comment
        if not self.has_started:
            await self._start()
        self.has_ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def close(self) -> None:
        """No comments from here on. Harmless at any time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _start(self) -> None:
        self.has_started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers()})

    def _on_time(self) -> None:
        silent = self._loop.time() - self._last
        if self.has_started and silent < self._keepalive_interval:
            self._timer = self._loop.call_later(self._keepalive_interval - silent, self._on_time)
            return
        self._timer = self._loop.call_later(self._keepalive_interval, self._on_time)
        if self._comment is None and not self.try_write(self._keepalive):  # a comment that is not out yet: the client does not read
            self._comment = self._loop.create_task(self._say_waiting())

    async def _say_waiting(self) -> None:
        try:
            if not self.has_started:
                await self._start()
            self._last = self._loop.time()
            await self._send({"type": "http.response.body", "body": self._keepalive, "more_body": True})
        finally:
            self._comment = None
