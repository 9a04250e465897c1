"""Translates errors of PostgreSQL and of the network into messages for people.

`StorageUnavailable` goes to clients and `ConfigError` to the operator. Neither has a host, a path, a name or a
password. The original error is the cause.
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from antiphon.errors import ConfigError, StorageUnavailable

#: All exceptions of a query. A `TimeoutError` is an `OSError` too.
FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
#: The connection is lost, or its server is now read-only: the query can be repeated on a new connection.
DISCONNECT_ERRORS: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # asyncpg noticed the end of a connection only partly
    ConnectionError,
)
#: No connection is available at the moment.
UNREACHABLE_ERRORS: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    OSError,
)
#: One entry of a batch is invalid: a value does not fit, or a unique key exists already.
ENTRY_ERRORS: Final = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, asyncpg.UniqueViolationError)
#: Stored data cannot be read.
DAMAGE_ERRORS: Final = (asyncpg.InternalServerError, asyncpg.PostgresSystemError)


def storage_unavailable(error: BaseException) -> StorageUnavailable:
    """The error for clients."""
    fault = StorageUnavailable(_client_message(error))
    fault.__cause__ = error
    return fault


def startup_error(error: BaseException) -> ConfigError | StorageUnavailable:
    """The error for the operator at startup: what to correct, or that the database is unavailable."""
    if isinstance(error, ValueError):
        advice = (
            "not a valid URL; expected postgresql://user:password@host:port/database, with special "
            "characters in the password written as %XX"
        )
    else:
        advice = STARTUP_ADVICE.get(_sqlstate(error), "")
    if not advice:
        return storage_unavailable(error)
    fault = ConfigError(f"[store] url: {advice}")
    fault.__cause__ = error
    return fault


def _client_message(error: BaseException) -> str:
    state = _sqlstate(error)
    if state:
        return MESSAGES_BY_STATE.get(state) or MESSAGES_BY_CLASS.get(state[:2]) or "the database refused the statement"
    if isinstance(error, TimeoutError):
        return "the database did not answer in time"
    return "the database cannot be reached"


def _sqlstate(error: Any) -> str:
    return getattr(error, "sqlstate", None) or ""


# By SQLSTATE (PostgreSQL documentation, appendix A), and by its first two characters.
MESSAGES_BY_STATE: Final = {
    "25006": "the database is read-only at the moment",
    "53100": "the disk of the database is full",
    "53200": "the database is out of memory",
    "53300": "the database has no connection left",
    "55P03": "the database was locked for too long",
    "57014": "the database did not answer in time",
}
MESSAGES_BY_CLASS: Final = {
    "08": "the database cannot be reached",
    "22": "the data is too large or invalid for the database",
    "28": "the database refused the login",
    "3D": "the database does not exist",
    "42": "the tables of the database are not as expected",
    "53": "the database is out of resources",
    "54": "the data is too large or invalid for the database",
    "57": "the database is shutting down or starting up",
    "58": "the database has a disk error",
    "XX": "the database is damaged",
}
STARTUP_ADVICE: Final = {
    "28000": "the database refused this user; check the user name and the server's pg_hba.conf",
    "28P01": "the database refused the password; check the user name and the password",
    "3D000": "the database does not exist; create it, or name another",
    "3F000": "the user has no schema for tables; create one, or set another search_path for the user",
    "42501": "the user lacks permissions; grant it CREATE on a schema of its own or on the first schema of its "
    "search_path, and all permissions on the tables whose names begin with antiphon_",
}
