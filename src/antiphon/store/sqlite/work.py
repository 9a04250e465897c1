"""The background queue in an SQLite file. Each operation checks the lease and writes in one step of the writer thread,
so no other write can happen in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Final, Literal, TypeVar

import apsw
import msgspec

from antiphon.store.changes import ChangeKey, Changes
from antiphon.store.conversations import ConversationAddition
from antiphon.store.event_batches import EventBatch, unpack_events_after
from antiphon.store.record import ResponseRecord
from antiphon.store.sqlite.change_watcher import ChangeWatcher
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.responses import (
    Row,
    index_keys,
    response_row,
    update_responses,
)
from antiphon.store.sqlite.threads import ReaderThreads, WriterThread
from antiphon.store.sqlite.work_writes import Append, Enqueue, Finish, encode_json
from antiphon.store.work import MAX_EVENTS_BYTES, EventsAfter, QueueStats, Work

T = TypeVar("T")


class SqliteWork:
    """The `WorkStore` part of the SQLite store."""

    pushes_changes = False

    _writer: WriterThread
    _readers: ReaderThreads
    _changes: Changes
    _change_watcher: ChangeWatcher
    _now: Callable[[], float]

    async def enqueue(self, owner: str, record: ResponseRecord, item_ids: Sequence[str], request: bytes) -> None:
        await self._write_and_notify(Enqueue(response_row(owner, record), index_keys(item_ids, ()), request), None)

    async def claim(self, runner: str, lease: float, limit: int, *, prepared_ids: Sequence[str] = ()) -> list[Work]:
        return await self._writer.run_write(
            partial(
                _claim,
                runner=runner.encode(),
                lease=lease,
                limit=max(0, limit),
                prepared_ids=frozenset(prepared_ids),
                now=self._now,
            )
        )

    async def renew(self, runner: str, lease: float, ids: Sequence[str]) -> dict[str, Literal["held", "cancelled"]]:
        return await self._writer.run_write(
            partial(_renew, runner=runner.encode(), lease=lease, ids=_encode_ids(ids), now=self._now)
        )

    async def append(self, runner: str, id: str, first_number: int, events: Sequence[bytes], status: str) -> bool:
        return await self._write_and_notify(
            Append(runner.encode(), id.encode(), first_number, events, status.encode()), id
        )

    async def finish(
        self,
        runner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        first_number: int,
        events: Sequence[bytes],
        *,
        addition: ConversationAddition | None = None,
    ) -> bool:
        finish = Finish(
            runner.encode(),
            response_row("", record),
            index_keys(item_ids, call_ids),
            first_number,
            list(events),
            addition,
        )
        return await self._write_and_notify(finish, record.id)

    async def lease_holders(self) -> list[str]:
        return await self._readers.run_query(_lease_holders)

    async def release_runners(self, runners: Sequence[str]) -> int:
        return await self._write_and_notify(partial(_release_runners, runners=_encode_ids(runners)), None)

    async def release(self, runner: str, ids: Sequence[str]) -> None:
        await self._write_and_notify(partial(_release, runner=runner.encode(), ids=_encode_ids(ids)), None)

    async def cancel(
        self, owner: str, id: str, cancelled: ResponseRecord | None
    ) -> Literal["unknown", "ended", "cancelled", "requested"]:
        row = None if cancelled is None else response_row(owner, cancelled)
        return await self._write_and_notify(
            partial(_cancel, owner=owner.encode(), id=id.encode(), row=row, now=self._now), id
        )

    async def events_after(self, owner: str, id: str, after: int, limit: int = MAX_EVENTS_BYTES) -> EventsAfter | None:
        after = min(max(after, -1), MAX_EVENT_NUMBER)
        return await self._readers.run_query(
            partial(_events_after, owner=owner.encode(), id=id.encode(), after=after, limit=limit)
        )

    @property
    def change_counter(self) -> int:
        return self._changes.change_counter

    async def wait_for_change(self, id: str | None, timeout: float, since: int | None = None) -> None:
        timeout = min(timeout, MAX_WAIT)
        self._change_watcher.watch_key(id, timeout)
        await self._changes.wait(id, timeout, since)

    async def queue_stats(self) -> QueueStats:
        return await self._readers.run_query(partial(_queue_stats, now=self._now))

    def _write_and_notify(
        self, operation: Callable[[apsw.Cursor], T], key: ChangeKey, *, is_deletion: bool = False
    ) -> asyncio.Future[T]:
        """Executes a write and notifies the tasks that wait for the key, even if the caller was cancelled."""
        write = self._writer.run_write(operation, is_deletion=is_deletion)
        write.add_done_callback(lambda _: self._changes.notify(key))
        return asyncio.shield(write)


# Writes


def _claim(
    cursor: apsw.Cursor,
    runner: bytes,
    lease: float,
    limit: int,
    prepared_ids: Set[str],
    now: Callable[[], float],
) -> list[Work]:
    current_time = now()
    claimed = [
        _ClaimedWork(*row) for row in msgspec.json.decode(fetch(cursor, SELECT_CLAIMABLE, current_time, limit)[0][0])
    ]
    if not claimed:
        return []
    seqs = encode_json([work.seq for work in claimed])
    cursor.execute(CLAIM_WORK, (runner, current_time + lease, seqs))
    unknown_seqs = [work.seq for work in claimed if work.id not in prepared_ids]
    rows = fetch(cursor, SELECT_CONTENTS, encode_json(unknown_seqs)) if unknown_seqs else []
    contents = {seq: content for seq, *content in rows}
    return [work.with_contents(*contents.get(work.seq, (b"", b"", b""))) for work in claimed]


class _ClaimedWork:
    """A row of the queue."""

    def __init__(self, seq: int, owner: str, id: str, attempt: int, next_event: int, is_cancelled: int) -> None:
        self.seq = seq
        self.owner = bytes.fromhex(owner).decode()
        self.id = bytes.fromhex(id).decode()
        self.attempt = attempt + 1
        self.next_event = next_event
        self.is_cancelled = bool(is_cancelled)

    def with_contents(self, request: bytes, head: bytes, input: bytes) -> Work:
        return Work(
            owner=self.owner,
            id=self.id,
            request=request,
            head=head,
            input=input,
            attempt=self.attempt,
            next_event=self.next_event,
            is_cancelled=self.is_cancelled,
        )


def _renew(
    cursor: apsw.Cursor, runner: bytes, lease: float, ids: str, now: Callable[[], float]
) -> dict[str, Literal["held", "cancelled"]]:
    held_work = msgspec.json.decode(fetch(cursor, SELECT_LEASES, runner, ids)[0][0])
    cursor.execute(RENEW_LEASES, (now() + lease, encode_json([seq for seq, _, _ in held_work])))
    return {bytes.fromhex(id).decode(): "cancelled" if is_cancelled else "held" for _, id, is_cancelled in held_work}


def _release(cursor: apsw.Cursor, runner: bytes, ids: str) -> None:
    held_work = msgspec.json.decode(fetch(cursor, SELECT_LEASES, runner, ids)[0][0])
    cursor.execute(RELEASE_LEASES, (encode_json([seq for seq, _, _ in held_work]),))


def _release_runners(cursor: apsw.Cursor, runners: str) -> int:
    return len(fetch(cursor, RELEASE_RUNNERS, runners))


def _cancel(
    cursor: apsw.Cursor, owner: bytes, id: bytes, row: Row | None, now: Callable[[], float]
) -> Literal["unknown", "ended", "cancelled", "requested"]:
    rows = fetch(cursor, SELECT_CANCELLABLE, now(), owner, id)
    if not rows:
        return "unknown"
    [(seq, has_ended, is_unstarted)] = rows
    if has_ended:
        return "ended"
    if row is not None and is_unstarted:
        _cancel_work(cursor, seq, row)
        return "cancelled"
    cursor.execute("UPDATE work SET is_cancelled = 1 WHERE seq = ?", (seq,))
    return "requested"


def _cancel_work(cursor: apsw.Cursor, seq: int, row: Row) -> None:
    """Ends work that no runner has, and saves its response."""
    update_responses(cursor, [(seq, row)])
    cursor.execute("UPDATE work SET has_ended = 1, held_until = NULL, runner = NULL WHERE seq = ?", (seq,))
    cursor.execute("DELETE FROM work_requests WHERE seq = ?", (seq,))


# Reads


def _events_after(cursor: apsw.Cursor, owner: bytes, id: bytes, after: int, limit: int) -> EventsAfter | None:
    [(status, first_number, sizes, content)] = fetch(cursor, SELECT_EVENTS, owner, id, after, limit)
    if status is None:
        return None
    if first_number is None:
        return EventsAfter(events=[], status=status.decode())
    batch = EventBatch(first_number=first_number, sizes=sizes, content=content)
    return EventsAfter(events=unpack_events_after(after, batch), status=status.decode(), has_more=len(content) >= limit)


def _lease_holders(cursor: apsw.Cursor) -> list[str]:
    return [runner.decode() for runner in {runner for (runner,) in fetch(cursor, SELECT_LEASE_HOLDERS)}]


def _queue_stats(cursor: apsw.Cursor, now: Callable[[], float]) -> QueueStats:
    [(waiting, running, oldest_waiting)] = fetch(cursor, SELECT_QUEUE_STATS, now())
    return QueueStats(waiting=waiting, running=running, oldest_waiting=oldest_waiting)


def _encode_ids(ids: Sequence[str]) -> str:
    return encode_json([id.encode().hex() for id in ids])


MAX_WAIT: Final = 5.0  # limits how long a key is polled after its last waiter has left
MAX_EVENT_NUMBER: Final = 2**62
IS_FREE: Final = "(held_until IS NULL OR held_until <= ?1)"
# One row, for the reason given at `SELECT_CHAIN`.
SELECT_CLAIMABLE: Final = f"""
    SELECT json_group_array(json_array(free.seq, hex(owner), hex(free.id), attempt, next_event, is_cancelled))
    FROM (SELECT * FROM work WHERE has_ended = 0 AND {IS_FREE} ORDER BY seq LIMIT ?2) AS free
    CROSS JOIN responses AS r ON r.seq = free.seq
