"""Where tests keep responses: each kind of store, empty and open for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.store import postgres_server

from antiphon.store.interface import ResponseRecord, Store, StoredTurn
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore

Place = Callable[[], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def in_sqlite() -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "antiphon.db")
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def in_postgres() -> AsyncIterator[Store]:
    store = await PostgresStore.open(postgres_server.fresh_url())
    try:
        yield store
    finally:
        await store.close()


def record(id: str, previous: str | None = None, *, at: int = 1_700_000_000, says: bytes = b"") -> ResponseRecord:
    """A response that says of itself who it is; `says` stands in its output."""
    return ResponseRecord(
        id=id,
        previous=previous,
        created_at=at,
        status="completed",
        head=b'{"id":"%s"}' % id.encode(),
        input=b'[{"type":"message","content":"to %s"}]' % id.encode(),
        output=b'[{"type":"message","content":"%s"}]' % says,
    )


def chained(*records: ResponseRecord) -> bytes:
    """What a chain of these is."""
    return b",".join(array for each in records for array in (each.input, each.output))


async def chain_of(store: Store, owner: str, id: str) -> bytes | None:
    """A chain, whatever its size."""
    found = await store.get_chain(owner, id, NO_LIMIT, drops_oldest=False)
    if found is None:
        return None
    assert (found.size, found.omitted_count) == (len(found.content) + 1, 0)
    return found.content


async def with_item(store: Store, owner: str, item_id: str) -> StoredTurn | None:
    """The newest response that has an item of this id."""
    found = await store.find_items(owner, [item_id])
    return await store.get_turn(owner, found[item_id]) if found else None


async def with_call(store: Store, owner: str, call_id: str) -> StoredTurn | None:
    """The only response that has a call of this id."""
    found = await store.find_calls(owner, [call_id])
    return await store.get_turn(owner, found[call_id]) if found else None


NO_LIMIT = 2**62
PLACES: dict[str, Place] = {"sqlite": in_sqlite, "postgres": in_postgres}
#: The names of the stores as parameters of tests and fixtures. PostgreSQL is a server.
STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.io)]
