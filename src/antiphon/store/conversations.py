"""The interface for stored conversations: ordered items under an id and an owner. Items are bytes and are not
decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from antiphon.store.record import Excerpt


class StoredConversation(Struct, frozen=True, kw_only=True):
    id: str
    created_at: int  # in seconds since 1970
    metadata: bytes  # a JSON object


class ConversationEntry(Struct, frozen=True, kw_only=True):
    """An item of a conversation, as JSON."""

    id: str
    item: bytes


class ConversationAddition(Struct, frozen=True, kw_only=True):
    """The items that a turn adds to a conversation."""

    conversation_id: str
    entries: list[ConversationEntry]


class EntryPage(Struct, frozen=True, kw_only=True):
    entries: list[ConversationEntry]
    has_more: bool


class ConversationStore(Protocol):
    """The conversations of a store. If two items of one call have the same id, the later one is used."""

    async def create_conversation(
        self, owner: str, conversation: StoredConversation, entries: Sequence[ConversationEntry]
    ) -> None:
        """Creates a conversation. An id that this owner already has is left unchanged."""
        ...

    async def get_conversation(self, owner: str, id: str) -> StoredConversation | None: ...

    async def update_conversation(self, owner: str, id: str, metadata: bytes) -> StoredConversation | None:
        """Replaces the metadata. None: there is no such conversation."""
        ...

    async def delete_conversation(self, owner: str, id: str) -> bool:
        """Deletes a conversation with its items, but not its responses. Returns whether it existed."""
        ...

    async def add_entries(self, owner: str, id: str, entries: Sequence[ConversationEntry]) -> bool:
        """Appends items in this order, all or none. Concurrent additions are serialised. An item whose id exists
        already is moved to the end and replaced. Returns whether the conversation exists."""
        ...

    async def list_entries(
        self, owner: str, id: str, *, after: str | None, order: Literal["asc", "desc"], limit: int
    ) -> EntryPage | None:
        """Returns a page of items, from the end (`desc`) or the beginning, starting after the item `after`. None: there
        is no such conversation, or it has no item `after`."""
        ...

    async def read_all_entries(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        """Returns all items as one array, oldest first. If that is more than `limit` bytes, the content has the newest
        items that fit if `drops_oldest`, else nothing. None: there is no such conversation."""
        ...

    async def get_entry(self, owner: str, id: str, item_id: str) -> ConversationEntry | None: ...

    async def delete_entry(self, owner: str, id: str, item_id: str) -> bool: ...

    async def prune_conversations(self, *, changed_before: int, batch_size: int = 100) -> int:
        """Deletes at most `batch_size` conversations of all owners whose items and metadata have not changed since
        `changed_before` (seconds since 1970), oldest change first. Returns how many were deleted."""
        ...
