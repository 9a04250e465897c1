"""When a request is sent again, and how long that waits: as the server says (`Retry-After`), else longer each time.

Only what may well succeed the next time is tried again. A server that was silent for too long is not: it may still be at work.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

from antiphon.errors import ApiError


class Retries(Struct, frozen=True, kw_only=True):
    """How often a request is sent again, and how patiently."""

    times: int = 2
    #: The longest wait in seconds; a server that wants a longer one is told to the caller instead.
    longest: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def wait(self, attempt: int, error: ApiError) -> bool:
        """Waits before the next attempt; false if there is to be none. The first attempt has the number 0."""
        if attempt >= self.times or not is_passing(error):
            return False
        seconds = error.retry_after
        if seconds is None:
            seconds = min(FIRST_WAIT * 2**attempt, LONGEST_GUESS) * random.uniform(0.75, 1.0)
        if seconds > self.longest:
            return False
        await self.sleep(seconds)
        return True


def is_passing(error: ApiError) -> bool:
    """Whether the same request may succeed a moment later."""
    return error.code in UNANSWERED or error.status in PASSING


FIRST_WAIT: Final = 0.5
LONGEST_GUESS: Final = 8.0
UNANSWERED: Final = frozenset({"upstream_unavailable", "upstream_disconnected"})
PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 529})
