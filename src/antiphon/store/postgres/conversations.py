"""Stores conversations in PostgreSQL. Adding items locks the row of the conversation, so that concurrent additions do
not mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from antiphon.store.conversations import ConversationEntry, EntryPage, StoredConversation
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.index_keys import index_key
from antiphon.store.record import Excerpt


class PostgresConversations:
    """The `ConversationStore` part of the PostgreSQL store."""

    _connections: Connections

    async def create_conversation(
        self, owner: str, conversation: StoredConversation, entries: Sequence[ConversationEntry]
    ) -> None:
        columns = entry_columns(entries)
        row = (owner.encode(), conversation.id.encode(), conversation.created_at, conversation.metadata)
        await self._connections.fetch(CREATE_CONVERSATION, *row, *columns)

    async def get_conversation(self, owner: str, id: str) -> StoredConversation | None:
        rows = await self._connections.fetch(SELECT_CONVERSATION, owner.encode(), id.encode())
        return _conversation_from_rows(id, rows)

    async def update_conversation(self, owner: str, id: str, metadata: bytes) -> StoredConversation | None:
        rows = await self._connections.fetch(UPDATE_CONVERSATION, owner.encode(), id.encode(), metadata)
        return _conversation_from_rows(id, rows)

    async def delete_conversation(self, owner: str, id: str) -> bool:
        return bool(await self._connections.fetch(DELETE_CONVERSATION, owner.encode(), id.encode()))

    async def add_entries(self, owner: str, id: str, entries: Sequence[ConversationEntry]) -> bool:
        return bool(await self._connections.fetch(ADD_ENTRIES, owner.encode(), id.encode(), *entry_columns(entries)))

    async def list_entries(
        self, owner: str, id: str, *, after: str | None, order: Literal["asc", "desc"], limit: int
    ) -> EntryPage | None:
        after_key = None if after is None else index_key(after)
        rows = await self._connections.fetch(PAGE_STATEMENTS[order], owner.encode(), id.encode(), after_key, limit + 1)
        if not rows:
            return None
        # A row without an item means that the conversation exists.
        entries = [ConversationEntry(id=id.decode(), item=item) for id, item in rows if id is not None]
        return EntryPage(entries=entries[:limit], has_more=len(entries) > limit)

    async def read_all_entries(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        for size, omitted_count, items in await self._connections.fetch(
            SELECT_ALL_ENTRIES, owner.encode(), id.encode(), limit, drops_oldest
        ):
            content = b"" if omitted_count and not drops_oldest else b"[%b]" % (items or b"")
            return Excerpt(content=content, size=size or 0, omitted_count=omitted_count)
        return None

    async def get_entry(self, owner: str, id: str, item_id: str) -> ConversationEntry | None:
        rows = await self._connections.fetch(SELECT_ENTRY, owner.encode(), id.encode(), index_key(item_id))
        return ConversationEntry(id=item_id, item=rows[0][0]) if rows else None

    async def delete_entry(self, owner: str, id: str, item_id: str) -> bool:
        return bool(await self._connections.fetch(DELETE_ENTRY, owner.encode(), id.encode(), index_key(item_id)))

    async def prune_conversations(self, *, changed_before: int, batch_size: int = 100) -> int:
        return len(await self._connections.fetch(PRUNE_CONVERSATIONS, changed_before, batch_size))


def entry_columns(entries: Sequence[ConversationEntry]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The last three arguments of `ADD_ENTRIES`. Of items with the same id the last is used: one statement cannot write
    a row twice."""
    latest_index = {entry.id: index for index, entry in enumerate(entries)}
    unique_entries = [entry for index, entry in enumerate(entries) if latest_index[entry.id] == index]
    return (
        [index_key(entry.id) for entry in unique_entries],
        [entry.id.encode() for entry in unique_entries],
        [entry.item for entry in unique_entries],
    )


def _conversation_from_rows(id: str, rows: list[Any]) -> StoredConversation | None:
    return StoredConversation(id=id, created_at=rows[0][0], metadata=rows[0][1]) if rows else None


