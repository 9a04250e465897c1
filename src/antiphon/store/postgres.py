"""Responses in PostgreSQL, for one gateway or many.

Saves that wait at the same time are written by one statement, which is one transaction and one round trip; each is acknowledged
after the commit of its own. Everything that came from outside is `bytea`, so nothing of it is looked at, changed or refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from antiphon.errors import StorageUnavailable
from antiphon.store.interface import Record, Stats, Turn
from antiphon.store.postgres_connections import Connections, Limits
from antiphon.store.postgres_faults import DAMAGED, FAILURES, UNFIT, unavailable


class PostgresStore:
    """A `Store` on PostgreSQL."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: deque[_Entry] = deque()
        self._writer: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, limits: Limits | None = None) -> PostgresStore:
        """Connects and brings the tables up to date. A database that cannot be used is a `ConfigError` that says why; one that
        is not there is a `StorageUnavailable`: nobody could know what its tables are like."""
        connections = Connections(url, limits or Limits())
        await connections.open()
        return cls(connections)

    async def save(self, owner: str, record: Record, item_ids: Sequence[str], call_ids: Sequence[str]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = _Entry(
            row=(
                owner.encode(),
                record.id.encode(),
                None if record.previous is None else record.previous.encode(),
                record.created_at,
                record.status.encode(),
                record.head,
                record.input,
                record.output,
            ),
            keys=[*((ITEM, _key(id)) for id in item_ids), *((CALL, _key(id)) for id in call_ids)],
            done=done,
        )
        self._waiting.append(entry)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_what_waits())
        await done

    async def get(self, owner: str, id: str) -> Record | None:
        rows = await self._connections.ask(GET, owner.encode(), id.encode())
        if not rows:
            return None
        previous, created_at, status, head, input, output = rows[0]
        return Record(
            id=id,
            previous=None if previous is None else previous.decode(),
            created_at=created_at,
            status=status.decode(),
            head=head,
            input=input,
            output=output,
        )

    async def chain(self, owner: str, id: str) -> list[Turn] | None:
        # All of the chain, in any order, or nothing.
        rows = {row[0]: row for row in await self._connections.ask(CHAIN, owner.encode(), id.encode())}
        if not rows:
            return None
        turns: list[Turn] = []
        name: bytes | None = id.encode()
        while name is not None:
            row = rows[name]
            turns.append(_turn(row))
            name = row[1]
        turns.reverse()
        return turns

    async def delete(self, owner: str, id: str) -> bool:
        return bool(await self._connections.ask(DELETE, owner.encode(), id.encode()))

    async def with_item(self, owner: str, item_id: str) -> Turn | None:
        rows = await self._connections.ask(FOUND_BY, owner.encode(), ITEM, _key(item_id), 1)
        return _turn(rows[0]) if rows else None

    async def with_call(self, owner: str, call_id: str) -> list[Turn]:
        return [_turn(row) for row in await self._connections.ask(FOUND_BY, owner.encode(), CALL, _key(call_id), 2)]

    async def prune(self, *, before: int | None, keep: int | None, step: int = 100) -> int:
        [[count]] = await self._connections.ask(PRUNE, before, keep, step)
        return int(count)

    async def stats(self) -> Stats:
        [row] = await self._connections.ask_without_haste(STATS)
        return Stats(**dict(row))

    async def verify(self) -> list[str]:
        findings: list[str] = []
        for question, finding in VERIFY:
            try:
                [[wrong]] = await self._connections.ask_without_haste(question)
            except StorageUnavailable as error:
                if not isinstance(error.__cause__, DAMAGED):
                    raise
                findings.append(f"the database says: {error.__cause__}")
            else:
                if wrong:
                    findings.append(f"{wrong} {finding}")
        return findings

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self._connections.close()

    async def _write_what_waits(self) -> None:
        batch: list[_Entry] = []
        try:
            while self._waiting:
                batch = _next_batch(self._waiting)
                await self._write(batch)
        finally:
            self._writer = None
            # Nobody waits for a writer that fell over.
            for entry in (*batch, *self._waiting):
                if not entry.done.done():
                    entry.done.set_exception(StorageUnavailable("the response could not be kept"))
            self._waiting.clear()

    async def _write(self, batch: list[_Entry]) -> None:
        try:
            await self._connections.try_to_ask(SAVE, *_columns(batch))
        except FAILURES as error:
            if len(batch) == 1 or not isinstance(error, UNFIT):
                _tell(batch, error)
                return
            for entry in batch:
                await self._write([entry])
        else:
            _tell(batch, None)


class _Entry(Struct, frozen=True):
    """A response that waits to be written."""

    row: tuple[bytes, bytes, bytes | None, int, bytes, bytes, bytes, bytes]  # as SAVE has them
    keys: list[tuple[int, bytes]]  # what it is found by
    done: asyncio.Future[None]


def _next_batch(waiting: deque[_Entry]) -> list[_Entry]:
    """The first that wait, as many as are written at once; and none twice, since one statement cannot write a row twice."""
    batch: list[_Entry] = []
    names: set[tuple[bytes, bytes]] = set()
    size = 0
    while waiting and len(batch) < BATCH and size < BATCH_BYTES and waiting[0].row[:2] not in names:
        entry = waiting.popleft()
        batch.append(entry)
        names.add(entry.row[:2])
        size += sum(map(len, entry.row[5:]))
    return batch


