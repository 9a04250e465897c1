"""The background queue in PostgreSQL, for one gateway or many. Each operation checks the lease and writes in one
statement that locks the row of the work. Leases use the clock of the server.

Rows are locked in one order, so that no deadlock is possible: first rows of work, by id, then rows of responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from antiphon.store.changes import ChangeKey, Changes
from antiphon.store.conversations import ConversationAddition
from antiphon.store.event_batches import EventBatch, events_to_append, pack_events, unpack_events_after
from antiphon.store.postgres.batch_writer import BatchWriter
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.conversations import ADD_ENTRIES, entry_columns
from antiphon.store.postgres.listener import KEY_LENGTH, Listener
from antiphon.store.postgres.notifier import Notifier
from antiphon.store.postgres.response_rows import (
    IS_OF_RESPONSE,
    KEY_COLUMNS,
    STORED_KIND,
    UNLESS_INDEXED,
    Row,
    SaveResponse,
    index_keys,
    response_row,
    save_columns,
)
from antiphon.store.record import ResponseRecord
from antiphon.store.work import MAX_EVENTS_BYTES, EventsAfter, QueueStats, Work


class PostgresWork:
    """The `WorkStore` part of the PostgreSQL store."""

    pushes_changes = True  # by NOTIFY

    _connections: Connections
    _enqueue_writer: BatchWriter[Enqueue, None]
    _append_writer: BatchWriter[Append, int | None]
    _finish_writer: BatchWriter[Finish, FinishOutcome | None]
    _changes: Changes
    _listener: Listener
    _notifier: Notifier

    async def enqueue(self, owner: str, record: ResponseRecord, item_ids: Sequence[str], request: bytes) -> None:
        await self._enqueue_writer.submit(Enqueue(response_row(owner, record), index_keys(item_ids, ()), request))

    async def claim(self, runner: str, lease: float, limit: int, *, prepared_ids: Sequence[str] = ()) -> list[Work]:
        ids = [id.encode() for id in prepared_ids]
        rows = await self._connections.fetch(CLAIM_WORK, runner.encode(), float(lease), max(0, limit), ids)
        return [
            Work(
                owner=owner.decode(),
                id=id.decode(),
                request=request,
                head=head,
                input=input,
                attempt=attempt,
                next_event=next_event,
                is_cancelled=is_cancelled,
            )
            for owner, id, attempt, next_event, is_cancelled, request, head, input in rows
        ]

    async def renew(self, runner: str, lease: float, ids: Sequence[str]) -> dict[str, Literal["held", "cancelled"]]:
        rows = await self._connections.fetch(RENEW_LEASES, runner.encode(), float(lease), [id.encode() for id in ids])
        return {id.decode(): "cancelled" if is_cancelled else "held" for id, is_cancelled in rows}

    async def append(self, runner: str, id: str, first_number: int, events: Sequence[bytes], status: str) -> bool:
        while True:
            append = Append(runner.encode(), id.encode(), events, pack_events(first_number, events), status.encode())
            next_event = await self._append_writer.submit(append)
            if next_event is None or next_event == first_number:
                return next_event is not None
            first_number, events = next_event, events_to_append(first_number, events, next_event)

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
        keys, row = index_keys(item_ids, call_ids), response_row("", record)
        while True:
            finish = Finish(runner.encode(), row, keys, events, pack_events(first_number, events))
            outcome = await self._submit_finish(finish, addition)
            if outcome is None:
                return False
            next_event = outcome.next_event
            if next_event is None or next_event == first_number:
                return True
            first_number, events = next_event, events_to_append(first_number, events, next_event)

    async def lease_holders(self) -> list[str]:
        return [runner.decode() for (runner,) in await self._connections.fetch(SELECT_LEASE_HOLDERS)]

    async def release_runners(self, runners: Sequence[str]) -> int:
        rows = await self._connections.fetch(RELEASE_RUNNERS, [runner.encode() for runner in runners])
        self._notify(None)
        return int(rows[0][0])

    async def release(self, runner: str, ids: Sequence[str]) -> None:
        await self._connections.fetch(RELEASE_LEASES, runner.encode(), [id.encode() for id in ids])
        self._notify(None)

    async def cancel(
        self, owner: str, id: str, cancelled: ResponseRecord | None
    ) -> Literal["unknown", "ended", "cancelled", "requested"]:
        row = (None,) * 6 if cancelled is None else response_row(owner, cancelled)[2:]
        rows = await self._connections.fetch(CANCEL_WORK, owner.encode(), id.encode(), cancelled is not None, *row)
        self._notify(id)
        if not rows:
            return "unknown"
        [[has_ended]] = rows
        return "ended" if has_ended is None else "cancelled" if has_ended else "requested"

    async def events_after(self, owner: str, id: str, after: int, limit: int = MAX_EVENTS_BYTES) -> EventsAfter | None:
        after = min(max(after, -1), MAX_EVENT_NUMBER)
        rows = await self._connections.fetch(SELECT_EVENTS, owner.encode(), id.encode(), after, limit)
        if not rows:
            return None
        events: list[bytes] = []
        size = 0
        for _, first_number, sizes, content in rows:
            if first_number is not None:
                size += len(content)
                events += unpack_events_after(
                    after, EventBatch(first_number=first_number, sizes=sizes, content=content)
                )
        return EventsAfter(events=events, status=rows[0][0].decode(), has_more=size >= limit)

    @property
    def change_counter(self) -> int:
        return self._changes.change_counter

    async def wait_for_change(self, id: str | None, timeout: float, since: int | None = None) -> None:
        self._listener.start()
        await self._changes.wait(_change_key(id), min(timeout, MAX_WAIT), since)

    async def queue_stats(self) -> QueueStats:
        [row] = await self._connections.fetch(SELECT_QUEUE_STATS)
        return QueueStats(**dict(row))

    async def _write_enqueues(self, enqueues: Sequence[Enqueue]) -> list[None]:
        requests = [enqueue.request for enqueue in enqueues]
        size = sum(enqueue.size for enqueue in enqueues)
        await self._connections.fetch_unwrapped(ENQUEUE_WORK, *save_columns(enqueues), requests, size=size)
        self._notify(None)
        return [None] * len(enqueues)

    async def _write_appends(self, appends: Sequence[Append]) -> list[int | None]:
        """Returns, for each append, the next event number before it, or None if the runner does not hold the work. The
        events were saved if that number is their first."""
        rows = await self._connections.fetch_unwrapped(
            APPEND_EVENTS,
            *zip(*(append.row for append in appends), strict=True),
            size=sum(append.size for append in appends),
        )
        for append in appends:
            self._notify(append.id.decode())
        next_events = dict(rows)
        return [next_events.get(append.id) for append in appends]

    async def _submit_finish(self, finish: Finish, addition: ConversationAddition | None) -> FinishOutcome | None:
        """Returns None if the runner does not hold the work."""
        if addition is None:
            return await self._finish_writer.submit(finish)
        conversation_id, columns = addition.conversation_id.encode(), entry_columns(addition.entries)

        async def finish_and_add(connection: Any) -> list[Any]:
            rows: list[Any] = await connection.fetch(FINISH_WORK, *self._finish_arguments([finish]))
            for _, owner, next_event in rows:
                if next_event == finish.batch.first_number:
                    await connection.fetch(ADD_ENTRIES, owner, conversation_id, *columns)
            return rows

        rows = await self._connections.run_transaction(finish_and_add)
        self._notify(finish.id.decode())
        return FinishOutcome(rows[0][2]) if rows else None

    async def _write_finishes(self, finishes: Sequence[Finish]) -> list[FinishOutcome | None]:
        size = sum(finish.size for finish in finishes)
        rows = await self._connections.fetch_unwrapped(FINISH_WORK, *self._finish_arguments(finishes), size=size)
        for finish in finishes:
            self._notify(finish.id.decode())
        outcomes = {id: FinishOutcome(next_event) for id, _, next_event in rows}
        return [outcomes.get(finish.id) for finish in finishes]

    def _finish_arguments(self, finishes: Sequence[Finish]) -> Iterator[Any]:
        """The arguments of FINISH_WORK: the responses by column, and their keys by column."""
        yield from zip(*(finish.columns for finish in finishes), strict=True)
        keys = [(finish.id, *key) for finish in finishes for key in finish.keys]
        yield from zip(*keys, strict=True) if keys else ((), (), ())

    def _notify(self, id: str | None) -> None:
        """Notifies this process, and the others through PostgreSQL."""
        key = _change_key(id)
        self._changes.notify(key)
        self._notifier.notify(key)


class Enqueue(SaveResponse, frozen=True):
    """A queued response and its request."""

    request: bytes

    @property
    def size(self) -> int:
        return super().size + len(self.request)


class Append(Struct, frozen=True):
    """Appends events to a response."""

    runner: bytes
    id: bytes
    events: Sequence[bytes]
    batch: EventBatch
    status: bytes

    @property
    def row_key(self) -> bytes:
        return self.id

    @property
    def size(self) -> int:
        return len(self.batch.content)

    @property
    def row(self) -> tuple[Any, ...]:
        batch = self.batch
        return (
            self.runner,
            self.id,
            batch.first_number,
            len(self.events),
            batch.sizes,
            batch.content,
            self.status,
        )


class Finish(Struct, frozen=True):
    """The last events of a response, and the response."""

    runner: bytes
    response: Row
    keys: list[tuple[int, bytes]]
    events: Sequence[bytes]
    batch: EventBatch

    @property
    def id(self) -> bytes:
        return self.response[1]

    @property
    def row_key(self) -> bytes:
        return self.id

    @property
    def size(self) -> int:
        return len(self.response[5]) + len(self.response[7]) + len(self.batch.content)

    @property
    def columns(self) -> tuple[Any, ...]:
        batch = self.batch
        return (
            self.runner,
            *self.response[1:6],
            self.response[7],  # without the input
            batch.first_number,
            len(self.events),
            batch.sizes,
            batch.content,
        )


class FinishOutcome(NamedTuple):
    """The runner holds the work. `next_event` is the next event number before the call: the response was saved if that
    is the first number of the call. None: the same call succeeded before."""

    next_event: int | None


def _change_key(id: str | None) -> ChangeKey:
    """The key of a response in notifications: short, so that one notification has room for a whole batch. Two responses
    with the same key only wake each other's readers."""
    return None if id is None else sha256(id.encode()).hexdigest()[:KEY_LENGTH]


