"""Responses as rows of an SQLite file: how they go in, alone and many at once, and how an earlier one is replaced.

What was said is one row, and what the response is like is another: who reads a long chain passes over thousands of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import apsw

from antiphon.store.keys import ITEM, ITEM_ONCE, kinds_and_ids
from antiphon.store.record import ResponseRecord
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.writer import BatchedWrite, insert_rows

IndexKeys = tuple[tuple[int, bytes], ...]  # kinds and ids


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
        """The arguments of `TURN_VALUES`."""
        return seq, self.previous, self.owner, self.previous, seq, self.input, self.output


class SaveResponse(BatchedWrite):
    """A response as a row, and what it can be found by. It takes the place of an earlier one."""

    def __init__(self, row: Row, keys: IndexKeys) -> None:
        self.row = row
        self.keys = keys

    def __call__(self, cursor: apsw.Cursor) -> None:
        row = self.row
        [(seq,)] = fetch(cursor, REPLACE, *row[:HEAD_END])
        cursor.execute(REPLACE_TURN, row.turn(seq))
        index_response(cursor, row.owner, seq, self.keys)

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, several: Sequence[SaveResponse]) -> list[None]:
        """All of them in three statements; this fails most often because one of them takes the place of another."""
        insert_rows(cursor, INSERT_RESPONSES, RESPONSE_VALUES, [save.row[:HEAD_END] for save in several])
        # They were given numbers that follow each other, since nobody else writes meanwhile.
        first = cursor.connection.last_insert_rowid() - len(several) + 1
        insert_rows(cursor, INSERT_TURNS, TURN_VALUES, [save.row.turn(seq) for seq, save in enumerate(several, first)])
        _find(cursor, [(save.row.owner, *key, seq) for seq, save in enumerate(several, first) for key in save.keys])
        return [None] * len(several)


def response_row(owner: str, record: ResponseRecord) -> Row:
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


def index_keys(item_ids: Sequence[str], call_ids: Sequence[str]) -> IndexKeys:
    return tuple((kind, id.encode()) for kind, id in kinds_and_ids(item_ids, call_ids))


def update_response(cursor: apsw.Cursor, seq: int, row: Row) -> None:
    """A response that has a number already."""
    cursor.execute(REWRITE, (*row[2:HEAD_END], seq))
    cursor.execute(REPLACE_TURN, row.turn(seq))


def index_response(cursor: apsw.Cursor, owner: bytes, seq: int, keys: IndexKeys) -> None:
    """From now on a response is found by these, and by nothing else."""
    cursor.execute("DELETE FROM found_by WHERE seq = ?", (seq,))
    _find(cursor, [(owner, *key, seq) for key in keys])


def _find(cursor: apsw.Cursor, rows: list[tuple[bytes, int, bytes, int]]) -> None:
    insert_rows(cursor, FIND, FIND_ROW, [row for row in rows if row[1] != ITEM_ONCE])
    once = [(owner, ITEM, id, seq) for owner, kind, id, seq in rows if kind == ITEM_ONCE]
    insert_rows(cursor, FIND_ONCE, FIND_ROW, once, UNLESS_INDEXED)


HEAD_END: Final = 6  # of a row: what was said follows
COLUMNS: Final = ("previous", "created_at", "status", "head")
INSERT_RESPONSES: Final = f"INSERT INTO responses (owner, id, {', '.join(COLUMNS)}) VALUES "
RESPONSE_VALUES: Final = "(?, ?, ?, ?, ?, ?)"
REPLACE: Final = (
    f"{INSERT_RESPONSES}{RESPONSE_VALUES} ON CONFLICT (owner, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in COLUMNS)
    + " RETURNING seq"
)
REWRITE: Final = f"UPDATE responses SET {', '.join(f'{column} = ?' for column in COLUMNS)} WHERE seq = ?"
INSERT_TURNS: Final = "INSERT INTO turns (seq, before, input, output) VALUES "
TURN_VALUES: Final = "(?, iif(? IS NULL, 0, (SELECT seq FROM responses WHERE owner = ? AND id = ? AND seq < ?)), ?, ?)"
REPLACE_TURN: Final = f"""
    {INSERT_TURNS}{TURN_VALUES} ON CONFLICT (seq)
    DO UPDATE SET before = excluded.before, input = excluded.input, output = excluded.output
"""
FIND: Final = "INSERT OR IGNORE INTO found_by (owner, kind, id, seq) VALUES "
FIND_ROW: Final = "(?, ?, ?, ?)"
FIND_ONCE: Final = "WITH new (owner, kind, id, seq) AS (VALUES "
UNLESS_INDEXED: Final = """
    ) INSERT OR IGNORE INTO found_by (owner, kind, id, seq) SELECT owner, kind, id, seq FROM new WHERE NOT EXISTS (
        SELECT 1 FROM found_by AS old WHERE old.owner = new.owner AND old.kind = new.kind AND old.id = new.id
    )
"""
