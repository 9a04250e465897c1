"""A `Store` in PostgreSQL, for one gateway or many.

Most operations are one statement, which is one transaction and one round trip; concurrent saves share a statement. All
external values are `bytea`, so PostgreSQL neither checks nor changes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

from antiphon.errors import StorageUnavailable
from antiphon.store.changes import Changes
from antiphon.store.conversations import ConversationAddition
from antiphon.store.interface import Excerpt, ResponseRecord, RetentionState, StoredTurn, StoreStats
from antiphon.store.keys import CALL, ITEM
from antiphon.store.postgres.batch_writer import BatchWriter
from antiphon.store.postgres.connections import ConnectionLimits, Connections
from antiphon.store.postgres.conversations import ADD_ENTRIES, PostgresConversations, entry_columns
from antiphon.store.postgres.faults import DAMAGE_ERRORS
from antiphon.store.postgres.index_keys import index_key
from antiphon.store.postgres.listener import Listener
from antiphon.store.postgres.notifier import Notifier
from antiphon.store.postgres.response_rows import SAVE_RESPONSES, SaveResponse, index_keys, response_row, save_columns
from antiphon.store.postgres.usage import PostgresUsage
from antiphon.store.postgres.work import PostgresWork


class PostgresStore(PostgresWork, PostgresConversations, PostgresUsage):
    """A `Store` on PostgreSQL."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        timeout = connections.answer_timeout
        self._save_writer = BatchWriter(self._write_saves, timeout=timeout)
        self._enqueue_writer = BatchWriter(self._write_enqueues, timeout=timeout)
        self._append_writer = BatchWriter(self._write_appends, timeout=timeout)
        self._finish_writer = BatchWriter(self._write_finishes, timeout=timeout)
        self._changes = Changes()
        origin = secrets.token_hex(8)
        self._listener = Listener(connections, self._changes, origin)
        self._notifier = Notifier(connections, origin)

    @classmethod
    async def open(cls, url: str, limits: ConnectionLimits | None = None) -> PostgresStore:
        """Connects and migrates the tables. A database that cannot be used is a `ConfigError`; one that cannot be
        reached is a `StorageUnavailable`."""
        connections = Connections(url, limits or ConnectionLimits())
        await connections.open()
        return cls(connections)

    async def save(
        self,
        owner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        *,
        addition: ConversationAddition | None = None,
    ) -> None:
        save = SaveResponse(response_row(owner, record), index_keys(item_ids, call_ids))
        if addition is None:
            await self._save_writer.submit(save)
        else:
            await self._save_with_addition(save, addition)

    async def get(self, owner: str, id: str) -> ResponseRecord | None:
        rows = await self._connections.fetch(SELECT_RESPONSE, owner.encode(), id.encode())
        if not rows:
            return None
        previous, created_at, status, head, input, output = rows[0]
        return ResponseRecord(
            id=id,
            previous=None if previous is None else previous.decode(),
            created_at=created_at,
            status=status.decode(),
            head=head,
            input=input,
            output=output,
        )

    async def get_chain(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        rows = await self._connections.fetch(SELECT_CHAIN, owner.encode(), id.encode(), limit, drops_oldest)
        for size, omitted_count, content in rows:
            return Excerpt(content=content or b"", size=size, omitted_count=omitted_count)
        return None

    async def delete(self, owner: str, id: str) -> bool:
        is_deleted = bool(await self._connections.fetch(DELETE_RESPONSE, owner.encode(), id.encode()))
        self._notify(id)
        return is_deleted

    async def find_items(self, owner: str, item_ids: Sequence[str]) -> dict[str, int]:
        return await self._find_numbers(FIND_ITEMS, owner, item_ids)

    async def find_calls(self, owner: str, call_ids: Sequence[str]) -> dict[str, int]:
        return await self._find_numbers(FIND_CALLS, owner, call_ids)

    async def _find_numbers(self, statement: str, owner: str, ids: Sequence[str]) -> dict[str, int]:
        ids_of_keys = {index_key(id): id for id in ids}
        rows = await self._connections.fetch(statement, owner.encode(), list(ids_of_keys))
        return {ids_of_keys[key]: seq for key, seq in rows}

    async def get_turn(self, owner: str, number: int) -> StoredTurn | None:
        for id, input, output in await self._connections.fetch(SELECT_TURN, number, owner.encode()):
            return StoredTurn(id=id.decode(), input=input, output=output)
        return None

    async def find_outputs(
        self, owner: str, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
    ) -> list[bytes]:
        keys = [index_key(id) for id in item_ids], [index_key(id) for id in call_ids]
        return [
            row[0] for row in await self._connections.fetch(SELECT_OUTPUTS, owner.encode(), ITEM, CALL, *keys, limit)
        ]

    async def prune(self, *, before: int | None, keep: int | None, batch_size: int = 100) -> int:
        [[count]] = await self._connections.fetch(PRUNE_RESPONSES, before, keep, batch_size)
        return int(count)

    async def newest_time(self) -> int | None:
        [(newest,)] = await self._connections.fetch("SELECT max(created_at) FROM antiphon_responses")
        return None if newest is None else int(newest)

    async def retention_state(self) -> RetentionState | None:
        for looked_at, held_until in await self._connections.fetch(SELECT_RETENTION_STATE):
            return RetentionState(looked_at=looked_at, held_until=held_until)
        return None

    async def save_retention_state(self, state: RetentionState) -> None:
        await self._connections.fetch(SAVE_RETENTION_STATE, state.looked_at, state.held_until)

    async def health(self) -> str | None:
        try:
            await self._connections.fetch("SELECT 1")
        except StorageUnavailable as error:
            return error.message
        return None

    async def stats(self) -> StoreStats:
        [row] = await self._connections.fetch_long_running(SELECT_STATS)
        return StoreStats(**dict(row))

    async def verify(self) -> list[str]:
        problems: list[str] = []
        for query, description in PROBLEM_QUERIES:
            try:
                [[count]] = await self._connections.fetch_long_running(query)
            except StorageUnavailable as error:
                if not isinstance(error.__cause__, DAMAGE_ERRORS):
                    raise
                problems.append(f"error of the database: {error.__cause__}")
            else:
                if count:
                    problems.append(f"{count} {description}")
        return problems

    async def close(self) -> None:
        await self._listener.stop()
        await self._save_writer.wait_until_written()
        await self._enqueue_writer.wait_until_written()
        await self._append_writer.wait_until_written()
        await self._finish_writer.wait_until_written()
        await self._notifier.wait_until_sent()
        await self._connections.close()

    async def _write_saves(self, saves: Sequence[SaveResponse]) -> list[None]:
        size = sum(save.size for save in saves)
        await self._connections.fetch_unwrapped(SAVE_RESPONSES, *save_columns(saves), size=size)
        return [None] * len(saves)

    async def _save_with_addition(self, save: SaveResponse, addition: ConversationAddition) -> None:
        columns, entries = list(save_columns([save])), entry_columns(addition.entries)

        async def save_with_addition(connection: Any) -> None:
            await connection.fetch(SAVE_RESPONSES, *columns)
            await connection.fetch(ADD_ENTRIES, save.row[0], addition.conversation_id.encode(), *entries)

        await self._connections.run_transaction(save_with_addition)


SELECT_RESPONSE: Final = (
    "SELECT previous, created_at, status, head, input, output FROM antiphon_responses WHERE owner = $1 AND id = $2"
)

# LIMIT makes each step look up one row. Contents are read last, and only those that fit: `octet_length` does not read
# them. A chain without a first response gives no row, and neither does a cycle. The walk ends in a cycle too: it marks
# the row at steps 1, 2, 4, 8… and stops when it reaches the mark again.
SELECT_CHAIN: Final = r"""
WITH RECURSIVE walk (seq, previous, step, mark, total) AS (
    SELECT seq, previous, 1::bigint, 0::bigint, octet_length(input)::bigint + octet_length(output) + 2
    FROM antiphon_responses WHERE owner = $1 AND id = $2
    UNION ALL
    SELECT before.seq, before.previous, step + 1,
        CASE step & (step - 1) WHEN 0 THEN walk.seq ELSE mark END, total + size
    FROM walk CROSS JOIN LATERAL (
        SELECT seq, previous, octet_length(input)::bigint + octet_length(output) + 2 AS size
        FROM antiphon_responses WHERE owner = $1 AND id = walk.previous LIMIT 1
    ) AS before WHERE before.seq <> mark
)
SELECT max(total), count(*) FILTER (WHERE total > $3),
    string_agg(input || '\x2c'::bytea || output, '\x2c'::bytea ORDER BY step DESC)
        FILTER (WHERE total <= $3 AND ($4::boolean OR (SELECT max(total) FROM walk) <= $3))
FROM walk JOIN antiphon_responses USING (seq) HAVING bool_or(walk.previous IS NULL)
"""

# The row of the work is locked first, as in all statements that lock both.
DELETE_RESPONSE: Final = """
WITH work AS MATERIALIZED (
    SELECT FROM antiphon_work AS work JOIN antiphon_responses AS response USING (seq)
    WHERE owner = $1 AND response.id = $2 FOR UPDATE OF work
)
DELETE FROM antiphon_responses
WHERE owner = $1 AND id = $2 AND (SELECT count(*) FROM work) >= 0
RETURNING seq
"""

FIND_ITEMS: Final = f"""
SELECT id, max(seq) FROM antiphon_found_by WHERE owner = $1 AND kind = {ITEM} AND id = ANY($2::bytea[]) GROUP BY id
"""

FIND_CALLS: Final = f"""
SELECT id, min(seq) FROM antiphon_found_by WHERE owner = $1 AND kind = {CALL} AND id = ANY($2::bytea[])
GROUP BY id HAVING count(*) = 1
"""

SELECT_TURN: Final = "SELECT id, input, output FROM antiphon_responses WHERE seq = $1 AND owner = $2"

SELECT_OUTPUTS: Final = """
SELECT output FROM antiphon_responses JOIN (
    SELECT seq, sum(octet_length(output)) OVER (ORDER BY seq DESC) AS total FROM antiphon_responses WHERE seq IN (
        SELECT min(seq) FROM antiphon_found_by WHERE owner = $1 AND kind = $2 AND id = ANY($4::bytea[]) GROUP BY id
        UNION SELECT min(seq) FROM antiphon_found_by WHERE owner = $1 AND kind = $3 AND id = ANY($5::bytea[])
            GROUP BY id HAVING count(*) = 1
    )
) AS sized USING (seq) WHERE total <= $6::bigint ORDER BY seq
"""

PRUNE_RESPONSES: Final = "SELECT antiphon_prune($1, $2, $3)"
SELECT_RETENTION_STATE: Final = "SELECT looked_at, held_until FROM antiphon_retention"
SAVE_RETENTION_STATE: Final = """
    INSERT INTO antiphon_retention VALUES (0, $1, $2)
    ON CONFLICT (id) DO UPDATE SET looked_at = excluded.looked_at, held_until = excluded.held_until
"""

SELECT_STATS: Final = """
SELECT count(*) AS responses, count(DISTINCT owner) AS owners,
    (SELECT count(*) FROM (SELECT DISTINCT owner, id FROM antiphon_found_by WHERE kind = 0) AS items) AS items,
    (SELECT count(*) FROM antiphon_conversations) AS conversations,
    (SELECT coalesce(sum(count), 0)::bigint FROM antiphon_events) AS events,
    (SELECT sum(pg_total_relation_size(name))::bigint FROM unnest(ARRAY[
        'antiphon_responses', 'antiphon_found_by', 'antiphon_work', 'antiphon_events', 'antiphon_conversations',
        'antiphon_entries', 'antiphon_usage'
    ]::regclass[]) AS name) AS bytes,
    min(created_at) AS oldest, max(created_at) AS newest
FROM antiphon_responses
"""

# Each query counts problems. A digest reads the whole value, so it finds values that cannot be read.
PROBLEM_QUERIES: Final = (
    (
        "SELECT count(*) FROM antiphon_responses "
        "WHERE octet_length(sha256(head) || sha256(input) || sha256(output)) <> 96",
        "responses cannot be read",
    ),
    (
        "SELECT count(*) FROM antiphon_found_by AS key WHERE NOT EXISTS "
        "(SELECT FROM antiphon_responses AS response WHERE response.seq = key.seq AND response.owner = key.owner)",
        "ids without a response of their owner",
    ),
    (
        "SELECT count(*) FROM (SELECT sha256(content) AS digest, "
        "first <> coalesce(lag(first + count) OVER (PARTITION BY seq "
        "ORDER BY first), 0) AS has_gap FROM antiphon_events) AS batch WHERE has_gap OR octet_length(digest) <> 32",
        "event batches have a gap before them or cannot be read",
    ),
    (
        "SELECT count(*) FROM antiphon_entries WHERE octet_length(sha256(item)) <> 32",
        "items of conversations cannot be read",
    ),
)