MAX_WAIT: Final = 1.0  # limits the delay if a notification is lost
MAX_EVENT_NUMBER: Final = 2**62
IS_FREE: Final = "(held_until IS NULL OR held_until <= clock_timestamp())"

ENQUEUE_WORK: Final = f"""
WITH saved AS (
    INSERT INTO antiphon_responses (owner, id, previous, created_at, status, head, input, output)
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[]
    )
    ON CONFLICT (owner, id) DO NOTHING RETURNING seq, owner, id
), keys AS (
    INSERT INTO antiphon_found_by (seq, owner, kind, id)
    SELECT response.seq, response.owner, {STORED_KIND}, key.id FROM saved AS response
    JOIN unnest({KEY_COLUMNS}) AS key (number, kind, id) ON {IS_OF_RESPONSE} AND {UNLESS_INDEXED}
    ON CONFLICT DO NOTHING
), work AS (
    INSERT INTO antiphon_work (seq, id, request) SELECT seq, saved.id, request FROM saved
    JOIN unnest($1::bytea[], $2::bytea[], $12::bytea[]) AS new_work (owner, id, request) USING (owner, id)
)
SELECT FROM saved LIMIT 1
"""
CLAIM_WORK: Final = f"""
WITH free AS MATERIALIZED (
    SELECT seq FROM antiphon_work WHERE NOT has_ended AND {IS_FREE} ORDER BY seq LIMIT $3 FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE antiphon_work AS work
    SET attempt = attempt + 1, runner = $1, held_until = clock_timestamp() + make_interval(secs => $2)
    FROM free WHERE work.seq = free.seq
    RETURNING work.seq, work.id, attempt, next_event, is_cancelled, request
)
SELECT owner, claimed.id, attempt, next_event, is_cancelled,
    CASE WHEN is_prepared THEN '' ELSE request END,
    CASE WHEN is_prepared THEN '' ELSE head END,
    CASE WHEN is_prepared THEN '' ELSE input END
FROM claimed JOIN antiphon_responses AS response USING (seq)
CROSS JOIN LATERAL (SELECT claimed.id = ANY ($4::bytea[]) AS is_prepared) AS prepared ORDER BY seq
"""
SELECT_HELD_WORK: Final = """
SELECT seq FROM antiphon_work WHERE id = ANY ({}::bytea[]) AND runner = $1 AND NOT has_ended ORDER BY id FOR UPDATE
"""
SELECT_LEASE_HOLDERS: Final = "SELECT DISTINCT runner FROM antiphon_work WHERE NOT has_ended AND runner IS NOT NULL"
RELEASE_RUNNERS: Final = """
WITH own AS MATERIALIZED (
    SELECT seq FROM antiphon_work WHERE NOT has_ended AND runner = ANY ($1::bytea[]) ORDER BY id FOR UPDATE
), released AS (
    UPDATE antiphon_work AS work SET held_until = NULL, runner = NULL FROM own WHERE work.seq = own.seq
)
SELECT count(*) FROM own
"""
RENEW_LEASES: Final = f"""
WITH own AS MATERIALIZED ({SELECT_HELD_WORK.format("$3")})
UPDATE antiphon_work AS work SET held_until = clock_timestamp() + make_interval(secs => $2)
FROM own WHERE work.seq = own.seq RETURNING id, is_cancelled
"""
RELEASE_LEASES: Final = f"""
WITH own AS MATERIALIZED ({SELECT_HELD_WORK.format("$2")})
UPDATE antiphon_work AS work SET held_until = NULL, runner = NULL FROM own WHERE work.seq = own.seq
"""

