"""`ops/memory`: the resident memory is read, and freed while it is above its settled size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from antiphon.ops.memory import GROWTH, SETTLING, release_memory_after_peaks, resident_bytes


def releases(sizes: Iterable[int]) -> int:
    """How often memory is freed while these sizes are measured."""
    released: list[int] = []
    remaining = list(sizes)

    async def run() -> None:
        measured = asyncio.Event()

        def measure() -> int:
            if len(remaining) == 1:
                measured.set()
                return remaining[0]
            return remaining.pop(0)

        task = asyncio.create_task(release_memory_after_peaks(0, measure, lambda: released.append(1)))
        await measured.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(run())
    return len(released)


def test_resident_memory_is_read() -> None:
    assert resident_bytes() > 10 * 1024 * 1024


def test_memory_is_freed_after_it_has_grown() -> None:
    assert releases([100, 100 + GROWTH, 0]) == 0
    assert releases([100, 101 + GROWTH, 100, 0]) == 1


def test_memory_that_stays_is_freed_again_until_it_is_settled() -> None:
    grown = 100 + GROWTH + SETTLING
    assert releases([100, grown, grown, grown, 0]) == 1  # it stays, so its size is settled by a step
    assert releases([100, 2 * grown, 2 * grown, 2 * grown, 2 * grown, 0]) == 2
