"""The keys of one upstream: requests take them in turn, and a key that the server refuses or limits rests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final


class KeyRing:
    """The state of the keys of one upstream, by their numbers."""

    __slots__ = ("_next", "_rests_until", "count")

    def __init__(self, count: int) -> None:
        self.count = count  # 0: the server needs no key
        self._next = 0
        self._rests_until: dict[int, float] = {}

    def take(self, now: float, excluded: Collection[int] = ()) -> int | None:
        """The number of the next key. Resting keys are taken if no other is left, since the server may have changed its
        mind. None if all are excluded."""
        if self.count <= 1:
            return None if 0 in excluded else 0
        order = [(self._next + step) % self.count for step in range(self.count)]
        usable = [number for number in order if number not in excluded]
        awake = [number for number in usable if self._rests_until.get(number, 0.0) <= now]
        number = next(iter(awake or usable), None)
        if number is not None:
            self._next = (number + 1) % self.count
        return number

    def rest(self, number: int, seconds: float, now: float) -> None:
        self._rests_until[number] = now + seconds

    def resting(self, now: float) -> list[int]:
        """The keys that rest."""
        return sorted(number for number, until in self._rests_until.items() if now < until)


REFUSED_KEY_REST: Final = 300.0  # seconds for which a key rests that the server refused
LIMITED_KEY_REST: Final = 5.0  # seconds for which a limited key rests if the server names no time
