"""`gateway/admission`: open turns are bounded for the process and for each key, and owners take turns."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial

import pytest

from antiphon.errors import ApiError
from antiphon.gateway.admission import SHARED_SECONDS, FairSlots, InputQueue, TurnAdmission


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


class Connections:
    """Connections whose input is processed or waits. `steps` has the names that were processed in each step."""

    def __init__(self, max_at_once: int) -> None:
        self.queue = InputQueue(max_at_once)
        self.steps: list[list[str]] = [[]]
        self.waiting = 0
        self.now = 1.0

    def receive(self, name: str) -> None:
        """Input arrives; the first letter of the name is the owner."""
        if self.queue.take_place(self.now):
            self.steps[-1].append(name)
            return
        self.waiting += 1
        self.queue.add(name[0], partial(self._process, name))

    async def run_step(self) -> None:
        self.steps.append([])
        await asyncio.sleep(0)

    async def run_until_done(self) -> None:
        while self.waiting:
            await self.run_step()

    def _process(self, name: str) -> None:
        self.waiting -= 1
        self.steps[-1].append(name)


def test_few_inputs_are_processed_at_once_and_then_owners_take_turns() -> None:
    async def run() -> list[list[str]]:
        connections = Connections(3)
        for name in ("a0", "a1", "a2", "a3", "a4", "a5", "b0", "c0", "b1"):
            connections.receive(name)
        await connections.run_until_done()
        return connections.steps

    assert asyncio.run(run()) == [["a0", "a1", "a2", "a3", "b0", "c0"], [], ["a4", "b1", "a5"]]


def test_input_of_another_owner_does_not_wait_for_many_that_came_before_it() -> None:
    async def run() -> list[str]:
        connections = Connections(8)
        for name in (*(f"a{number}" for number in range(500)), "b0", "b1"):
            connections.receive(name)
        return list(connections.steps[0])

    assert asyncio.run(run()) == [*(f"a{number}" for number in range(9)), "b0"]


def test_input_of_many_owners_is_processed_in_several_steps() -> None:
    async def run() -> list[list[str]]:
        connections = Connections(2)
        for name in "abcdefgh":
            connections.receive(name)
        await connections.run_until_done()
        return connections.steps

    assert asyncio.run(run()) == [["a", "b", "c", "d"], [], [], [], ["e", "f"], [], ["g", "h"]]


def test_several_inputs_of_a_lone_owner_are_processed_in_a_step() -> None:
    async def run() -> list[int]:
        connections = Connections(3)
        for number in range(20):
            connections.receive(f"a{number}")
        await connections.run_until_done()
        return [len(names) for names in connections.steps]

    assert asyncio.run(run()) == [4, 3, 3, 3, 3, 3, 0, 1]


def test_one_input_of_each_owner_is_processed_in_every_fourth_step_while_there_are_several() -> None:
    """The loop goes on with several inputs in each step a while after the others are gone."""

    async def run() -> tuple[list[str], list[int], list[int]]:
        loop = asyncio.get_running_loop()
        connections = Connections(3)
        for number in range(40):
            connections.receive(f"a{number}")
        connections.receive("b0")
        first_step = list(connections.steps[0])
        for _ in range(8):
            await connections.run_step()
        beside_another = [len(names) for names in connections.steps[1:]]
        time, loop.time = loop.time, lambda: time() + SHARED_SECONDS  # type: ignore[method-assign]
        for _ in range(4):
            await connections.run_step()
        return first_step, beside_another, [len(names) for names in connections.steps[9:]]

    assert asyncio.run(run()) == (["a0", "a1", "a2", "a3", "b0"], [0, 0, 0, 1] * 2, [3, 3, 3, 3])


def test_input_that_comes_during_a_crowd_is_processed_at_once() -> None:
    async def run() -> int:
        connections = Connections(8)
        for number in range(500):
            connections.receive(f"a{number}")
        for _ in range(10):
            await connections.run_step()
        connections.receive("b")
        for steps in range(500):
            if any("b" in names for names in connections.steps):
                return steps
            await connections.run_step()
        raise AssertionError

    assert asyncio.run(run()) == 0


def test_input_is_processed_at_once_again_after_a_crowd() -> None:
    async def run() -> list[list[str]]:
        connections = Connections(2)
        for number in range(4):
            connections.receive(f"a{number}")
        await connections.run_until_done()
        await connections.run_step()  # nothing waits
        connections.receive("b0")
        connections.receive("b1")
        return connections.steps

    assert asyncio.run(run()) == [["a0", "a1", "a2"], [], ["a3"], ["b0", "b1"]]


def test_places_of_another_millisecond_are_free() -> None:
    """Requests that come one after another never wait, and the event loop needs no steps for them."""

    async def run() -> int:
        connections = Connections(2)
        for number in range(20):
            connections.receive(f"a{number}")
            connections.now += 0.0015
        return connections.waiting

    assert asyncio.run(run()) == 0


def test_input_that_fails_does_not_stop_the_queue() -> None:
    async def run() -> list[list[str]]:
        connections, faults = Connections(1), list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
        connections.receive("a0")
        connections.receive("a1")
        connections.queue.add("a", lambda: 1 // 0)  # type: ignore[arg-type]
        connections.receive("a2")
        await connections.run_until_done()
        assert len(faults) == 1
        return connections.steps

    assert asyncio.run(run())[-1] == ["a2"]


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


def test_cancelled_task_that_waits_for_a_slot_is_skipped() -> None:
    async def run() -> None:
        slots = FairSlots(1)
        await slots.acquire("a")
        cancelled, other = asyncio.create_task(slots.acquire("a")), asyncio.create_task(slots.acquire("b"))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        slots.release()
        await asyncio.wait_for(other, 5)

    asyncio.run(run())