# Work of another runner gives no row. A repeated append gives another `next_event` and saves nothing.
APPEND_EVENTS: Final = """
WITH appended AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[]
    ) AS appended (runner, id, first, count, sizes, content, status)
), own AS MATERIALIZED (
    SELECT work.seq, work.next_event, appended.* FROM appended JOIN antiphon_work AS work ON work.id = appended.id
    WHERE work.runner = appended.runner AND NOT has_ended ORDER BY work.id FOR UPDATE OF work
), fresh AS MATERIALIZED (
    SELECT * FROM own WHERE first = next_event
), events AS (
    INSERT INTO antiphon_events (seq, first, count, sizes, content)
    SELECT seq, first, count, sizes, content FROM fresh WHERE count > 0
), work AS (
    UPDATE antiphon_work AS work SET next_event = work.next_event + count
    FROM fresh WHERE work.seq = fresh.seq AND count > 0
), response AS (
    UPDATE antiphon_responses AS response SET status = fresh.status
    FROM fresh WHERE response.seq = fresh.seq AND response.status <> fresh.status
)
SELECT id, next_event FROM own
"""

# Returns the id, the owner and the next event number before it; no number if the same call succeeded before. The input
# is not written again, and the keys of the input stay.
FINISH_WORK: Final = f"""
WITH finished AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[],
        $8::bigint[], $9::bigint[], $10::bytea[], $11::bytea[]
    ) AS finished (runner, id, previous, created_at, status, head, output, first, count, sizes, content)
), own AS MATERIALIZED (
    SELECT work.seq, work.next_event, work.has_ended, finished.*
    FROM finished JOIN antiphon_work AS work ON work.id = finished.id
    WHERE work.runner = finished.runner ORDER BY work.id FOR UPDATE OF work
), fresh AS MATERIALIZED (
    SELECT * FROM own WHERE NOT has_ended AND first = next_event
), events AS (
    INSERT INTO antiphon_events (seq, first, count, sizes, content)
    SELECT seq, first, count, sizes, content FROM fresh WHERE count > 0
), work AS (
    UPDATE antiphon_work AS work SET has_ended = true, held_until = NULL, request = ''
    FROM fresh WHERE work.seq = fresh.seq
), response AS (
    UPDATE antiphon_responses AS response
    SET previous = fresh.previous, created_at = fresh.created_at, status = fresh.status, head = fresh.head,
        output = fresh.output
    FROM fresh WHERE response.seq = fresh.seq
), keys AS (
    INSERT INTO antiphon_found_by (seq, owner, kind, id)
    SELECT response.seq, response.owner, {STORED_KIND}, key.id
    FROM fresh JOIN antiphon_responses AS response ON response.seq = fresh.seq
    JOIN unnest($12::bytea[], $13::smallint[], $14::bytea[]) AS key (response, kind, id)
        ON key.response = fresh.id AND {UNLESS_INDEXED}
    ON CONFLICT DO NOTHING
)
SELECT own.id, response.owner, CASE WHEN has_ended THEN NULL ELSE next_event END
FROM own JOIN antiphon_responses AS response ON response.seq = own.seq
"""

