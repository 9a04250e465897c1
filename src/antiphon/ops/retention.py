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
BATCH_PAUSE: Final = 0.05  # seconds between two batches of a sweep
BATCH_SIZE: Final = 100


async def run_retention(store: Store, config: StoreConfig, logger: Logger, *, interval: float = SWEEP_INTERVAL) -> None:
    """Sweeps periodically until it is cancelled. If the store is unavailable, the next sweep tries again."""
    while True:
        try:
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
    removed_count = 0
    while count := await remove():
        removed_count += count
        await asyncio.sleep(BATCH_PAUSE)
    return removed_count
