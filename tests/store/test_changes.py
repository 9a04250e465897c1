"""Waiting for changes: a waiter that passes its last change counter misses no change."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.store import changes
from antiphon.store.changes import ChangeKey, Changes


async def returns_at_once(notifier: Changes, key: ChangeKey, since: int | None = None) -> bool:
    """Whether a waiter returns at once."""
    waiting = asyncio.create_task(notifier.wait(key, 60, since))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
    await asyncio.wait([waiting])
    return not waiting.cancelled()


def test_notify_wakes_only_waiters_of_its_key() -> None:
    async def go() -> None:
        notifier = Changes()
        waiting = {key: asyncio.create_task(notifier.wait(key, 600, None)) for key in ("a", "b", None)}
        also = asyncio.create_task(notifier.wait("a", 600, None))
        await asyncio.sleep(0)
        notifier.notify("a")
        await asyncio.wait_for(asyncio.gather(waiting["a"], also), 60)
        assert not waiting["b"].done()
        notifier.notify(None)
        await asyncio.wait_for(waiting[None], 60)
        notifier.notify_all()
        await asyncio.wait_for(waiting["b"], 60)

    asyncio.run(go())


def test_wait_returns_for_changes_since_the_counter() -> None:
    async def go() -> None:
        notifier = Changes()
        before = notifier.change_counter
        notifier.notify("a")
        assert await returns_at_once(notifier, "a", before)
        assert not await returns_at_once(notifier, "a")
        assert not await returns_at_once(notifier, "a", notifier.change_counter)
        assert not await returns_at_once(notifier, "b", before)
        before = notifier.change_counter
        notifier.notify_all()
        assert await returns_at_once(notifier, "b", before)
        assert not await returns_at_once(notifier, "b", notifier.change_counter)

    asyncio.run(go())


def test_wait_returns_for_keys_that_were_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_REMEMBERED_KEYS", 3)

    async def go() -> None:
        notifier = Changes()
        before = notifier.change_counter
        for number in range(10):
            notifier.notify(f"{number}")
        assert await returns_at_once(notifier, "0", before)
        assert await returns_at_once(notifier, "9", before)
        assert not await returns_at_once(notifier, "0", notifier.change_counter)

    asyncio.run(go())


def test_cancelled_waiter_does_not_affect_others() -> None:
    async def go() -> None:
        notifier = Changes()
        leaving, staying = (asyncio.create_task(notifier.wait("a", 600, None)) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        notifier.notify("a")
        await asyncio.wait_for(staying, 60)
        await notifier.wait("a", 0.001, None)
        assert not notifier._waiters

    asyncio.run(go())
