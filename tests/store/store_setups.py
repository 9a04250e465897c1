"""Stores of each kind for laws: with time that the test advances, and with further stores on the same database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg  # type: ignore[import-untyped]
from msgspec import Struct
from tests.store import postgres_server

from antiphon.store.interface import Store
from antiphon.store.postgres.store import PostgresStore
from antiphon.store.sqlite.store import SqliteStore


class StoreSetup(Struct, frozen=True):
    store: Store
    open_another: Callable[[], Awaitable[Store]]  # opens a store on the same database, which is closed at the end
    advance_time: Callable[[float], Awaitable[None]]  # advances the time of all leases, in seconds
    location: str  # path or URL, for other processes


@asynccontextmanager
async def set_up_sqlite() -> AsyncIterator[StoreSetup]:
    current_time = [1_700_000_000.0]

    async def advance_time(seconds: float) -> None:
        current_time[0] += seconds

    async with AsyncExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory())) / "antiphon.db"

        async def open_store() -> Store:
            store = await SqliteStore.open(path, now=lambda: current_time[0])
            stack.push_async_callback(store.close)
            return store

        yield StoreSetup(await open_store(), open_store, advance_time, str(path))


@asynccontextmanager
async def set_up_postgres() -> AsyncIterator[StoreSetup]:
    url = postgres_server.fresh_url()
    async with AsyncExitStack() as stack:

        async def open_store() -> Store:
            store = await PostgresStore.open(url)
            stack.push_async_callback(store.close)
            return store

        store = await open_store()
        clock = await asyncpg.connect(url)
        stack.push_async_callback(clock.close)

        async def advance_time(seconds: float) -> None:
            await clock.execute(
                "UPDATE antiphon_work SET held_until = held_until - make_interval(secs => $1)", float(seconds)
            )

        yield StoreSetup(store, open_store, advance_time, url)


STORE_SETUPS: dict[str, Callable[[], AbstractAsyncContextManager[StoreSetup]]] = {
    "sqlite": set_up_sqlite,
    "postgres": set_up_postgres,
}
