"""Retention: what is older than it may be is removed, in small steps between which everybody else gets their turn."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from antiphon.config import StoreConfig
from antiphon.errors import StorageUnavailable
from antiphon.server.logs import Logger
from antiphon.store.interface import Store

EVERY: Final = 60.0  # seconds between two sweeps
PAUSE: Final = 0.05  # between two steps of one
STEP: Final = 100


async def sweep(store: Store, config: StoreConfig, logger: Logger, *, every: float = EVERY) -> None:
    """Sweeps until it is cancelled. A store that cannot be reached is swept the next time."""
    while True:
        try:
            removed = await sweep_once(store, config)
        except StorageUnavailable as error:
            logger.event("the store could not be swept", level="warning", why=error.message)
        except Exception as error:  # a fault of ours must not end retention for ever
            logger.fault("sweeping the store failed inside the gateway", error)
        else:
            if removed:
                logger.event("responses were removed because of their age or number", count=removed)
        await asyncio.sleep(every)


async def sweep_once(store: Store, config: StoreConfig) -> int:
    """Everything that is due now; how many responses that were."""
    before = int(time.time() - config.retention_days * 86_400)
    removed = 0
    while count := await store.prune(before=before, keep=config.max_responses, step=STEP):
        removed += count
        await asyncio.sleep(PAUSE)
    return removed
