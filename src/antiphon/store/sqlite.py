"""Responses in an SQLite file: one writer with group commit, readers beside it, nothing that blocks the event loop.

Several processes may have one file open. What goes wrong is a `StorageUnavailable` and heals by itself once its cause is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from antiphon.store.interface import Record, Stats, Turn
from antiphon.store.sqlite_file import connect, fault, prepare
from antiphon.store.sqlite_readers import Readers
from antiphon.store.sqlite_writer import Save, Writer

T = TypeVar("T")
Moment = tuple[int, int]  # when a response was made, and its number among those of that second


class SqliteStore:
    """A `Store` in one file, and in the log that SQLite keeps beside it."""

    @classmethod
    async def open(cls, path: Path, *, patience: float = 10.0) -> SqliteStore:
        """`patience` is how many seconds anything waits while another process holds the file."""
        path = path.absolute()
        await asyncio.to_thread(prepare, path, patience)
        return cls(path, patience)

    def __init__(self, path: Path, patience: float) -> None:
        """For a file that is there and up to date; see `open`."""
        loop = asyncio.get_running_loop()
        self._path = path
        self._read_only = partial(connect, path, patience, only_reads=True)
        self._writer = Writer(partial(connect, path), loop, patience=patience)
        self._readers = Readers(self._read_only, loop)

    async def save(self, owner: str, record: Record, item_ids: Sequence[str], call_ids: Sequence[str]) -> None:
        previous = None if record.previous is None else record.previous.encode()
        row = (
            owner.encode(),
            record.id.encode(),
            previous,
            record.created_at,
            record.status.encode(),
            record.input,
            record.output,
            record.head,
        )
        keys = (*((ITEM, id.encode()) for id in item_ids), *((CALL, id.encode()) for id in call_ids))
        await self._writer.ask(Save(row, keys))

    async def get(self, owner: str, id: str) -> Record | None:
        return await self._readers.ask(partial(_record, owner=owner.encode(), id=id))

    async def chain(self, owner: str, id: str) -> list[Turn] | None:
        return await self._readers.ask(partial(_chain, owner=owner.encode(), id=id.encode()))

    async def delete(self, owner: str, id: str) -> bool:
        return await self._writer.ask(partial(_delete, owner=owner.encode(), id=id.encode()))

    async def with_item(self, owner: str, item_id: str) -> Turn | None:
        found = await self._readers.ask(partial(_found_by, owner=owner.encode(), kind=ITEM, id=item_id.encode(), limit=1))
        return found[0] if found else None

    async def with_call(self, owner: str, call_id: str) -> list[Turn]:
        return await self._readers.ask(partial(_found_by, owner=owner.encode(), kind=CALL, id=call_id.encode(), limit=2))

    async def prune(self, *, before: int | None, keep: int | None, step: int = 100) -> int:
        # Looking for them takes longer than deleting them, and is done while others may write.
        found = await self._readers.ask(partial(_superfluous, before=before, keep=keep, step=step))
        if found is None:
            return 0
        seqs, newest = found
        return await self._writer.ask(partial(_prune, seqs=seqs, newest=newest, step=step))

    async def stats(self) -> Stats:
        return await self._aside(partial(_stats, path=self._path))

    async def verify(self) -> list[str]:
        return await self._aside(_verify)

    async def close(self) -> None:
        await self._readers.stop()
        await self._writer.stop()  # the last connection takes the log along

    async def _aside(self, question: Callable[[apsw.Cursor], T]) -> T:
        """Asks what may take long, in a thread of its own, so that nobody else waits for it."""

        def ask() -> T:
            with contextlib.closing(self._read_only()) as db:
                return question(db.cursor())

        try:
            return await asyncio.to_thread(ask)
        except apsw.Error as error:
            raise fault(error) from error


# Questions


def _record(cursor: apsw.Cursor, owner: bytes, id: str) -> Record | None:
    rows = _all(cursor, RECORD, owner, id.encode())
    if not rows:
        return None
    previous, created_at, status, input, output, head = rows[0]
    return Record(
        id=id,
        previous=None if previous is None else previous.decode(),
        created_at=created_at,
        status=status.decode(),
        head=head,
        input=input,
        output=output,
    )


def _chain(cursor: apsw.Cursor, owner: bytes, id: bytes) -> list[Turn] | None:
    lengths, *columns = _all(cursor, CHAIN, owner, id)[0]
    found = _rows(lengths, *columns) if lengths else {}
    turns: list[Turn] = []
    at: bytes | None = id
    while at is not None:
        if at not in found:
            return None  # a hole, or a circle: what was there is taken out below
        at, turn = found.pop(at)
        turns.append(turn)
    return turns[::-1]


def _rows(lengths: str, ids: bytes, previous_ids: bytes, inputs: bytes, outputs: bytes) -> dict[bytes, tuple[bytes | None, Turn]]:
    """The rows that `CHAIN` strung together: by id, the previous one's id and the turn."""
    found: dict[bytes, tuple[bytes | None, Turn]] = {}
    id_start = previous_start = input_start = output_start = 0
    numbers = map(int, lengths.split(" "))
    for of_id, of_previous, of_input, of_output in zip(numbers, numbers, numbers, numbers, strict=True):
        id_end, input_end, output_end = id_start + of_id, input_start + of_input, output_start + of_output
        id, previous = ids[id_start:id_end], None
        if of_previous >= 0:
            previous = previous_ids[previous_start : previous_start + of_previous]
            previous_start += of_previous
        found[id] = previous, Turn(id=id.decode(), input=inputs[input_start:input_end], output=outputs[output_start:output_end])
        id_start, input_start, output_start = id_end, input_end, output_end
    return found


