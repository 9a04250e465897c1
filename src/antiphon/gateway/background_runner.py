"""Runs background responses (API-2): each process claims queued work, and runs it (`background_job`).

A response whose runner died is run again from the start if no event was stored. Otherwise it fails
(`server_restarted`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from antiphon.errors import StorageUnavailable
from antiphon.gateway.background_job import BackgroundJob
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.ids import new_id
from antiphon.gateway.queued_turns import QueuedTurns
from antiphon.gateway.runner_name import current_process, has_ended, make_runner_name
from antiphon.store.interface import Store


class BackgroundTimings(Struct, frozen=True, kw_only=True):
    """Intervals of background work, in seconds."""

    lease: float = 15.0  # time until the work of a silent runner is free again
    heartbeat: float = 1.0  # between lease renewals, which also report cancellations
    poll_interval: float = 1.0  # between queries for work without a wake-up
    flush_interval: float = 0.1  # between writes of collected events


class BackgroundRunner:
    """Runs background work in one process."""

    def __init__(self, services: GatewayContext, store: Store, limit: int, timings: BackgroundTimings) -> None:
        self._process = current_process()
        self.runner = make_runner_name(new_id("run"), self._process)
        self.queued_turns = QueuedTurns()
        self.waiting_jobs = 0  # of all processes, at the last count
        self._counted_at = -math.inf
        self._queued_since_count = 0  # by this process
        self._services = services
        self._store = store
        self._limit = limit
        self._timings = timings
        self._running: dict[str, BackgroundJob] = {}
        self._wake_event = asyncio.Event()
        self._is_stopping = False
        loop = asyncio.get_running_loop()
        self._claim_task = loop.create_task(self._claim_continuously())
        self._lease_task = loop.create_task(self._renew_leases())
        self._watch_task = loop.create_task(self._watch_queue()) if store.pushes_changes else None

    @property
    def running_jobs(self) -> int:
        return len(self._running)

    def wake(self) -> None:
        """Queries the store for work at once."""
        self._wake_event.set()

    async def reserve_place(self, limit: int) -> bool:
        """Whether another response may be queued: fewer than `limit` wait in all processes. The queue is counted from
        time to time, and if it may be full; in between, what this process has queued is added."""
        now = asyncio.get_running_loop().time()
        waiting = self.waiting_jobs + self._queued_since_count
        if waiting >= limit or now - self._counted_at >= COUNT_INTERVAL:
            await self._count_queue()
            waiting = self.waiting_jobs + self._queued_since_count
        self._queued_since_count += 1
        return waiting < limit

    def cancel(self, id: str) -> None:
        """Cancels a response if it runs in this process."""
        job = self._running.get(id)
        if job is not None:
            job.cancel()

    def stop_claiming(self) -> None:
        """Claims no more work."""
        self._is_stopping = True
        self.wake()

    def force_shutdown(self) -> None:
        """Ends or releases all running work at once."""
        for job in self._running.values():
            job.give_up()

    async def stop(self, grace: float) -> None:
        """Claims no more work, waits up to `grace` seconds for running work, then ends or releases it."""
        self.stop_claiming()
        # A claim in progress must be recorded.
        await asyncio.wait([self._claim_task], timeout=CLOSE_TIMEOUT)
        self._claim_task.cancel()
        if self._watch_task is not None:
            self._watch_task.cancel()
        jobs = list(self._running.values())
        if jobs:
            await asyncio.wait([job.task for job in jobs], timeout=grace)
        self.force_shutdown()
        if jobs:
            await asyncio.wait([job.task for job in jobs], timeout=CLOSE_TIMEOUT)
        for job in jobs:
            job.task.cancel()
        self._lease_task.cancel()

    async def _release_ended_runners(self) -> None:
        """Frees the work of processes of this machine that have ended, without waiting for the end of their leases."""
        ended_runners = [runner for runner in await self._store.lease_holders() if has_ended(runner, self._process)]
        if ended_runners:
            count = await self._store.release_runners(ended_runners)
            self._services.logger.event("released background work of processes that have ended", count=count)

    async def _claim_continuously(self) -> None:
        try:
            await self._release_ended_runners()
        except StorageUnavailable as error:
            self._services.logger.event("cannot release background work", level="warning", why=error.message)
        while not self._is_stopping:
            self._wake_event.clear()
            try:
                await self._claim_work()
                await self._update_queue_metric()
            except StorageUnavailable as error:
                self._services.logger.event("cannot claim background work", level="warning", why=error.message)
                await asyncio.sleep(self._timings.poll_interval)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.poll_interval):
                    await self._wake_event.wait()

    async def _watch_queue(self) -> None:
        """Queries the store for work when another process has queued some."""
        while True:
            change_counter = self._store.change_counter
            try:
                await self._store.wait_for_change(None, self._timings.poll_interval, change_counter)
            except StorageUnavailable:  # the store is closed
                return
            self.wake()

    async def _claim_work(self) -> None:
        """Claims work for the free slots. Jobs that only write their end need no slot, but they are bounded too."""
        turns = sum(not job.is_finishing for job in self._running.values())
        free_slots = min(self._limit - turns, 2 * self._limit - len(self._running))
        if free_slots <= 0:
            return
        services = self._services.process.current
        prepared_turns = self.queued_turns.find_oldest(MAX_PREPARED_TURNS, services)
        claimed = await self._store.claim(
            self.runner,
            self._timings.lease,
            free_slots,
            prepared_ids=list(prepared_turns),
        )
        claimed_ids = {work.id for work in claimed}
        # A response that was queued while the claim was under way may be among the claimed ones.
        queued_turns = prepared_turns | self.queued_turns.find(claimed_ids, services)
        self.queued_turns.drop_claimed(prepared_turns, claimed_ids)
        for work in claimed:
            if work.id in self._running:
                continue  # the lease expired while the storage was unavailable; the job still runs here
            job = BackgroundJob(
                services,
                self._store,
                self.runner,
                work,
                self._timings.flush_interval,
                self.wake,
                queued_turns.get(work.id),
            )
            self._running[work.id] = job
            job.task.add_done_callback(lambda task, id=work.id: self._on_job_done(id, task))  # type: ignore[misc]

    async def _update_queue_metric(self) -> None:
        """Counts the queue from time to time, for the metrics."""
        now = asyncio.get_running_loop().time()
        if now - self._counted_at >= self._timings.lease / 3:
            await self._count_queue()

    async def _count_queue(self) -> None:
        self._counted_at = asyncio.get_running_loop().time()
        self._queued_since_count = 0
        self.waiting_jobs = (await self._store.queue_stats()).waiting

    def _on_job_done(self, id: str, task: asyncio.Task[None]) -> None:
        self._running.pop(id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.logger.fault("background work failed inside the gateway", error, response_id=id)
        self.wake()

    async def _renew_leases(self) -> None:
        """Renews the leases of running work; cancels work that was cancelled, stops work whose lease is lost."""
        while True:
            await asyncio.sleep(self._timings.heartbeat)
            ids = list(self._running)
            if not ids:
                continue
            try:
                states = await self._store.renew(self.runner, self._timings.lease, ids)
            except StorageUnavailable as error:
                self._services.logger.event("cannot renew leases", level="warning", why=error.message)
                continue
            self._stop_jobs(ids, states)

    def _stop_jobs(self, ids: Sequence[str], states: Mapping[str, str]) -> None:
        """A function of its own: a variable of the endless loop would keep the last job, and its answer, in memory."""
        for id in ids:
            job = self._running.get(id)
            if job is not None and states.get(id) != "held":
                if id in states:
                    job.cancel()
                else:
                    job.lose_lease()


CLOSE_TIMEOUT: Final = 5.0  # seconds
MAX_PREPARED_TURNS: Final = 64  # prepared turns whose contents a claim does not read
COUNT_INTERVAL: Final = 1.0  # seconds between counts of the queue
