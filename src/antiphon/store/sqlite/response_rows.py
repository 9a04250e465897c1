"""Writes responses as rows of an SQLite file, one or many at once, and replaces earlier ones.

Input and output are in the table `turns`, apart from the heads in `responses`: reading a long chain does not read the
heads.
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
    """The columns of a response."""

    owner: bytes
    id: bytes
    previous: bytes | None
    created_at: int
    status: bytes
    head: bytes
    input: bytes
    output: bytes

    def turn_values(self, seq: int) -> tuple[int, bytes | None, bytes, bytes | None, int, bytes, bytes]:
        """The arguments of `TURN_VALUES`."""
        return seq, self.previous, self.owner, self.previous, seq, self.input, self.output


class SaveResponse(BatchedWrite):
    """Saves a response and its index keys. An earlier response with the same id is replaced."""

    def __init__(self, row: Row, keys: IndexKeys) -> None:
        self.row = row
        self.keys = keys

    def __call__(self, cursor: apsw.Cursor) -> None:
        row = self.row
        [(seq,)] = fetch(cursor, REPLACE_RESPONSE, *row[:RESPONSE_COLUMN_COUNT])
        cursor.execute(REPLACE_TURN, row.turn_values(seq))
        index_response(cursor, row.owner, seq, self.keys)

    @classmethod
    def write_batch(cls, cursor: apsw.Cursor, saves: Sequence[SaveResponse]) -> list[None]:
        """Saves all in three statements. It fails if one of them replaces an existing response."""
        insert_rows(cursor, INSERT_RESPONSES, RESPONSE_VALUES, [save.row[:RESPONSE_COLUMN_COUNT] for save in saves])
        # Their numbers are consecutive, because nothing else writes in this transaction.
        first_seq = cursor.connection.last_insert_rowid() - len(saves) + 1
        insert_rows(
            cursor, INSERT_TURNS, TURN_VALUES, [save.row.turn_values(seq) for seq, save in enumerate(saves, first_seq)]
        )
        _insert_index_rows(
            cursor, [(save.row.owner, *key, seq) for seq, save in enumerate(saves, first_seq) for key in save.keys]
        )
        return [None] * len(saves)


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
    """Updates a response that has a number already."""
    cursor.execute(UPDATE_RESPONSE, (*row[2:RESPONSE_COLUMN_COUNT], seq))
    cursor.execute(REPLACE_TURN, row.turn_values(seq))


def index_response(cursor: apsw.Cursor, owner: bytes, seq: int, keys: IndexKeys) -> None:
    """Replaces the index keys of a response."""
    cursor.execute("DELETE FROM found_by WHERE seq = ?", (seq,))
    _insert_index_rows(cursor, [(owner, *key, seq) for key in keys])


def _insert_index_rows(cursor: apsw.Cursor, rows: list[tuple[bytes, int, bytes, int]]) -> None:
    insert_rows(cursor, INSERT_INDEX, INDEX_VALUES, [row for row in rows if row[1] != ITEM_ONCE])
    once_rows = [(owner, ITEM, id, seq) for owner, kind, id, seq in rows if kind == ITEM_ONCE]
    insert_rows(cursor, INSERT_INDEX_ONCE, INDEX_VALUES, once_rows, UNLESS_INDEXED)


RESPONSE_COLUMN_COUNT: Final = 6  # number of columns before input and output
UPDATED_COLUMNS: Final = ("previous", "created_at", "status", "head")
INSERT_RESPONSES: Final = f"INSERT INTO responses (owner, id, {', '.join(UPDATED_COLUMNS)}) VALUES "
RESPONSE_VALUES: Final = "(?, ?, ?, ?, ?, ?)"
REPLACE_RESPONSE: Final = (
    f"{INSERT_RESPONSES}{RESPONSE_VALUES} ON CONFLICT (owner, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in UPDATED_COLUMNS)
    + " RETURNING seq"
)
UPDATE_RESPONSE: Final = (
    f"UPDATE responses SET {', '.join(f'{column} = ?' for column in UPDATED_COLUMNS)} WHERE seq = ?"
)
INSERT_TURNS: Final = "INSERT INTO turns (seq, before, input, output) VALUES "
TURN_VALUES: Final = "(?, iif(? IS NULL, 0, (SELECT seq FROM responses WHERE owner = ? AND id = ? AND seq < ?)), ?, ?)"
REPLACE_TURN: Final = f"""
    {INSERT_TURNS}{TURN_VALUES} ON CONFLICT (seq)
    DO UPDATE SET before = excluded.before, input = excluded.input, output = excluded.output
"""
INSERT_INDEX: Final = "INSERT OR IGNORE INTO found_by (owner, kind, id, seq) VALUES "
INDEX_VALUES: Final = "(?, ?, ?, ?)"
INSERT_INDEX_ONCE: Final = "WITH new (owner, kind, id, seq) AS (VALUES "
UNLESS_INDEXED: Final = """
    ) INSERT OR IGNORE INTO found_by (owner, kind, id, seq) SELECT owner, kind, id, seq FROM new WHERE NOT EXISTS (
        SELECT 1 FROM found_by AS old WHERE old.owner = new.owner AND old.kind = new.kind AND old.id = new.id
    )
"""