def _found_by(cursor: apsw.Cursor, owner: bytes, kind: int, id: bytes, limit: int) -> list[Turn]:
    rows = _all(cursor, FOUND_BY, owner, kind, id, limit)
    return [Turn(id=found.decode(), input=input, output=output) for found, input, output in rows]


def _superfluous(cursor: apsw.Cursor, before: int | None, keep: int | None, step: int) -> tuple[list[int], Moment] | None:
    """The oldest that may go now, and the newest moment of which any may go; None if there are none."""
    moments: list[Moment] = []
    if before is not None:
        moments.append((before - 1, LAST))
    if keep is not None:
        moments += _all(cursor, NEWEST_BUT, keep)
    if not moments:
        return None
    seqs = [seq for (seq,) in _all(cursor, OLDEST, *max(moments), step)]
    return (seqs, max(moments)) if seqs else None


def _stats(cursor: apsw.Cursor, path: Path) -> Stats:
    responses, owners, items, oldest, newest = _all(cursor, STATS)[0]
    size = sum(os.stat(file).st_size for file in (path, f"{path}-wal") if os.path.exists(file))
    return Stats(responses=responses, owners=owners, items=items, bytes=size, oldest=oldest, newest=newest)


def _verify(cursor: apsw.Cursor) -> list[str]:
    try:
        wrong = [line for (line,) in _all(cursor, "PRAGMA integrity_check") if line != "ok"]
        astray = _all(cursor, ASTRAY)[0][0]
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [f"the file is damaged: {error}"]
    return wrong + ([f"ids that lead to no response of their owner: {astray}"] if astray else [])


# Work for the writer


def _delete(cursor: apsw.Cursor, owner: bytes, id: bytes) -> bool:
    return bool(_all(cursor, "DELETE FROM responses WHERE owner = ? AND id = ? RETURNING seq", owner, id))


def _prune(cursor: apsw.Cursor, seqs: Sequence[int], newest: Moment, step: int) -> int:
    """Deletes those, and then what they continued, for which nobody has a use any more."""
    count, next_seqs = 0, list(reversed(seqs))
    while next_seqs and count < step:
        # One of them may have been continued, or deleted, since they were looked for.
        for owner, previous in _all(cursor, DELETE_LAST, next_seqs.pop()):
            count += 1
            next_seqs += [seq for (seq,) in _all(cursor, PREVIOUS, owner, previous, *newest)]
    return count


def _all(cursor: apsw.Cursor, statement: str, *bindings: bytes | int | None) -> list[Any]:
    """Every row, so that nothing is left half read: a reader in the middle keeps the log from being emptied."""
    return cursor.execute(statement, bindings).fetchall()


ITEM: Final = 0
CALL: Final = 1
LAST: Final = 2**63 - 1  # no number of a row is greater
RECORD: Final = "SELECT previous, created_at, status, input, output, head FROM responses WHERE owner = ? AND id = ?"
# One row, whatever the length of the chain: a thread waits for the interpreter after every row, and a busy server makes that long.
# UNION drops what is there already, so that a circle ends.
CHAIN: Final = """
    WITH RECURSIVE walk (seq, previous) AS (
        SELECT seq, previous FROM responses WHERE owner = ?1 AND id = ?2
        UNION
        SELECT r.seq, r.previous FROM walk CROSS JOIN responses AS r WHERE r.owner = ?1 AND r.id = walk.previous
    )
    SELECT
        group_concat(format('%d %d %d %d', length(id), coalesce(length(r.previous), -1), length(input), length(output)), ' '),
        CAST(group_concat(id, '') AS BLOB),
        CAST(group_concat(coalesce(r.previous, ''), '') AS BLOB),
        CAST(group_concat(input, '') AS BLOB),
        CAST(group_concat(output, '') AS BLOB)
    FROM walk CROSS JOIN responses AS r ON r.seq = walk.seq
"""
FOUND_BY: Final = """
    SELECT r.id, input, output FROM found_by AS f CROSS JOIN responses AS r ON r.seq = f.seq
    WHERE f.owner = ? AND kind = ? AND f.id = ? ORDER BY f.seq DESC LIMIT ?
"""
IS_LAST: Final = """
    NOT EXISTS (SELECT 1 FROM responses AS next WHERE next.owner = r.owner AND next.previous = r.id AND next.seq <> r.seq)
"""
NEWEST_BUT: Final = "SELECT created_at, seq FROM responses ORDER BY created_at DESC, seq DESC LIMIT 1 OFFSET ?"
OLDEST: Final = f"SELECT seq FROM responses AS r WHERE (created_at, seq) <= (?, ?) AND {IS_LAST} ORDER BY created_at, seq LIMIT ?"
DELETE_LAST: Final = f"DELETE FROM responses AS r WHERE seq = ? AND {IS_LAST} RETURNING owner, previous"
PREVIOUS: Final = "SELECT seq FROM responses WHERE owner = ? AND id = ? AND (created_at, seq) <= (?, ?)"
STATS: Final = """
    SELECT
        (SELECT count(*) FROM responses),
        (SELECT count(DISTINCT owner) FROM responses),
        (SELECT count(*) FROM (SELECT DISTINCT owner, id FROM found_by WHERE kind = 0)),
        (SELECT min(created_at) FROM responses),
        (SELECT max(created_at) FROM responses)
"""
ASTRAY: Final = """
    SELECT count(*) FROM found_by AS f
    WHERE NOT EXISTS (SELECT 1 FROM responses AS r WHERE r.seq = f.seq AND r.owner = f.owner)
"""
