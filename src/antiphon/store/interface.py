"""What the gateway asks of a store, and what it gets.

A store keeps bytes under ids and knows nothing of what they say. Everything that came from outside, ids included, is kept as the
bytes of its UTF-8, so that no store is pickier than another. The owner is part of every question: a response of somebody else is
one that does not exist. Whatever goes wrong with the storage itself is a `StorageUnavailable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from antiphon.store.conversations import ConversationAddition, ConversationStore
from antiphon.store.record import Excerpt, ResponseRecord, StoredTurn
from antiphon.store.usage import UsageStore
from antiphon.store.work import WorkStore

__all__ = ["Excerpt", "ResponseRecord", "Store", "StoreStats", "StoredTurn"]


class StoreStats(Struct, frozen=True, kw_only=True):
    """How much there is, for people."""

    responses: int
    owners: int
    items: int  # ids by which they are found: those of one request that came without any have one together
    conversations: int
    events: int  # of work in the background
    bytes: int  # on disk, as far as the store can tell
    oldest: int | None  # seconds since 1970
    newest: int | None


class Store(WorkStore, ConversationStore, UsageStore, Protocol):
    """Responses at rest, work, conversations, and usage. All of it is safe to call from any task of one event loop."""

    async def save(
        self,
        owner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        *,
        addition: ConversationAddition | None = None,
    ) -> None:
        """Keeps a response; once this returns it survives the death of the process and of the machine. A second record of the same
        owner and id takes the place of the first. `item_ids` and `call_ids` are what its items can be found by. What it adds to a
        conversation is kept in the same transaction, if there still is such a conversation."""
        ...

    async def get(self, owner: str, id: str) -> ResponseRecord | None: ...

    async def get_chain(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        """A response and everything it continued, in one query: the input and the output of each, the oldest first. If that is more
        than `limit` bytes, the content has the newest turns that fit, or nothing unless the oldest may be dropped. None if any of
        it is not there: a history with a hole is no history."""
        ...

    async def delete(self, owner: str, id: str) -> bool:
        """Whether there was anything to delete. Nothing of it is left: in the index of items neither, nor any work or events."""
        ...

    async def find_items(self, owner: str, item_ids: Sequence[str]) -> dict[str, int]:
        """For each id the number of the newest response that has an item of it, in its input or its output; ids that no response
        has are not in the result. Nothing of the responses is read: see `get_turn`."""
        ...

    async def find_calls(self, owner: str, call_ids: Sequence[str]) -> dict[str, int]:
        """The same for calls in outputs. An id that several responses have is not in the result: nobody knows which is meant."""
        ...

    async def get_turn(self, owner: str, number: int) -> StoredTurn | None:
        """The response of a number that was found."""
        ...

    async def find_outputs(self, owner: str, item_ids: Sequence[str], call_ids: Sequence[str], limit: int) -> list[bytes]:
        """In one query, the outputs of the responses that were the first to have an item of any of these ids, or that are the only
        ones with a call of any of these ids; the oldest first. Beyond `limit` bytes the oldest are left out and not read."""
        ...

    async def prune(self, *, before: int | None, keep: int | None, step: int = 100) -> int:
        """Deletes, of all owners, at most `step` of the oldest responses that were made before a moment (seconds since 1970), or
        that are more than so many; of both only those that no other response continues, so that a chain grows old as a whole, and
        never one that has yet to be made. Returns how many; who wants all of it gone calls again until there are none."""
        ...

    async def stats(self) -> StoreStats: ...

    async def verify(self) -> list[str]:
        """What is wrong with what is kept, in words; nothing if all is well."""
        ...

    async def close(self) -> None:
        """Whatever `save` was asked for is finished first."""
        ...
