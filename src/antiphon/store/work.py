"""The interface of the background queue: waiting work, running work, and the events it has produced. Queries that a
client can cause name the owner; queries of a runner name the lease.

A *runner* is one process with a unique name. It claims work for a limited time (a lease) and renews the lease. Any
runner may claim work whose lease has expired; until one does, the work still belongs to the previous runner. Only the
holder of the lease can write. So each piece of work has one runner at a time, and the work of a dead runner is taken
over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from msgspec import Struct

from antiphon.store.conversations import ConversationAddition
from antiphon.store.record import ResponseRecord

MAX_EVENTS_BYTES: Final = 4 * 1024 * 1024  # events with so many bytes are read at once, and the batch that they end in


class Work(Struct, frozen=True, kw_only=True):
    """A response that is to be created."""

    owner: str
    id: str  # of the response
    request: bytes  # the request, as JSON; empty if the caller of `claim` has it, as the next two
    head: bytes  # of the response, as it was queued
    input: bytes  # of the response
    attempt: int  # 1 the first time it is claimed
    next_event: int  # the number of the first event that is not stored; clients may have read those before it
    is_cancelled: bool  # whether the response only has to be ended


class EventsAfter(Struct, frozen=True, kw_only=True):
    """The events of a response after a given one, and its status."""

    events: list[bytes]  # each as JSON; the number of the first is `after` + 1
    status: str  # of the response
    has_more: bool = False  # whether more events are stored


class QueueStats(Struct, frozen=True, kw_only=True):
    """The length of the queue, for people and metrics."""

    waiting: int  # without a lease, or with an expired one
    running: int
    oldest_waiting: int | None  # its creation time, in seconds since 1970


class WorkStore(Protocol):
    """The queue of a store. Leases are durations in seconds, so that no two clocks are compared: SQLite uses the clock
    of this machine, PostgreSQL the clock of its server."""

    @property
    def pushes_changes(self) -> bool:
        """Whether changes of other processes are pushed to this one. If not, `wait_for_change` polls the database."""
        ...

    async def enqueue(self, owner: str, record: ResponseRecord, item_ids: Sequence[str], request: bytes) -> None:
        """Saves a queued response and its work. They are durable when this returns. An id that this owner already has
        is left unchanged; ids of work are unique among all owners."""
        ...

    async def claim(self, runner: str, lease: float, limit: int, *, prepared_ids: Sequence[str] = ()) -> list[Work]:
        """Claims up to `limit` pieces of work for `lease` seconds, oldest first: waiting work, and work whose lease has
        expired. Two runners never get the same one. A runner can claim its own work again if its lease has expired.
        The status of the response does not change. Work with one of the `prepared_ids` has no request, head and input:
        the caller has them."""
        ...

    async def renew(self, runner: str, lease: float, ids: Sequence[str]) -> dict[str, Literal["held", "cancelled"]]:
        """Renews the leases of a runner. Returns those it still holds, and which of them are to be cancelled. An id
        that is missing was claimed by another runner, has ended, or was deleted."""
        ...

    async def append(self, runner: str, id: str, first_number: int, events: Sequence[bytes], status: str) -> bool:
        """Saves the events from number `first_number` on, and the status of the response, in one transaction. The head
        of its record does not change. Returns whether this runner still held the work; if not, nothing was saved.
        Events that are already stored are skipped, so a call can be repeated safely. A gap is a `ValueError`."""
        ...

    async def finish(
        self,
        runner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        first_number: int,
        events: Sequence[bytes],
        *,
        addition: ConversationAddition | None = None,
    ) -> bool:
        """Saves the last events and the final response in one transaction, and ends the work. The input of the response
        stays as it was queued, and its index keys stay too: `item_ids` and `call_ids` are added to them. Returns
        whether this runner held the work, now or in an earlier call with the same arguments; if not, nothing was saved.
        Otherwise it does the same as `append` and `save`."""
        ...

    async def lease_holders(self) -> list[str]:
        """Returns the runners of all unfinished work with a lease, expired or not."""
        ...

    async def release_runners(self, runners: Sequence[str]) -> int:
        """Gives up all leases of runners that have ended. Returns how many there were."""
        ...

    async def release(self, runner: str, ids: Sequence[str]) -> None:
        """Gives up the leases of a runner: any runner may claim the work at once."""
        ...

    async def cancel(
        self, owner: str, id: str, cancelled: ResponseRecord | None
    ) -> Literal["unknown", "ended", "cancelled", "requested"]:
        """Cancels work. Work without a lease and without events ends at once, if there is a record to replace it
        (`cancelled`). Other work is marked (`requested`): its runner learns it from `renew`, after `wait_for_change`
        has returned, and the next runner from `claim`. `ended`: the response exists and has no unfinished work."""
        ...

    async def events_after(self, owner: str, id: str, after: int, limit: int = MAX_EVENTS_BYTES) -> EventsAfter | None:
        """Returns the events after a number (-1: from the first on), while the response is created and for as long as
        it is stored; no more once they have `limit` bytes. None: there is no such response. No event is repeated or
        omitted: a final status comes with the last events, unless there are more."""
        ...

    @property
    def change_counter(self) -> int:
        """The number of changes this process has been notified of. Read it, then query, then wait for changes since
        that number: so no change in between is missed."""
        ...

    async def wait_for_change(self, id: str | None, timeout: float, since: int | None = None) -> None:
        """Returns when this response may have changed (without an id: when there may be work to claim), in any process,
        after the change counter `since` or from now on; or after `timeout` seconds. It may return early. It returns
        within a fraction of a second after a change, and within a second if the database lost the notification."""
        ...

    async def queue_stats(self) -> QueueStats: ...
