"""Changes are sent to other gateways together, after their commits; a failure is left to the polls of the readers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.errors import StorageUnavailable
from antiphon.store.postgres.listener import parse_payload
from antiphon.store.postgres.notifier import INTERVAL, MAX_KEYS, SEND_NOTIFICATION, Notifier


class RecordedConnections:
    """Takes notifications, each after a turn of the event loop; fails for the first `failures`."""

    def __init__(self, failures: int = 0) -> None:
        self.payloads: list[str] = []
        self._failures = failures

    async def fetch(self, sql: str, payload: str) -> list[Any]:
        assert sql == SEND_NOTIFICATION
        await asyncio.sleep(0)
        self.payloads.append(payload)
        if len(self.payloads) <= self._failures:
            raise StorageUnavailable("the storage is away")
        return []


async def send(connections: RecordedConnections, keys: list[str | None]) -> None:
    notifier = Notifier(connections, "here")  # type: ignore[arg-type]
    await notifier.wait_until_sent()  # there is nothing to send yet
    for key in keys:
        notifier.notify(key)
    await notifier.wait_until_sent()


def test_notifier_sends_waiting_changes_together_and_each_once() -> None:
    connections = RecordedConnections()
    asyncio.run(send(connections, ["a" * 16, None, "a" * 16, "b" * 16]))
    assert [parse_payload(payload) for payload in connections.payloads] == [("here", ["a" * 16, None, "b" * 16])]


def test_notifier_sends_the_changes_of_an_interval_together() -> None:
    connections = RecordedConnections()

    async def send_repeatedly() -> None:
        notifier = Notifier(connections, "here")  # type: ignore[arg-type]
        for number in range(20):  # each after the one before was sent
            notifier.notify(f"{number:016x}")
            for _ in range(5):
                await asyncio.sleep(0)
        await asyncio.sleep(2 * INTERVAL)
        await notifier.wait_until_sent()

    asyncio.run(send_repeatedly())
    assert [len(parse_payload(payload)[1]) for payload in connections.payloads] == [1, 19]


@pytest.mark.parametrize("failures", [0, 1])
def test_notifier_bounds_a_notification_and_goes_on_after_a_failure(failures: int) -> None:
    connections = RecordedConnections(failures)
    keys: list[str | None] = [f"{number:016x}" for number in range(2 * MAX_KEYS + 3)]
    asyncio.run(send(connections, keys))
    assert [len(parse_payload(payload)[1]) for payload in connections.payloads] == [MAX_KEYS, MAX_KEYS, 3]
    assert all(len(payload) < 8000 for payload in connections.payloads)
