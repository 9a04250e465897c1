"""Fixtures for the laws of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
from tests.store.benches import BENCHES, Bench
from tests.store.places import STORES


class Run(Protocol):
    def __call__(self, law: Callable[[Bench], Awaitable[None]]) -> None: ...


@pytest.fixture(params=STORES)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a law on an empty store of each kind, which must be sound afterwards."""

    def run_law(law: Callable[[Bench], Awaitable[None]]) -> None:
        async def run_on_bench() -> None:
            async with BENCHES[request.param]() as bench:
                await law(bench)
                assert await bench.store.verify() == []

        asyncio.run(run_on_bench())

    return run_law
