"""Deletes expired responses, conversations and usage, in small steps with pauses for other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from antiphon.config import StoreConfig
from antiphon.errors import StorageUnavailable
from antiphon.ops.logger import Logger
from antiphon.store.interface import RetentionState, Store

SWEEP_INTERVAL: Final = 60.0  # seconds between two sweeps
BATCH_PAUSE: Final = 0.05  # seconds at least between two batches of a sweep
PAUSE_FACTOR: Final = 2  # a pause is at least this many times as long as the batch before it
MAX_CLOCK_JUMP: Final = 86_400  # seconds
HOLD: Final = 86_400  # seconds without deletions after a jump of the clock, so that somebody can correct it
BATCH_SIZE: Final = 250


async def run_retention(
    store: Store,
    config: StoreConfig,
    logger: Logger,
    *,
    interval: float = SWEEP_INTERVAL,
    now: Callable[[], float] = time.time,
) -> None:
    """Sweeps periodically until it is cancelled. If the store is unavailable, the next sweep tries again. Nothing is
    deleted for a day after the clock has jumped by more than a day since the last sweep of any process."""
    logged_hold = 0
    while True:
        try:
            started_at = int(now())
            held_until = await _hold_after_jump(store, logger, started_at)
            if held_until <= started_at:
                removed = await delete_expired(store, config, started_at)
                _log_removed(logger, removed)
            elif held_until != logged_hold:
                logged_hold = held_until
                logger.event(
                    "retention deletes nothing for now, because the clock had jumped; if the clock is right, "
                    "`antiphon store prune` deletes expired responses at once",
                    level="warning",
                    seconds_left=held_until - started_at,
                )
        except StorageUnavailable as error:
            logger.event("failed to prune the store", level="warning", why=error.message)
        await asyncio.sleep(interval)


async def _hold_after_jump(store: Store, logger: Logger, now: int) -> int:
    """Returns the time before which nothing is deleted. Compares the clock with the last sweep, or before the first
    with the newest response. The gateway may have been off for days, which looks like a jump."""
    state = await store.retention_state()
    last_time, held_until = (await store.newest_time(), 0) if state is None else (state.looked_at, state.held_until)
    if last_time is not None and abs(now - last_time) > MAX_CLOCK_JUMP:
        held_until = now + HOLD
        logger.event(
            "the clock is more than a day away from the last sweep of retention",
            level="warning",
            days=round((now - last_time) / 86_400, 1),
        )
    await store.save_retention_state(RetentionState(looked_at=now, held_until=held_until))
    return held_until


def _log_removed(logger: Logger, removed: RemovedCounts) -> None:
    if removed.responses:
        logger.event("removed responses because of their age or number", count=removed.responses)
    if removed.conversations:
        logger.event("removed conversations because of their age", count=removed.conversations)


class RemovedCounts(NamedTuple):
    """How many were deleted."""

    responses: int
    conversations: int


async def delete_expired(store: Store, config: StoreConfig, now: int) -> RemovedCounts:
    """Deletes everything that has expired by the time `now`."""
    expired_before = _days_before(now, config.retention_days)
    responses = await _repeat_until_empty(
        lambda: store.prune(before=expired_before, keep=config.max_responses, batch_size=BATCH_SIZE)
    )
    await store.prune_usage(before=expired_before // 86_400)
    if config.conversation_days is None:
        return RemovedCounts(responses, 0)
    unchanged_since = _days_before(now, config.conversation_days)
    return RemovedCounts(
        responses,
        await _repeat_until_empty(
            lambda: store.prune_conversations(changed_before=unchanged_since, batch_size=BATCH_SIZE)
        ),
    )


def _days_before(now: int, days: float) -> int:
    return int(now - days * 86_400)


async def _repeat_until_empty(remove: Callable[[], Awaitable[int]]) -> int:
    """Repeats with pauses, so that the store has at least two thirds of its time for other work."""
    removed_count = 0
    started_at = time.monotonic()
    while count := await remove():
        removed_count += count
        await asyncio.sleep(max(BATCH_PAUSE, PAUSE_FACTOR * (time.monotonic() - started_at)))
        started_at = time.monotonic()
    return removed_count
