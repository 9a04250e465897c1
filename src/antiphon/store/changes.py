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
        self._latest_changes: dict[ChangeKey, int] = {}  # the counter of each key's latest change, oldest first
        self._forgotten_counter = 0  # an upper limit of the counter of keys that are not in `_latest_changes`
        self._waiters: dict[ChangeKey, set[asyncio.Future[None]]] = {}

    def notify(self, key: ChangeKey) -> None:
        """The key may have changed."""
        self.change_counter += 1
        self._latest_changes.pop(key, None)
        self._latest_changes[key] = self.change_counter
        if len(self._latest_changes) > MAX_REMEMBERED_KEYS:
            self._forgotten_counter = self._latest_changes.pop(next(iter(self._latest_changes)))
        self._wake_waiters(key)

    def notify_all(self) -> None:
        """Any key may have changed."""
        self.change_counter += 1
        self._forgotten_counter = self.change_counter
        self._latest_changes.clear()
        for key in list(self._waiters):
            self._wake_waiters(key)

    async def wait(self, key: ChangeKey, timeout: float, since: int | None) -> None:
        """Waits for the next change of the key, or for one after the counter `since`."""
        if since is not None and self._latest_changes.get(key, self._forgotten_counter) > since:
            return
        futures = self._waiters.setdefault(key, set())
        future = asyncio.get_running_loop().create_future()
        futures.add(future)
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            futures.discard(future)
            if not futures and self._waiters.get(key) is futures:
                del self._waiters[key]

    def _wake_waiters(self, key: ChangeKey) -> None:
        for future in self._waiters.pop(key, ()):
            future.set_result(None)


MAX_REMEMBERED_KEYS: Final = 4096
