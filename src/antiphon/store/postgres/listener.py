"""One connection that receives the notifications of other gateways through PostgreSQL. It is opened when a task first
waits, and reopened when it is lost. Notifications may have been missed in between, so then all waiting tasks are
woken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, Final

from antiphon.errors import StorageUnavailable
from antiphon.store.changes import ChangeKey, Changes
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.faults import FAILURES


class Listener:
    """Passes the notifications of other processes to `Changes`."""

    def __init__(self, connections: Connections, changes: Changes, origin: str) -> None:
        """`origin` names this process: its own notifications are ignored."""
        self._connections = connections
        self._changes = changes
        self._origin = origin
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Starts to listen."""
        if self._is_stopped:
            raise StorageUnavailable("the storage is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._listen_forever())

    async def stop(self) -> None:
        """Stops listening and wakes all waiting tasks."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._changes.notify_all()

    async def _listen_forever(self) -> None:
        while True:
            with contextlib.suppress(*FAILURES):
                await self._listen()
            await asyncio.sleep(RECONNECT_INTERVAL)

    async def _listen(self) -> None:
        connection = await self._connections.connect()
        disconnected = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: disconnected.set())
            await connection.add_listener(CHANNEL, self._on_notification)
            self._changes.notify_all()
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(disconnected.wait(), HEALTH_CHECK_INTERVAL)
                await connection.fetch("SELECT 1")  # fails if the connection is lost or stalled
        finally:
            connection.terminate()

    def _on_notification(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        del connection, pid, channel
        origin, keys = parse_payload(payload)
        if origin != self._origin:
            for key in keys:
                self._changes.notify(key)


def notification_payload(origin: str, keys: Iterable[ChangeKey]) -> str:
    """The payload of a notification: the sender and the changed keys. PostgreSQL accepts 8000 bytes."""
    return " ".join([origin, *(QUEUE_KEY if key is None else key for key in keys)])


def parse_payload(payload: str) -> tuple[str, list[ChangeKey]]:
    """Keys of earlier versions are longer: their beginning is the key."""
    origin, *keys = payload.split(" ")
    return origin, [None if key == QUEUE_KEY else key[:KEY_LENGTH] for key in keys]


CHANNEL: Final = "antiphon"
QUEUE_KEY: Final = "queue"  # other keys are longer
KEY_LENGTH: Final = 16
RECONNECT_INTERVAL: Final = 0.2  # seconds
HEALTH_CHECK_INTERVAL: Final = 20.0  # seconds
