"""Things that may be told at once, told one after the other: what comes for a later one waits until the earlier ones are over.

The hub's items, and the parts inside of one, may be open side by side; the blocks and calls that other dialects' clients read never
are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from antiphon.protocol.events import StreamEvent


class EventSequencer:
    """Events in, the same events out, each thing's together and in the order in which the things began."""

    def __init__(
        self, key_of: Callable[[StreamEvent], Hashable], begins: tuple[type, ...], ends: tuple[type, ...]
    ) -> None:
        self._key_of = key_of
        self._begins = begins
        self._ends = ends
        self._open_keys: deque[Hashable] = deque()  # what has begun and is not over; the first of them has the word
        self._waiting: dict[Hashable, list[StreamEvent]] = {}

    def feed(self, event: StreamEvent) -> list[StreamEvent]:
        """What can be told now."""
        key = self._key_of(event)
        if type(event) in self._begins:
            self._open_keys.append(key)
        if key != self._open_keys[0]:
            self._waiting.setdefault(key, []).append(event)
            return []
        ready = [event]
        while type(ready[-1]) in self._ends:
            self._open_keys.popleft()
            if not self._open_keys:
                break
            ready += self._waiting.pop(self._open_keys[0])
        return ready
