"""Detects changes that other processes make to responses in the same SQLite file, while a task waits for them.

SQLite has no notifications, so a few columns are polled several times a second, in a reader thread. Changes of this
process are notified elsewhere.
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
from antiphon.store.sqlite.threads import ReaderThreads


class ChangeWatcher:
    """Polls the keys that tasks wait for, and notifies changes."""

    def __init__(self, readers: ReaderThreads, changes: Changes) -> None:
        self._readers = readers
        self._changes = changes
        self._watch_deadlines: dict[ChangeKey, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def watch_key(self, key: ChangeKey, seconds: float) -> None:
        """Watches a key for `seconds` and a little longer: a task often waits again, and must not miss a change in
        between."""
        if self._is_stopped:
            raise StorageUnavailable("the storage is closed")
        self._watch_deadlines[key] = asyncio.get_running_loop().time() + seconds + EXTRA_WATCH_TIME
        if self._task is None:
            self._task = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        """Stops polling and wakes all waiting tasks."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._changes.notify_all()

    async def _poll(self) -> None:
        # A key without a previous state may have changed before the first poll, so it counts as changed.
        previous_states: dict[ChangeKey, Any] = {}
        try:
            while keys := self._watched_keys():
                current_states: dict[ChangeKey, Any] = {}
                with contextlib.suppress(
                    StorageUnavailable
                ):  # waiting tasks are woken and get the error from their own query
                    current_states = await self._readers.run_query(partial(_select_states, keys=keys))
                states = {key: current_states.get(key) for key in keys}
                for key, state in states.items():
                    if key not in previous_states or previous_states[key] != state:
                        self._changes.notify(key)
                previous_states = states
                await asyncio.sleep(POLL_INTERVAL)
        finally:
            self._task = None

    def _watched_keys(self) -> list[ChangeKey]:
        now = asyncio.get_running_loop().time()
        self._watch_deadlines = {key: deadline for key, deadline in self._watch_deadlines.items() if deadline > now}
        return list(self._watch_deadlines)


def _select_states(cursor: apsw.Cursor, keys: Iterable[ChangeKey]) -> dict[ChangeKey, Any]:
    """Returns, for each key, columns that differ after any change."""
    ids = msgspec.json.encode([key.encode().hex() for key in keys if key is not None]).decode()
    rows = msgspec.json.decode(fetch(cursor, SELECT_STATES, ids)[0][0])
    states: dict[ChangeKey, Any] = {bytes.fromhex(id).decode(): state for id, *state in rows}
    if None in keys:
        states[None] = fetch(cursor, SELECT_QUEUE_STATE)
    return states


POLL_INTERVAL: Final = 0.15
EXTRA_WATCH_TIME: Final = 2.0
SELECT_STATES: Final = """
    SELECT json_group_array(json_array(hex(w.id), next_event, is_cancelled, has_ended, hex(status)))
    FROM json_each(?) CROSS JOIN work AS w ON w.id = unhex(value) CROSS JOIN responses AS r ON r.seq = w.seq
"""
SELECT_QUEUE_STATE: Final = "SELECT count(*), max(seq) FROM work WHERE has_ended = 0 AND held_until IS NULL"