# `is_over`: whether the work has ended now; null if there is no unfinished work.
CANCEL_WORK: Final = f"""
WITH response AS MATERIALIZED (
    SELECT seq FROM antiphon_responses WHERE owner = $1 AND id = $2
), open AS MATERIALIZED (
    SELECT work.seq, $3 AND next_event = 0 AND {IS_FREE} AS is_over
    FROM antiphon_work AS work JOIN response USING (seq) WHERE NOT has_ended FOR UPDATE OF work
), ended AS (
    UPDATE antiphon_responses AS response
    SET previous = $4, created_at = $5, status = $6, head = $7, input = $8, output = $9
    FROM open WHERE response.seq = open.seq AND is_over
), work AS (
    UPDATE antiphon_work AS work SET
        is_cancelled = true,
        has_ended = is_over,
        runner = CASE WHEN is_over THEN NULL ELSE runner END,
        request = CASE WHEN is_over THEN '' ELSE request END
    FROM open WHERE work.seq = open.seq
)
SELECT is_over FROM response LEFT JOIN open USING (seq)
"""

# Starts with the batch that has the first wanted event, and ends with the batch that reaches the limit.
SELECT_EVENTS: Final = """
SELECT status, batch.first, batch.sizes, batch.content FROM antiphon_responses AS response
LEFT JOIN LATERAL (
    SELECT first, sizes, content FROM (
        SELECT *, sum(octet_length(content)) OVER (ORDER BY first) - octet_length(content) AS before
        FROM antiphon_events AS batch WHERE batch.seq = response.seq AND batch.first >= coalesce(
            (
                SELECT max(first) FROM antiphon_events AS before
                WHERE before.seq = response.seq AND before.first <= $3::bigint + 1
            ), 0
        )
    ) AS counted WHERE before < $4::bigint
) AS batch ON true
WHERE owner = $1 AND id = $2 ORDER BY batch.first
"""
# Runners call this often: of all open work, only the oldest response is read.
SELECT_QUEUE_STATS: Final = f"""
SELECT waiting, running,
    (SELECT created_at FROM antiphon_responses AS response WHERE response.seq = open.oldest) AS oldest_waiting
FROM (
    SELECT count(*) FILTER (WHERE is_free) AS waiting, count(*) FILTER (WHERE NOT is_free) AS running,
        min(seq) FILTER (WHERE is_free) AS oldest
    FROM (SELECT seq, {IS_FREE} AS is_free FROM antiphon_work WHERE NOT has_ended) AS each
) AS open
"""
