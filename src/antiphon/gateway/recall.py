"""Requests that came a moment ago, so that those which go on from them are not read from the beginning.

A client that keeps its conversation itself sends all of it with every turn: the same settings around the same items, and a few
more. What came before, to the byte, was understood before. What is remembered belongs to one owner, has a bound, and is forgotten
after a while; nothing of it is ever told to anybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from antiphon.protocol import codec
from antiphon.protocol.codec import BLANK, Apart
from antiphon.protocol.items import ItemParam
from antiphon.protocol.request import Request
from antiphon.protocol.wording import UNREADABLE

SHORTEST: Final = 256  # bytes of a request that is worth it
MOST_ALIKE: Final = 16  # requests that begin alike, among which one is looked for
ALIKE: Final = 48  # bytes
LIFE: Final = 600.0  # seconds since somebody went on from it


class Frame:
    """All of a request but its conversation, and what was found out about it."""

    __slots__ = ("known", "recurs", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.recurs = False  # whether it came more than once
        self.known: dict[Any, Any] = {}


class Beginning:
    """Items with which conversations begin that stand in the same frame, and what was found out about them."""

    __slots__ = ("items", "known")

    def __init__(self, items: list[ItemParam]) -> None:
        self.items = items
        self.known: dict[Any, Any] = {}


class Recalled:
    """A request, of which the frame and the first items may be known."""

    __slots__ = ("almost", "before", "frame", "request", "whole")

    def __init__(self, request: Request, frame: Frame, before: Beginning, almost: Beginning, whole: Beginning) -> None:
        self.request = request
        self.frame = frame
        self.before = before  # what came before; `almost` and `whole` begin with it
        self.almost = almost  # all items but the last
        self.whole = whole


class Recall:
    """What one process remembers: requests of at most `room` bytes in all."""

    def __init__(self, room: int, now: Callable[[], float]) -> None:
        self._room = room
        self._now = now
        self._taken = 0
        self._alike: dict[tuple[str, bytes], list[_Kept]] = {}
        self._latest: OrderedDict[_Kept, None] = OrderedDict()

    def read(self, owner: str, body: bytes) -> Recalled | None:
        """The request in a body; None if this is not the place to read it."""
        if not SHORTEST <= len(body) <= self._room:
            return None
        key = owner, body[:ALIKE]
        found = _best(self._alike.get(key, []), body)
        if found is not None:
            kept, at, before = found
            gone_on = _gone_on(kept, at, before, body)
            if gone_on is not None:
                recalled, last, end = gone_on
                if before.items or before is kept.whole:  # the same conversation, or another end of it
                    self._drop(kept)
                self._keep(_Kept(key, recalled, body[:last], body[last:end], kept.tail, self._now()))
                return recalled
        apart = codec.decode_apart(body)
        if apart is None:
            return None
        recalled = _begun(apart)
        last, end = apart.last, apart.end
        self._keep(_Kept(key, recalled, body[:last], body[last:end], body[end:], self._now()))
        return recalled

    def forget_old(self) -> None:
        """What nobody went on from for long."""
        oldest = self._now() - LIFE
        while self._latest and (kept := next(iter(self._latest))).time < oldest:
            self._drop(kept)

    def __len__(self) -> int:
        return len(self._latest)

    def _keep(self, kept: _Kept) -> None:
        alike = self._alike.get(kept.key, [])
        if len(alike) == MOST_ALIKE:
            self._drop(alike[0])
        self._alike.setdefault(kept.key, alike).append(kept)
        self._latest[kept] = None
        self._taken += kept.size
        while self._taken > self._room:
            self._drop(next(iter(self._latest)))
        self.forget_old()

    def _drop(self, kept: _Kept) -> None:
        del self._latest[kept]
        self._taken -= kept.size
        alike = self._alike[kept.key]
        alike.remove(kept)
        if not alike:
            del self._alike[kept.key]


class _Kept:
    """A request that came."""

    __slots__ = ("almost", "beginning", "frame", "key", "last", "tail", "time", "whole")

    def __init__(self, key: tuple[str, bytes], recalled: Recalled, beginning: bytes, last: bytes, tail: bytes, time: float) -> None:
        self.key = key
        self.frame = recalled.frame
        self.almost = recalled.almost
        self.whole = recalled.whole
        self.beginning = beginning  # of the body, to its last item
        self.last = last
        self.tail = tail  # from the end of its items
        self.time = time

    @property
    def size(self) -> int:
        return len(self.beginning) + len(self.last) + len(self.tail)


def _best(alike: list[_Kept], body: bytes) -> tuple[_Kept, int, Beginning] | None:
    """The one that has most in common with the body, where they part, and the items up to there."""
    best: tuple[_Kept, int, Beginning] | None = None
    for kept in reversed(alike):
        end = len(kept.beginning)
        if not body.startswith(kept.beginning) or not body.endswith(kept.tail):
            continue
        if body.startswith(kept.last, end) and end + len(kept.last) + len(kept.tail) <= len(body):
            return kept, end + len(kept.last), kept.whole
        if end + len(kept.tail) <= len(body) and (best is None or end > best[1]):
            best = kept, end, kept.almost
    return best


def _gone_on(kept: _Kept, at: int, before: Beginning, body: bytes) -> tuple[Recalled, int, int] | None:
    """The request in a body that goes on from `at`, where its last item begins, and where its items end."""
    end = len(body) - len(kept.tail)
    more = body[at:end].lstrip(BLANK)
    if before.items and more:
        if not more.startswith(b",") or not more[1:].strip(BLANK):
            return None
        more = more[1:]
    array = b"[%b]" % more
    try:
        rest = codec.decode_items(array)
    except UNREADABLE:  # whoever reads all of it knows what is wrong
        return None
    whole, almost, last = before, kept.almost, len(kept.beginning)
    if rest:
        whole = Beginning(before.items + rest)
        almost = before if len(rest) == 1 else Beginning(whole.items[:-1])
        last = codec.last_item(body, array, at, end)
    kept.frame.recurs = True
    request = replace(kept.frame.request, input=whole.items)
    return Recalled(request, kept.frame, before, almost, whole), last, end


def _begun(apart: Apart) -> Recalled:
    """A request that nothing is known of."""
    whole = Beginning(apart.items)
    request = replace(apart.request, input=apart.items)
    return Recalled(request, Frame(apart.request), Beginning([]), Beginning(apart.items[:-1]), whole)
