"""The entries that a finished turn adds to its conversation (API-4).

Entries of a conversation are copies. They stay when the response that added them is deleted. They are added even with
`store: false`, which concerns the response only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from antiphon.gateway.ids import id_of, id_prefix, with_id
from antiphon.gateway.worker_pool import WorkerPool
from antiphon.protocol import codec
from antiphon.protocol.items import CompactionTrigger, ItemParam
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus
from antiphon.store.conversations import ConversationAddition, ConversationEntry, ConversationStore
from antiphon.store.record import ResponseRecord


class JoinedConversation(Struct, frozen=True, kw_only=True):
    """The conversation that a turn belongs to."""

    id: str
    store: ConversationStore
    workers: WorkerPool

    async def make_addition(self, record: ResponseRecord, stamps: Stamps) -> ConversationAddition | None:
        """`make_addition` for this conversation, in a worker process if the turn is large."""
        return await self.workers.call(
            len(record.input) + len(record.output), make_addition, self.id, record, stamps, owner=self.id
        )


def make_addition(conversation: str, record: ResponseRecord, stamps: Stamps) -> ConversationAddition | None:
    """The entries that a finished turn adds: its input, then its output. A failed turn adds nothing, since the client
    will retry."""
    if record.status not in ENDED_WELL:
        return None
    items: list[ItemParam] = [
        item for array in (record.input, record.output) for item in codec.decode_stored(array, list[ItemParam])
    ]
    return ConversationAddition(conversation_id=conversation, entries=make_entries(items, stamps))


def make_entries(items: Iterable[ItemParam], stamps: Stamps) -> list[ConversationEntry]:
    """Items as entries, each with an id. Skips compaction triggers, which are commands."""
    entries: list[ConversationEntry] = []
    for item in items:
        if isinstance(item, CompactionTrigger):
            continue
        id = id_of(item)
        if id is None:
            id = stamps.new_id(id_prefix(item))
            item = with_id(item, id)
        entries.append(ConversationEntry(id=id, item=codec.encode(item)))
    return entries


ENDED_WELL: Final = frozenset({ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE})
