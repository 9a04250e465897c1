"""A pool of connections to PostgreSQL, with timeouts and reconnects.

A query whose connection was lost is repeated once on a new one; all queries here can be repeated safely. A server that
restarts is waited for, for a limited time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import asyncpg  # type: ignore[import-untyped]
from msgspec import Struct

from antiphon.store.postgres.faults import (
    DISCONNECT_ERRORS,
    FAILURES,
    UNREACHABLE_ERRORS,
    startup_error,
    storage_unavailable,
)
from antiphon.store.postgres.migrations import migrate

T = TypeVar("T")


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The number of connections, and timeouts in seconds."""

    #: One for writes and three for reads: a query takes about a millisecond. PostgreSQL accepts 100 connections by
    #: default, and each worker of each gateway has its own pool.
    connections: int = 4
    #: After this the server aborts a statement.
    statement_timeout: float = 4.0
    #: After this the client gives up: the server or the network is stalled. It includes the wait for a connection and
    #: the repetition after a lost one, so that clients get an error within 5 s.
    answer_timeout: float = 4.5
    #: For one attempt to connect, and for all attempts to reach a server that is down.
    connect_timeout: float = 3.0
    reconnect_timeout: float = 3.0
    #: For queries of people at a terminal.
    long_timeout: float = 600.0


class PooledConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection whose `close` never raises: the pool closes some in tasks whose errors nothing handles."""

    __slots__ = ()

    async def close(self, *, timeout: float | None = None) -> None:
        try:
            await super().close(timeout=timeout)
        except FAILURES:
            self.terminate()


class Connections:
    """A pool of a few connections, opened on demand."""

    def __init__(self, url: str, limits: ConnectionLimits) -> None:
        self._url = url
        self._limits = limits
        self._pool = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=limits.connections,
            timeout=limits.connect_timeout,
            command_timeout=limits.answer_timeout,
            max_inactive_connection_lifetime=MAX_IDLE_SECONDS,
            init=self._configure,
            reset=_keep_session_state,
            connection_class=PooledConnection,
        )

    @property
    def answer_timeout(self) -> float:
        return self._limits.answer_timeout

    async def open(self) -> None:
        """Connects and migrates the tables. Raises if the database cannot be used."""
        try:
            await self._pool
            await self._run_with_retry(migrate)
        except (*FAILURES, ValueError) as error:
            self._pool.terminate()
            raise startup_error(error) from error
        except BaseException:
            self._pool.terminate()
            raise

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """Runs a statement and returns its rows."""
        try:
            return await self.fetch_unwrapped(sql, *arguments)
        except FAILURES as error:
            raise storage_unavailable(error) from error

    async def fetch_unwrapped(self, sql: str, *arguments: Any, size: int = 0) -> list[Any]:
        """The same, but raises the original errors of asyncpg. With `size`, the bytes of the arguments, a large
        statement has more time."""
        seconds = extra_seconds(size)
        if not seconds:
            return await self._run_query(lambda connection: connection.fetch(sql, *arguments))
        timeout = self._limits.statement_timeout + seconds

        async def query(connection: Any) -> list[Any]:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL statement_timeout = {timeout * 1000:.0f}")
                rows: list[Any] = await connection.fetch(sql, *arguments, timeout=timeout)
                return rows

        async with asyncio.timeout(self._limits.answer_timeout + seconds):
            return await self._run_with_retry(query)

    async def run_transaction(self, query: Callable[[Any], Awaitable[T]]) -> T:
        """Runs a function with several statements in one transaction, and returns its result."""

        async def transaction(connection: Any) -> T:
            async with connection.transaction():
                return await query(connection)

        try:
            return await self._run_query(transaction)
        except FAILURES as error:
            raise storage_unavailable(error) from error

    async def fetch_long_running(self, sql: str) -> list[Any]:
        """The same as `fetch`, for queries that read whole tables."""
        timeout = self._limits.long_timeout

        async def query(connection: Any) -> list[Any]:
            async with connection.transaction(readonly=True):
                await connection.execute(f"SET LOCAL statement_timeout = {timeout * 1000:.0f}")
                rows: list[Any] = await connection.fetch(sql, timeout=timeout)
                return rows

        try:
            return await self._run_with_retry(query)
        except FAILURES as error:
            raise storage_unavailable(error) from error

    async def connect(self) -> Any:
        """Opens a connection outside the pool. The caller closes it."""
        connection = await asyncpg.connect(
            self._url, timeout=self._limits.connect_timeout, command_timeout=self._limits.answer_timeout
        )
        try:
            await self._configure(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        """Closes all connections, by force after a timeout."""
        try:
            async with asyncio.timeout(self._limits.answer_timeout):
                await self._pool.close()
        except FAILURES:
            self._pool.terminate()

    async def _run_query(self, query: Callable[[Any], Awaitable[T]]) -> T:
        async with asyncio.timeout(self._limits.answer_timeout):
            return await self._run_with_retry(query)

    async def _run_with_retry(self, query: Callable[[Any], Awaitable[T]]) -> T:
        try:
            return await self._run_query_once(query)
        except DISCONNECT_ERRORS:
            await self._pool.expire_connections()  # the others are most often lost too
            return await self._run_query_once(query)

    async def _run_query_once(self, query: Callable[[Any], Awaitable[T]]) -> T:
        connection = await self._acquire_connection()
        try:
            return await query(connection)
        except UNUSABLE_CONNECTION_ERRORS:
            connection.terminate()
            raise
        finally:
            await self._pool.release(connection)

    async def _acquire_connection(self) -> Any:
        """Acquires a connection. Retries for `reconnect_timeout` seconds if the server is down."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._limits.reconnect_timeout
        while True:
            try:
                async with asyncio.timeout(self._limits.answer_timeout):
                    return await self._pool.acquire()
            except UNREACHABLE_ERRORS:
                if clock() + RETRY_INTERVAL > deadline:
                    raise
            await asyncio.sleep(RETRY_INTERVAL)

    async def _configure(self, connection: Any) -> None:
        # A statement instead of startup parameters, which a connection pooler may refuse.
        await connection.fetch(CONFIGURE_SESSION, f"{self._limits.statement_timeout * 1000:.0f}")


def extra_seconds(size: int) -> float:
    """The time that a statement with so many bytes has beyond the usual one."""
    return size / LARGE_STATEMENT if size > LARGE_STATEMENT else 0.0


async def _keep_session_state(connection: Any) -> None:
    """Skips the reset of a connection: no query here changes the state of its session."""


RETRY_INTERVAL: Final = 0.1  # seconds between two attempts to connect
LARGE_STATEMENT: Final = 2 * 1024 * 1024  # bytes; a larger statement has a second more for each of these
MAX_IDLE_SECONDS: Final = 60.0  # then an idle connection is closed; less than the timeouts of network devices

#: After these errors a connection may still be busy, or its server is read-only: it is not used again.
UNUSABLE_CONNECTION_ERRORS: Final = (
    TimeoutError,
    asyncio.CancelledError,
    asyncpg.InternalClientError,
    asyncpg.ReadOnlySQLTransactionError,
)

# A commit must be on disk before it is acknowledged: `off` is the only value of `synchronous_commit` that does not wait
# for that. Every query has an index: tables without statistics must not be scanned, and plans are cached.
CONFIGURE_SESSION: Final = """
SELECT set_config('application_name', 'antiphon', false),
    set_config('statement_timeout', $1, false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('enable_seqscan', 'off', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('jit', 'off', false)
"""
