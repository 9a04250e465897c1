"""`ops/readiness`: a process is ready when it has started, while its store can be read, and until it is stopped."""

from __future__ import annotations

import asyncio
from typing import cast

from antiphon.ops.readiness import Readiness, find_store_problem
from antiphon.store.interface import Store


class StoreStub:
    """A store with a problem, or one that takes long to answer."""

    def __init__(self, problem: str | None = None, seconds: float = 0.0) -> None:
        self._problem = problem
        self._seconds = seconds

    async def health(self) -> str | None:
        await asyncio.sleep(self._seconds)
        return self._problem


def problem_of(store: StoreStub) -> str | None:
    return asyncio.run(find_store_problem(cast(Store, store), 0.05))


def test_store_that_can_be_read_is_no_problem() -> None:
    assert problem_of(StoreStub()) is None


def test_store_that_fails_or_does_not_answer_is_a_problem() -> None:
    assert problem_of(StoreStub("the disk is full")) == "the store cannot be used: the disk is full"
    assert problem_of(StoreStub(seconds=60)) == "the store did not answer within 0.05 s"


def test_problems_are_set_and_removed_by_source() -> None:
    readiness = Readiness()
    assert readiness.problems == ["the gateway is starting"]
    readiness.set_problem("start", None)
    readiness.set_problem("start", None)
    assert readiness.problems == []
    readiness.set_problem("store", "a")
    readiness.set_problem("store", "b")
    readiness.set_problem("shutdown", "c")
    assert readiness.problems == ["b", "c"]
