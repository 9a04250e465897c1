"""Decides whether a request is retried and after how long: after `Retry-After`, else with exponential backoff.

A timeout is not retried, because the server may still be working on the request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from antiphon.errors import ApiError


class Retries(Struct, frozen=True, kw_only=True):
    """How often a request is retried, and how long a wait may be.

    Example:
        client = Client(model="mock-1", retries=Retries(times=5, max_wait=120.0))
        client.close()
    """

    times: int = 2
    #: The maximum wait in seconds. If the server asks for a longer one, the error is raised.
    max_wait: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def wait(self, attempt: int, error: ApiError) -> bool:
        """Waits before the next attempt. Returns false if there is none. The first attempt is number 0.

        Example:
            assert not await Retries(times=2).wait(2, UpstreamFault("the server cannot be reached"))
        """
        if attempt >= self.times or not is_retryable(error):
            return False
        seconds = error.retry_after
        if seconds is None:
            seconds = min(FIRST_WAIT_SECONDS * 2**attempt, MAX_BACKOFF_SECONDS) * random.uniform(0.75, 1.0)
        if seconds > self.max_wait:
            return False
        await self.sleep(seconds)
        return True


def is_retryable(error: ApiError) -> bool:
    """Whether the same request may succeed later."""
    return error.code in RETRYABLE_CODES or error.status in RETRYABLE_STATUSES


FIRST_WAIT_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 8.0
RETRYABLE_CODES: Final = frozenset({"upstream_unavailable", "upstream_disconnected"})
RETRYABLE_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 529})
