"""A `Store` in an SQLite file: one writer thread with group commit, and reader threads. Nothing blocks the event loop.

Several processes may open the same file. An error is a `StorageUnavailable`; the store recovers when the cause is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import apsw

from antiphon.store.changes import Changes
from antiphon.store.conversations import ConversationAddition
from antiphon.store.interface import Excerpt, ResponseRecord, StoredTurn, StoreStats
from antiphon.store.keys import CALL, ITEM
from antiphon.store.sqlite.change_watcher import ChangeWatcher
from antiphon.store.sqlite.conversations import SqliteConversations, append_entries
from antiphon.store.sqlite.file import connect, fetch, prepare_file, storage_error
from antiphon.store.sqlite.readers import ReaderThreads
from antiphon.store.sqlite.response_rows import SaveResponse, index_keys, response_row
from antiphon.store.sqlite.usage import SqliteUsage
from antiphon.store.sqlite.work import SqliteWork
from antiphon.store.sqlite.writer import WriterThread

T = TypeVar("T")
CreationOrder = tuple[int, int]  # `created_at` and `seq` of a response


class SqliteStore(SqliteWork, SqliteConversations, SqliteUsage):
    """A `Store` in one file and its write-ahead log."""

    @classmethod
    async def open(cls, path: Path, *, lock_timeout: float = 10.0, now: Callable[[], float] = time.time) -> SqliteStore:
        """Opens the file, and creates or migrates it. `lock_timeout`: seconds to wait for the lock of another process.
        `now` is the clock of the leases; it is called in any thread."""
        path = path.absolute()
        await asyncio.to_thread(prepare_file, path, lock_timeout)
        return cls(path, lock_timeout, now)

    def __init__(self, path: Path, lock_timeout: float, now: Callable[[], float] = time.time) -> None:
        """Uses a file that exists and is migrated; see `open`."""
        loop = asyncio.get_running_loop()
        self._path = path
        self._connect_read_only = partial(connect, path, lock_timeout, is_read_only=True)
        self._writer = WriterThread(partial(connect, path), loop, lock_timeout=lock_timeout)
        self._readers = ReaderThreads(self._connect_read_only, loop)
        self._changes = Changes()
        self._change_watcher = ChangeWatcher(self._readers, self._changes)
        self._now = now

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
        await self._writer.run_write(
            save if addition is None else partial(_save_with_addition, save=save, addition=addition)
        )

    async def get(self, owner: str, id: str) -> ResponseRecord | None:
        return await self._readers.run_query(partial(_select_record, owner=owner.encode(), id=id))

    async def get_chain(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        query = partial(_select_chain, owner=owner.encode(), id=id.encode(), limit=limit, drops_oldest=drops_oldest)
        return await self._readers.run_query(query)

    async def delete(self, owner: str, id: str) -> bool:
        return await self._write_and_notify(
            partial(_delete_response, owner=owner.encode(), id=id.encode()), id, is_deletion=True
        )

    async def find_items(self, owner: str, item_ids: Sequence[str]) -> dict[str, int]:
        return await self._readers.run_query(
            partial(_find_numbers, statement=FIND_ITEMS, owner=owner.encode(), ids=item_ids)
        )

    async def find_calls(self, owner: str, call_ids: Sequence[str]) -> dict[str, int]:
        return await self._readers.run_query(
            partial(_find_numbers, statement=FIND_CALLS, owner=owner.encode(), ids=call_ids)
        )

    async def get_turn(self, owner: str, number: int) -> StoredTurn | None:
        return await self._readers.run_query(partial(_select_turn, owner=owner.encode(), number=number))

    async def find_outputs(
        self, owner: str, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
    ) -> list[bytes]:
        query = partial(_select_outputs, owner=owner.encode(), item_ids=item_ids, call_ids=call_ids, limit=limit)
        return await self._readers.run_query(query)

    async def prune(self, *, before: int | None, keep: int | None, batch_size: int = 100) -> int:
        # Finding them takes longer than deleting them, so it is done by a reader.
        candidates = await self._readers.run_query(
            partial(_find_prunable, before=before, keep=keep, batch_size=batch_size)
        )
        if candidates is None:
            return 0
        seqs, newest_position = candidates
        return await self._writer.run_write(
            partial(_prune_responses, seqs=seqs, newest_position=newest_position, batch_size=batch_size),
            is_deletion=True,
        )

    async def stats(self) -> StoreStats:
        return await self._run_in_thread(partial(_select_stats, path=self._path))

    async def verify(self) -> list[str]:
        return await self._run_in_thread(_find_problems)

    async def close(self) -> None:
        await self._change_watcher.stop()
        await self._readers.stop()
        await self._writer.stop()  # closing the last connection removes the log

    async def _run_in_thread(self, query: Callable[[apsw.Cursor], T]) -> T:
        """Runs a slow query in its own thread and connection, so that no other query waits for it."""

        def run_query() -> T:
            with contextlib.closing(self._connect_read_only()) as db:
                return query(db.cursor())

        try:
            return await asyncio.to_thread(run_query)
        except apsw.Error as error:
            raise storage_error(error) from error


# Reads


def _select_record(cursor: apsw.Cursor, owner: bytes, id: str) -> ResponseRecord | None:
    rows = fetch(cursor, SELECT_RECORD, owner, id.encode())
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


def _select_chain(cursor: apsw.Cursor, owner: bytes, id: bytes, limit: int, drops_oldest: bool) -> Excerpt | None:
    bindings = owner, id, limit, drops_oldest
    for size, omitted_count, content in fetch(cursor, SELECT_CHAIN, *bindings) or fetch(
        cursor, SELECT_CHAIN_BY_IDS, *bindings
    ):
        return Excerpt(content=content or b"", size=size, omitted_count=omitted_count)
    return None


def _find_numbers(cursor: apsw.Cursor, statement: str, owner: bytes, ids: Sequence[str]) -> dict[str, int]:
    rows = fetch(cursor, statement.format(ids=",".join("?" * len(ids))), owner, *(id.encode() for id in ids))
    return {id.decode(): seq for id, seq in rows}


def _select_turn(cursor: apsw.Cursor, owner: bytes, number: int) -> StoredTurn | None:
    for id, input, output in fetch(cursor, SELECT_TURN, number, owner):
        return StoredTurn(id=id.decode(), input=input, output=output)
    return None


def _select_outputs(
    cursor: apsw.Cursor, owner: bytes, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
) -> list[bytes]:
    items, calls = (",".join("?" * len(ids)) for ids in (item_ids, call_ids))
    keys: list[bytes | int] = [
        owner,
        ITEM,
        *(id.encode() for id in item_ids),
        owner,
        CALL,
        *(id.encode() for id in call_ids),
    ]
    return [output for (output,) in fetch(cursor, SELECT_OUTPUTS.format(items=items, calls=calls), *keys, limit)]


def _find_prunable(
    cursor: apsw.Cursor, before: int | None, keep: int | None, batch_size: int
) -> tuple[list[int], CreationOrder] | None:
    """Returns the oldest responses that can be pruned, and the newest position that may be pruned; None if there is
    none."""
    positions: list[CreationOrder] = []
    if before is not None:
        positions.append((before - 1, MAX_SEQ))
    if keep is not None:
        positions += fetch(cursor, SELECT_NEWEST_EXCEPT, keep)
    if not positions:
        return None
    seqs = [seq for (seq,) in fetch(cursor, SELECT_OLDEST, *max(positions), batch_size)]
    return (seqs, max(positions)) if seqs else None


def _select_stats(cursor: apsw.Cursor, path: Path) -> StoreStats:
    responses, owners, items, conversations, events, oldest, newest = fetch(cursor, SELECT_STATS)[0]
    size = sum(os.stat(file).st_size for file in (path, f"{path}-wal") if os.path.exists(file))
    return StoreStats(
        responses=responses,
        owners=owners,
        items=items,
        conversations=conversations,
        events=events,
        bytes=size,
        oldest=oldest,
        newest=newest,
    )


def _find_problems(cursor: apsw.Cursor) -> list[str]:
    try:
        problems = [line for (line,) in fetch(cursor, "PRAGMA integrity_check") if line != "ok"]
        [(bad_index_rows, event_gaps, bad_turns)] = fetch(cursor, COUNT_INCONSISTENCIES)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [f"the file is damaged: {error}"]
    if bad_index_rows:
        problems.append(f"ids without a response of their owner: {bad_index_rows}")
    if event_gaps:
        problems.append(f"event batches after a gap: {event_gaps}")
    if bad_turns:
        problems.append(f"responses without input and output, or whose previous response is newer: {bad_turns}")
    return problems


# Writes


def _save_with_addition(cursor: apsw.Cursor, save: SaveResponse, addition: ConversationAddition) -> None:
    save(cursor)
    append_entries(cursor, save.row.owner, addition.conversation_id.encode(), addition.entries)


def _delete_response(cursor: apsw.Cursor, owner: bytes, id: bytes) -> bool:
    return bool(fetch(cursor, "DELETE FROM responses WHERE owner = ? AND id = ? RETURNING seq", owner, id))


def _prune_responses(cursor: apsw.Cursor, seqs: Sequence[int], newest_position: CreationOrder, batch_size: int) -> int:
    """Deletes these responses, then their predecessors that can now be pruned."""
    count, next_seqs = 0, list(reversed(seqs))
    while next_seqs and count < batch_size:
        # A response may have been continued or deleted since it was selected.
        for owner, previous in fetch(cursor, DELETE_PRUNABLE, next_seqs.pop()):
            count += 1
            next_seqs += [seq for (seq,) in fetch(cursor, SELECT_PREVIOUS, owner, previous, *newest_position)]
    return count


MAX_SEQ: Final = 2**63 - 1  # no `seq` is greater
SELECT_RECORD: Final = """
    SELECT previous, created_at, status, head, input, output
    FROM responses AS r CROSS JOIN turns USING (seq) WHERE owner = ? AND id = ?
