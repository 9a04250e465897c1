"""Puts the events of items or parts that are open at the same time one after the other.

Several items of the hub, and several parts of an item, may be open at once. The blocks and calls of other dialects
never are, so events of a later one wait until the earlier ones have ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from antiphon.protocol.events import StreamEvent


class EventSequencer:
    """Reorders events: those of each item or part together, in the order in which they began."""

    def __init__(
        self, key_of: Callable[[StreamEvent], Hashable], begin_types: tuple[type, ...], end_types: tuple[type, ...]
    ) -> None:
        self._key_of = key_of
        self._begin_types = begin_types
        self._end_types = end_types
        self._open_keys: deque[Hashable] = (
            deque()
        )  # in the order of their beginning; only events of the first are released
        self._held_events: dict[Hashable, list[StreamEvent]] = {}

    def feed(self, event: StreamEvent) -> list[StreamEvent]:
        """The events that can be released now."""
        key = self._key_of(event)
        if type(event) in self._begin_types:
            self._open_keys.append(key)
        if key != self._open_keys[0]:
            self._held_events.setdefault(key, []).append(event)
            return []
        ready = [event]
        while type(ready[-1]) in self._end_types:
            self._open_keys.popleft()
            if not self._open_keys:
                break
            ready += self._held_events.pop(self._open_keys[0])
        return ready
