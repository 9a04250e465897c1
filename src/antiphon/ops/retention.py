"""Deletes expired responses, conversations and usage, in small steps with pauses for other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from antiphon.config import StoreConfig
from antiphon.errors import StorageUnavailable
from antiphon.ops.logger import Logger
from antiphon.store.interface import Store

SWEEP_INTERVAL: Final = 60.0  # seconds between two sweeps
BATCH_PAUSE: Final = 0.05  # seconds at least between two batches of a sweep
PAUSE_FACTOR: Final = 2  # a pause is at least this many times as long as the batch before it
MAX_CLOCK_JUMP: Final = 86_400.0  # seconds
BATCH_SIZE: Final = 250


class ClockWatch:
    """Notices jumps of the wall clock, by which everything would expire at once."""

    def __init__(self, now: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._monotonic = monotonic
        self._last_look: tuple[float, float] | None = None

    def measure_jump(self, newest: int | None) -> float:
        """The seconds by which the clock jumped since the last look. The first look compares it with the time of the
        newest response in the store."""
        now, monotonic = self._now(), self._monotonic()
        if self._last_look is None:
            jump = 0.0 if newest is None else now - newest
        else:
            last_now, last_monotonic = self._last_look
            jump = (now - last_now) - (monotonic - last_monotonic)
        self._last_look = now, monotonic
        return jump


async def run_retention(
    store: Store,
    config: StoreConfig,
    logger: Logger,
    *,
    interval: float = SWEEP_INTERVAL,
    clock: ClockWatch | None = None,
) -> None:
    """Sweeps periodically until it is cancelled. If the store is unavailable, the next sweep tries again. Deletes
    nothing if the clock has jumped by more than a day since the last sweep."""
    clock = clock or ClockWatch()
    while True:
        try:
            jump = clock.measure_jump(await store.newest_time())
            if abs(jump) > MAX_CLOCK_JUMP:
                logger.event(
                    "retention deletes nothing in this sweep: the clock is more than a day away from the last time",
                    level="warning",
                    days=round(jump / 86_400, 1),
                    next_sweep_in_seconds=interval,
                )
                await asyncio.sleep(interval)
                continue
            removed = await delete_expired(store, config)
        except StorageUnavailable as error:
            logger.event("failed to prune the store", level="warning", why=error.message)
        else:
            if removed.responses:
                logger.event("removed responses because of their age or number", count=removed.responses)
            if removed.conversations:
                logger.event("removed conversations because of their age", count=removed.conversations)
        await asyncio.sleep(interval)


class RemovedCounts(NamedTuple):
    """How many were deleted."""

    responses: int
    conversations: int


async def delete_expired(store: Store, config: StoreConfig) -> RemovedCounts:
    """Deletes everything that has expired."""
    expired_before = _days_ago(config.retention_days)
    responses = await _repeat_until_empty(
        lambda: store.prune(before=expired_before, keep=config.max_responses, batch_size=BATCH_SIZE)
    )
    await store.prune_usage(before=expired_before // 86_400)
    if config.conversation_days is None:
        return RemovedCounts(responses, 0)
    unchanged_since = _days_ago(config.conversation_days)
    return RemovedCounts(
        responses,
        await _repeat_until_empty(
            lambda: store.prune_conversations(changed_before=unchanged_since, batch_size=BATCH_SIZE)
        ),
    )


def _days_ago(days: float) -> int:
    return int(time.time() - days * 86_400)


async def _repeat_until_empty(remove: Callable[[], Awaitable[int]]) -> int:
    """Repeats with pauses, so that the store has at least two thirds of its time for other work."""
    removed_count = 0
    started_at = time.monotonic()
    while count := await remove():
        removed_count += count
        await asyncio.sleep(max(BATCH_PAUSE, PAUSE_FACTOR * (time.monotonic() - started_at)))
        started_at = time.monotonic()
    return removed_count
