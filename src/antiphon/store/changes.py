"""Who waits for a response to change, and what is known to have changed: nothing that is told is missed by somebody who says since
when he waits."""

from __future__ import annotations

import asyncio
from typing import Final

#: The id of a response; None stands for the queue, to which something was added.
Key = str | None


class Changes:
    """Of one process, on its event loop."""

    def __init__(self) -> None:
        self.moment = 0  # how many were told so far
        self._latest: dict[Key, int] = {}  # the moment of the latest, the oldest first; of old ones nothing but the next line
        self._forgotten = 0  # no moment that is not in there is greater
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}

    def tell(self, key: Key) -> None:
        """Something may have happened to it."""
        self.moment += 1
        self._latest.pop(key, None)
        self._latest[key] = self.moment
        if len(self._latest) > REMEMBERED:
            self._forgotten = self._latest.pop(next(iter(self._latest)))
        self._wake(key)

    def tell_all(self) -> None:
        """Something may have happened to any of them."""
        self.moment += 1
        self._forgotten = self.moment
        self._latest.clear()
        for key in list(self._waiting):
            self._wake(key)

    async def wait(self, key: Key, timeout: float, since: int | None) -> None:
        """For the next change of it, after a `moment` if that is given."""
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

    def _wake(self, key: Key) -> None:
        for future in self._waiting.pop(key, ()):
            future.set_result(None)


REMEMBERED: Final = 4096
