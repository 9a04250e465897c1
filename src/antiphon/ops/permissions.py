"""Warns at the start if other users of the machine can read stored data.

New files and folders are private; existing ones keep their mode.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.config import Config
from antiphon.ops.logger import Logger
from antiphon.store.opening import sqlite_path

OTHERS: Final = 0o077  # the bits of the mode for the group and for everyone


class ReadablePath(NamedTuple):
    """A file or folder that others can read, and the command that makes it private."""

    path: Path
    content: str
    remedy: str


def warn_about_readable_data(config: Config, environ: Mapping[str, str], logger: Logger) -> None:
    """Logs a warning for each file or folder with data that others can read."""
    for readable in find_readable_data(config, environ):
        logger.event(
            f"other users of this machine can read {readable.content}",
            level="warning",
            path=str(readable.path),
            remedy=readable.remedy,
        )


def find_readable_data(config: Config, environ: Mapping[str, str]) -> Iterator[ReadablePath]:
    database = sqlite_path(config.store, environ)
    if database is not None and _is_readable_by_others(database):
        yield ReadablePath(database, "the database", f"chmod 600 {database}*")
    folder = Path(config.trace.dir) if config.trace.dir else None
    if folder is not None and _is_readable_by_others(folder):
        yield ReadablePath(folder, "the folder of the traces", f"chmod 700 {folder}")


def _is_readable_by_others(path: Path) -> bool:
    try:
        return bool(os.stat(path).st_mode & OTHERS)
    except OSError:  # it does not exist yet
        return False
