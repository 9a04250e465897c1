"""What other processes do to responses of the same SQLite file, noticed while somebody waits for it.

SQLite tells nobody that a file has changed, so a few columns are looked at, several times a second, in a reader's thread. What this
process itself does is told at once, elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import apsw
import msgspec

from antiphon.errors import StorageUnavailable
from antiphon.store.changes import ChangeKey, Changes
from antiphon.store.sqlite.file import fetch
from antiphon.store.sqlite.readers import ReaderThreads


class ChangeWatcher:
    """Looks at what somebody waits for, and tells of what has changed."""

    def __init__(self, readers: ReaderThreads, changes: Changes) -> None:
        self._readers = readers
        self._changes = changes
        self._until: dict[ChangeKey, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def watch_key(self, key: ChangeKey, seconds: float) -> None:
        """For so long, and for a while longer: whoever waits is likely to wait again, and what happens in between counts."""
        if self._is_over:
            raise StorageUnavailable("the storage is closed")
        self._until[key] = asyncio.get_running_loop().time() + seconds + LINGER
        if self._task is None:
            self._task = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Whoever waits for a change waits no longer."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._changes.notify_all()

    async def _look(self) -> None:
        # What nothing is known of yet may have changed before this looked for the first time, so it counts as changed.
        known: dict[ChangeKey, Any] = {}
        try:
            while keys := self._wanted():
                found: dict[ChangeKey, Any] = {}
                with contextlib.suppress(StorageUnavailable):  # whoever waits is woken, asks, and is told
                    found = await self._readers.run(partial(_states, keys=keys))
                states = {key: found.get(key) for key in keys}
                for key, state in states.items():
                    if key not in known or known[key] != state:
                        self._changes.notify(key)
                known = states
                await asyncio.sleep(EVERY)
        finally:
            self._task = None

    def _wanted(self) -> list[ChangeKey]:
        now = asyncio.get_running_loop().time()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return list(self._until)


def _states(cursor: apsw.Cursor, keys: Iterable[ChangeKey]) -> dict[ChangeKey, Any]:
    """Of each whatever changes when anything does."""
    ids = msgspec.json.encode([key.encode().hex() for key in keys if key is not None]).decode()
    rows = msgspec.json.decode(fetch(cursor, STATES, ids)[0][0])
    states: dict[ChangeKey, Any] = {bytes.fromhex(id).decode(): state for id, *state in rows}
    if None in keys:
        states[None] = fetch(cursor, WAITING)
    return states


EVERY: Final = 0.15
LINGER: Final = 2.0
STATES: Final = """
    SELECT json_group_array(json_array(hex(w.id), next_event, is_cancelled, has_ended, hex(status)))
    FROM json_each(?) CROSS JOIN work AS w ON w.id = unhex(value) CROSS JOIN responses AS r ON r.seq = w.seq
"""
WAITING: Final = "SELECT count(*), max(seq) FROM work WHERE has_ended = 0 AND held_until IS NULL"
