"""The time to choose a target, in this process. It is no test of a gateway from outside, but it measures a time."""

from __future__ import annotations

import random
import time

import pytest
from tests.gateway.routing.making import at, make_route

from antiphon.gateway.routing.attempts import TargetOrder

pytestmark = pytest.mark.timed
FACTOR = 3  # between the goal and the bound


@pytest.mark.parametrize("strategy", ["weighted", "least-busy", "fastest"])
@pytest.mark.parametrize(("count", "goal"), [(3, 10e-6), (1000, 20e-6)])
def test_choosing_a_target_is_quick(strategy: str, count: int, goal: float) -> None:
    """The best of several runs, because other processes share the machine."""
    route = make_route(*(at(f"t{number}") for number in range(count)), strategy=strategy)

    def choose() -> float:
        started_at = time.perf_counter()
        for _ in range(200):
            TargetOrder(route.groups, route.strategy, random.random).next(0.0)
        return (time.perf_counter() - started_at) / 200

    assert min(choose() for _ in range(50)) < FACTOR * goal
