"""Admits turns: bounds the open turns of a process and of each key, and lets owners take turns, so that one with many
requests at once does not delay the others. What was admitted is never broken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from antiphon.errors import ApiError

T = TypeVar("T")


class TurnAdmission:
    """Counts open turns. `max_turns_per_key` is None if there are no keys."""

    def __init__(self, max_turns: int, max_turns_per_key: int | None) -> None:
        self.open_turns = 0
        self._max_turns = max_turns
        self._max_turns_per_key = max_turns_per_key
        self._turns_of_owner: dict[str, int] = {}

    def set_limits(self, max_turns: int, max_turns_per_key: int | None) -> None:
        """Changes the limits. Turns that are open stay open."""
        self._max_turns, self._max_turns_per_key = max_turns, max_turns_per_key

    def admit(self, owner: str) -> OpenTurn:
        """Counts a turn until the end of a `with` block, or refuses it at once."""
        owned = self._turns_of_owner.get(owner, 0)
        if self._max_turns_per_key is not None and owned >= self._max_turns_per_key:
            raise ApiError(
                f"too many open turns of this key: expected at most {self._max_turns_per_key}; retry later",
                type="too_many_requests",
                code="rate_limit_exceeded",
                retry_after=RETRY_AFTER,
            )
        if self.open_turns >= self._max_turns:
            raise ApiError(
                f"too many open turns: this process serves at most {self._max_turns}; retry later",
                code="overloaded",
                status=503,
                retry_after=RETRY_AFTER,
            )
        self.open_turns += 1
        self._turns_of_owner[owner] = owned + 1
        return OpenTurn(self, owner)

    def end_turn(self, owner: str) -> None:
        self.open_turns -= 1
        owned = self._turns_of_owner.pop(owner) - 1
        if owned:
            self._turns_of_owner[owner] = owned


class OpenTurn:
    """A turn that was admitted. It is counted until the end of its `with` block."""

    __slots__ = ("_admission", "_owner")

    def __init__(self, admission: TurnAdmission, owner: str) -> None:
        self._admission = admission
        self._owner = owner

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._admission.end_turn(self._owner)


class OwnerQueues(Generic[T]):
    """Waiting entries by owner. The owners take turns, each with its oldest entry."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}  # in the order of their turns
        self.count = 0  # entries of all owners

    def add(self, owner: str, entry: T) -> None:
        self.count += 1
        self._queues.setdefault(owner, deque()).append(entry)

    def __contains__(self, owner: str) -> bool:
        """Whether an entry of the owner waits."""
        return owner in self._queues

    def __len__(self) -> int:
        """The number of owners."""
        return len(self._queues)

    def take_next(self) -> T | None:
        """Removes the entry whose turn it is; None if none waits."""
        if not self._queues:
            return None
        self.count -= 1
        owner = next(iter(self._queues))
        queue = self._queues.pop(owner)
        entry = queue.popleft()
        if queue:
            self._queues[owner] = queue  # behind all other owners
        return entry


class InputQueue:
    """Takes a few inputs in a millisecond as they come. While more waits, takes one of each owner in every fourth step
    of the event loop, so that input of others arrives in between, and a request of others, which takes several steps,
    waits for few inputs. If there was one owner only for a while, takes a few in each step, which needs less time for
    each. Input of an owner of which nothing waits is processed as it comes too, for a few owners in each step, so it
    does not wait for those with many requests. A request is read, resolved and prepared in the steps that follow its
    input, so this spreads their computation too."""

    def __init__(self, max_at_once: int) -> None:
        self._queues = OwnerQueues[Callable[[], None]]()
        self._max_at_once = max_at_once
        self._free_places = max_at_once  # in this millisecond, or until the next step if there are none
        self._millisecond = 0
        self._owners_of_step: set[str] = set()  # whose input was processed beside the queue
        self._last_owner = ""  # whose input was added last
        self._shared_until = 0.0  # time of the event loop until which there are several owners
        self._steps = 0  # since the last one that processed input of several owners

    def take_place(self, now: float) -> bool:
        """Whether input can be processed at once; if not, it must be added. `now` is the time of the event loop."""
        if not self._free_places:
            return False
        millisecond = int(now * 1000)
        if millisecond != self._millisecond:
            self._millisecond, self._free_places = millisecond, self._max_at_once
        self._free_places -= 1
        if not self._free_places:  # not before: for a single request, the loop needs no further step
            asyncio.get_running_loop().call_soon(self._process_next)
        return True

    def add(self, owner: str, process: Callable[[], None]) -> None:
        """Calls `process` when it is the owner's turn: at once if nothing of the owner waits."""
        if owner != self._last_owner:
            if self._last_owner:
                self._shared_until = asyncio.get_running_loop().time() + SHARED_SECONDS
            self._last_owner = owner
        owners = self._owners_of_step
        if owner in self._queues or owner in owners or len(owners) == self._max_at_once:
            self._queues.add(owner, process)
        else:
            owners.add(owner)
            process()

    def _process_next(self) -> None:
        loop = asyncio.get_running_loop()
        self._owners_of_step.clear()
        if self._queues.count > self._max_at_once:
            loop.call_soon(self._process_next)
            count = self._max_at_once
            if loop.time() < self._shared_until:
                self._steps = (self._steps + 1) % STEPS_OF_SHARED_INPUT
                count = 0 if self._steps else min(len(self._queues), self._max_at_once)
            for _ in range(count):
                process = self._queues.take_next()
                assert process is not None  # they are counted
                process()
            return
        self._free_places = self._max_at_once  # a few delay nobody
        while (process := self._queues.take_next()) is not None:
            loop.call_soon(process)


class FairSlots:
    """A number of slots. Owners that wait for one take turns."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queues = OwnerQueues[asyncio.Future[None]]()

    async def acquire(self, owner: str) -> None:
        if self._free:
            self._free -= 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.add(owner, future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it has a slot
                self.release()
            raise

    def release(self) -> None:
        while (future := self._queues.take_next()) is not None:
            if not future.done():
                future.set_result(None)
                return
        self._free += 1


RETRY_AFTER: Final = 1.0  # seconds
MAX_INPUTS_AT_ONCE: Final = 8
SHARED_SECONDS: Final = 0.25  # after the last change of the owner
STEPS_OF_SHARED_INPUT: Final = 4  # a request takes about so many
