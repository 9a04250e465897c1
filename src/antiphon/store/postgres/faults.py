"""What PostgreSQL and the way to it can do wrong, in words for people.

`StorageUnavailable` goes to clients and `ConfigError` to whoever starts the gateway: neither says a host, a path, a name or a
password. What PostgreSQL said itself is in the cause.
"""

from __future__ import annotations

from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from antiphon.errors import ConfigError, StorageUnavailable

#: Everything that asking PostgreSQL can raise. A `TimeoutError` is an `OSError` too.
FAILURES: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
#: The connection died, or leads to a server that now only reads: what was asked may be asked again on a new one.
DISCONNECTED: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the end of a connection was half noticed
    ConnectionError,
)
#: There is no connection to be had, for the moment at least.
UNREACHABLE: Final = (asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError, OSError)
#: One entry of several is to blame: what it holds does not fit, or is somebody else's already.
ENTRY_ERRORS: Final = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, asyncpg.UniqueViolationError)
#: What is kept cannot be read.
DAMAGED: Final = (asyncpg.InternalServerError, asyncpg.PostgresSystemError)


def storage_unavailable(error: BaseException) -> StorageUnavailable:
    """What a client is told."""
    fault = StorageUnavailable(_words(error))
    fault.__cause__ = error
    return fault


def startup_error(error: BaseException) -> ConfigError | StorageUnavailable:
    """What whoever starts the gateway is told: what to set right, or that the database is not there."""
    if isinstance(error, ValueError):
        advice = (
            "it cannot be read; wanted is postgresql://user:password@host:port/database, special characters of a password as %XX"
        )
    else:
        advice = WRONG_AT_START.get(_state(error), "")
    if not advice:
        return storage_unavailable(error)
    fault = ConfigError(f"[store] url: {advice}")
    fault.__cause__ = error
    return fault


def _words(error: BaseException) -> str:
    state = _state(error)
    if state:
        return BY_STATE.get(state) or BY_CLASS.get(state[:2]) or "the database refused what was asked of it"
    if isinstance(error, TimeoutError):
        return "the database takes too long to answer"
    return "the database cannot be reached"


def _state(error: Any) -> str:
    return getattr(error, "sqlstate", None) or ""


# By SQLSTATE, as PostgreSQL's own appendix lists them, and by their first two characters.
BY_STATE: Final = {
    "25006": "the database takes nothing new: it is read-only at the moment",
    "53100": "the disk of the database is full",
    "53200": "the database is out of memory",
    "53300": "the database has no connection left for us",
    "55P03": "the database is busy with something else for too long",
    "57014": "the database takes too long to answer",
}
BY_CLASS: Final = {
    "08": "the database cannot be reached",
    "22": "the database cannot hold what it was given",
    "28": "the database does not let us in",
    "3D": "the database is not there",
    "42": "the tables of the database are not as they should be",
    "53": "the database is out of resources",
    "54": "the database cannot hold what it was given",
    "57": "the database is shutting down or starting up",
    "58": "the database has trouble with its disk",
    "XX": "the database is damaged",
}
WRONG_AT_START: Final = {
    "28000": "the database does not let this user in; check the user's name and what the server's pg_hba.conf says of it",
    "28P01": "the database refuses this password; check the user's name and the password",
    "3D000": "there is no database of this name; create it, or name another",
    "3F000": "the user has no schema to make tables in; create one, or set another search_path for the user",
    "42501": "the user may not do what is needed; grant it CREATE on a schema of its own, or on the first of its search_path, and "
    "every right on the tables whose names begin with antiphon_",
}
