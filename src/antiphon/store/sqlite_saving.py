"""Responses as rows of an SQLite file: how they go in, alone and many at once, and how an earlier one is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw

from antiphon.store.record import Record
from antiphon.store.sqlite_file import fetch
from antiphon.store.sqlite_writer import Joint, insert

Row = tuple[bytes, bytes, bytes | None, int, bytes, bytes, bytes, bytes]
FoundBy = tuple[tuple[int, bytes], ...]  # kinds and ids


class Save(Joint):
    """A response as a row, and what it can be found by. It takes the place of an earlier one."""

    def __init__(self, row: Row, keys: FoundBy) -> None:
        self.row = row
        self.keys = keys

    def __call__(self, cursor: apsw.Cursor) -> None:
        [(seq,)] = fetch(cursor, REPLACE, *self.row)
        find(cursor, self.row[0], seq, self.keys)

    @classmethod
    def together(cls, cursor: apsw.Cursor, several: Sequence[Save]) -> list[None]:
        """All of them in two statements; this fails most often because one of them takes the place of another."""
        insert(cursor, NEW, NEW_ROW, [save.row for save in several])
        # They were given numbers that follow each other, since nobody else writes meanwhile.
        first = cursor.connection.last_insert_rowid() - len(several) + 1
        keys = [(save.row[0], *key, seq) for seq, save in enumerate(several, first) for key in save.keys]
        insert(cursor, FIND, FIND_ROW, keys)
        return [None] * len(several)


def row_of(owner: str, record: Record) -> Row:
    return (
        owner.encode(),
        record.id.encode(),
        None if record.previous is None else record.previous.encode(),
        record.created_at,
        record.status.encode(),
        record.input,
        record.output,
        record.head,
    )


def keys_of(item_ids: Sequence[str], call_ids: Sequence[str]) -> FoundBy:
    return (*((ITEM, id.encode()) for id in item_ids), *((CALL, id.encode()) for id in call_ids))


def find(cursor: apsw.Cursor, owner: bytes, seq: int, keys: FoundBy) -> None:
    """From now on a response is found by these, and by nothing else."""
    cursor.execute("DELETE FROM found_by WHERE seq = ?", (seq,))
    insert(cursor, FIND, FIND_ROW, [(owner, *key, seq) for key in keys])


ITEM: Final = 0
CALL: Final = 1
COLUMNS: Final = ("previous", "created_at", "status", "input", "output", "head")
NEW: Final = f"INSERT INTO responses (owner, id, {', '.join(COLUMNS)}) VALUES "
NEW_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"
REPLACE: Final = (
    f"{NEW}{NEW_ROW} ON CONFLICT (owner, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in COLUMNS)
    + " RETURNING seq"
)
FIND: Final = "INSERT OR IGNORE INTO found_by (owner, kind, id, seq) VALUES "
FIND_ROW: Final = "(?, ?, ?, ?)"
