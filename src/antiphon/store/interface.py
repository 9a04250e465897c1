"""The interface of a store.

A store keeps bytes under ids and does not read them. All external strings, ids included, are stored as UTF-8 bytes, so
that every store accepts the same values. The owner is part of every query: a response of another owner does not exist.
An error of the storage itself is a `StorageUnavailable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from antiphon.store.conversations import ConversationAddition, ConversationStore
from antiphon.store.record import Excerpt, ResponseRecord, StoredTurn
from antiphon.store.usage import UsageStore
from antiphon.store.work import WorkStore

__all__ = ["Excerpt", "HistoryStore", "ResponseRecord", "RetentionState", "Store", "StoreStats", "StoredTurn"]


class StoreStats(Struct, frozen=True, kw_only=True):
    """The size of the store, for people."""

    responses: int
    owners: int
    items: int  # index entries; the items of one request that have no id share one entry
    conversations: int
    events: int  # of background work
    bytes: int  # on disk, as far as the store can tell
    oldest: int | None  # seconds since 1970
    newest: int | None


class RetentionState(Struct, frozen=True, kw_only=True):
    """What a sweep saves for the next one, of any process. Times are in seconds since 1970."""

    looked_at: int  # when the last sweep began
    held_until: int  # nothing is deleted before


class HistoryStore(Protocol):
    """The part of a store that is read to resolve the history of a request."""

    async def get(self, owner: str, id: str) -> ResponseRecord | None: ...

    async def get_chain(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        """Returns a response and all its predecessors, in one query: input and output of each, oldest first. If that is
        more than `limit` bytes, the content has the newest turns that fit if `drops_oldest`, else nothing. None if any
        response of the chain is missing."""
        ...

    async def find_items(self, owner: str, item_ids: Sequence[str]) -> dict[str, int]:
        """Maps each id to the number of the newest response that has this item in its input or output. Ids without a
        response are omitted. The responses are not read: see `get_turn`."""
        ...

    async def find_calls(self, owner: str, call_ids: Sequence[str]) -> dict[str, int]:
        """The same for calls in outputs. An id that several responses have is ambiguous and omitted."""
        ...

    async def get_turn(self, owner: str, number: int) -> StoredTurn | None:
        """Returns the turn with a number from `find_items` or `find_calls`."""
        ...

    async def find_outputs(
        self, owner: str, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
    ) -> list[bytes]:
        """Returns, in one query, the outputs of the first response that has each of these items, and of the only
        response that has each of these calls; oldest first. Beyond `limit` bytes the oldest are omitted and not
        read."""
        ...

    async def read_all_entries(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        """Returns all entries of a conversation: see `ConversationStore`."""
        ...


class Store(HistoryStore, WorkStore, ConversationStore, UsageStore, Protocol):
    """Stores responses, work, conversations and usage. All methods may be called from any task of one event loop. The
    names of coroutine methods are values of the metric label `operation`."""

    async def save(
        self,
        owner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        *,
        addition: ConversationAddition | None = None,
    ) -> None:
        """Saves a response. It is durable when this returns. A record with the same owner and id is replaced. Its items
        are indexed by `item_ids` and `call_ids`. `addition` is saved in the same transaction, if the conversation still
        exists."""
        ...

    async def delete(self, owner: str, id: str) -> bool:
        """Deletes a response with its index entries, work and events. Returns whether it existed."""
        ...

    async def prune(self, *, before: int | None, keep: int | None, batch_size: int = 100) -> int:
        """Deletes at most `batch_size` of the oldest responses of all owners: those created before `before` (seconds
        since 1970), or those beyond the newest `keep`. A response that another one continues is not deleted, so that a
        chain expires as a whole; nor is an unfinished one. Returns how many were deleted; call again until it is 0."""
        ...

    async def newest_time(self) -> int | None:
        """Returns when the newest response was created, in seconds since 1970."""
        ...

    async def retention_state(self) -> RetentionState | None:
        """Returns what the last sweep of any process has saved; None before the first."""
        ...

    async def save_retention_state(self, state: RetentionState) -> None: ...

    async def health(self) -> str | None:
        """Returns why the storage cannot be used, in a few seconds at most; None if it can be used."""
        ...

    async def stats(self) -> StoreStats: ...

    async def verify(self) -> list[str]:
        """Checks the stored data. Returns a description of each problem."""
        ...

    async def close(self) -> None:
        """Closes the store after pending saves are finished."""
        ...
