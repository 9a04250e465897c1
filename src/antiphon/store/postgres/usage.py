"""Stores usage in PostgreSQL. Several gateways add to the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.postgres.connections import Connections
from antiphon.store.usage import COUNTER_NAMES, UsageRow, usage_from_columns, usage_to_columns


class PostgresUsage:
    """The `UsageStore` part of the PostgreSQL store."""

    _connections: Connections

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        if rows:
            # Sorted, so that two gateways that add to the same rows cannot deadlock.
            await self._connections.fetch(ADD_ROWS, *map(list, zip(*sorted(map(usage_to_columns, rows)), strict=True)))

    async def get_usage(self, *, since: int, until: int, owner: str | None = None) -> list[UsageRow]:
        rows = await self._connections.fetch(SELECT_ROWS, since, until, None if owner is None else owner.encode())
        return [usage_from_columns(list(row)) for row in rows]

    async def prune_usage(self, *, before: int) -> int:
        return len(await self._connections.fetch("DELETE FROM antiphon_usage WHERE day < $1 RETURNING day", before))


COLUMNS: Final = ", ".join(("day", "owner", "model", "upstream", *COUNTER_NAMES))
ARRAY_TYPES: Final = ("integer[]", "bytea[]", "bytea[]", "bytea[]", *("bigint[]" for _ in COUNTER_NAMES))
ADD_ROWS: Final = f"""
INSERT INTO antiphon_usage AS stored ({COLUMNS})
SELECT {COLUMNS}
FROM unnest({", ".join(f"${number}::{type}" for number, type in enumerate(ARRAY_TYPES, 1))}) AS added ({COLUMNS})
ON CONFLICT (day, owner, model, upstream) DO UPDATE SET
{", ".join(f"{name} = stored.{name} + excluded.{name}" for name in COUNTER_NAMES)}
"""
SELECT_ROWS: Final = f"""
SELECT {COLUMNS} FROM antiphon_usage WHERE day BETWEEN $1 AND $2 AND ($3::bytea IS NULL OR owner = $3)
ORDER BY day, owner, model, upstream
"""
