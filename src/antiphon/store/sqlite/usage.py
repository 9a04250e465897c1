"""Stores usage in an SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import apsw

from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.threads import ReaderThreads, WriterThread
from antiphon.store.usage import COUNTER_NAMES, UsageRow, usage_from_columns, usage_to_columns


class SqliteUsage:
    """The `UsageStore` part of the SQLite store."""

    _writer: WriterThread
    _readers: ReaderThreads

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        await self._writer.run_write(partial(_add_rows, rows=[usage_to_columns(row) for row in rows]))

    async def get_usage(self, *, since: int, until: int, owner: str | None = None) -> list[UsageRow]:
        return await self._readers.run_query(
            partial(_select_rows, bindings=(since, until, None if owner is None else owner.encode()))
        )

    async def prune_usage(self, *, before: int) -> int:
        return await self._writer.run_write(partial(_delete_rows_before, before=before), is_deletion=True)


def _add_rows(cursor: apsw.Cursor, rows: Sequence[tuple[Any, ...]]) -> None:
    for row in rows:
        fetch(cursor, ADD_ROW, *row)


def _select_rows(cursor: apsw.Cursor, bindings: tuple[Any, ...]) -> list[UsageRow]:
    return [usage_from_columns(row) for row in fetch(cursor, SELECT_ROWS, *bindings)]


def _delete_rows_before(cursor: apsw.Cursor, before: int) -> int:
    return len(fetch(cursor, "DELETE FROM usage WHERE day < ? RETURNING day", before))


COLUMNS: Final = ", ".join(("day", "owner", "model", "upstream", *COUNTER_NAMES))
ADD_ROW: Final = f"""
    INSERT INTO usage ({COLUMNS}) VALUES ({", ".join("?" * (4 + len(COUNTER_NAMES)))})
    ON CONFLICT DO UPDATE SET {", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTER_NAMES)}
"""
SELECT_ROWS: Final = f"""
    SELECT {COLUMNS} FROM usage WHERE day BETWEEN ?1 AND ?2 AND (?3 IS NULL OR owner = ?3)
    ORDER BY day, owner, model, upstream
"""
