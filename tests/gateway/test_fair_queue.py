"""`gateway/fair_queue`: owners take turns, and nothing waits without a reason."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.gateway.fair_queue import FairSlots, FairStarts, OwnerQueues


def test_one_request_starts_in_each_step_and_owners_take_turns() -> None:
    async def run() -> list[str]:
        starts, order = FairStarts(), list[str]()

        async def start(name: str) -> None:
            await starts.wait(name[0])
            order.append(name)

        names = [*(f"a{number}" for number in range(5)), "b0", "c0", "b1"]
        await asyncio.gather(*map(start, names))
        return order

    assert asyncio.run(run()) == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4"]


def test_request_that_comes_later_waits_for_one_of_each_other_owner() -> None:
    async def run() -> int:
        starts, started = FairStarts(), 0

        async def start(owner: str) -> int:
            nonlocal started
            await starts.wait(owner)
            started += 1
            return started

        crowd = [asyncio.create_task(start("a")) for _ in range(500)]
        for _ in range(10):
            await asyncio.sleep(0)
        before = started
        after = await start("b")
        await asyncio.gather(*crowd)
        return after - before

    assert asyncio.run(run()) <= 3


def test_start_without_others_does_not_wait() -> None:
    async def run() -> None:
        starts = FairStarts()
        for _ in range(3):
            coroutine = starts.wait("a")
            with pytest.raises(StopIteration):
                coroutine.send(None)
            await asyncio.sleep(0)  # the next step

    asyncio.run(run())


def test_cancelled_start_gives_its_turn_to_the_next() -> None:
    async def run() -> None:
        starts = FairStarts()
        await starts.wait("a")
        cancelled, other = asyncio.create_task(starts.wait("a")), asyncio.create_task(starts.wait("b"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait_for(other, 5)

    asyncio.run(run())


def test_slots_are_given_to_owners_in_turns() -> None:
    async def run() -> list[str]:
        slots, order = FairSlots(1), list[str]()
        await slots.acquire("a")

        async def use(name: str) -> None:
            await slots.acquire(name[0])
            order.append(name)
            slots.release()

        tasks = [asyncio.create_task(use(name)) for name in ("a1", "a2", "a3", "b1")]
        await asyncio.sleep(0)
        slots.release()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == ["a1", "b1", "a2", "a3"]


def test_slot_of_a_cancelled_task_is_free_again() -> None:
    async def run() -> None:
        slots = FairSlots(1)
        await slots.acquire("a")
        task = asyncio.create_task(slots.acquire("a"))
        await asyncio.sleep(0)
        slots.release()  # the task has it now
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(slots.acquire("b"), 5)

    asyncio.run(run())


def test_cancelled_waiting_task_is_skipped() -> None:
    async def run() -> None:
        unused_turns: list[str] = []
        queues = OwnerQueues(lambda: unused_turns.append("unused"))
        cancelled, other = asyncio.create_task(queues.wait("a")), asyncio.create_task(queues.wait("b"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert queues.wake_next()
        await asyncio.wait_for(other, 5)
        assert not queues.wake_next()
        assert unused_turns == []  # it never had a turn

    asyncio.run(run())