def _columns(batch: list[_Entry]) -> Iterator[Sequence[Any]]:
    """The arguments of SAVE: the rows by column, then the keys by column, each with the owner and the id of its response."""
    yield from zip(*(entry.row for entry in batch), strict=True)
    keys = [(*entry.row[:2], *key) for entry in batch for key in entry.keys]
    yield from zip(*keys, strict=True) if keys else ((), (), (), ())


def _tell(batch: list[_Entry], error: BaseException | None) -> None:
    for entry in batch:
        if entry.done.done():  # whoever asked has left
            continue
        if error is None:
            entry.done.set_result(None)
        else:
            entry.done.set_exception(unavailable(error))


def _turn(row: Any) -> Turn:
    id, _, input, output = row
    return Turn(id=id.decode(), input=input, output=output)


def _key(id: str) -> bytes:
    """What an item or a call is found by. An index takes no more than 2,700 bytes, so what is too long keeps its beginning, and a
    digest stands for the rest; none that is short is as long as this."""
    key = id.encode()
    return key if len(key) < LONGEST_KEY else key[: LONGEST_KEY - 32] + sha256(key).digest()


ITEM: Final = 0
CALL: Final = 1
BATCH: Final = 64
BATCH_BYTES: Final = 4 * 1024 * 1024  # once reached, nothing more is added
LONGEST_KEY: Final = 512

# One statement, hence one transaction. What takes the place of another keeps its number, and of the ids that led to it those that
# lead there no more are removed; `xmax` is not 0 where a row was there before.
SAVE: Final = """
WITH kept AS (
    INSERT INTO antiphon_responses (owner, id, previous, created_at, status, head, input, output)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[])
    ON CONFLICT (owner, id) DO UPDATE SET previous = excluded.previous, created_at = excluded.created_at,
        status = excluded.status, head = excluded.head, input = excluded.input, output = excluded.output
    RETURNING seq, owner, id, xmax <> 0 AS replaced
), keys AS (
    SELECT seq, kept.owner, kind, key.id FROM kept
    JOIN unnest($9::bytea[], $10::bytea[], $11::smallint[], $12::bytea[]) AS key (owner, response, kind, id)
        ON key.owner = kept.owner AND key.response = kept.id
), added AS (
    INSERT INTO antiphon_found_by (seq, owner, kind, id) SELECT seq, owner, kind, id FROM keys ON CONFLICT DO NOTHING
)
DELETE FROM antiphon_found_by AS old USING kept WHERE kept.replaced AND old.seq = kept.seq
    AND NOT EXISTS (SELECT FROM keys WHERE keys.seq = old.seq AND keys.kind = old.kind AND keys.id = old.id)
"""

GET: Final = "SELECT previous, created_at, status, head, input, output FROM antiphon_responses WHERE owner = $1 AND id = $2"

# UNION, so that a circle ends: it has no beginning, and neither has a chain with a hole, and without one there is no answer. Each
# step looks up one row, by force of LIMIT; the contents are read last.
CHAIN: Final = """
WITH RECURSIVE links (seq, id, previous) AS (
    SELECT seq, id, previous FROM antiphon_responses WHERE owner = $1 AND id = $2
    UNION
    SELECT before.seq, before.id, before.previous FROM links CROSS JOIN LATERAL (
        SELECT seq, id, previous FROM antiphon_responses WHERE owner = $1 AND id = links.previous LIMIT 1
    ) AS before
)
SELECT links.id, links.previous, input, output FROM links JOIN antiphon_responses USING (seq)
WHERE EXISTS (SELECT FROM links WHERE previous IS NULL)
"""

DELETE: Final = "DELETE FROM antiphon_responses WHERE owner = $1 AND id = $2 RETURNING seq"

FOUND_BY: Final = """
SELECT response.id, previous, input, output FROM antiphon_found_by AS key JOIN antiphon_responses AS response USING (seq)
WHERE key.owner = $1 AND kind = $2 AND key.id = $3 ORDER BY seq DESC LIMIT $4
"""

PRUNE: Final = "SELECT antiphon_prune($1, $2, $3)"

STATS: Final = """
SELECT count(*) AS responses, count(DISTINCT owner) AS owners,
    (SELECT count(*) FROM (SELECT DISTINCT owner, id FROM antiphon_found_by WHERE kind = 0) AS items) AS items,
    pg_total_relation_size('antiphon_responses') + pg_total_relation_size('antiphon_found_by') AS bytes,
    min(created_at) AS oldest, max(created_at) AS newest
FROM antiphon_responses
"""

# Each counts what is wrong. A digest can be had only of what can be read to its end.
VERIFY: Final = (
    (
        "SELECT count(*) FROM antiphon_responses WHERE octet_length(sha256(head) || sha256(input) || sha256(output)) <> 96",
        "responses cannot be read",
    ),
    (
        "SELECT count(*) FROM antiphon_found_by AS key WHERE NOT EXISTS "
        "(SELECT FROM antiphon_responses AS response WHERE response.seq = key.seq AND response.owner = key.owner)",
        "ids lead to no response of their owner",
    ),
)
