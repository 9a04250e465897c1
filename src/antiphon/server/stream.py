"""A stream to one client: begun late, never silent for long, ended once (HTTP-7).

The 200 goes out with the first bytes there are to send. If there are none for `FIRST` seconds it goes out all the same, with a
comment line, and so does a comment whenever nothing else was sent for `SILENCE` seconds. One timer does all of this; it never
touches a stream that is in the middle of a write. `offer` is `write` for whoever cannot wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from antiphon import sse
from antiphon.server.asgi import Headers, Message, Send

SSE: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # proxies that would hold events back
]
FIRST: Final = 10.0
SILENCE: Final = 15.0
WAITING: Final = sse.comment("waiting for the model")


class EventStream:
    """The client's side of a stream."""

    def __init__(
        self,
        send: Send,
        headers: Callable[[], Headers],
        first: float = FIRST,
        silence: float = SILENCE,
        send_now: Callable[[Message], bool] = lambda _: False,
        write_now: Callable[[bytes], bool] | None = None,
        waiting: bytes = WAITING,
    ) -> None:
        self._send = send
        self._send_now = send_now  # the same at once, false if that cannot be
        self._write_now = write_now  # the same for a piece of the body, if there is such a way
        self._headers = headers
        self._waiting = waiting  # what a client reads over
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(first, self._on_time)
        self._comment: asyncio.Task[None] | None = None
        self.started = False
        self.ended = False

    async def write(self, data: bytes) -> None:
        """Sends what there is, after the head if it is the first."""
        if self._comment is not None:
            await self._comment
        if not self.started:
            await self._start()
        self._last = self._loop.time()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def offer(self, data: bytes) -> bool:
        """Sends what there is in this very moment; false if that is not possible, and then it is still to be written."""
        if self._write_now is None or self._comment is not None:
            return False
        if not self.started:
            if not self._send_now({"type": "http.response.start", "status": 200, "headers": self._headers()}):
                return False
            self.started = True
        self._last = self._loop.time()
        return self._write_now(data)

    async def end(self, data: bytes) -> None:
        """The last bytes, and the end."""
        self.close()
        if self._comment is not None:
            await self._comment
        if not self.started:
            await self._start()
        self.ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def close(self) -> None:
        """No comments from here on. Harmless at any time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _start(self) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers()})

    def _on_time(self) -> None:
        silent = self._loop.time() - self._last
        if self.started and silent < self._silence:
            self._timer = self._loop.call_later(self._silence - silent, self._on_time)
            return
        self._timer = self._loop.call_later(self._silence, self._on_time)
        if self._comment is None and not self.offer(self._waiting):  # a comment that is not out yet: the client does not read
            self._comment = self._loop.create_task(self._say_waiting())

    async def _say_waiting(self) -> None:
        try:
            if not self.started:
                await self._start()
            self._last = self._loop.time()
            await self._send({"type": "http.response.body", "body": self._waiting, "more_body": True})
        finally:
            self._comment = None
