"""Stores responses in an SQLite file: writes them as rows, one or many at once, replaces earlier ones, and finds them.

Input and output are in the table `turns`, apart from the heads in `responses`: reading a long chain does not read the
heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import apsw

from antiphon.store.conversations import ConversationAddition
from antiphon.store.keys import CALL, ITEM, ITEM_ONCE, is_generated_id
from antiphon.store.record import Excerpt, ResponseRecord, StoredTurn
from antiphon.store.sqlite.conversations import append_entries
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.threads import BatchedWrite, ReaderThreads, WriterThread, insert_rows

IndexKeys = list[tuple[int, bytes]]  # kinds and ids


class SqliteResponses:
    """The part of the SQLite store that saves and finds responses."""

    _writer: WriterThread
    _readers: ReaderThreads

    async def save(
        self,
        owner: str,
        record: ResponseRecord,
        item_ids: Sequence[str],
        call_ids: Sequence[str],
        *,
        addition: ConversationAddition | None = None,
    ) -> None:
        save = SaveResponse(response_row(owner, record), index_keys(item_ids, call_ids))
        await self._writer.run_write(
            save if addition is None else partial(_save_with_addition, save=save, addition=addition)
        )

    async def get(self, owner: str, id: str) -> ResponseRecord | None:
        return await self._readers.run_query(partial(_select_record, owner=owner.encode(), id=id))

    async def get_chain(self, owner: str, id: str, limit: int, *, drops_oldest: bool) -> Excerpt | None:
        query = partial(_select_chain, owner=owner.encode(), id=id.encode(), limit=limit, drops_oldest=drops_oldest)
        return await self._readers.run_query(query)

    async def find_items(self, owner: str, item_ids: Sequence[str]) -> dict[str, int]:
        return await self._readers.run_query(
            partial(_find_numbers, statement=FIND_ITEMS, owner=owner.encode(), ids=item_ids)
        )

    async def find_calls(self, owner: str, call_ids: Sequence[str]) -> dict[str, int]:
        return await self._readers.run_query(
            partial(_find_numbers, statement=FIND_CALLS, owner=owner.encode(), ids=call_ids)
        )

    async def get_turn(self, owner: str, number: int) -> StoredTurn | None:
        return await self._readers.run_query(partial(_select_turn, owner=owner.encode(), number=number))

    async def find_outputs(
        self, owner: str, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
    ) -> list[bytes]:
        query = partial(_select_outputs, owner=owner.encode(), item_ids=item_ids, call_ids=call_ids, limit=limit)
        return await self._readers.run_query(query)


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
        insert_responses(cursor, [(save.row, save.keys) for save in saves])
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
    items = [(ITEM_ONCE if is_generated_id(id) else ITEM, id.encode()) for id in item_ids]
    return items + [(CALL, id.encode()) for id in call_ids]


def insert_responses(cursor: apsw.Cursor, responses: Sequence[tuple[Row, IndexKeys]]) -> int:
    """Inserts new responses in three statements. Returns the number of the first; the others follow it. It fails before
    anything is written if one of them exists."""
    insert_rows(cursor, INSERT_RESPONSES, RESPONSE_VALUES, [row[:RESPONSE_COLUMN_COUNT] for row, _ in responses])
    # Their numbers are consecutive, because nothing else writes in this transaction.
    first_seq = cursor.connection.last_insert_rowid() - len(responses) + 1
    numbered = list(enumerate(responses, first_seq))
    insert_rows(cursor, INSERT_TURNS, TURN_VALUES, [row.turn_values(seq) for seq, (row, _) in numbered])
    add_index_keys(cursor, [(row.owner, *key, seq) for seq, (row, keys) in numbered for key in keys])
    return first_seq


def update_responses(
    cursor: apsw.Cursor, numbered_rows: Sequence[tuple[int, Row]], *, keeps_input: bool = False
) -> None:
    """Updates responses that have a number already. The owners in the rows are not used, nor the input if it is
    kept."""
    insert_rows(
        cursor,
        UPDATE_RESPONSES,
        UPDATE_VALUES,
        [(seq, *row[2:RESPONSE_COLUMN_COUNT]) for seq, row in numbered_rows],
        UPDATE_BY_NUMBER,
    )
    insert_rows(
        cursor,
        INSERT_TURNS,
        TURN_VALUES,
        [row.turn_values(seq) for seq, row in numbered_rows],
        ON_TURN_CONFLICT_KEEP_INPUT if keeps_input else ON_TURN_CONFLICT,
    )


def index_response(cursor: apsw.Cursor, owner: bytes, seq: int, keys: IndexKeys) -> None:
    """Replaces the index keys of a response."""
    cursor.execute("DELETE FROM found_by WHERE seq = ?", (seq,))
    add_index_keys(cursor, [(owner, *key, seq) for key in keys])


def add_index_keys(cursor: apsw.Cursor, rows: list[tuple[bytes, int, bytes, int]]) -> None:
    """Adds index keys to responses. Each row has an owner, a kind, an id and the number of the response."""
    insert_rows(cursor, INSERT_INDEX, INDEX_VALUES, [row for row in rows if row[1] != ITEM_ONCE])
    once_rows = [(owner, ITEM, id, seq) for owner, kind, id, seq in rows if kind == ITEM_ONCE]
    insert_rows(cursor, INSERT_INDEX_ONCE, INDEX_VALUES, once_rows, UNLESS_INDEXED)


def _save_with_addition(cursor: apsw.Cursor, save: SaveResponse, addition: ConversationAddition) -> None:
    save(cursor)
    append_entries(cursor, save.row.owner, addition.conversation_id.encode(), addition.entries)


def _select_record(cursor: apsw.Cursor, owner: bytes, id: str) -> ResponseRecord | None:
    rows = fetch(cursor, SELECT_RECORD, owner, id.encode())
    if not rows:
        return None
    previous, created_at, status, head, input, output = rows[0]
    return ResponseRecord(
        id=id,
        previous=None if previous is None else previous.decode(),
        created_at=created_at,
        status=status.decode(),
        head=head,
        input=input,
        output=output,
    )


def _select_chain(cursor: apsw.Cursor, owner: bytes, id: bytes, limit: int, drops_oldest: bool) -> Excerpt | None:
    bindings = owner, id, limit, drops_oldest
    for size, omitted_count, content in fetch(cursor, SELECT_CHAIN, *bindings) or fetch(
        cursor, SELECT_CHAIN_BY_IDS, *bindings
    ):
        return Excerpt(content=content or b"", size=size, omitted_count=omitted_count)
    return None


def _find_numbers(cursor: apsw.Cursor, statement: str, owner: bytes, ids: Sequence[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for start in range(0, len(ids), IDS_PER_STATEMENT):
        batch = [id.encode() for id in ids[start : start + IDS_PER_STATEMENT]]
        rows = fetch(cursor, statement.format(ids=",".join("?" * len(batch))), owner, *batch)
        numbers |= {id.decode(): seq for id, seq in rows}
    return numbers


def _select_turn(cursor: apsw.Cursor, owner: bytes, number: int) -> StoredTurn | None:
    for id, input, output in fetch(cursor, SELECT_TURN, number, owner):
        return StoredTurn(id=id.decode(), input=input, output=output)
    return None


def _select_outputs(
    cursor: apsw.Cursor, owner: bytes, item_ids: Sequence[str], call_ids: Sequence[str], limit: int
) -> list[bytes]:
    numbers = {
        seq
        for statement, ids in ((FIRST_WITH_ITEMS, item_ids), (FIND_CALLS, call_ids))
        for seq in _find_numbers(cursor, statement, owner, ids).values()
    }
    outputs: list[bytes] = []
    for number in sorted(numbers, reverse=True):  # the newest first
        for (size,) in fetch(cursor, OUTPUT_SIZE, number):
            limit -= size
        if limit < 0:
            break
        outputs += (output for (output,) in fetch(cursor, SELECT_OUTPUT, number))
    return outputs[::-1]


RESPONSE_COLUMN_COUNT: Final = 6  # number of columns before input and output
UPDATED_COLUMNS: Final = ("previous", "created_at", "status", "head")
INSERT_RESPONSES: Final = f"INSERT INTO responses (owner, id, {', '.join(UPDATED_COLUMNS)}) VALUES "
RESPONSE_VALUES: Final = "(?, ?, ?, ?, ?, ?)"
REPLACE_RESPONSE: Final = (
    f"{INSERT_RESPONSES}{RESPONSE_VALUES} ON CONFLICT (owner, id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in UPDATED_COLUMNS)
    + " RETURNING seq"
)
UPDATE_RESPONSES: Final = f"WITH new (seq, {', '.join(UPDATED_COLUMNS)}) AS (VALUES "
UPDATE_VALUES: Final = "(?, ?, ?, ?, ?)"
UPDATE_BY_NUMBER: Final = (
    f") UPDATE responses SET {', '.join(f'{column} = new.{column}' for column in UPDATED_COLUMNS)} "
    "FROM new WHERE responses.seq = new.seq"
)
INSERT_TURNS: Final = "INSERT INTO turns (seq, before, input, output) VALUES "
TURN_VALUES: Final = "(?, iif(? IS NULL, 0, (SELECT seq FROM responses WHERE owner = ? AND id = ? AND seq < ?)), ?, ?)"
ON_TURN_CONFLICT_KEEP_INPUT: Final = (
    " ON CONFLICT (seq) DO UPDATE SET before = excluded.before, output = excluded.output"
)
ON_TURN_CONFLICT: Final = f"{ON_TURN_CONFLICT_KEEP_INPUT}, input = excluded.input"
REPLACE_TURN: Final = f"{INSERT_TURNS}{TURN_VALUES}{ON_TURN_CONFLICT}"
INSERT_INDEX: Final = "INSERT OR IGNORE INTO found_by (owner, kind, id, seq) VALUES "
INDEX_VALUES: Final = "(?, ?, ?, ?)"
INSERT_INDEX_ONCE: Final = "WITH new (owner, kind, id, seq) AS (VALUES "
UNLESS_INDEXED: Final = """
    ) INSERT OR IGNORE INTO found_by (owner, kind, id, seq) SELECT owner, kind, id, seq FROM new WHERE NOT EXISTS (
        SELECT 1 FROM found_by AS old WHERE old.owner = new.owner AND old.kind = new.kind AND old.id = new.id
    )
