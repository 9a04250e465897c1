"""Opens the store that `[store] url` names.

Errors repeat only the scheme of the URL, because the URL may have a password.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from antiphon.config import StoreConfig
from antiphon.config.store_url import store_url_problem
from antiphon.errors import ConfigError
from antiphon.store.interface import Store
from antiphon.store.sqlite.store import SqliteStore


async def open_store(config: StoreConfig, environ: Mapping[str, str]) -> Store | None:
    """Opens the configured store; None if it is off. A relative path starts at the current folder."""
    match _find_location(config, environ):
        case None:
            return None
        case Path() as file:
            return await SqliteStore.open(file)
        case url:
            # Imported here: the driver is slow to load, and most configurations do not need it.
            from antiphon.store.postgres.store import PostgresStore

            return await PostgresStore.open(url)


def describe_location(config: StoreConfig, environ: Mapping[str, str]) -> str | None:
    """The location of the store, for people; None if it is off."""
    match _find_location(config, environ):
        case None:
            return None
        case Path() as file:
            return str(file)
        case _:
            return "PostgreSQL"


def sqlite_path(config: StoreConfig, environ: Mapping[str, str]) -> Path | None:
    """The file of the SQLite database; None for another store."""
    location = _find_location(config, environ)
    return location if isinstance(location, Path) else None


def default_path(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The default file, in the user's data folder."""
    data, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    if Path(data).is_absolute():
        folder = Path(data)
    elif home:
        folder = Path(home, *(MACOS_DATA_FOLDER if platform == "darwin" else UNIX_DATA_FOLDER))
    else:
        raise ConfigError(
            "no default location for the store: neither HOME nor XDG_DATA_HOME is set; "
            "set one of them, or [store] url to sqlite:////folder/antiphon.db or to off"
        )
    return folder / "antiphon" / "antiphon.db"


def _find_location(config: StoreConfig, environ: Mapping[str, str]) -> Path | str | None:
    """The file of a SQLite database, the URL of a PostgreSQL database, or None."""
    if config.url == "off":
        return None
    if config.url is None:
        return default_path(environ)
    if problem := store_url_problem(config.url):
        raise ConfigError(f"[store] url {problem}")
    scheme, _, url_path = config.url.partition("://")
    return Path(unquote(url_path[1:])) if scheme == "sqlite" else config.url


UNIX_DATA_FOLDER: Final = (".local", "share")
MACOS_DATA_FOLDER: Final = ("Library", "Application Support")
