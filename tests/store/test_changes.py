"""Waiting for changes: nobody who says since when he waits misses any."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.store import changes
from antiphon.store.changes import ChangeKey, Changes


async def is_told(told: Changes, key: ChangeKey, since: int | None = None) -> bool:
    """Whether somebody who waits returns at once."""
    waiting = asyncio.create_task(told.wait(key, 60, since))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
    await asyncio.wait([waiting])
    return not waiting.cancelled()


def test_a_change_wakes_those_who_wait_for_it_and_nobody_else() -> None:
    async def go() -> None:
        told = Changes()
        waiting = {key: asyncio.create_task(told.wait(key, 600, None)) for key in ("a", "b", None)}
        also = asyncio.create_task(told.wait("a", 600, None))
        await asyncio.sleep(0)
        told.notify("a")
        await asyncio.wait_for(asyncio.gather(waiting["a"], also), 60)
        assert not waiting["b"].done()
        told.notify(None)
        await asyncio.wait_for(waiting[None], 60)
        told.notify_all()
        await asyncio.wait_for(waiting["b"], 60)

    asyncio.run(go())


def test_what_was_told_since_a_moment_counts() -> None:
    async def go() -> None:
        told = Changes()
        before = told.change_counter
        told.notify("a")
        assert await is_told(told, "a", before)
        assert not await is_told(told, "a")
        assert not await is_told(told, "a", told.change_counter)
        assert not await is_told(told, "b", before)
        before = told.change_counter
        told.notify_all()
        assert await is_told(told, "b", before)
        assert not await is_told(told, "b", told.change_counter)

    asyncio.run(go())


def test_what_is_forgotten_counts_as_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_REMEMBERED_KEYS", 3)

    async def go() -> None:
        told = Changes()
        before = told.change_counter
        for number in range(10):
            told.notify(f"{number}")
        assert await is_told(told, "0", before)
        assert await is_told(told, "9", before)
        assert not await is_told(told, "0", told.change_counter)

    asyncio.run(go())


def test_one_who_leaves_takes_nobody_along_and_leaves_nothing_behind() -> None:
    async def go() -> None:
        told = Changes()
        leaving, staying = (asyncio.create_task(told.wait("a", 600, None)) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        told.notify("a")
        await asyncio.wait_for(staying, 60)
        await told.wait("a", 0.001, None)
        assert not told._waiters

    asyncio.run(go())
