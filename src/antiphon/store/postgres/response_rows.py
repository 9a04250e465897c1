"""Writes responses as rows of PostgreSQL, many in one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.store.keys import CALL, ITEM, ITEM_ONCE, is_generated_id
from antiphon.store.postgres.index_keys import index_key
from antiphon.store.record import ResponseRecord

Row = tuple[bytes, bytes, bytes | None, int, bytes, bytes, bytes, bytes]  # in the order of SAVE


class SaveResponse(Struct, frozen=True):
    """A response that is to be written, and its index keys."""

    row: Row
    keys: list[tuple[int, bytes]]

    @property
    def row_key(self) -> tuple[bytes, bytes]:
        return self.row[:2]

    @property
    def size(self) -> int:
        return sum(map(len, self.row[5:]))


def response_row(owner: str, record: ResponseRecord) -> Row:
    return (
        owner.encode(),
        record.id.encode(),
        None if record.previous is None else record.previous.encode(),
        record.created_at,
        record.status.encode(),
        record.head,
        record.input,
        record.output,
    )


def index_keys(item_ids: Sequence[str], call_ids: Sequence[str]) -> list[tuple[int, bytes]]:
    items = [(ITEM_ONCE if is_generated_id(id) else ITEM, index_key(id)) for id in item_ids]
    return items + [(CALL, index_key(id)) for id in call_ids]


def save_columns(saves: Sequence[SaveResponse]) -> Iterator[Sequence[Any]]:
    """The arguments of SAVE: the rows by column, then the keys by column, each with the number of its row."""
    yield from zip(*(save.row for save in saves), strict=True)
    keys = [(number, kind, id) for number, save in enumerate(saves, 1) for kind, id in save.keys]
    yield from zip(*keys, strict=True) if keys else ((), (), ())


# The keys of `save_columns`, and whether one is of a saved response: $1 and $2 are the owners and ids of all rows. The
# keys have the number of their row, because encoding its owner and id for every key takes longer.
KEY_COLUMNS: Final = "$9::integer[], $10::smallint[], $11::bytea[]"
IS_OF_RESPONSE: Final = "response.owner = ($1::bytea[])[key.number] AND response.id = ($2::bytea[])[key.number]"

# True for keys that are to be indexed: `ITEM_ONCE` keys only if no other response has them.
UNLESS_INDEXED: Final = f"""
(key.kind <> {ITEM_ONCE} OR NOT EXISTS (
    SELECT FROM antiphon_found_by AS old
    WHERE old.owner = response.owner AND old.kind = {ITEM} AND old.id = key.id AND old.seq <> response.seq
))
"""
STORED_KIND: Final = f"CASE key.kind WHEN {ITEM_ONCE} THEN {ITEM} ELSE key.kind END"

# One statement, hence one transaction. A replaced response keeps its number, and index keys that it no longer has are
# removed. `xmax` is not 0 if the row existed before.
SAVE_RESPONSES: Final = f"""
WITH saved AS (
    INSERT INTO antiphon_responses (owner, id, previous, created_at, status, head, input, output)
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[]
    )
    ON CONFLICT (owner, id) DO UPDATE SET previous = excluded.previous, created_at = excluded.created_at,
        status = excluded.status, head = excluded.head, input = excluded.input, output = excluded.output
    RETURNING seq, owner, id, xmax <> 0 AS replaced
), keys AS (
    SELECT response.seq, response.owner, {STORED_KIND} AS kind, key.id FROM saved AS response
    JOIN unnest({KEY_COLUMNS}) AS key (number, kind, id) ON {IS_OF_RESPONSE} AND {UNLESS_INDEXED}
), added AS (
    INSERT INTO antiphon_found_by (seq, owner, kind, id) SELECT seq, owner, kind, id FROM keys ON CONFLICT DO NOTHING
)
DELETE FROM antiphon_found_by AS old USING saved WHERE saved.replaced AND old.seq = saved.seq
    AND NOT EXISTS (SELECT FROM keys WHERE keys.seq = old.seq AND keys.kind = old.kind AND keys.id = old.id)
"""
