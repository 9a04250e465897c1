"""Counts usage in memory and writes it to the store every few seconds and at the end.

No request waits for it. If the store is unavailable, the counts are written the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import add
from typing import Final

from antiphon.errors import StorageUnavailable
from antiphon.gateway.request_scope import RequestLog
from antiphon.ops.logger import Logger
from antiphon.store.interface import Store
from antiphon.store.usage import COUNTER_NAMES, UsageRow

WRITE_INTERVAL: Final = 5.0  # seconds between two writes
MAX_KEYS: Final = 10_000  # limit in memory, while the store is unavailable
DAY: Final = 86_400

Key = tuple[int, str, str, str]  # day, owner, model, upstream


class UsageCounter:
    """The usage counters of one process."""

    def __init__(self, store: Store, model_label: Callable[[RequestLog], str], logger: Logger) -> None:
        """`model_label` returns the name under which a model is counted: a client can send any name, and their number
        is limited."""
        self.dropped_requests = 0  # requests that were not counted because of `MAX_KEYS`
        self._store = store
        self._model_label = model_label
        self._logger = logger
        self._counts: dict[Key, list[int]] = {}
        self._write_lock = asyncio.Lock()
        self._is_failing = False

    def count_request(self, log_entry: RequestLog) -> None:
        """Counts a request that has ended. Requests without a model are ignored, and background work is counted by its
        runner."""
        if log_entry.model is None or log_entry.is_deferred:
            return
        counts = self._counts_of(log_entry, log_entry.upstream or "")
        if counts is None:
            self.dropped_requests += 1
            return
        self._count_failed_attempts(log_entry)
        counts[0] += 1
        counts[1] += log_entry.error is not None
        if log_entry.input_tokens is not None:
            counts[2] += log_entry.input_tokens
            counts[3] += log_entry.cached_tokens
            counts[4] += log_entry.output_tokens or 0
            counts[5] += log_entry.reasoning_tokens
        counts[6] += log_entry.losses

    def _count_failed_attempts(self, log_entry: RequestLog) -> None:
        """Counts the tokens of attempts that failed after their servers had reported some. They are no requests."""
        for attempt in log_entry.attempts:
            counts = self._counts_of(log_entry, attempt.upstream) if attempt.input_tokens else None
            if counts is not None:
                counts[2] += attempt.input_tokens
                counts[4] += attempt.output_tokens

    def _counts_of(self, log_entry: RequestLog, upstream: str) -> list[int] | None:
        """The counts of a key; None if there are too many keys."""
        key = (int(log_entry.time) // DAY, log_entry.owner or "", self._model_label(log_entry), upstream)
        counts = self._counts.get(key)
        if counts is None and len(self._counts) < MAX_KEYS:
            counts = self._counts[key] = [0] * len(COUNTER_NAMES)
        return counts

    async def run(self, interval: float = WRITE_INTERVAL) -> None:
        """Writes periodically until it is cancelled."""
        while True:
            await asyncio.sleep(interval)
            await self.flush()

    async def flush(self) -> None:
        """Writes all counts, unless the store is unavailable. It is completed even if the caller is cancelled."""
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._write_lock:
            self._logger.flush()  # it calls `count_request` for requests that have just ended
            pending, self._counts = self._counts, {}
            if not pending:
                return
            rows = [
                UsageRow(
                    day=day,
                    owner=owner,
                    model=model,
                    upstream=upstream,
                    **dict(zip(COUNTER_NAMES, counts, strict=True)),
                )
                for (day, owner, model, upstream), counts in pending.items()
            ]
            try:
                await self._store.add_usage(rows)
            except StorageUnavailable as error:
                self._restore(pending)
                if not self._is_failing:
                    self._logger.event("usage cannot be stored at the moment", level="warning", why=error.message)
                self._is_failing = True
            else:
                self._is_failing = False

    def _restore(self, pending: dict[Key, list[int]]) -> None:
        for key, counts in self._counts.items():
            pending[key] = list(map(add, pending[key], counts)) if key in pending else counts
        self._counts = pending
