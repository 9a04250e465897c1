"""Work in the background, at rest: what waits, what runs and where, what it has said so far. The owner is part of every question
that a client can cause; who runs work asks by lease.

A *runner* is one process, under a name that no other ever has. It claims work for a while (a lease) and says in time that it is
still at it. A lease that has run out is open to anybody, and is still its runner's own until somebody has claimed it. Whoever does
not hold it can write nothing: so each piece of work is run by one runner at a time, and a dead runner's work is found by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from antiphon.store.conversations import ConversationAddition
from antiphon.store.record import ResponseRecord


class Work(Struct, frozen=True, kw_only=True):
    """A response that is to be made."""

    owner: str
    id: str  # of the response
    request: bytes  # what was asked, as JSON
    attempt: int  # 1 the first time it is claimed
    next_event: int  # the number of the first event that was not kept yet; what was kept, somebody may have seen
    is_cancelled: bool  # whether all there is to do is to end it

    @property
    def has_events(self) -> bool:
        return self.next_event > 0


class EventsAfter(Struct, frozen=True, kw_only=True):
    """What a response has said after some event, and where it stands."""

    events: list[bytes]  # each as JSON; the first is numbered one more than was asked for
    status: str  # of the response


class QueueStats(Struct, frozen=True, kw_only=True):
    """How much work there is, for people and metrics."""

    waiting: int  # what nobody holds; a lease that has run out holds nothing
    running: int
    oldest_waiting: int | None  # when it was made, in seconds since 1970


class WorkStore(Protocol):
    """Every store has this too. Whether a lease has run out is decided by this machine's clock on SQLite and by the server's on
    PostgreSQL (leases are given as lengths in seconds, so that no two clocks are compared)."""

    async def enqueue(self, owner: str, record: ResponseRecord, item_ids: Sequence[str], request: bytes) -> None:
        """Keeps a response that has not begun (its record says `queued`), and the work of making it. Durable when it returns. An id
        that this owner has already is left as it is; ids of work are unique among all owners."""
        ...

    async def claim(self, runner: str, lease: float, limit: int) -> list[Work]:
        """Up to `limit` pieces of work that nobody holds, the oldest first: those that wait, and those whose lease has run out.
        They are this runner's for `lease` seconds. Two runners never get the same one; a runner gets its own again if it let the
        lease run out."""
        ...

    async def renew(self, runner: str, lease: float, ids: Sequence[str]) -> dict[str, Literal["held", "cancelled"]]:
        """That the runner is still at it. Of these, the ones that are still its own, and which of them are to be cancelled; one
        that is missing is somebody else's by now, or has ended, or was deleted."""
        ...

    async def append(self, runner: str, id: str, first: int, events: Sequence[bytes], status: str) -> bool:
        """What the response says from number `first` on, kept in one go, with its status by now (the head of its record stays as it
        is). Whether the work was still this runner's; if not, nothing was kept. Of events whose numbers are there already nothing
        is kept again, so who does not know whether it worked asks once more; a gap is a `ValueError`."""
        ...

    async def finish(
        self,
        runner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        first: int,
        events: Sequence[bytes],
        *,
        addition: ConversationAddition | None = None,
    ) -> bool:
        """The last of what it says and the response itself, in one transaction; the work is done and gone. Whether it was this
        runner's to finish, now or the last time that it asked for the same; if not, nothing was kept. The rest is as in `append`
        and in `save`."""
        ...

    async def release(self, runner: str, ids: Sequence[str]) -> None:
        """Gives work back that this runner holds: somebody else may claim it at once."""
        ...

    async def cancel(
        self, owner: str, id: str, cancelled: ResponseRecord | None
    ) -> Literal["unknown", "ended", "cancelled", "requested"]:
        """Ends work. What nobody holds and what has said nothing is over at once, if there is a record to put in its place
        (`cancelled`); anything else is asked to end (`requested`): its runner learns it from `renew`,
        after `wait_for_change` has returned, and the next one from `claim`.
        `ended`: there is such a response, and no work to be done on it."""
        ...

    async def events_after(self, owner: str, id: str, after: int) -> EventsAfter | None:
        """What a response has said after the event of a number (-1: everything), while it is made and afterwards, for as long as it
        is kept. None: there is no such response. Nothing is ever given twice or left out: a status that is an end comes with the
        last of the events."""
        ...

    @property
    def change_counter(self) -> int:
        """Where this process stands among the changes it has heard of. Who remembers it, asks something, and then waits for changes
        since that moment, misses none that happened in between."""
        ...

    async def wait_for_change(self, id: str | None, timeout: float, since: int | None = None) -> None:
        """Returns when something may have happened to this response (or, without an id, when there may be work to claim), in this
        process or another, since a moment or from now on; or after `timeout` seconds. A store may return early; it never misses a
        change by more than a fraction of a second, and by a second when its database has forgotten to tell."""
        ...

    async def queue_stats(self) -> QueueStats: ...
