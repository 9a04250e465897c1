"""The connections to PostgreSQL: how many, how long anything may take, and what happens when one dies.

A question that a connection took with it is asked once more on a new one: whatever is asked here does the same when done twice. A
server that is being restarted is waited for, for a moment. Nothing waits for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import asyncpg  # type: ignore[import-untyped]
from msgspec import Struct

from antiphon.store.postgres.faults import DISCONNECTED, FAILURES, UNREACHABLE, startup_error, storage_unavailable
from antiphon.store.postgres.migrations import migrate

T = TypeVar("T")


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """How many, and how long in seconds."""

    #: One writes and three read: a question takes a millisecond or so, and PostgreSQL lets in 100 connections of everybody
    #: together, while each worker of each gateway has its own.
    connections: int = 4
    #: For the server: then it gives up what it does.
    statement_timeout: float = 5.0
    #: For us: then the server is stalled, or the way to it is.
    answer_timeout: float = 6.0
    #: To be connected; and how long a server that is not there is tried again.
    connect_timeout: float = 3.0
    reconnect_timeout: float = 3.0
    #: What people ask for at a terminal may take longer.
    long_timeout: float = 600.0


class PooledConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that is closed though it is dead already: the pool closes some in tasks that nobody looks at."""

    __slots__ = ()

    async def close(self, *, timeout: float | None = None) -> None:
        try:
            await super().close(timeout=timeout)
        except FAILURES:
            self.terminate()


class Connections:
    """A few connections, made when they are needed and shared by all who ask."""

    def __init__(self, url: str, limits: ConnectionLimits) -> None:
        self._url = url
        self._limits = limits
        self._pool = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=limits.connections,
            timeout=limits.connect_timeout,
            command_timeout=limits.answer_timeout,
            max_inactive_connection_lifetime=IDLE,
            init=self._settle,
            reset=_leave_as_it_is,
            connection_class=PooledConnection,
        )

    async def open(self) -> None:
        """Makes sure that the database is there, and its tables are ours and new enough."""
        try:
            await self._pool
            await self._ask(migrate)
        except (*FAILURES, ValueError) as error:
            self._pool.terminate()
            raise startup_error(error) from error
        except BaseException:
            self._pool.terminate()
            raise

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """The rows of the answer."""
        try:
            return await self.fetch_unwrapped(sql, *arguments)
        except FAILURES as error:
            raise storage_unavailable(error) from error

    async def fetch_unwrapped(self, sql: str, *arguments: Any) -> list[Any]:
        """The same, but what PostgreSQL or the way to it did wrong is raised as it is."""
        return await self._ask(lambda connection: connection.fetch(sql, *arguments))

    async def run_transaction(self, question: Callable[[Any], Awaitable[T]]) -> T:
        """What `question` finds with several statements on one connection, all of it one transaction."""

        async def transaction(connection: Any) -> T:
            async with connection.transaction():
                return await question(connection)

        try:
            return await self._ask(transaction)
        except FAILURES as error:
            raise storage_unavailable(error) from error

    async def fetch_long_running(self, sql: str) -> list[Any]:
        """The same, for questions that read everything."""
        limit = self._limits.long_timeout

        async def question(connection: Any) -> list[Any]:
            async with connection.transaction(readonly=True):
                await connection.execute(f"SET LOCAL statement_timeout = {limit * 1000:.0f}")
                rows: list[Any] = await connection.fetch(sql, timeout=limit)
                return rows

        try:
            return await self._ask(question)
        except FAILURES as error:
            raise storage_unavailable(error) from error

    async def connect(self) -> Any:
        """One more connection, which is the caller's own to close."""
        connection = await asyncpg.connect(
            self._url, timeout=self._limits.connect_timeout, command_timeout=self._limits.answer_timeout
        )
        try:
            await self._settle(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        """Says goodbye to the server, or not, if that takes too long."""
        try:
            async with asyncio.timeout(self._limits.answer_timeout):
                await self._pool.close()
        except FAILURES:
            self._pool.terminate()

    async def _ask(self, question: Callable[[Any], Awaitable[T]]) -> T:
        try:
            return await self._ask_once(question)
        except DISCONNECTED:
            await self._pool.expire_connections()  # what killed this one has most often killed them all
            return await self._ask_once(question)

    async def _ask_once(self, question: Callable[[Any], Awaitable[T]]) -> T:
        connection = await self._connection()
        try:
            return await question(connection)
        except STUCK:
            connection.terminate()
            raise
        finally:
            await self._pool.release(connection)

    async def _connection(self) -> Any:
        """One that is free, or a new one. A server that is not there is tried again for as long as patience lasts."""
        clock = asyncio.get_running_loop().time
        until = clock() + self._limits.reconnect_timeout
        while True:
            try:
                async with asyncio.timeout(self._limits.answer_timeout):
                    return await self._pool.acquire()
            except UNREACHABLE:
                if clock() + PAUSE > until:
                    raise
            await asyncio.sleep(PAUSE)

    async def _settle(self, connection: Any) -> None:
        # As one statement and not as startup parameters, which a pooler between us and the server may refuse.
        await connection.fetch(SETTINGS, f"{self._limits.statement_timeout * 1000:.0f}")


async def _leave_as_it_is(connection: Any) -> None:
    """No question here leaves anything behind in a connection, so none is asked to forget."""


PAUSE: Final = 0.1  # between two attempts to connect
IDLE: Final = 60.0  # before a connection that nobody needs is closed, well before anything on the way forgets it

#: Nobody knows what such a connection is still busy with, or it leads to the wrong server: it is not used again.
STUCK: Final = (TimeoutError, asyncio.CancelledError, asyncpg.InternalClientError, asyncpg.ReadOnlySQLTransactionError)

# A commit must be on the disk before it is told: off is the one value that does not say so (the others wait for more, not less).
# Each question has its index: tables that nobody has counted yet must not be read whole, nor any plan be made twice.
SETTINGS: Final = """
SELECT set_config('application_name', 'antiphon', false),
    set_config('statement_timeout', $1, false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('enable_seqscan', 'off', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('jit', 'off', false)
"""
