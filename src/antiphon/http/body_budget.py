"""Bounds the memory of request bodies that are not read to their end, or not prepared yet, all together."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from antiphon.errors import ApiError

_Waiting = tuple[int, asyncio.Future[None]]  # bytes, and the body that waits for them


class BodyBudget:
    """Bytes for bodies. A body that does not fit waits, the oldest first, and is refused after `timeout` seconds."""

    def __init__(self, limit: int, timeout: float = 5.0) -> None:
        self.used_bytes = 0
        self._limit = limit
        self._timeout = timeout
        self._waiting: deque[_Waiting] = deque()

    def set_limit(self, limit: int) -> None:
        """Changes the limit. Room that is taken stays taken."""
        self._limit = limit
        self._admit_waiting()

    def try_take(self, size: int) -> bool:
        """Takes room at once; False if there is none."""
        if self._waiting or self.used_bytes + size > self._limit:
            return False
        self.used_bytes += size
        return True

    async def take(self, size: int) -> None:
        """Takes room, or raises `overloaded` if there is none in time."""
        if self.try_take(size):
            return
        entry = (size, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._timeout):
                await entry[1]
        except TimeoutError:
            self._leave(entry)
            message = "too many unfinished request bodies: retry later"
            raise ApiError(message, code="overloaded", status=503, retry_after=RETRY_AFTER) from None
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def release(self, size: int) -> None:
        """Gives room back."""
        self.used_bytes -= size
        self._admit_waiting()

    def _leave(self, entry: _Waiting) -> None:
        """Ends the wait of a body that is refused or gone."""
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._admit_waiting()
        else:  # it got its room at the same moment
            self.release(entry[0])

    def _admit_waiting(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self._limit:
            size, future = self._waiting.popleft()
            self.used_bytes += size
            if not future.done():
                future.set_result(None)


RETRY_AFTER: Final = 5.0  # seconds
