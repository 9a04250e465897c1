"""Counts what was used and keeps it: in memory while requests are served, in the store every few seconds and at the end.

Nothing waits for it. What cannot be kept at the moment is added to what is kept next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import add
from typing import Final

from antiphon.errors import StorageUnavailable
from antiphon.gateway.request_log import RequestLog
from antiphon.ops.logger import Logger
from antiphon.store.interface import Store
from antiphon.store.usage import COUNTER_NAMES, UsageRow

EVERY: Final = 5.0  # seconds between two writings
MOST_KEYS: Final = 10_000  # in memory, while the store cannot be reached
DAY: Final = 86_400

Key = tuple[int, str, str, str]  # day, owner, model, upstream


class UsageCounter:
    """What one process counts."""

    def __init__(self, store: Store, model_label: Callable[[RequestLog], str], logger: Logger) -> None:
        """`model_label` says what a model is called here: anybody can ask for any name, and not all of them are kept."""
        self.dropped = 0  # requests that there was no room for
        self._store = store
        self._model_label = model_label
        self._logger = logger
        self._counts: dict[Key, list[int]] = {}
        self._writing = asyncio.Lock()
        self._is_failing = False

    def count_request(self, log_entry: RequestLog) -> None:
        """A request is over. One that named no model used nothing, and work in the background counts where it is made."""
        if log_entry.model is None or log_entry.is_deferred:
            return
        key = (int(log_entry.time) // DAY, log_entry.owner or "", self._model_label(log_entry), log_entry.upstream or "")
        counts = self._counts.get(key)
        if counts is None:
            if len(self._counts) >= MOST_KEYS:
                self.dropped += 1
                return
            counts = self._counts[key] = [0] * len(COUNTER_NAMES)
        counts[0] += 1
        counts[1] += log_entry.error is not None
        if log_entry.input_tokens is not None:
            counts[2] += log_entry.input_tokens
            counts[3] += log_entry.cached_tokens
            counts[4] += log_entry.output_tokens or 0
            counts[5] += log_entry.reasoning_tokens
        counts[6] += log_entry.losses

    async def run(self, every: float = EVERY) -> None:
        """Writes until it is cancelled."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.flush()
            except Exception as error:  # a fault of ours must not end the counting for ever
                self._logger.fault("usage could not be kept because of a fault inside the gateway", error)

    async def flush(self) -> None:
        """Everything that was counted so far, unless the store cannot be reached. It ends well also if whoever asked left."""
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._writing:
            self._logger.flush()  # which tells of those that just ended
            taken, self._counts = self._counts, {}
            if not taken:
                return
            rows = [
                UsageRow(day=day, owner=owner, model=model, upstream=upstream, **dict(zip(COUNTER_NAMES, counts, strict=True)))
                for (day, owner, model, upstream), counts in taken.items()
            ]
            try:
                await self._store.add_usage(rows)
            except StorageUnavailable as error:
                self._take_back(taken)
                if not self._is_failing:
                    self._logger.event("usage cannot be kept for now", level="warning", why=error.message)
                self._is_failing = True
            else:
                self._is_failing = False

    def _take_back(self, taken: dict[Key, list[int]]) -> None:
        for key, counts in self._counts.items():
            taken[key] = list(map(add, taken[key], counts)) if key in taken else counts
        self._counts = taken