CURRENT_SECONDS: Final = "extract(epoch FROM now())::bigint"
# Numbers are assigned after the row of the conversation is locked, so they follow those of earlier additions.
INSERT_ENTRIES: Final = """
    INSERT INTO antiphon_entries (seq, key, id, item)
    SELECT seq, key, entry.id, item
    FROM conversation
    CROSS JOIN unnest({}::bytea[], {}::bytea[], {}::bytea[]) WITH ORDINALITY AS entry (key, id, item, number)
    ORDER BY number
    ON CONFLICT (seq, key) DO UPDATE SET place = excluded.place, item = excluded.item
"""
ADD_ENTRIES: Final = f"""
WITH conversation AS MATERIALIZED (
    UPDATE antiphon_conversations SET changed_at = {CURRENT_SECONDS} WHERE owner = $1 AND id = $2 RETURNING seq
), added AS ({INSERT_ENTRIES.format("$3", "$4", "$5")})
SELECT FROM conversation
"""
CREATE_CONVERSATION: Final = f"""
WITH conversation AS (
    INSERT INTO antiphon_conversations (owner, id, created_at, metadata, changed_at) VALUES ($1, $2, $3, $4, $3)
    ON CONFLICT (owner, id) DO NOTHING RETURNING seq
){INSERT_ENTRIES.format("$5", "$6", "$7")}
"""
SELECT_CONVERSATION: Final = "SELECT created_at, metadata FROM antiphon_conversations WHERE owner = $1 AND id = $2"
UPDATE_CONVERSATION: Final = f"""
UPDATE antiphon_conversations SET metadata = $3, changed_at = {CURRENT_SECONDS} WHERE owner = $1 AND id = $2
RETURNING created_at, metadata
"""
DELETE_CONVERSATION: Final = "DELETE FROM antiphon_conversations WHERE owner = $1 AND id = $2 RETURNING seq"
# Skips conversations that are locked by an addition.
PRUNE_CONVERSATIONS: Final = """
WITH old AS MATERIALIZED (
    SELECT seq FROM antiphon_conversations WHERE changed_at < $1::bigint
    ORDER BY changed_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM antiphon_conversations AS conversation USING old WHERE conversation.seq = old.seq RETURNING old.seq
"""
ENTRY_CONDITION: Final = "seq = (SELECT seq FROM antiphon_conversations WHERE owner = $1 AND id = $2) AND key = $3"
SELECT_ENTRY: Final = f"SELECT item FROM antiphon_entries WHERE {ENTRY_CONDITION}"
DELETE_ENTRY: Final = f"DELETE FROM antiphon_entries WHERE {ENTRY_CONDITION} RETURNING place"
# A conversation without items gives one row of nulls.
SELECT_ALL_ENTRIES: Final = r"""
SELECT max(total), count(*) FILTER (WHERE total > $3),
    string_agg(item, '\x2c'::bytea ORDER BY place) FILTER (WHERE total <= $3 AND ($4::boolean OR size <= $3))
FROM (SELECT seq FROM antiphon_conversations WHERE owner = $1 AND id = $2) AS conversation LEFT JOIN LATERAL (
    SELECT place, item, sum(octet_length(item) + 1) OVER (ORDER BY place DESC) AS total,
        sum(octet_length(item) + 1) OVER () AS size
    FROM antiphon_entries AS entry WHERE entry.seq = conversation.seq
) AS sized ON true GROUP BY conversation.seq
"""
PAGE_STATEMENTS: Final = {
    order: f"""
    WITH start AS (
        SELECT conversation.seq, place FROM antiphon_conversations AS conversation
        LEFT JOIN antiphon_entries AS entry ON entry.seq = conversation.seq AND entry.key = $3
        WHERE owner = $1 AND conversation.id = $2 AND ($3 IS NULL OR place IS NOT NULL)
    )
    SELECT page.id, page.item FROM start LEFT JOIN LATERAL (
        SELECT entry.place, entry.id, entry.item FROM antiphon_entries AS entry
        WHERE entry.seq = start.seq AND entry.place {comparison} coalesce(start.place, {first_place})
        ORDER BY entry.place {order} LIMIT $4
    ) AS page ON true ORDER BY page.place {order}
    """
    for order, first_place, comparison in (("asc", -1, ">"), ("desc", 2**63 - 1, "<"))
}
