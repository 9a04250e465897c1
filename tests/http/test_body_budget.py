"""`http/body_budget`: the bodies of all clients together are bounded; others wait, then are refused."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import ApiError
from antiphon.http.body_budget import BodyBudget


def test_room_is_taken_and_given_back() -> None:
    budget = BodyBudget(10)
    assert budget.try_take(6)
    assert not budget.try_take(5)
    budget.release(6)
    assert budget.try_take(10)
    assert budget.used_bytes == 10


def test_body_without_room_is_refused_in_time() -> None:
    async def run() -> ApiError:
        budget = BodyBudget(10, timeout=0.01)
        await budget.take(10)
        with pytest.raises(ApiError) as caught:
            await budget.take(1)
        assert budget.used_bytes == 10
        budget.release(10)
        assert budget.try_take(10)
        return caught.value

    error = asyncio.run(run())
    assert (error.status, error.code, error.retry_after) == (503, "overloaded", 5.0)


def test_waiting_bodies_get_room_in_order() -> None:
    async def run() -> None:
        budget = BodyBudget(10)
        await budget.take(10)
        order: list[int] = []

        async def wait(size: int) -> None:
            await budget.take(size)
            order.append(size)

        tasks = [asyncio.create_task(wait(size)) for size in (8, 1, 5)]
        await asyncio.sleep(0)
        assert not budget.try_take(0 + 1)  # others wait
        budget.release(10)
        await asyncio.gather(*tasks[:2])
        assert order == [8, 1]
        budget.release(8)
        await tasks[2]
        assert budget.used_bytes == 6

    asyncio.run(run())


def test_body_that_leaves_while_it_waits_takes_no_room() -> None:
    async def run() -> None:
        budget = BodyBudget(10)
        await budget.take(10)
        large, small = asyncio.create_task(budget.take(9)), asyncio.create_task(budget.take(1))
        await asyncio.sleep(0)
        budget.release(5)
        large.cancel()  # the small one behind it has room
        await small
        assert budget.used_bytes == 6

    asyncio.run(run())


def test_body_that_leaves_when_it_gets_room_gives_it_back() -> None:
    async def run() -> None:
        budget = BodyBudget(10)
        await budget.take(10)
        task = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0)
        budget.release(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert budget.used_bytes == 0

    asyncio.run(run())
