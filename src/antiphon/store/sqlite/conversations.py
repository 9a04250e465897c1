"""Stores conversations in an SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

import apsw

from antiphon.store.conversations import ConversationEntry, EntryPage, StoredConversation
from antiphon.store.record import Excerpt
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.threads import ReaderThreads, WriterThread, insert_rows


class SqliteConversations:
    """The `ConversationStore` part of the SQLite store."""

    _writer: WriterThread
    _readers: ReaderThreads

    async def create_conversation(
        self, owner: str, conversation: StoredConversation, entries: Sequence[ConversationEntry]
    ) -> None:
        row = (owner.encode(), conversation.id.encode(), conversation.created_at, conversation.metadata)
        await self._writer.run_write(partial(_create_conversation, row=row, entries=entries))

    async def get_conversation(self, owner: str, id: str) -> StoredConversation | None:
        return await self._readers.run_query(
            partial(_fetch_conversation, statement=SELECT_CONVERSATION, bindings=(owner.encode(), id.encode()))
        )

    async def update_conversation(self, owner: str, id: str, metadata: bytes) -> StoredConversation | None:
        bindings = (metadata, owner.encode(), id.encode())
        return await self._writer.run_write(
            partial(_fetch_conversation, statement=UPDATE_CONVERSATION, bindings=bindings)
        )

    async def delete_conversation(self, owner: str, id: str) -> bool:
        return await self._writer.run_write(
            partial(_delete_rows, statement=DELETE_CONVERSATION, bindings=(owner.encode(), id.encode())),
            is_deletion=True,
        )

    async def add_entries(self, owner: str, id: str, entries: Sequence[ConversationEntry]) -> bool:
        return await self._writer.run_write(
            partial(append_entries, owner=owner.encode(), id=id.encode(), entries=entries)
        )

    async def list_entries(
        self, owner: str, id: str, *, after: str | None, order: Literal["asc", "desc"], limit: int
    ) -> EntryPage | None:
        after_id = None if after is None else after.encode()
        return await self._readers.run_query(
            partial(_select_page, owner=owner.encode(), id=id.encode(), after=after_id, order=order, limit=limit)
        )

    async def read_all_entries(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        query = partial(
            _select_all_entries, owner=owner.encode(), id=id.encode(), limit=limit, drops_oldest=drops_oldest
        )
        return await self._readers.run_query(query)

    async def get_entry(self, owner: str, id: str, item_id: str) -> ConversationEntry | None:
        return await self._readers.run_query(
            partial(_select_entry, owner=owner.encode(), id=id.encode(), item_id=item_id)
        )

    async def delete_entry(self, owner: str, id: str, item_id: str) -> bool:
        bindings = (owner.encode(), id.encode(), item_id.encode())
        return await self._writer.run_write(
            partial(_delete_rows, statement=DELETE_ENTRY, bindings=bindings), is_deletion=True
        )

    async def prune_conversations(self, *, changed_before: int, batch_size: int = 100) -> int:
        return await self._writer.run_write(
            partial(_prune_conversations, changed_before=changed_before, batch_size=batch_size), is_deletion=True
        )


def append_entries(cursor: apsw.Cursor, owner: bytes, id: bytes, entries: Sequence[ConversationEntry]) -> bool:
    """Appends items, in the writer thread. Returns whether the conversation exists."""
    for (seq,) in fetch(cursor, TOUCH_CONVERSATION, owner, id):
        _insert_entries(cursor, seq, entries)
        return True
    return False


# Writes


def _create_conversation(
    cursor: apsw.Cursor, row: tuple[bytes, bytes, int, bytes], entries: Sequence[ConversationEntry]
) -> None:
    for (seq,) in fetch(cursor, INSERT_CONVERSATION, *row):
        _insert_entries(cursor, seq, entries)


def _insert_entries(cursor: apsw.Cursor, seq: int, entries: Sequence[ConversationEntry]) -> None:
    latest_index = {entry.id: index for index, entry in enumerate(entries)}
    rows = [
        (seq, entry.id.encode(), entry.item) for index, entry in enumerate(entries) if latest_index[entry.id] == index
    ]
    # REPLACE deletes existing entries first, so that they move to the end.
    insert_rows(cursor, REPLACE_ENTRIES, "(?, ?, ?)", rows)


def _prune_conversations(cursor: apsw.Cursor, changed_before: int, batch_size: int) -> int:
    return len(fetch(cursor, PRUNE_CONVERSATIONS, changed_before, batch_size))


def _delete_rows(cursor: apsw.Cursor, statement: str, bindings: tuple[bytes, ...]) -> bool:
    return bool(fetch(cursor, statement, *bindings))


# Reads


def _fetch_conversation(cursor: apsw.Cursor, statement: str, bindings: tuple[bytes, ...]) -> StoredConversation | None:
    for id, created_at, metadata in fetch(cursor, statement, *bindings):
        return StoredConversation(id=id.decode(), created_at=created_at, metadata=metadata)
    return None


def _select_page(
    cursor: apsw.Cursor, owner: bytes, id: bytes, after: bytes | None, order: Literal["asc", "desc"], limit: int
) -> EntryPage | None:
    [(has_conversation, sizes, ids, items)] = fetch(cursor, PAGE_STATEMENTS[order], owner, id, after, limit + 1)
    if not has_conversation:
        return None
    entries = _split_entries(sizes, ids, items) if sizes else []
    return EntryPage(entries=entries[:limit], has_more=len(entries) > limit)


def _select_all_entries(cursor: apsw.Cursor, owner: bytes, id: bytes, limit: int, drops_oldest: bool) -> Excerpt | None:
    [(has_conversation, size, omitted_count, items)] = fetch(cursor, SELECT_ALL_ENTRIES, owner, id, limit, drops_oldest)
    content = b"" if omitted_count and not drops_oldest else b"[%b]" % (items or b"")
    return Excerpt(content=content, size=size or 0, omitted_count=omitted_count) if has_conversation else None


def _split_entries(sizes: str, ids: bytes, items: bytes) -> list[ConversationEntry]:
    """Splits the concatenated rows of `PAGE_STATEMENTS`."""
    entries: list[ConversationEntry] = []
    id_end = item_end = 0
    size_pairs = map(int, sizes.split())
    for id_size, item_size in zip(size_pairs, size_pairs, strict=True):
        id_start, id_end, item_start, item_end = id_end, id_end + id_size, item_end, item_end + item_size
        entries.append(ConversationEntry(id=ids[id_start:id_end].decode(), item=items[item_start:item_end]))
    return entries


def _select_entry(cursor: apsw.Cursor, owner: bytes, id: bytes, item_id: str) -> ConversationEntry | None:
    rows = fetch(cursor, SELECT_ENTRY, owner, id, item_id.encode())
    return ConversationEntry(id=item_id, item=rows[0][0]) if rows else None


SELECT_SEQ: Final = "SELECT seq FROM conversations WHERE owner = ? AND id = ?"
TOUCH_CONVERSATION: Final = "UPDATE conversations SET changed_at = unixepoch() WHERE owner = ? AND id = ? RETURNING seq"
INSERT_CONVERSATION: Final = """
    INSERT INTO conversations (owner, id, created_at, metadata, changed_at) VALUES (?1, ?2, ?3, ?4, ?3)
    ON CONFLICT (owner, id) DO NOTHING RETURNING seq
