"""Whether this process can serve requests now, for load balancers: `/readyz`."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.ops.logger import Logger
from antiphon.store.interface import Store


class Readiness:
    """The problems for which this process should get no new requests, each under the name of its source."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {"start": "the gateway is starting"}

    @property
    def problems(self) -> list[str]:
        return list(self._problems.values())

    def set_problem(self, source: str, problem: str | None) -> None:
        """Sets or, with None, removes the problem of a source."""
        if problem is None:
            self._problems.pop(source, None)
        else:
            self._problems[source] = problem


async def watch_store(store: Store, readiness: Readiness, logger: Logger) -> None:
    """Checks the store again and again, so that a request for readiness need not wait for it. Logs when it cannot be
    used, and when it can be used again."""
    last_problem: str | None = None
    while True:
        problem = await find_store_problem(store, STORE_TIMEOUT)
        readiness.set_problem("store", problem)
        if problem is not None and problem != last_problem:
            logger.event("the store cannot be used", level="error", why=problem)
        elif problem is None and last_problem is not None:
            logger.event("the store can be used again")
        last_problem = problem
        await asyncio.sleep(CHECK_INTERVAL)


async def find_store_problem(store: Store, seconds: float) -> str | None:
    """Why the store cannot be used; None if it can."""
    try:
        problem = await asyncio.wait_for(store.health(), seconds)
    except TimeoutError:
        return f"the store did not answer within {seconds:g} s"
    return None if problem is None else f"the store cannot be used: {problem}"


CHECK_INTERVAL: Final = 2.0  # seconds between two checks
STORE_TIMEOUT: Final = 2.0  # seconds