"""
SELECT_CONTENTS: Final = """
    SELECT seq, request, head, input FROM json_each(?) CROSS JOIN responses ON seq = value
    CROSS JOIN turns USING (seq) CROSS JOIN work_requests USING (seq)
"""
CLAIM_WORK: Final = """
    UPDATE work SET attempt = attempt + 1, runner = ?, held_until = ? WHERE seq IN (SELECT value FROM json_each(?))
"""
# One row each, for the reason given at `SELECT_CHAIN`.
SELECT_LEASES: Final = """
    SELECT json_group_array(json_array(seq, hex(w.id), is_cancelled))
    FROM json_each(?2) CROSS JOIN work AS w ON w.id = unhex(value) WHERE has_ended = 0 AND runner = ?1
"""
RENEW_LEASES: Final = "UPDATE work SET held_until = ? WHERE seq IN (SELECT value FROM json_each(?))"
RELEASE_LEASES: Final = "UPDATE work SET held_until = NULL, runner = NULL WHERE seq IN (SELECT value FROM json_each(?))"
SELECT_LEASE_HOLDERS: Final = "SELECT runner FROM work WHERE has_ended = 0 AND runner IS NOT NULL"
RELEASE_RUNNERS: Final = """
    UPDATE work SET held_until = NULL, runner = NULL
    WHERE has_ended = 0 AND runner IN (SELECT unhex(value) FROM json_each(?)) RETURNING seq