"""
# One row, whatever the length of the chain: a thread waits for the GIL after every row, which is slow while the event
# loop is busy.
SELECT_CHAIN: Final = """
    WITH RECURSIVE walk (seq, before, total) AS (
        SELECT seq, before, length(input) + length(output) + 2
        FROM responses CROSS JOIN turns USING (seq) WHERE owner = ?1 AND id = ?2
        UNION ALL
        SELECT t.seq, t.before, total + length(t.input) + length(t.output) + 2
        FROM walk CROSS JOIN turns AS t ON t.seq = walk.before
    )
    SELECT
        max(total),
        count(*) FILTER (WHERE total > ?3),
        CAST(group_concat(input || ',' || output, ',') FILTER (
            WHERE total <= ?3 AND (?4 OR (SELECT max(total) FROM walk) <= ?3)
        ) AS BLOB)
    FROM (SELECT seq, total FROM walk ORDER BY seq) AS turn CROSS JOIN turns USING (seq) HAVING sum(before = 0)
"""
# The same for responses that were written in another order: one may have been written after its successor, or replaced.
# A cycle has no first response, so it gives no row. The walk ends in a cycle too: it marks the row at steps 1, 2, 4, 8…
# and stops when it reaches the mark again.
SELECT_CHAIN_BY_IDS: Final = """
    WITH RECURSIVE walk (seq, previous, step, mark, total) AS (
        SELECT seq, previous, 1, 0, length(input) + length(output) + 2
        FROM responses CROSS JOIN turns USING (seq) WHERE owner = ?1 AND id = ?2
        UNION ALL
        SELECT
            r.seq,
            r.previous,
            step + 1,
            iif(step & (step - 1), mark, walk.seq),
            total + length(t.input) + length(t.output) + 2
        FROM walk CROSS JOIN responses AS r CROSS JOIN turns AS t ON t.seq = r.seq
        WHERE r.owner = ?1 AND r.id = walk.previous AND r.seq <> mark
    )
    SELECT
        max(total),
        count(*) FILTER (WHERE total > ?3),
        CAST(group_concat(input || ',' || output, ',') FILTER (
            WHERE total <= ?3 AND (?4 OR (SELECT max(total) FROM walk) <= ?3)
        ) AS BLOB)
    FROM (SELECT seq, total, previous IS NULL AS is_first FROM walk ORDER BY step DESC) AS turn
    CROSS JOIN turns USING (seq)
    HAVING sum(is_first)
