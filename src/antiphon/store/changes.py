"""Who waits for a response to change, and what is known to have changed: nothing that is told is missed by somebody who says since
when he waits."""

from __future__ import annotations

import asyncio
from typing import Final

#: The id of a response; None stands for the queue, to which something was added.
ChangeKey = str | None


class Changes:
    """Of one process, on its event loop."""

    def __init__(self) -> None:
        self.change_counter = 0  # how many were told so far
        self._latest: dict[ChangeKey, int] = {}  # the moment of the latest, the oldest first; of old ones nothing but the next line
        self._forgotten = 0  # no moment that is not in there is greater
        self._waiting: dict[ChangeKey, set[asyncio.Future[None]]] = {}

    def notify(self, key: ChangeKey) -> None:
        """Something may have happened to it."""
        self.change_counter += 1
        self._latest.pop(key, None)
        self._latest[key] = self.change_counter
        if len(self._latest) > MAX_REMEMBERED:
            self._forgotten = self._latest.pop(next(iter(self._latest)))
        self._wake(key)

    def notify_all(self) -> None:
        """Something may have happened to any of them."""
        self.change_counter += 1
        self._forgotten = self.change_counter
        self._latest.clear()
        for key in list(self._waiting):
            self._wake(key)

    async def wait(self, key: ChangeKey, timeout: float, since: int | None) -> None:
        """For the next change of it, after a `change_counter` if that is given."""
        if since is not None and self._latest.get(key, self._forgotten) > since:
            return
        waiting = self._waiting.setdefault(key, set())
        future = asyncio.get_running_loop().create_future()
        waiting.add(future)
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def _wake(self, key: ChangeKey) -> None:
        for future in self._waiting.pop(key, ()):
            future.set_result(None)


MAX_REMEMBERED: Final = 4096
