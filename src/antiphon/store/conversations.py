"""Conversations at rest: items in their order, under an id, with an owner. What they say is bytes, as everywhere in this room."""

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
    """What a turn adds to a conversation."""

    conversation: str  # its id
    entries: list[ConversationEntry]


class EntryPage(Struct, frozen=True, kw_only=True):
    entries: list[ConversationEntry]
    has_more: bool


class ConversationStore(Protocol):
    """Every store has this too. Where two items of one call have the same id, the later one counts."""

    async def create_conversation(self, owner: str, conversation: StoredConversation, entries: Sequence[ConversationEntry]) -> None:
        """An id that this owner has already is left as it is."""
        ...

    async def get_conversation(self, owner: str, id: str) -> StoredConversation | None: ...

    async def update_conversation(self, owner: str, id: str, metadata: bytes) -> StoredConversation | None:
        """None: there is none of this id."""
        ...

    async def delete_conversation(self, owner: str, id: str) -> bool:
        """With its items; responses that were made in it stay."""
        ...

    async def add_entries(self, owner: str, id: str, entries: Sequence[ConversationEntry]) -> bool:
        """At the end, in this order, all or none; what two add at the same time is kept one after the other. Whether there is such
        a conversation. An item whose id is in it already takes the place of that one, at the end."""
        ...

    async def list_entries(
        self, owner: str, id: str, *, after: str | None, order: Literal["asc", "desc"], limit: int
    ) -> EntryPage | None:
        """A page of items, from the end (`desc`) or the beginning, after the one of an id. None: there is no such conversation, or
        no such item in it to go on after."""
        ...

    async def all_entries(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        """All items as one array, the oldest first. If that is more than `limit` bytes, the content has the newest that fit, or
        nothing unless the oldest may be dropped. None: there is no such conversation."""
        ...

    async def get_entry(self, owner: str, id: str, item_id: str) -> ConversationEntry | None: ...

    async def delete_entry(self, owner: str, id: str, item_id: str) -> bool: ...

    async def prune_conversations(self, *, before: int, step: int = 100) -> int:
        """Deletes, of all owners, at most `step` of the conversations to which nothing was added since a moment (seconds since
        1970), and whose metadata have not changed since; those that have lain longest first. Returns how many."""
        ...
