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
import msgspec

from antiphon.store.changes import Changes
from antiphon.store.interface import RetentionState, StoreStats
from antiphon.store.sqlite.change_watcher import ChangeWatcher
from antiphon.store.sqlite.conversations import SqliteConversations
from antiphon.store.sqlite.file import connect, fetch, prepare_file, storage_error
from antiphon.store.sqlite.file_watch import FileWatch
from antiphon.store.sqlite.responses import SqliteResponses
from antiphon.store.sqlite.threads import ReaderThreads, WriterThread
from antiphon.store.sqlite.usage import SqliteUsage
from antiphon.store.sqlite.work import SqliteWork
from antiphon.store.sqlite.work_writes import encode_json

T = TypeVar("T")
CreationOrder = tuple[int, int]  # `created_at` and `seq` of a response


class SqliteStore(SqliteResponses, SqliteWork, SqliteConversations, SqliteUsage):
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
        self._file_watch = FileWatch(path)
        check_file = self._file_watch.check
        self._writer = WriterThread(partial(connect, path), loop, lock_timeout=lock_timeout, check_file=check_file)
        self._readers = ReaderThreads(self._connect_read_only, loop, check_file)
        self._changes = Changes()
        self._change_watcher = ChangeWatcher(self._readers, self._changes)
        self._now = now
        self._has_pruned = False  # since the log was truncated

    async def delete(self, owner: str, id: str) -> bool:
        return await self._write_and_notify(
            partial(_delete_response, owner=owner.encode(), id=id.encode()), id, is_deletion=True
        )

    async def prune(self, *, before: int | None, keep: int | None, batch_size: int = 100) -> int:
        # Finding them takes longer than deleting them, so it is done by a reader.
        candidates = await self._readers.run_query(
            partial(_find_prunable, before=before, keep=keep, batch_size=batch_size)
        )
        if candidates is None:
            await self._truncate_log_after_pruning()
            return 0
        seqs, newest_position = candidates
        self._has_pruned = True
        return await self._writer.run_write(
            partial(_prune_responses, seqs=seqs, newest_position=newest_position, batch_size=batch_size)
        )

    async def _truncate_log_after_pruning(self) -> None:
        """Truncates the log once after all batches: doing so after each would hold up other writes."""
        if self._has_pruned:
            self._has_pruned = False
            await self._writer.run_write(lambda _: True, is_deletion=True)

    async def newest_time(self) -> int | None:
        return await self._readers.run_query(_select_newest_time)

    async def retention_state(self) -> RetentionState | None:
        return await self._readers.run_query(_select_retention_state)

    async def save_retention_state(self, state: RetentionState) -> None:
        await self._writer.run_write(partial(_save_retention_state, state=state))

    async def health(self) -> str | None:
        return await asyncio.to_thread(self._file_watch.look)

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


def _select_newest_time(cursor: apsw.Cursor) -> int | None:
    newest: int | None = fetch(cursor, "SELECT max(created_at) FROM responses")[0][0]
    return newest


def _select_retention_state(cursor: apsw.Cursor) -> RetentionState | None:
    for looked_at, held_until in fetch(cursor, "SELECT looked_at, held_until FROM retention"):
        return RetentionState(looked_at=looked_at, held_until=held_until)
    return None


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


def _delete_response(cursor: apsw.Cursor, owner: bytes, id: bytes) -> bool:
    return bool(fetch(cursor, "DELETE FROM responses WHERE owner = ? AND id = ? RETURNING seq", owner, id))


def _save_retention_state(cursor: apsw.Cursor, state: RetentionState) -> None:
    cursor.execute("INSERT OR REPLACE INTO retention VALUES (0, ?, ?)", (state.looked_at, state.held_until))


def _prune_responses(cursor: apsw.Cursor, seqs: Sequence[int], newest_position: CreationOrder, batch_size: int) -> int:
    """Deletes these responses, then their predecessors that can now be pruned: each generation in two statements."""
    count, next_seqs = 0, list(seqs)
    while next_seqs and count < batch_size:
        # A response may have been continued or deleted since it was selected.
        candidates = encode_json(next_seqs[: batch_size - count])
        [(prunable, predecessors)] = fetch(cursor, SELECT_PRUNABLE, candidates, *newest_position)
        cursor.execute("DELETE FROM responses WHERE seq IN (SELECT value FROM json_each(?))", (prunable,))
        count += len(msgspec.json.decode(prunable))
        next_seqs = sorted({seq for seq in msgspec.json.decode(predecessors) if seq is not None})
    return count


MAX_SEQ: Final = 2**63 - 1  # no `seq` is greater
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
# One row, for the reason given at `SELECT_CHAIN`: those of the given responses that can be pruned, and their
# predecessors up to a position.
SELECT_PRUNABLE: Final = f"""
    SELECT json_group_array(r.seq), json_group_array(p.seq)
    FROM json_each(?1) CROSS JOIN responses AS r ON r.seq = value
    LEFT JOIN responses AS p ON p.owner = r.owner AND p.id = r.previous AND (p.created_at, p.seq) <= (?2, ?3)
    WHERE {IS_PRUNABLE}
"""
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
