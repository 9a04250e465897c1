"""Usage in an SQLite file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import apsw

from antiphon.store.sqlite_file import fetch
from antiphon.store.sqlite_readers import Readers
from antiphon.store.sqlite_writer import Writer
from antiphon.store.usage import COUNTED, Usage, columns_of, row_of


class SqliteUsage:
    """The part of the store that is a `UsageStore`."""

    _writer: Writer
    _readers: Readers

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        await self._writer.ask(partial(_add, rows=[columns_of(row) for row in rows]))

    async def usage(self, *, since: int, until: int, owner: str | None = None) -> list[Usage]:
        return await self._readers.ask(partial(_rows, bindings=(since, until, None if owner is None else owner.encode())))

    async def prune_usage(self, *, before: int) -> int:
        return await self._writer.ask(partial(_prune, before=before), deletes=True)


def _add(cursor: apsw.Cursor, rows: Sequence[tuple[Any, ...]]) -> None:
    for row in rows:
        fetch(cursor, ADD, *row)


def _rows(cursor: apsw.Cursor, bindings: tuple[Any, ...]) -> list[Usage]:
    return [row_of(row) for row in fetch(cursor, ROWS, *bindings)]


def _prune(cursor: apsw.Cursor, before: int) -> int:
    return len(fetch(cursor, "DELETE FROM usage WHERE day < ? RETURNING day", before))


COLUMNS: Final = ", ".join(("day", "owner", "model", "upstream", *COUNTED))
ADD: Final = f"""
    INSERT INTO usage ({COLUMNS}) VALUES ({", ".join("?" * (4 + len(COUNTED)))})
    ON CONFLICT DO UPDATE SET {", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTED)}
"""
ROWS: Final = f"""
    SELECT {COLUMNS} FROM usage WHERE day BETWEEN ?1 AND ?2 AND (?3 IS NULL OR owner = ?3) ORDER BY day, owner, model, upstream
"""