"""
FIND_ITEMS: Final = f"""
    SELECT id, max(seq) FROM found_by WHERE owner = ? AND kind = {ITEM} AND id IN ({{ids}}) GROUP BY id
"""
FIND_CALLS: Final = f"""
    SELECT id, min(seq) FROM found_by WHERE owner = ? AND kind = {CALL} AND id IN ({{ids}})
    GROUP BY id HAVING count(*) = 1
"""
SELECT_TURN: Final = "SELECT id, input, output FROM responses CROSS JOIN turns USING (seq) WHERE seq = ? AND owner = ?"
SELECT_OUTPUTS: Final = """
    SELECT output FROM (
        SELECT seq, sum(length(output)) OVER (ORDER BY seq DESC) AS total FROM turns WHERE seq IN (
            SELECT min(seq) FROM found_by WHERE owner = ? AND kind = ? AND id IN ({items}) GROUP BY id
            UNION SELECT min(seq) FROM found_by WHERE owner = ? AND kind = ? AND id IN ({calls})
            GROUP BY id HAVING count(*) = 1
        )
    ) AS turn CROSS JOIN turns USING (seq) WHERE total <= ? ORDER BY seq
"""
IS_PRUNABLE: Final = """
    NOT EXISTS (
        SELECT 1 FROM responses AS next WHERE next.owner = r.owner AND next.previous = r.id AND next.seq <> r.seq
    )
    AND NOT EXISTS (SELECT 1 FROM work WHERE work.seq = r.seq AND has_ended = 0)