"""
SELECT_RECORD: Final = """
    SELECT previous, created_at, status, head, input, output
    FROM responses AS r CROSS JOIN turns USING (seq) WHERE owner = ? AND id = ?
"""
# One row, whatever the length of the chain: a thread waits for the GIL after every row, which is slow while the event
# loop is busy.
SELECT_CHAIN: Final = """
    WITH RECURSIVE walk (seq, before, total) AS (
        SELECT seq, before, length(input) + length(output) + 2
        FROM responses CROSS JOIN turns USING (seq) WHERE owner = ?1 AND id = ?2
        UNION ALL
        SELECT t.seq, t.before, total + length(t.input) + length(t.output) + 2
        FROM walk CROSS JOIN turns AS t ON t.seq = walk.before
    )
    SELECT
        max(total),
        count(*) FILTER (WHERE total > ?3),
        CAST(group_concat(input || ',' || output, ',') FILTER (
            WHERE total <= ?3 AND (?4 OR (SELECT max(total) FROM walk) <= ?3)
        ) AS BLOB)
    FROM (SELECT seq, total FROM walk ORDER BY seq) AS turn CROSS JOIN turns USING (seq) HAVING sum(before = 0)
"""
# The same for responses that were written in another order: one may have been written after its successor, or replaced.
# A cycle has no first response, so it gives no row. The walk ends in a cycle too: it marks the row at steps 1, 2, 4, 8…
# and stops when it reaches the mark again.
SELECT_CHAIN_BY_IDS: Final = """
    WITH RECURSIVE walk (seq, previous, step, mark, total) AS (
        SELECT seq, previous, 1, 0, length(input) + length(output) + 2
        FROM responses CROSS JOIN turns USING (seq) WHERE owner = ?1 AND id = ?2
        UNION ALL
        SELECT
            r.seq,
            r.previous,
            step + 1,
            iif(step & (step - 1), mark, walk.seq),
            total + length(t.input) + length(t.output) + 2
        FROM walk CROSS JOIN responses AS r CROSS JOIN turns AS t ON t.seq = r.seq
        WHERE r.owner = ?1 AND r.id = walk.previous AND r.seq <> mark
    )
    SELECT
        max(total),
        count(*) FILTER (WHERE total > ?3),
        CAST(group_concat(input || ',' || output, ',') FILTER (
            WHERE total <= ?3 AND (?4 OR (SELECT max(total) FROM walk) <= ?3)
        ) AS BLOB)
    FROM (SELECT seq, total, previous IS NULL AS is_first FROM walk ORDER BY step DESC) AS turn
    CROSS JOIN turns USING (seq)
    HAVING sum(is_first)
"""
FIND_ITEMS: Final = f"""
    SELECT id, max(seq) FROM found_by WHERE owner = ? AND kind = {ITEM} AND id IN ({{ids}}) GROUP BY id
"""
FIND_CALLS: Final = f"""
    SELECT id, min(seq) FROM found_by WHERE owner = ? AND kind = {CALL} AND id IN ({{ids}})
    GROUP BY id HAVING count(*) = 1
"""
SELECT_TURN: Final = "SELECT id, input, output FROM responses CROSS JOIN turns USING (seq) WHERE seq = ? AND owner = ?"
FIRST_WITH_ITEMS: Final = f"""
    SELECT id, min(seq) FROM found_by WHERE owner = ? AND kind = {ITEM} AND id IN ({{ids}}) GROUP BY id
"""
OUTPUT_SIZE: Final = "SELECT length(output) FROM turns WHERE seq = ?"
SELECT_OUTPUT: Final = "SELECT output FROM turns WHERE seq = ?"
IDS_PER_STATEMENT: Final = 1000  # a statement has a limited number of variables
