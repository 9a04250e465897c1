"""Retention: what is older than it may be is removed, in small steps between which everybody else gets their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from antiphon.config import StoreConfig
from antiphon.errors import StorageUnavailable
from antiphon.ops.logger import Logger
from antiphon.store.interface import Store

EVERY: Final = 60.0  # seconds between two sweeps
PAUSE: Final = 0.05  # between two steps of one
STEP: Final = 100


async def run_retention(store: Store, config: StoreConfig, logger: Logger, *, every: float = EVERY) -> None:
    """Sweeps until it is cancelled. A store that cannot be reached is swept the next time."""
    while True:
        try:
            removed = await delete_expired(store, config)
        except StorageUnavailable as error:
            logger.event("the store could not be swept", level="warning", why=error.message)
        except Exception as error:  # a fault of ours must not end retention for ever
            logger.fault("sweeping the store failed inside the gateway", error)
        else:
            if removed.responses:
                logger.event("responses were removed because of their age or number", count=removed.responses)
            if removed.conversations:
                logger.event("conversations were removed because of their age", count=removed.conversations)
        await asyncio.sleep(every)


class RemovedCounts(NamedTuple):
    """How many of them."""

    responses: int
    conversations: int


async def delete_expired(store: Store, config: StoreConfig) -> RemovedCounts:
    """Everything that is due now."""
    before = _days_ago(config.retention_days)
    responses = await _all(lambda: store.prune(before=before, keep=config.max_responses, step=STEP))
    await store.prune_usage(before=before // 86_400)
    if config.conversation_days is None:
        return RemovedCounts(responses, 0)
    unchanged_since = _days_ago(config.conversation_days)
    return RemovedCounts(responses, await _all(lambda: store.prune_conversations(before=unchanged_since, step=STEP)))


def _days_ago(days: float) -> int:
    return int(time.time() - days * 86_400)


async def _all(remove: Callable[[], Awaitable[int]]) -> int:
    removed = 0
    while count := await remove():
        removed += count
        await asyncio.sleep(PAUSE)
    return removed