"""
SELECT_CONVERSATION: Final = "SELECT id, created_at, metadata FROM conversations WHERE owner = ? AND id = ?"
UPDATE_CONVERSATION: Final = """
    UPDATE conversations SET metadata = ?, changed_at = unixepoch() WHERE owner = ? AND id = ?
    RETURNING id, created_at, metadata
"""
DELETE_CONVERSATION: Final = "DELETE FROM conversations WHERE owner = ? AND id = ? RETURNING seq"
PRUNE_CONVERSATIONS: Final = """
    DELETE FROM conversations
    WHERE seq IN (SELECT seq FROM conversations WHERE changed_at < ? ORDER BY changed_at LIMIT ?)
    RETURNING seq
"""
REPLACE_ENTRIES: Final = "INSERT OR REPLACE INTO entries (seq, id, item) VALUES "
SELECT_ENTRY: Final = f"SELECT item FROM entries WHERE seq = ({SELECT_SEQ}) AND id = ?"
DELETE_ENTRY: Final = f"DELETE FROM entries WHERE seq = ({SELECT_SEQ}) AND id = ? RETURNING seq"
# One row, for the reason given at `SELECT_CHAIN`.
SELECT_ALL_ENTRIES: Final = """
    WITH conversation AS (SELECT seq FROM conversations WHERE owner = ?1 AND id = ?2),
    sized AS (
        SELECT place, sum(length(item) + 1) OVER (ORDER BY place DESC) AS total
        FROM entries WHERE seq = (SELECT seq FROM conversation)
    )
    SELECT
        (SELECT count(*) FROM conversation),
        max(total),
        count(*) FILTER (WHERE total > ?3),
        CAST(group_concat(item, ',') FILTER (
            WHERE total <= ?3 AND (?4 OR (SELECT max(total) FROM sized) <= ?3)
        ) AS BLOB)
    FROM (SELECT place, total FROM sized ORDER BY place) AS entry CROSS JOIN entries USING (place)
"""
# One row, likewise. If the item `after` is missing, the page is empty.
PAGE_STATEMENTS: Final = {
    order: f"""
    WITH conversation AS (SELECT seq FROM conversations WHERE owner = ?1 AND id = ?2),
    start AS (
        SELECT seq, {first_place} AS place FROM conversation WHERE ?3 IS NULL
        UNION ALL
        SELECT e.seq, e.place FROM conversation CROSS JOIN entries AS e ON e.seq = conversation.seq AND e.id = ?3
    ),
    page AS (
        SELECT id, item FROM entries AS e
        WHERE e.seq = (SELECT seq FROM start) AND e.place {comparison} (SELECT place FROM start)
        ORDER BY e.place {order} LIMIT ?4
    )
    SELECT
        (SELECT count(*) FROM start),
        group_concat(format('%d %d', length(id), length(item)), ' '),
        CAST(group_concat(id, '') AS BLOB),
        CAST(group_concat(item, '') AS BLOB)
    FROM page
    """
    for order, first_place, comparison in (("asc", -1, ">"), ("desc", 2**63 - 1, "<"))
}
