"""Reads a request body with items for a conversation: the items as entries (API-4).

A body or history above `LARGE_INPUT` is read in a worker process.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from antiphon.errors import ClientFault
from antiphon.gateway.conversation import make_entries
from antiphon.gateway.history import HistorySource, resolve_references
from antiphon.gateway.history_budget import HistoryBudget
from antiphon.gateway.ids import new_id, now
from antiphon.gateway.remote_preparation import Ask, SourceAnswers, remote_history_source
from antiphon.gateway.stored_items import LargeHistory
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool
from antiphon.protocol import codec
from antiphon.protocol.conversation import AddItems, CreateConversation
from antiphon.protocol.items import CompactionTrigger, ItemParam
from antiphon.protocol.stamps import Stamps
from antiphon.store.conversations import ConversationEntry


class ConversationBody(NamedTuple):
    """The contents of a body."""

    metadata: bytes  # a JSON object
    entries: list[ConversationEntry]


BodyType = type[CreateConversation] | type[AddItems]


async def read_conversation_body(
    body: bytes, body_type: BodyType, source: HistorySource, stamps: Stamps, workers: WorkerPool
) -> ConversationBody:
    """Reads a body. References are replaced by the items they refer to. `source` has `max_local_bytes`."""
    if len(body) <= LARGE_INPUT:
        try:
            return await _read_body(body, body_type, source, stamps)
        except LargeHistory:
            pass  # it starts again, in another process
    answer = SourceAnswers(lambda: source).answer
    return await workers.run(_read_remotely, body, body_type, answer=answer, owner=source.owner)


async def _read_remotely(ask: Ask, body: bytes, body_type: BodyType) -> ConversationBody:
    return await _read_body(body, body_type, remote_history_source(ask), Stamps(new_id, now))


async def _read_body(body: bytes, body_type: BodyType, source: HistorySource, stamps: Stamps) -> ConversationBody:
    decoded: CreateConversation | AddItems = codec.decode_as(body, body_type)
    items = decoded.items or []
    _refuse_triggers(items)
    complete_items = await resolve_references(items, [], source, HistoryBudget(source.limit), "items")
    metadata = decoded.metadata if isinstance(decoded, CreateConversation) else None
    return ConversationBody(msgspec.json.encode(metadata or {}), make_entries(complete_items, stamps))


def _refuse_triggers(items: list[ItemParam]) -> None:
    for index, item in enumerate(items):
        if isinstance(item, CompactionTrigger):
            path = f"items[{index}]"
            raise ClientFault(f"{path}: a compaction_trigger is only allowed in the input of a turn", param=path)
