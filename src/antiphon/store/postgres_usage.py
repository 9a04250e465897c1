"""Usage in PostgreSQL: what several gateways count is added up in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.store.postgres_connections import Connections
from antiphon.store.usage import COUNTED, Usage, columns_of, row_of


class PostgresUsage:
    """The part of the store that is a `UsageStore`."""

    _connections: Connections

    async def add_usage(self, rows: Sequence[Usage]) -> None:
        if rows:
            # In one order, everywhere: two gateways that add to the same rows never wait for each other in a circle.
            await self._connections.ask(ADD, *map(list, zip(*sorted(map(columns_of, rows)), strict=True)))

    async def usage(self, *, since: int, until: int, owner: str | None = None) -> list[Usage]:
        rows = await self._connections.ask(ROWS, since, until, None if owner is None else owner.encode())
        return [row_of(list(row)) for row in rows]

    async def prune_usage(self, *, before: int) -> int:
        return len(await self._connections.ask("DELETE FROM antiphon_usage WHERE day < $1 RETURNING day", before))


COLUMNS: Final = ", ".join(("day", "owner", "model", "upstream", *COUNTED))
ARRAYS: Final = ("integer[]", "bytea[]", "bytea[]", "bytea[]", *("bigint[]" for _ in COUNTED))
ADD: Final = f"""
INSERT INTO antiphon_usage AS kept ({COLUMNS})
SELECT {COLUMNS} FROM unnest({", ".join(f"${number}::{array}" for number, array in enumerate(ARRAYS, 1))}) AS added ({COLUMNS})
ON CONFLICT (day, owner, model, upstream) DO UPDATE SET {", ".join(f"{name} = kept.{name} + excluded.{name}" for name in COUNTED)}
"""
ROWS: Final = f"""
SELECT {COLUMNS} FROM antiphon_usage WHERE day BETWEEN $1 AND $2 AND ($3::bytea IS NULL OR owner = $3)
ORDER BY day, owner, model, upstream
"""
