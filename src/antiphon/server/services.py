"""What the endpoints need, made once at the start: routes, the network, ids and time, traces, the log."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from antiphon.config import Config, StoreConfig
from antiphon.gateway.models import Models
from antiphon.gateway.planning import Planner
from antiphon.gateway.routes import Place, Routes
from antiphon.gateway.sealing import Seal, keys_for
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.stamps import Stamps
from antiphon.server.exposition import Shared
from antiphon.server.logs import Logger
from antiphon.server.metrics import Metrics, watched
from antiphon.server.stream import FIRST, SILENCE
from antiphon.server.sweeping import sweep
from antiphon.server.telemetry import OpenTelemetry, Telemetry, open_telemetry
from antiphon.server.usage_counting import UsageCounter
from antiphon.store.interface import Store
from antiphon.store.opening import open_store
from antiphon.trace.writing import Traces
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

OpenStore = Callable[[StoreConfig, Mapping[str, str]], Awaitable[Store | None]]
MIB: Final = 1024 * 1024


class Runner(Protocol):
    """What runs work in the background."""

    waiting: int  # over all processes, as it was a moment ago

    @property
    def running(self) -> int: ...

    def wake(self) -> None: ...

    def cancel(self, id: str) -> None: ...

    def retire(self) -> None: ...

    def hurry(self) -> None: ...

    async def stop(self, grace: float) -> None: ...


class Pace(Struct, frozen=True, kw_only=True):
    """How often work in the background is looked after, in seconds."""

    lease: float = 15.0  # that work stays with a runner that gives no sign of life
    beat: float = 1.0  # between two signs of life, in which it also learns what is to be cancelled
    look: float = 1.0  # between two looks for work, if nobody says that there is some
    batch: float = 0.1  # that events are gathered before they are written down


class Services:
    """One for each process that serves. `patience`, `silence` and `life`, that of a WebSocket (WS-9), are seconds; they, `pace`
    and `open_store` differ only where nobody can wait for them."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        transport: Transport,
        logger: Logger,
        *,
        places: Mapping[str, Place] | None = None,
        debug: bool = False,
        patience: float = FIRST,
        silence: float = SILENCE,
        life: float = 3600.0,
        pace: Pace = Pace(),  # noqa: B008
        open_store: OpenStore = open_store,
        metrics_folder: Path | None = None,
        open_telemetry: OpenTelemetry = open_telemetry,
    ) -> None:
        self.config = config
        self.transport = transport
        self.logger = logger
        self.debug = debug
        self.patience = patience
        self.silence = silence
        self.life = life
        self.pace = pace
        self.max_body = config.server.max_body_mib * MIB
        self.output_limits = OutputLimits(max_bytes=config.server.max_answer_mib * MIB, max_items=config.server.max_output_items)
        self.store: Store | None = None  # until `open`; where nothing is kept, for ever
        self.under_way = 0  # requests and turns that are not answered to their end
        self.websockets = 0  # open ones
        self.telemetry: Telemetry | None = None  # until `open`; for ever where nobody wants it
        self._open_store = open_store
        self._open_telemetry = open_telemetry
        self.usage: UsageCounter | None = None  # where there is a store
        self._upkeep: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # until `open`
        self._stopping_since: float | None = None  # None while it serves
        self.background: Runner | None = None  # where there is a store
        self._environ = environ
        self.routes = Routes(config, environ, places or {})
        self.models = Models(self.routes, transport, time.monotonic)
        self.stamps = Stamps(new_id, now)
        self.seal = Seal(keys_for(config, environ))
        self.planner = Planner(seal=self.seal, models=self.models, stamps=self.stamps)
        self.pad = padding
        shared = Shared(metrics_folder, os.getpid()) if metrics_folder is not None else None
        self.metrics = Metrics([name for each in config.upstreams for name in each.listed_models()], shared)
        self._measure()
        keys = [place.key for place in (places or {}).values() if place.key]
        self.traces = Traces(config.trace, [*config.secrets(environ), *keys]) if config.trace.dir else None

    async def open(self) -> None:
        """What can only be had on a running event loop."""
        self._loop = asyncio.get_running_loop()
        self.metrics.start()
        self.telemetry = self._open_telemetry(self.config, self._environ, self.metrics, self.logger)
        if self.telemetry is not None:
            self.logger.tell(self.telemetry.end)
        self._upkeep.append(self._loop.create_task(self._collect_garbage()))
        store = await self._open_store(self.config.store, self._environ)
        if store is not None:
            self.store = watched(store, self.metrics)
            self.usage = UsageCounter(self.store, self.metrics.model_label, self.logger)
            self.logger.tell(self.usage.request)
            upkeep = (sweep(self.store, self.config.store, self.logger), self.usage.run())
            self._upkeep += map(self._loop.create_task, upkeep)

    def begin_to_stop(self) -> None:
        """Nothing new comes in: from here on whatever is under way has its grace, all of it at the same time."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            if self.background is not None:
                self.background.retire()

    def hurry(self) -> None:
        """There is no grace any more. A signal may say so at any moment, on whatever the loop is at."""
        if self._loop is not None and self.background is not None:
            self._loop.call_soon_threadsafe(self.background.hurry)

    async def close(self) -> None:
        """Everything that is still under way was told to end; what it keeps and says last has a moment."""
        self.begin_to_stop()
        if self.background is not None:
            assert self._stopping_since is not None
            await self.background.stop(max(0.0, self._stopping_since + self.config.server.grace - time.monotonic()))
        end = time.monotonic() + LAST_WORDS
        while self.under_way and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for task in self._upkeep:
            task.cancel()
            await asyncio.wait([task])
        self.logger.flush()  # which tells the others too
        if self.usage is not None:
            with suppress(TimeoutError):  # a store that does not answer keeps nobody from going
                await asyncio.wait_for(self.usage.flush(), LAST_WORDS)
        if self.store is not None:
            await self.store.close()
        await self.transport.close()
        self.metrics.stop()
        if self.telemetry is not None:
            await self.telemetry.close()
        self.logger.flush()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.close)

    async def _collect_garbage(self) -> None:
        """Frees reference cycles that libraries leave, which the automatic collection would find too late (see `run`), and the
        interpreter's free lists, which grow to megabytes."""
        while True:
            await asyncio.sleep(GC_INTERVAL)
            gc.collect()

    def _count_running(self) -> float:
        return self.background.running if self.background is not None else 0

    def _count_waiting(self) -> float:
        """All workers know of the same queue, and what they tell is added up."""
        return self.background.waiting / self.config.server.workers if self.background is not None else 0

    def _measure(self) -> None:
        self.logger.tell(self.metrics.request)
        transport = getattr(self.transport, "network", self.transport)  # of one that has agents too
        gauge = self.metrics.gauge
        gauge("antiphon_requests_under_way", "Requests and turns that are not answered to their end.", lambda: self.under_way)
        gauge("antiphon_websockets", "Open WebSockets.", lambda: self.websockets)
        gauge("antiphon_background_running", "Responses that are made in the background.", self._count_running)
        gauge(
            "antiphon_background_waiting", "Those that wait to be, over all processes, as it was a moment ago.", self._count_waiting
        )
        if isinstance(transport, HttpTransport):
            gauge("antiphon_upstream_connections", "Sockets to upstreams, in use or kept.", lambda: transport.open_connections)
            gauge("antiphon_upstream_connections_in_use", "Of these, those in use.", lambda: transport.connections_in_use)


def new_id(prefix: str) -> str:
    """An id that nobody can guess: 128 random bits. The time stands before them, so that what is kept together lies together: with
    ids in no order at all, keeping a response costs two and a half times as much."""
    return f"{prefix}_{int(time.time()):08x}{_random_bits.take()}"


class _RandomBits:
    """The system's random bits, asked for many at a time: asking costs more than the bits do. None is given twice."""

    def __init__(self) -> None:
        self._left: list[str] = []
        os.register_at_fork(after_in_child=self._left.clear)

    def take(self) -> str:
        if not self._left:
            bits = secrets.token_hex(16 * POOLED)
            self._left += [bits[at : at + 32] for at in range(0, len(bits), 32)]
        return self._left.pop()


LAST_WORDS: Final = 5.0  # seconds
GC_INTERVAL: Final = 60.0  # seconds
POOLED: Final = 128
_random_bits: Final = _RandomBits()


def now() -> int:
    return int(time.time())


def padding(length: int) -> str:
    """STR-13: so much that the length of a delta on the wire says little about its text."""
    return secrets.token_urlsafe(64)[: 16 - length % 16 + secrets.randbelow(16)]
