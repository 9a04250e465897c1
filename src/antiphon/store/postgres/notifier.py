"""Notifies other gateways of changes, apart from the commits that make them: PostgreSQL serialises commits that NOTIFY,
and each would hold the others up until it is on disk. A lost notification is no loss: readers also poll."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from antiphon.errors import StorageUnavailable
from antiphon.store.changes import ChangeKey
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.listener import CHANNEL, notification_payload


class Notifier:
    """Sends a change at once, and those that come in the next `INTERVAL` together."""

    def __init__(self, connections: Connections, origin: str) -> None:
        """`origin` names this process."""
        self._connections = connections
        self._origin = origin
        self._waiting_keys: dict[ChangeKey, None] = {}  # a set in the order of arrival
        self._task: asyncio.Task[None] | None = None

    def notify(self, key: ChangeKey) -> None:
        """Sends a committed change."""
        self._waiting_keys[key] = None
        if self._task is None:
            self._task = asyncio.create_task(self._send_waiting())

    async def wait_until_sent(self) -> None:
        """Waits until all changes are sent."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _send_waiting(self) -> None:
        try:
            while self._waiting_keys:
                keys = [*self._waiting_keys][:MAX_KEYS]
                for key in keys:
                    del self._waiting_keys[key]
                with contextlib.suppress(StorageUnavailable):
                    await self._connections.fetch(SEND_NOTIFICATION, notification_payload(self._origin, keys))
                if len(self._waiting_keys) < MAX_KEYS:
                    await asyncio.sleep(INTERVAL)
        finally:
            self._task = None


INTERVAL: Final = 0.01  # seconds between two notifications; each costs as much as a statement that writes
MAX_KEYS: Final = 256  # the payload of a notification has at most 8000 bytes
# Nothing has to be on disk before the notification is sent.
SEND_NOTIFICATION: Final = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{CHANNEL}', $1)"