"""
SELECT_NEWEST_EXCEPT: Final = (
    "SELECT created_at, seq FROM responses ORDER BY created_at DESC, seq DESC LIMIT 1 OFFSET ?"
)
SELECT_OLDEST: Final = f"""
    SELECT seq FROM responses AS r WHERE (created_at, seq) <= (?, ?) AND {IS_PRUNABLE} ORDER BY created_at, seq LIMIT ?
"""
DELETE_PRUNABLE: Final = f"DELETE FROM responses AS r WHERE seq = ? AND {IS_PRUNABLE} RETURNING owner, previous"
SELECT_PREVIOUS: Final = "SELECT seq FROM responses WHERE owner = ? AND id = ? AND (created_at, seq) <= (?, ?)"
SELECT_STATS: Final = """
    SELECT
        (SELECT count(*) FROM responses),
        (SELECT count(DISTINCT owner) FROM responses),
        (SELECT count(*) FROM (SELECT DISTINCT owner, id FROM found_by WHERE kind = 0)),
        (SELECT count(*) FROM conversations),
        (SELECT coalesce(sum(count), 0) FROM events),
        (SELECT min(created_at) FROM responses),
        (SELECT max(created_at) FROM responses)
"""
COUNT_INCONSISTENCIES: Final = """
    SELECT
        (
            SELECT count(*) FROM found_by AS f
            WHERE NOT EXISTS (SELECT 1 FROM responses AS r WHERE r.seq = f.seq AND r.owner = f.owner)
        ),
        (
            SELECT count(*)
            FROM (
                SELECT first <> coalesce(lag(first + count) OVER (PARTITION BY seq ORDER BY first), 0) AS has_gap
                FROM events
            )
            WHERE has_gap
        ),
        (SELECT count(*) FROM responses LEFT JOIN turns USING (seq) WHERE input IS NULL OR before >= seq)
"""
