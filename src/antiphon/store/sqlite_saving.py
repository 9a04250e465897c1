"""Responses as rows of an SQLite file: how they go in, alone and many at once, and how an earlier one is replaced.

What was said is one row, and what the response is like is another: who reads a long chain passes over thousands of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import apsw

from antiphon.store.keys import ITEM, ITEM_ONCE, kinds_and_ids
from antiphon.store.record import Record
from antiphon.store.sqlite_file import fetch
from antiphon.store.sqlite_writer import Joint, insert

FoundBy = tuple[tuple[int, bytes], ...]  # kinds and ids


class Row(NamedTuple):
    """A response as it is written."""

    owner: bytes
    id: bytes
    previous: bytes | None
    created_at: int
    status: bytes
    head: bytes
    input: bytes
    output: bytes

    def turn(self, seq: int) -> tuple[int, bytes | None, bytes, bytes | None, int, bytes, bytes]:
        """The arguments of `TURN_ROW`."""
        return seq, self.previous, self.owner, self.previous, seq, self.input, self.output


class Save(Joint):
    """A response as a row, and what it can be found by. It takes the place of an earlier one."""

    def __init__(self, row: Row, keys: FoundBy) -> None:
        self.row = row
        self.keys = keys

    def __call__(self, cursor: apsw.Cursor) -> None:
        row = self.row
        [(seq,)] = fetch(cursor, REPLACE, *row[:HEAD_END])
        cursor.execute(REPLACE_TURN, row.turn(seq))
        find(cursor, row.owner, seq, self.keys)

    @classmethod
    def together(cls, cursor: apsw.Cursor, several: Sequence[Save]) -> list[None]:
        """All of them in three statements; this fails most often because one of them takes the place of another."""
        insert(cursor, NEW, NEW_ROW, [save.row[:HEAD_END] for save in several])
        # They were given numbers that follow each other, since nobody else writes meanwhile.
        first = cursor.connection.last_insert_rowid() - len(several) + 1
        insert(cursor, NEW_TURN, TURN_ROW, [save.row.turn(seq) for seq, save in enumerate(several, first)])
        _find(cursor, [(save.row.owner, *key, seq) for seq, save in enumerate(several, first) for key in save.keys])
        return [None] * len(several)


def row_of(owner: str, record: Record) -> Row:
    return Row(
        owner.encode(),
        record.id.encode(),
        None if record.previous is None else record.previous.encode(),
        record.created_at,
        record.status.encode(),
        record.head,
        record.input,
        record.output,
    )


def keys_of(item_ids: Sequence[str], call_ids: Sequence[str]) -> FoundBy:
    return tuple((kind, id.encode()) for kind, id in kinds_and_ids(item_ids, call_ids))


def rewrite(cursor: apsw.Cursor, seq: int, row: Row) -> None:
    """A response that has a number already."""
    cursor.execute(REWRITE, (*row[2:HEAD_END], seq))
    cursor.execute(REPLACE_TURN, row.turn(seq))


def find(cursor: apsw.Cursor, owner: bytes, seq: int, keys: FoundBy) -> None:
    """From now on a response is found by these, and by nothing else."""
    cursor.execute("DELETE FROM found_by WHERE seq = ?", (seq,))
    _find(cursor, [(owner, *key, seq) for key in keys])


def _find(cursor: apsw.Cursor, rows: list[tuple[bytes, int, bytes, int]]) -> None:
    insert(cursor, FIND, FIND_ROW, [row for row in rows if row[1] != ITEM_ONCE])
    once = [(owner, ITEM, id, seq) for owner, kind, id, seq in rows if kind == ITEM_ONCE]
    insert(cursor, FIND_ONCE, FIND_ROW, once, UNLESS_FOUND)


HEAD_END: Final = 6  # of a row: what was said follows
COLUMNS: Final = ("previous", "created_at", "status", "head")
NEW: Final = f"INSERT INTO responses (owner, id, {', '.join(COLUMNS)}) VALUES "
NEW_ROW: Final = "(?, ?, ?, ?, ?, ?)"
REPLACE: Final = (
    f"{NEW}{NEW_ROW} ON CONFLICT (owner, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in COLUMNS)
    + " RETURNING seq"
)
REWRITE: Final = f"UPDATE responses SET {', '.join(f'{column} = ?' for column in COLUMNS)} WHERE seq = ?"
NEW_TURN: Final = "INSERT INTO turns (seq, before, input, output) VALUES "
TURN_ROW: Final = "(?, iif(? IS NULL, 0, (SELECT seq FROM responses WHERE owner = ? AND id = ? AND seq < ?)), ?, ?)"
REPLACE_TURN: Final = f"""
    {NEW_TURN}{TURN_ROW} ON CONFLICT (seq)
    DO UPDATE SET before = excluded.before, input = excluded.input, output = excluded.output
"""
FIND: Final = "INSERT OR IGNORE INTO found_by (owner, kind, id, seq) VALUES "
FIND_ROW: Final = "(?, ?, ?, ?)"
FIND_ONCE: Final = "WITH new (owner, kind, id, seq) AS (VALUES "
UNLESS_FOUND: Final = """
    ) INSERT OR IGNORE INTO found_by (owner, kind, id, seq) SELECT owner, kind, id, seq FROM new WHERE NOT EXISTS (
        SELECT 1 FROM found_by AS old WHERE old.owner = new.owner AND old.kind = new.kind AND old.id = new.id
    )
"""
