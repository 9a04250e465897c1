"""Empty stores of each kind, and helpers that read them."""

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

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def open_sqlite_store() -> AsyncIterator[Store]:
    with TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "antiphon.db")
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def open_postgres_store() -> AsyncIterator[Store]:
    store = await PostgresStore.open(postgres_server.fresh_url())
    try:
        yield store
    finally:
        await store.close()


def record(id: str, previous: str | None = None, *, at: int = 1_700_000_000, text: bytes = b"") -> ResponseRecord:
    """A response that contains its id; `text` is in its output."""
    return ResponseRecord(
        id=id,
        previous=previous,
        created_at=at,
        status="completed",
        head=b'{"id":"%s"}' % id.encode(),
        input=b'[{"type":"message","content":"to %s"}]' % id.encode(),
        output=b'[{"type":"message","content":"%s"}]' % text,
    )


def join_chain(*records: ResponseRecord) -> bytes:
    """The content of a chain of these responses."""
    return b",".join(array for record in records for array in (record.input, record.output))


async def read_chain(store: Store, owner: str, id: str) -> bytes | None:
    """The content of a chain of any size."""
    chain = await store.get_chain(owner, id, NO_LIMIT, drops_oldest=False)
    if chain is None:
        return None
    assert (chain.size, chain.omitted_count) == (len(chain.content) + 1, 0)
    return chain.content


async def find_turn_by_item(store: Store, owner: str, item_id: str) -> StoredTurn | None:
    """The newest response that has an item of this id."""
    response_ids = await store.find_items(owner, [item_id])
    return await store.get_turn(owner, response_ids[item_id]) if response_ids else None


async def find_turn_by_call(store: Store, owner: str, call_id: str) -> StoredTurn | None:
    """The only response that has a call of this id."""
    response_ids = await store.find_calls(owner, [call_id])
    return await store.get_turn(owner, response_ids[call_id]) if response_ids else None


NO_LIMIT = 2**62
STORE_OPENERS: dict[str, OpenStore] = {"sqlite": open_sqlite_store, "postgres": open_postgres_store}
#: The names of the stores as parameters of tests and fixtures. PostgreSQL is a server.
STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.io)]
