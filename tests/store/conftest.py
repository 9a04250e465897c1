"""Fixtures for the laws of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
from tests.store.store_setups import STORE_SETUPS, StoreSetup
from tests.store.stores import STORES


class Run(Protocol):
    def __call__(self, law: Callable[[StoreSetup], Awaitable[None]]) -> None: ...


@pytest.fixture(params=STORES)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a law on an empty store of each kind, which must be sound afterwards."""

    def run_law(law: Callable[[StoreSetup], Awaitable[None]]) -> None:
        async def run_on_setup() -> None:
            async with STORE_SETUPS[request.param]() as setup:
                await law(setup)
                assert await setup.store.verify() == []

        asyncio.run(run_on_setup())

    return run_law
