"""From `[store] url` to an open store.

Nothing of a URL is repeated in an error but its scheme: there may be a password in it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from antiphon.config import StoreConfig
from antiphon.errors import ConfigError
from antiphon.store.interface import Store
from antiphon.store.sqlite.store import SqliteStore


async def open_store(config: StoreConfig, environ: Mapping[str, str]) -> Store | None:
    """The store that is configured; None if nothing is to be kept. A relative path is one from the current folder."""
    match _meant(config, environ):
        case None:
            return None
        case Path() as file:
            return await SqliteStore.open(file)
        case url:
            from antiphon.store.postgres.store import (
                PostgresStore,  # its driver takes a while to load, which most need not wait for
            )

            return await PostgresStore.open(url)


def describe_location(config: StoreConfig, environ: Mapping[str, str]) -> str | None:
    """Where responses are kept, for people; None if they are not."""
    match _meant(config, environ):
        case None:
            return None
        case Path() as file:
            return str(file)
        case _:
            return "PostgreSQL"


def sqlite_path(config: StoreConfig, environ: Mapping[str, str]) -> Path | None:
    """The file of a SQLite database, if that is where responses are kept."""
    meant = _meant(config, environ)
    return meant if isinstance(meant, Path) else None


def default_path(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where responses are kept if nothing else is said: the user's data folder."""
    data, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    if Path(data).is_absolute():
        folder = Path(data)
    elif home:
        folder = Path(home, *(MACOS_DATA if platform == "darwin" else UNIX_DATA))
    else:
        raise ConfigError(
            "there is no place to keep responses: neither HOME nor XDG_DATA_HOME is set; "
            "set one of them, or [store] url to sqlite:////folder/antiphon.db or to off"
        )
    return folder / "antiphon" / "antiphon.db"


def _meant(config: StoreConfig, environ: Mapping[str, str]) -> Path | str | None:
    """The file of a SQLite database, the URL of a PostgreSQL one, or nothing."""
    if config.url == "off":
        return None
    if config.url is None:
        return default_path(environ)
    scheme, _, rest = config.url.partition("://")
    match scheme:
        case "sqlite":
            return _sqlite_path(rest)
        case "postgresql" | "postgres":
            return config.url
        case _:
            came = f"begins with {scheme}://" if rest and SCHEME.fullmatch(scheme) else "is no URL that is known here"
            raise ConfigError(f"[store] url {came}; wanted {WANTED}")


def _sqlite_path(rest: str) -> Path:
    path = unquote(rest[1:])
    if not rest.startswith("/") or not path or "\0" in path or UNMEANT.search(rest):
        raise ConfigError(f"[store] url begins with sqlite:// and does not go on with a path; wanted {WANTED}")
    return Path(path)


SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)
UNMEANT: Final = re.compile(r"[?#]")  # what a file's name has of these is written as %3F or %23
WANTED: Final = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host/database, or off"
UNIX_DATA: Final = (".local", "share")
MACOS_DATA: Final = ("Library", "Application Support")
