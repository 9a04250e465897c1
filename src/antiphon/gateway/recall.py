"""Conversations that were read a moment ago, so that those which go on from them are not read from the beginning.

A client that keeps its conversation itself sends all of it with every turn: the same settings around the same items, and a few
more. One that lets it be kept here has all of it taken from the store with every turn. What came before, to the byte, was
understood before. What is remembered belongs to one owner, has a bound, and is forgotten after a while; nothing of it is ever told
to anybody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.protocol import codec
from antiphon.protocol.codec import BLANK
from antiphon.protocol.items import ItemParam
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.wording import UNREADABLE

T = TypeVar("T")

SHORTEST: Final = 256  # bytes of a request that is worth it
MOST_ALIKE: Final = 16  # requests that begin alike, among which one is looked for
ALIKE: Final = 48  # bytes
NEAR: Final = 1024  # bytes that are new: to look for a request that leaves fewer costs more than to read them
LIFE: Final = 600.0  # seconds since somebody went on from it

_Key = tuple[str, bytes]  # whose, and how it begins


class Beginning:
    """Items with which conversations begin that stand in the same frame, and what was found out about them."""

    __slots__ = ("items", "known")

    def __init__(self, items: list[ItemParam]) -> None:
        self.items = items
        self.known: dict[Any, Any] = {}


class Frame:
    """All of a request but its conversation, and what was found out about it."""

    __slots__ = ("known", "nothing", "opening", "recurs", "request", "tail")

    def __init__(self, request: Request, opening: bytes, tail: bytes) -> None:
        self.request = request
        self.opening = opening  # of a body, up to its first item
        self.tail = tail  # from the end of its items
        self.nothing = Beginning([])
        self.recurs = False  # whether it came more than once
        self.known: dict[Any, Any] = {}


class Recalled:
    """A request, of which the frame and the first items may be known."""

    __slots__ = ("almost", "before", "frame", "request", "whole")

    def __init__(self, request: Request, frame: Frame, before: Beginning, almost: Beginning | None, whole: Beginning) -> None:
        self.request = request
        self.frame = frame
        self.before = before  # what came before; `almost` and `whole` begin with it
        self.almost = almost  # all items but the last; None if nobody has looked for that
        self.whole = whole

    def work_out(self, key: Hashable, nothing: T, go_on: Callable[[T, list[ItemParam]], T | None]) -> T | None:
        """What is to be known under `key` of the whole conversation, from where it is known; `nothing` is what is known of no item,
        `go_on` what follows from that and more items, None if nothing does."""
        value, done = nothing, 0
        for beginning in (self.before, self.almost, self.whole):
            if beginning is None:
                continue
            more: T | None = beginning.known.get(key)
            if more is None and len(beginning.items) > done:
                more = go_on(value, beginning.items[done:])
            if more is not None:
                beginning.known[key] = value = more
                done = len(beginning.items)
        return value if done == len(self.whole.items) else None


class Recall:
    """What one process remembers: requests and kept conversations of at most `room` bytes in all."""

    def __init__(self, room: int, now: Callable[[], float]) -> None:
        self._room = room
        self._now = now
        self._taken = 0
        self._alike: dict[_Key, list[_Kept]] = {}  # those that were used last are last
        self._chains: dict[_Key, list[_Chain]] = {}
        self._latest: OrderedDict[_Kept | _Chain, None] = OrderedDict()

    def read(self, owner: str, body: bytes) -> Recalled | None:
        """The request in a body; None if this is not the place to read it."""
        if not SHORTEST <= len(body) <= self._room:
            return None
        key = owner, body[:ALIKE]
        found = _best(self._alike.get(key, ()), body)
        if found is not None:
            recalled = _gone_on(found, body)
            if recalled is not None:
                self._go_on(found, recalled, body)
                return recalled
        apart = codec.decode_apart(body)
        if apart is None:
            return None
        frame = Frame(apart.request, body[: apart.start], body[apart.end :])
        recalled = Recalled(replace(apart.request, input=apart.items), frame, frame.nothing, None, Beginning(apart.items))
        self._keep(_Kept(key, recalled, body[: apart.end], b"", self._now()))
        return recalled

    def read_kept(self, owner: str, written: bytes) -> Continued | None:
        """A conversation as it is kept (`items_in`); None if this is not the place to read it."""
        if not SHORTEST <= len(written) <= self._room:
            return None
        key = owner, written[:ALIKE]
        kept = next((kept for kept in reversed(self._chains.get(key, ())) if _begins(kept.written, written)), None)
        if kept is None:
            kept = _Chain(key, written, items_in(written), self._now())
            _add(self._chains, kept, self._drop)
            self._latest[kept] = None
            self._taken += kept.size
        else:
            size = kept.size
            kept.go_on(written)
            self._taken += kept.size - size
            self._use(self._chains, kept)
        self._make_room()
        return Continued(kept, kept.before, kept.whole)

    def forget_old(self) -> None:
        """What nobody went on from for long."""
        oldest = self._now() - LIFE
        while self._latest and (kept := next(iter(self._latest))).time < oldest:
            self._drop(kept)

    def __len__(self) -> int:
        return len(self._latest)

    def _go_on(self, found: _Found, recalled: Recalled, body: bytes) -> None:
        """What goes on from `kept` takes its place, unless the two have no item in common."""
        kept, at, before = found
        if recalled.whole is not before:  # there is more of it
            end = len(body) - len(kept.frame.tail)
            last = at if recalled.almost is before else end
            if before is kept.frame.nothing:
                self._keep(_Kept(kept.key, recalled, body[:last], body[last:end], self._now()))
                return
            self._taken -= kept.size
            if last != len(kept.beginning):
                kept.beginning = body[:last]
            kept.last = body[last:end]
            self._taken += kept.size
            kept.almost, kept.whole = recalled.almost, recalled.whole
        self._use(self._alike, kept)
        self._make_room()

    def _use(self, all_alike: dict[_Key, list[K]], kept: K) -> None:
        kept.time = self._now()
        self._latest.move_to_end(kept)
        alike = all_alike[kept.key]
        if alike[-1] is not kept:
            alike.remove(kept)
            alike.append(kept)

    def _keep(self, kept: _Kept) -> None:
        _add(self._alike, kept, self._drop)
        self._latest[kept] = None
        self._taken += kept.size
        self._make_room()

    def _make_room(self) -> None:
        while self._taken > self._room:
            self._drop(next(iter(self._latest)))
        self.forget_old()

    def _drop(self, kept: _Kept | _Chain) -> None:
        del self._latest[kept]
        self._taken -= kept.size
        if isinstance(kept, _Kept):
            _remove(self._alike, kept)
        else:
            _remove(self._chains, kept)


class Continued(NamedTuple):
    """A conversation that was taken from the store, as it was then: while somebody continues it, others may go on from there."""

    chain: _Chain
    before: Beginning  # what it was before it went on
    whole: Beginning

    def by(self, request: Request) -> Recalled:
        """A request whose input is this conversation and more."""
        frame = self.chain.frame_of(replace(request, input=UNSET, previous_response_id=UNSET))
        return Recalled(request, frame, self.before, self.whole, Beginning(input_items(request)))


class _Chain:
    """A conversation that is in the store, and the settings of the request that continued it last."""

    __slots__ = ("before", "frame", "key", "time", "whole", "written")

    def __init__(self, key: _Key, written: bytes, items: list[ItemParam], time: float) -> None:
        self.key = key
        self.written = written
        self.before = Beginning([])  # what it was before it went on
        self.whole = Beginning(items)
        self.frame: Frame | None = None
        self.time = time

    @property
    def size(self) -> int:
        return len(self.written)

    def go_on(self, written: bytes) -> None:
        """It is now this, of which only what is new is read."""
        if len(written) > len(self.written):
            items = self.whole.items + items_in(written[len(self.written) + 1 :])
            self.before, self.whole, self.written = self.whole, Beginning(items), written

    def frame_of(self, settings: Request) -> Frame:
        """With other settings, what was found out about the conversation is of no use any more, and large."""
        if self.frame is not None and self.frame.request == settings:
            self.frame.recurs = True
        else:
            self.frame = Frame(settings, b"", b"")
            self.before.known.clear()
            self.whole.known.clear()
        return self.frame


class _Kept:
    """A request that came."""

    __slots__ = ("almost", "beginning", "frame", "key", "last", "time", "whole")

    def __init__(self, key: _Key, recalled: Recalled, beginning: bytes, last: bytes, time: float) -> None:
        self.key = key
        self.frame = recalled.frame
        self.almost = recalled.almost
        self.whole = recalled.whole
        self.beginning = beginning  # of the body, to its last item, or behind it if `almost` is None
        self.last = last
        self.time = time

    @property
    def size(self) -> int:
        return len(self.beginning) + len(self.last) + len(self.frame.tail)

    def part(self) -> None:
        """Finds the last item, which the next request may have another of."""
        at = codec.last_item(self.beginning, len(self.frame.opening), len(self.beginning))
        self.beginning, self.last = self.beginning[:at], self.beginning[at:]
        self.almost = Beginning(self.whole.items[:-1]) if len(self.whole.items) > 1 else self.frame.nothing


class _Found(NamedTuple):
    """The request from which another goes on, where the two part, and the items up to there."""

    kept: _Kept
    at: int
    before: Beginning


K = TypeVar("K", _Kept, _Chain)


def _add(alike: dict[_Key, list[K]], kept: K, drop: Callable[[K], None]) -> None:
    """Among those that begin alike, of which the one that was used the longest ago may have to go."""
    if len(alike.get(kept.key, ())) == MOST_ALIKE:
        drop(alike[kept.key][0])
    alike.setdefault(kept.key, []).append(kept)


def _remove(alike: dict[_Key, list[K]], kept: K) -> None:
    alike[kept.key].remove(kept)
    if not alike[kept.key]:
        del alike[kept.key]


def items_in(written: bytes) -> list[ItemParam]:
    """The items of a conversation as it is kept: arrays with commas in between, read in one go."""
    arrays: list[list[ItemParam]] = codec.decode_stored(b"[%b]" % written, list[list[ItemParam]])
    return list(chain.from_iterable(arrays))


def _begins(before: bytes, written: bytes) -> bool:
    """Whether a conversation is the beginning of another, or all of it."""
    return written.startswith(before) and written[len(before) : len(before) + 1] in (b"", b",")


def _best(alike: list[_Kept] | tuple[()], body: bytes) -> _Found | None:
    """The one that has most in common with the body, or the first that has nearly all."""
    best: _Found | None = None
    for kept in reversed(alike):
        frame = kept.frame
        if not body.startswith(frame.opening) or not body.endswith(frame.tail):
            continue
        end = len(body) - len(frame.tail)
        at, before = len(frame.opening), frame.nothing
        if kept.almost is None and not body.startswith(kept.beginning) and body.startswith(_most_of(kept.beginning)):
            kept.part()
        if len(kept.beginning) <= end and body.startswith(kept.beginning):
            whole = len(kept.beginning) + len(kept.last)
            if whole <= end and body.startswith(kept.last, len(kept.beginning)):
                return _Found(kept, whole, kept.whole)
            assert kept.almost is not None  # else there is no last item that could differ
            at, before = len(kept.beginning), kept.almost
        if at <= end and (best is None or at > best.at):
            best = _Found(kept, at, before)
            if before.items and end - at <= NEAR:
                break
    return best


def _most_of(beginning: bytes) -> bytes:
    return beginning[: len(beginning) * 3 // 4]


def _gone_on(found: _Found, body: bytes) -> Recalled | None:
    """The request in a body that goes on like this; None if it does not go on as it should."""
    kept, at, before = found
    frame = kept.frame
    more = body[at : len(body) - len(frame.tail)].lstrip(BLANK)
    if before.items and more:
        if not more.startswith(b",") or not more[1:].strip(BLANK):
            return None
        more = more[1:]
    try:
        rest = codec.decode_items(b"[%b]" % more)
    except UNREADABLE:  # whoever reads all of it knows what is wrong
        return None
    frame.recurs = True
    if not rest:
        almost, whole = (kept.almost if before is kept.whole else None), before
    else:
        almost, whole = (before if len(rest) == 1 else None), Beginning(before.items + rest)
    return Recalled(replace(frame.request, input=whole.items), frame, before, almost, whole)
