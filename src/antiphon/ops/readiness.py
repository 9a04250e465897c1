"""Whether this process can serve requests now, for load balancers: `/readyz`."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.errors import StorageUnavailable
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


async def watch_store(store: Store, readiness: Readiness) -> None:
    """Reads from the store again and again, so that a request for readiness need not wait for it."""
    while True:
        readiness.set_problem("store", await find_store_problem(store, STORE_TIMEOUT))
        await asyncio.sleep(CHECK_INTERVAL)


async def find_store_problem(store: Store, seconds: float) -> str | None:
    """Why the store cannot be read; None if it can."""
    try:
        await asyncio.wait_for(store.get(NO_OWNER, NO_ID), seconds)
    except StorageUnavailable as error:
        return f"the store cannot be read: {error.message}"
    except TimeoutError:
        return f"the store did not answer within {seconds:g} s"
    return None


CHECK_INTERVAL: Final = 2.0  # seconds between two reads
STORE_TIMEOUT: Final = 2.0  # seconds
NO_OWNER: Final = ""
NO_ID: Final = "resp_readiness"
