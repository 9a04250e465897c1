"""One connection that hears what other gateways tell through PostgreSQL. It is made when somebody waits for the first time, and
made again whenever it is lost; what was told meanwhile may have been missed, so then everybody who waits is woken."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from antiphon.errors import StorageUnavailable
from antiphon.store.changes import ChangeKey, Changes
from antiphon.store.postgres.connections import Connections
from antiphon.store.postgres.faults import FAILURES


class Listener:
    """Tells in this process what others tell in theirs."""

    def __init__(self, connections: Connections, changes: Changes, origin: str) -> None:
        """`origin` is who tells here: what it told itself is old news."""
        self._connections = connections
        self._changes = changes
        self._origin = origin
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def start(self) -> None:
        """Listens from now on."""
        if self._is_over:
            raise StorageUnavailable("the storage is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._listen_again_and_again())

    async def stop(self) -> None:
        """Whoever waits for a change waits no longer."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._changes.notify_all()

    async def _listen_again_and_again(self) -> None:
        while True:
            with contextlib.suppress(*FAILURES):
                await self._listen()
            await asyncio.sleep(PAUSE)

    async def _listen(self) -> None:
        connection = await self._connections.connect()
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._hear)
            self._changes.notify_all()
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), IDLE)
                await connection.fetch("SELECT 1")  # it fails if the connection is lost, and where the way has fallen silent
        finally:
            connection.terminate()

    def _hear(self, connection: Any, pid: int, channel: str, told: str) -> None:
        del connection, pid, channel
        origin, key = parse_payload(told)
        if origin != self._origin:
            self._changes.notify(key)


def notification_payload(origin: str, key: ChangeKey) -> str:
    """What is told through PostgreSQL: who tells it, and what has changed."""
    return f"{origin} {QUEUE if key is None else key}"


def parse_payload(told: str) -> tuple[str, ChangeKey]:
    origin, _, key = told.partition(" ")
    return origin, None if key == QUEUE else key


CHANNEL: Final = "antiphon"
QUEUE: Final = "queue"  # no key is so short
PAUSE: Final = 0.2  # before the next attempt
IDLE: Final = 20.0
