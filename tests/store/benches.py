"""Stores for work in the background: each kind, with time that can be let pass, and with others who use the same place."""

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


class Bench(Struct, frozen=True):
    store: Store
    another: Callable[
        [], Awaitable[Store]
    ]  # another store of the same place, as another process has it; it is closed at the end
    let_pass: Callable[[float], Awaitable[None]]  # so many seconds, for all leases
    place: str  # where it is, for other processes


@asynccontextmanager
async def in_sqlite() -> AsyncIterator[Bench]:
    elapsed = [1_700_000_000.0]

    async def let_pass(seconds: float) -> None:
        elapsed[0] += seconds

    async with AsyncExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory())) / "antiphon.db"

        async def opened() -> Store:
            store = await SqliteStore.open(path, now=lambda: elapsed[0])
            stack.push_async_callback(store.close)
            return store

        yield Bench(await opened(), opened, let_pass, str(path))


@asynccontextmanager
async def in_postgres() -> AsyncIterator[Bench]:
    url = postgres_server.fresh_url()
    async with AsyncExitStack() as stack:

        async def opened() -> Store:
            store = await PostgresStore.open(url)
            stack.push_async_callback(store.close)
            return store

        store = await opened()
        clock = await asyncpg.connect(url)
        stack.push_async_callback(clock.close)

        async def let_pass(seconds: float) -> None:
            await clock.execute(
                "UPDATE antiphon_work SET held_until = held_until - make_interval(secs => $1)", float(seconds)
            )

        yield Bench(store, opened, let_pass, url)


BENCHES: dict[str, Callable[[], AbstractAsyncContextManager[Bench]]] = {"sqlite": in_sqlite, "postgres": in_postgres}
