"""`gateway/admission`: open turns are bounded for the process and for each key, and owners take turns."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from antiphon.errors import ApiError
from antiphon.gateway.admission import (
    MANY_WAITING,
    MAX_DEFERRED_STEPS,
    FairSlots,
    FairStarts,
    OwnerQueues,
    TurnAdmission,
)


def test_turns_of_a_process_are_bounded() -> None:
    admission = TurnAdmission(2, None)
    with ExitStack() as turns:
        turns.enter_context(admission.admit("a"))
        turns.enter_context(admission.admit("a"))
        with pytest.raises(ApiError) as caught, admission.admit("b"):
            pass
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "overloaded", 1.0)
    assert admission.open_turns == 0
    with admission.admit("b"):
        assert admission.open_turns == 1


def test_turns_of_a_key_are_bounded() -> None:
    admission = TurnAdmission(10, 1)
    with admission.admit("a"):
        with pytest.raises(ApiError) as caught, admission.admit("a"):
            pass
        with admission.admit("b"):
            pass
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (429, "rate_limit_exceeded", 1.0)
    with admission.admit("a"):
        pass


def test_turn_that_fails_is_not_open_any_more() -> None:
    admission = TurnAdmission(1, 1)
    with pytest.raises(ZeroDivisionError), admission.admit("a"):
        raise ZeroDivisionError
    assert admission.open_turns == 0


def test_limits_can_change_while_turns_are_open() -> None:
    admission = TurnAdmission(1, None)
    with admission.admit("a"):
        admission.set_limits(2, 1)
        with pytest.raises(ApiError, match="of this key"), admission.admit("a"):
            pass
        with admission.admit("b"):
            assert admission.open_turns == 2


def test_one_request_starts_in_each_step_and_owners_take_turns() -> None:
    async def run() -> list[str]:
        starts, order = FairStarts(1), list[str]()

        async def start(name: str) -> None:
            await starts.wait(name[0])
            order.append(name)

        names = [*(f"a{number}" for number in range(5)), "b0", "c0", "b1"]
        await asyncio.gather(*map(start, names))
        return order

    assert asyncio.run(run()) == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4"]


def test_request_that_comes_later_waits_for_one_of_each_other_owner() -> None:
    async def run() -> int:
        starts, started = FairStarts(1), 0

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


def test_few_requests_start_at_once_and_the_others_take_turns() -> None:
    async def run() -> list[list[str]]:
        starts, steps = FairStarts(3), list[list[str]]()

        async def start(name: str) -> None:
            await starts.wait(name[0])
            steps[-1].append(name)

        tasks = [asyncio.create_task(start(name)) for name in ("a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1")]
        while not all(task.done() for task in tasks):
            steps.append([])
            await asyncio.sleep(0)
        return [step for step in steps if step]

    assert asyncio.run(run()) == [["a0", "a1", "a2"], ["a3"], ["b0"], ["a4"], ["b1"], ["a5"]]


def test_start_without_others_does_not_wait() -> None:
    async def run() -> None:
        starts = FairStarts(1)
        for _ in range(3):
            coroutine = starts.wait("a")
            with pytest.raises(StopIteration):
                coroutine.send(None)
            await asyncio.sleep(0)  # the next step

    asyncio.run(run())


def test_cancelled_start_gives_its_turn_to_the_next() -> None:
    async def run() -> None:
        starts = FairStarts(1)
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


def starts_while_requests_arrive(in_each_step: int, steps: int) -> int:
    """The number of requests of one owner that start while so many arrive in each step."""

    async def run() -> int:
        starts, started = FairStarts(1), 0

        async def start() -> None:
            nonlocal started
            await starts.wait("a")
            started += 1

        tasks: list[asyncio.Task[None]] = []
        for _ in range(steps):
            tasks += [asyncio.create_task(start()) for _ in range(in_each_step)]
            await asyncio.sleep(0)
        started_meanwhile = started
        await asyncio.gather(*tasks)
        assert started == len(tasks)
        return started_meanwhile

    return asyncio.run(run())


def test_owner_with_many_requests_does_not_start_while_more_arrive() -> None:
    assert starts_while_requests_arrive(4, 50) <= MANY_WAITING


def test_owner_with_many_requests_starts_after_a_bounded_number_of_steps() -> None:
    until_deferred = starts_while_requests_arrive(4, MAX_DEFERRED_STEPS // 2)
    assert starts_while_requests_arrive(4, 3 * MAX_DEFERRED_STEPS) >= until_deferred + 2


def test_other_owner_starts_while_many_requests_of_one_arrive() -> None:
    async def run() -> int:
        starts, started = FairStarts(1), 0

        async def start(owner: str) -> None:
            nonlocal started
            await starts.wait(owner)
            started += 1

        crowd = [asyncio.create_task(start("a")) for _ in range(100)]
        await asyncio.sleep(0)
        other = asyncio.create_task(start("b"))
        steps = 0
        while not other.done():
            crowd.append(asyncio.create_task(start("a")))
            await asyncio.sleep(0)
            steps += 1
        await asyncio.gather(*crowd)
        return steps

    assert asyncio.run(run()) <= 5
