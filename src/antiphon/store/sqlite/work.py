"""The background queue in an SQLite file. Each operation checks the lease and writes in one step of the writer thread,
so no other write can happen in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, TypeVar

import apsw
import msgspec

from antiphon.store.changes import ChangeKey, Changes
from antiphon.store.conversations import ConversationAddition
from antiphon.store.event_batches import EventBatch, events_to_append, pack_events, unpack_events_after
from antiphon.store.record import ResponseRecord
from antiphon.store.sqlite.change_watcher import ChangeWatcher
from antiphon.store.sqlite.conversations import append_entries
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.responses import (
    INSERT_RESPONSES,
    INSERT_TURNS,
    RESPONSE_COLUMN_COUNT,
    RESPONSE_VALUES,
    TURN_VALUES,
    IndexKeys,
    Row,
    index_keys,
    index_response,
    replace_index,
    response_row,
    update_responses,
)
from antiphon.store.sqlite.threads import BatchedWrite, ReaderThreads, WriterThread, insert_rows
from antiphon.store.work import EventsAfter, QueueStats, Work

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
        operation = partial(_enqueue, row=response_row(owner, record), keys=index_keys(item_ids, ()), request=request)
        await self._write_and_notify(operation, None)

    async def claim(self, runner: str, lease: float, limit: int) -> list[Work]:
        return await self._writer.run_write(
            partial(_claim, runner=runner.encode(), lease=lease, limit=max(0, limit), now=self._now)
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

    async def events_after(self, owner: str, id: str, after: int) -> EventsAfter | None:
        after = min(max(after, -1), MAX_EVENT_NUMBER)
        return await self._readers.run_query(partial(_events_after, owner=owner.encode(), id=id.encode(), after=after))

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


class Append(BatchedWrite):
    """Appends events to a response."""

    def __init__(self, runner: bytes, id: bytes, first_number: int, events: Sequence[bytes], status: bytes) -> None:
        self.runner = runner
        self.id = id
        self.first_number = first_number
        self.events = events
        self.status = status

    def __call__(self, cursor: apsw.Cursor) -> bool:
        outcome = self.write_batch(cursor, [self])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, appends: Sequence[Append]) -> list[bool | Exception]:
        held_work = {
            (work.runner, work.id): work for work in _select_held_work(cursor, {append.id for append in appends})
        }
        batches: list[tuple[int, int, int, bytes, bytes]] = []
        statuses: dict[int, str] = {}
        outcomes: list[bool | Exception] = []
        for append in appends:
            work = held_work.get((append.runner, append.id))
            if work is None:
                outcomes.append(False)
                continue
            try:
                batches += _event_rows(
                    work.seq, work.next_event, events_to_append(append.first_number, append.events, work.next_event)
                )
            except ValueError as error:
                outcomes.append(error)
                continue
            work.next_event = max(work.next_event, append.first_number + len(append.events))
            if append.status != work.status:
                work.status = append.status
                statuses[work.seq] = append.status.hex()
            outcomes.append(True)
        with cursor.connection:  # a savepoint: an error leaves nothing behind
            insert_rows(cursor, INSERT_EVENTS, EVENTS_VALUES, batches)
            if batches:
                cursor.execute(
                    SET_NEXT_EVENT, (_encode_json([[work.seq, work.next_event] for work in held_work.values()]),)
                )
            if statuses:
                cursor.execute(SET_STATUS, (_encode_json(list(statuses.items())),))
        return outcomes


class Finish(BatchedWrite):
    """Saves the last events of a response and the response, and ends its work."""

    def __init__(
        self,
        runner: bytes,
        row: Row,
        keys: IndexKeys,
        first_number: int,
        events: Sequence[bytes],
        addition: ConversationAddition | None,
    ) -> None:
        self.runner = runner
        self.row = row
        self.keys = keys
        self.first_number = first_number
        self.events = events
        self.addition = addition

    def __call__(self, cursor: apsw.Cursor) -> bool:
        outcome = self.write_batch(cursor, [self])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, finishes: Sequence[Finish]) -> list[bool | Exception]:
        """Saves all in a few statements."""
        states = {
            (bytes.fromhex(id), bytes.fromhex(runner)): (seq, bytes.fromhex(owner), next_event, bool(has_ended))
            for id, runner, seq, owner, next_event, has_ended in msgspec.json.decode(
                fetch(cursor, SELECT_WORK_TO_FINISH, _encode_json([finish.row.id.hex() for finish in finishes]))[0][0]
            )
        }
        outcomes: list[bool | Exception] = []
        ended: list[tuple[int, bytes, Finish]] = []
        batches: list[tuple[int, int, int, bytes, bytes]] = []
        for finish in finishes:
            seq, owner, next_event, has_ended = states.get((finish.row.id, finish.runner), (0, b"", 0, False))
            if seq == 0 or has_ended:
                outcomes.append(has_ended)
                continue
            try:
                new_events = events_to_append(finish.first_number, finish.events, next_event)
            except ValueError as error:
                outcomes.append(error)
                continue
            batches += _event_rows(seq, next_event, new_events)
            ended.append((seq, owner, finish))
            states[finish.row.id, finish.runner] = seq, owner, next_event, True  # for a repeated call in this batch
            outcomes.append(True)
        with cursor.connection:  # a savepoint: an error leaves nothing behind
            insert_rows(cursor, INSERT_EVENTS, EVENTS_VALUES, batches)
            _end_all(cursor, ended)
        return outcomes


class _HeldWork:
    """Work that a runner holds, with its next event number and status."""

    def __init__(self, id: str, runner: str, seq: int, next_event: int, status: str) -> None:
        self.id = bytes.fromhex(id)
        self.runner = bytes.fromhex(runner)
        self.seq = seq
        self.next_event = next_event
        self.status = bytes.fromhex(status)


# Writes


def _enqueue(cursor: apsw.Cursor, row: Row, keys: IndexKeys, request: bytes) -> None:
    for (seq,) in fetch(cursor, INSERT_QUEUED_RESPONSE, *row[:RESPONSE_COLUMN_COUNT]):
        cursor.execute(f"{INSERT_TURNS}{TURN_VALUES}", row.turn_values(seq))
        index_response(cursor, row.owner, seq, keys)
        cursor.execute("INSERT INTO work (seq, id) VALUES (?, ?)", (seq, row.id))
        cursor.execute("INSERT INTO work_requests (seq, request) VALUES (?, ?)", (seq, request))


def _claim(cursor: apsw.Cursor, runner: bytes, lease: float, limit: int, now: Callable[[], float]) -> list[Work]:
    current_time = now()
    rows = fetch(cursor, SELECT_CLAIMABLE, current_time, limit)
    if rows:
        cursor.execute(CLAIM_WORK, (runner, current_time + lease, _encode_json([row[0] for row in rows])))
    return [
        Work(
            owner=owner.decode(),
            id=id.decode(),
            request=request,
            attempt=attempt + 1,
            next_event=next_event,
            is_cancelled=bool(is_cancelled),
        )
        for _, owner, id, attempt, next_event, is_cancelled, request in rows
    ]


def _renew(
    cursor: apsw.Cursor, runner: bytes, lease: float, ids: str, now: Callable[[], float]
) -> dict[str, Literal["held", "cancelled"]]:
    held_work = msgspec.json.decode(fetch(cursor, SELECT_LEASES, runner, ids)[0][0])
    cursor.execute(RENEW_LEASES, (now() + lease, _encode_json([seq for seq, _, _ in held_work])))
    return {bytes.fromhex(id).decode(): "cancelled" if is_cancelled else "held" for _, id, is_cancelled in held_work}


def _release(cursor: apsw.Cursor, runner: bytes, ids: str) -> None:
    held_work = msgspec.json.decode(fetch(cursor, SELECT_LEASES, runner, ids)[0][0])
    cursor.execute(RELEASE_LEASES, (_encode_json([seq for seq, _, _ in held_work]),))


def _release_runners(cursor: apsw.Cursor, runners: str) -> int:
    return len(fetch(cursor, RELEASE_RUNNERS, runners))


def _end_all(cursor: apsw.Cursor, ended: Sequence[tuple[int, bytes, Finish]]) -> None:
    """Saves the responses with these numbers and owners, and ends their work."""
    if not ended:
        return
    seqs = _encode_json([seq for seq, _, _ in ended])
    replace_index(cursor, seqs, [(owner, *key, seq) for seq, owner, finish in ended for key in finish.keys])
    update_responses(cursor, [(seq, finish.row) for seq, _, finish in ended])
    cursor.execute(END_WORK, (seqs,))
    cursor.execute(DELETE_REQUESTS, (seqs,))
    for _, owner, finish in ended:
        if finish.addition is not None:
            append_entries(cursor, owner, finish.addition.conversation_id.encode(), finish.addition.entries)


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


def _select_held_work(cursor: apsw.Cursor, ids: set[bytes]) -> list[_HeldWork]:
    return [
        _HeldWork(*row)
        for row in msgspec.json.decode(fetch(cursor, SELECT_HELD_WORK, _encode_json([id.hex() for id in ids]))[0][0])
    ]


def _event_rows(seq: int, first_number: int, events: Sequence[bytes]) -> list[tuple[int, int, int, bytes, bytes]]:
    if not events:
        return []
    batch = pack_events(first_number, events)
    return [(seq, first_number, len(events), batch.sizes, batch.content)]


# Reads


def _events_after(cursor: apsw.Cursor, owner: bytes, id: bytes, after: int) -> EventsAfter | None:
    [(status, first_number, sizes, content)] = fetch(cursor, SELECT_EVENTS, owner, id, after)
    if status is None:
        return None
    events = (
        []
        if first_number is None
        else unpack_events_after(after, EventBatch(first_number=first_number, sizes=sizes, content=content))
    )
    return EventsAfter(events=events, status=status.decode())


def _lease_holders(cursor: apsw.Cursor) -> list[str]:
    return [runner.decode() for runner in {runner for (runner,) in fetch(cursor, SELECT_LEASE_HOLDERS)}]


def _queue_stats(cursor: apsw.Cursor, now: Callable[[], float]) -> QueueStats:
    [(waiting, running, oldest_waiting)] = fetch(cursor, SELECT_QUEUE_STATS, now())
    return QueueStats(waiting=waiting, running=running, oldest_waiting=oldest_waiting)


def _encode_ids(ids: Sequence[str]) -> str:
    return _encode_json([id.encode().hex() for id in ids])


def _encode_json(values: object) -> str:
    """Encodes values as one parameter of a statement, for `json_each`."""
    return msgspec.json.encode(values).decode()


MAX_WAIT: Final = 5.0  # limits how long a key is polled after its last waiter has left
MAX_EVENT_NUMBER: Final = 2**62
INSERT_QUEUED_RESPONSE: Final = f"{INSERT_RESPONSES}{RESPONSE_VALUES} ON CONFLICT (owner, id) DO NOTHING RETURNING seq"
IS_FREE: Final = "(held_until IS NULL OR held_until <= ?1)"
SELECT_CLAIMABLE: Final = f"""
    SELECT w.seq, owner, w.id, attempt, next_event, is_cancelled, request
    FROM work AS w CROSS JOIN responses AS r ON r.seq = w.seq CROSS JOIN work_requests AS q ON q.seq = w.seq
    WHERE has_ended = 0 AND {IS_FREE} ORDER BY w.seq LIMIT ?2
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
SELECT_HELD_WORK: Final = """
    SELECT json_group_array(json_array(hex(w.id), hex(runner), w.seq, next_event, hex(status)))
    FROM json_each(?) CROSS JOIN work AS w ON w.id = unhex(value) CROSS JOIN responses AS r ON r.seq = w.seq
    WHERE has_ended = 0 AND runner IS NOT NULL
"""
INSERT_EVENTS: Final = "INSERT INTO events (seq, first, count, sizes, content) VALUES "
EVENTS_VALUES: Final = "(?, ?, ?, ?, ?)"
SET_NEXT_EVENT: Final = "UPDATE work SET next_event = value ->> 1 FROM json_each(?) WHERE seq = value ->> 0"
SET_STATUS: Final = "UPDATE responses SET status = unhex(value ->> 1) FROM json_each(?) WHERE seq = value ->> 0"
SELECT_WORK_TO_FINISH: Final = """
    SELECT json_group_array(json_array(hex(w.id), hex(runner), w.seq, hex(owner), next_event, has_ended))
    FROM json_each(?) CROSS JOIN work AS w ON w.id = unhex(value) CROSS JOIN responses AS r ON r.seq = w.seq
    WHERE runner IS NOT NULL
"""
# `runner` is kept, so that a repeated `finish` can be recognised.
END_WORK: Final = "UPDATE work SET has_ended = 1, held_until = NULL WHERE seq IN (SELECT value FROM json_each(?))"
DELETE_REQUESTS: Final = "DELETE FROM work_requests WHERE seq IN (SELECT value FROM json_each(?))"
SELECT_CANCELLABLE: Final = f"""
    SELECT r.seq, coalesce(has_ended, 1), next_event = 0 AND {IS_FREE}
    FROM responses AS r LEFT JOIN work AS w ON w.seq = r.seq WHERE owner = ?2 AND r.id = ?3
"""
# Starts with the batch that has the first wanted event.
SELECT_EVENTS: Final = """
    WITH response AS (SELECT seq, status FROM responses WHERE owner = ?1 AND id = ?2),
    start AS (SELECT seq, max(first) AS first FROM events WHERE seq = (SELECT seq FROM response) AND first <= ?3 + 1)
    SELECT
        (SELECT status FROM response),
        min(first),
        CAST(group_concat(sizes, '') AS BLOB),
        CAST(group_concat(content, '') AS BLOB)
    FROM (
        SELECT first, sizes, content FROM events AS e
        WHERE e.seq = (SELECT seq FROM start) AND e.first >= (SELECT first FROM start) ORDER BY e.first
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
