"""Notifies waiting tasks of changes to responses. A task that gives the change counter it has seen misses no change."""

from __future__ import annotations

import asyncio
from typing import Final

#: The id of a response; None stands for the queue, to which something was added.
ChangeKey = str | None


class Changes:
    """The changes that one process was notified of, on its event loop."""

    def __init__(self) -> None:
        self.change_counter = 0  # changes so far
        self._latest: dict[ChangeKey, int] = {}  # the counter of each key's latest change, oldest first
        self._forgotten = 0  # an upper limit for keys that are not in `_latest`
        self._waiting: dict[ChangeKey, set[asyncio.Future[None]]] = {}

    def notify(self, key: ChangeKey) -> None:
        """The key may have changed."""
        self.change_counter += 1
        self._latest.pop(key, None)
        self._latest[key] = self.change_counter
        if len(self._latest) > MAX_REMEMBERED:
            self._forgotten = self._latest.pop(next(iter(self._latest)))
        self._wake(key)

    def notify_all(self) -> None:
        """Any key may have changed."""
        self.change_counter += 1
        self._forgotten = self.change_counter
        self._latest.clear()
        for key in list(self._waiting):
            self._wake(key)

    async def wait(self, key: ChangeKey, timeout: float, since: int | None) -> None:
        """Waits for the next change of the key, or for one after the counter `since`."""
        if since is not None and self._latest.get(key, self._forgotten) > since:
            return
        futures = self._waiting.setdefault(key, set())
        future = asyncio.get_running_loop().create_future()
        futures.add(future)
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            futures.discard(future)
            if not futures and self._waiting.get(key) is futures:
                del self._waiting[key]

    def _wake(self, key: ChangeKey) -> None:
        for future in self._waiting.pop(key, ()):
            future.set_result(None)


MAX_REMEMBERED: Final = 4096
