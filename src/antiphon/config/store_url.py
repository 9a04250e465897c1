"""Checks `[store] url`. The URL is not shown, since it may contain a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote


def store_url_problem(url: str | None) -> str:
    """The problem of the URL of a store; empty if there is none."""
    if url is None or url == "off":
        return ""
    scheme, _, url_path = url.partition("://")
    match scheme:
        case "sqlite" if _is_sqlite_path(url_path):
            return ""
        case "sqlite":
            problem = "begins with sqlite:// but has no valid path"
        case "postgresql" | "postgres":
            return ""
        case _:
            problem = f"begins with {scheme}://" if url_path and SCHEME.fullmatch(scheme) else "is not a supported URL"
    return f"{problem}; expected {EXPECTED_URL}"


def _is_sqlite_path(url_path: str) -> bool:
    path = unquote(url_path[1:])
    return bool(url_path.startswith("/") and path and "\0" not in path and not QUERY_OR_FRAGMENT.search(url_path))


SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)
QUERY_OR_FRAGMENT: Final = re.compile(r"[?#]")  # in a file name these are written as %3F and %23
EXPECTED_URL: Final = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host/database, or off"