"""
SELECT_CANCELLABLE: Final = f"""
    SELECT r.seq, coalesce(has_ended, 1), next_event = 0 AND {IS_FREE}
    FROM responses AS r LEFT JOIN work AS w ON w.seq = r.seq WHERE owner = ?2 AND r.id = ?3
"""
# Starts with the batch that has the first wanted event, and ends with the batch that reaches the limit.
SELECT_EVENTS: Final = """
    WITH response AS (SELECT seq, status FROM responses WHERE owner = ?1 AND id = ?2),
    start AS (SELECT seq, max(first) AS first FROM events WHERE seq = (SELECT seq FROM response) AND first <= ?3 + 1),
    sizes AS (
        SELECT first, length(content) AS size FROM events
        WHERE seq = (SELECT seq FROM start) AND first >= (SELECT first FROM start)
    ),
    rest AS (
        SELECT min(first) AS first
        FROM (SELECT first, sum(size) OVER (ORDER BY first) - size AS before FROM sizes) WHERE before >= ?4
    )
    SELECT
        (SELECT status FROM response),
        min(first),
        CAST(group_concat(sizes, '') AS BLOB),
        CAST(group_concat(content, '') AS BLOB)
    FROM (
        SELECT first, sizes, content FROM events AS e
        WHERE e.seq = (SELECT seq FROM start) AND e.first >= (SELECT first FROM start)
            AND e.first < coalesce((SELECT first FROM rest), e.first + 1)
        ORDER BY e.first
    )
"""
# Runners call this often: of all open work, only the oldest response is read.
SELECT_QUEUE_STATS: Final = f"""
    SELECT waiting, running, (SELECT created_at FROM responses AS r WHERE r.seq = oldest)
    FROM (
        SELECT
            count(*) FILTER (WHERE {IS_FREE}) AS waiting,
            count(*) FILTER (WHERE NOT {IS_FREE}) AS running,
            min(seq) FILTER (WHERE {IS_FREE}) AS oldest
        FROM work WHERE has_ended = 0
    )
"""
