"""Admits turns: bounds the open turns of a process and of each key, and lets owners take turns, so that one with many
requests at once does not delay the others. What was admitted is never broken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from antiphon.errors import ApiError


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


class OwnerQueues:
    """Waiting tasks by owner. The owners take turns, each with its oldest task."""

    def __init__(self, on_unused_turn: Callable[[], None]) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their turns
        self._on_unused_turn = on_unused_turn  # called if a task is cancelled when it has got its turn

    async def wait(self, owner: str) -> None:
        """Waits for the turn of this task."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                self._on_unused_turn()
            raise

    @property
    def has_waiting(self) -> bool:
        return bool(self._queues)

    def wake_next(self, max_waiting: int | None = None) -> bool:
        """Gives the turn to the next task; False if none waits. With `max_waiting`, passes over owners with more tasks
        than that; they keep their place."""
        while (owner := self._next_owner(max_waiting)) is not None:
            queue = self._queues.pop(owner)
            future = queue.popleft()
            if queue:
                self._queues[owner] = queue  # behind all other owners
            if not future.done():
                future.set_result(None)
                return True
        return False

    def _next_owner(self, max_waiting: int | None) -> str | None:
        for owner, queue in self._queues.items():
            if max_waiting is None or len(queue) <= max_waiting:
                return owner
        return None


class FairStarts:
    """Starts the computation of a few requests at once, then of at most one in each step of the event loop, so that new
    requests are read in between and wait only for one of each other owner. Nothing is done after the computation.

    While requests arrive, an owner with many that wait starts none, for a bounded number of steps: connections are
    accepted in the order of arrival, and requests of other owners may be behind them."""

    def __init__(self, max_starts: int) -> None:
        self._queues = OwnerQueues(lambda: None)  # the next step has its own turn
        self._max_starts = max_starts
        self._free_starts = max_starts  # until the next step
        self._has_arrivals = False  # a request began to wait in this step
        self._deferred_steps = 0

    async def wait(self, owner: str) -> None:
        """Waits until this request may compute. Does not wait if fewer than `max_starts` others have just started."""
        if not self._free_starts:
            self._has_arrivals = True
            await self._queues.wait(owner)
            return
        self._free_starts -= 1
        if not self._free_starts:  # not before: for a single request, the loop needs no further step
            asyncio.get_running_loop().call_soon(self._start_next)

    def _start_next(self) -> None:
        defers = self._has_arrivals and self._deferred_steps < MAX_DEFERRED_STEPS
        self._has_arrivals = False
        self._deferred_steps = self._deferred_steps + 1 if defers else 0
        has_started = self._queues.wake_next(MANY_WAITING if defers else None)
        if has_started or self._queues.has_waiting:
            asyncio.get_running_loop().call_soon(self._start_next)
        else:
            self._free_starts = self._max_starts


class FairSlots:
    """A number of slots. Owners that wait for one take turns."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queues = OwnerQueues(self.release)

    async def acquire(self, owner: str) -> None:
        if self._free:
            self._free -= 1
            return
        await self._queues.wait(owner)

    def release(self) -> None:
        if not self._queues.wake_next():
            self._free += 1


RETRY_AFTER: Final = 1.0  # seconds
MANY_WAITING: Final = 8  # requests of one owner that wait
MAX_DEFERRED_STEPS: Final = 200  # steps in a row in which no request of such an owner starts
MAX_STARTS: Final = 8  # requests that start to be read and prepared at once
