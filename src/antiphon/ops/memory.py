"""Gives memory back to the operating system after a peak: a large request or answer, or many at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Final

from antiphon.gateway.memory import release_free_memory


async def release_memory_after_peaks(
    interval: float = 5.0,
    measure: Callable[[], int] | None = None,
    release: Callable[[], None] = release_free_memory,
) -> None:
    """Looks at the resident memory now and then. While it is clearly above its settled size, frees what is not used any
    more. Only tests set the parameters."""
    measure = measure or resident_bytes
    settled_bytes = measure()
    while True:
        await asyncio.sleep(interval)
        if measure() > settled_bytes + GROWTH:
            gc.collect()  # exceptions and libraries leave reference cycles
            await asyncio.to_thread(release)
            settled_bytes = min(settled_bytes + SETTLING, measure())


def resident_bytes() -> int:
    """The resident memory of this process; 0 where the system does not tell."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE
    except OSError:
        return 0


STATM: Final = Path("/proc/self/statm")
PAGE: Final = 4096
GROWTH: Final = 32 * 1024 * 1024  # bytes above the settled size at which memory is freed
SETTLING: Final = 4 * 1024 * 1024  # bytes by which the settled size grows at most with each release
