"""The services that endpoints use, created once per process: routes, transport, store, ids and clock, traces, log."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from antiphon.config import Config, StoreConfig
from antiphon.gateway.admission import TurnAdmission
from antiphon.gateway.background_runner import BackgroundTimings
from antiphon.gateway.client_body import InputLimits
from antiphon.gateway.ids import new_id, now, random_padding
from antiphon.gateway.model_catalog import ModelCatalog
from antiphon.gateway.queued_turns import QueuedTurns
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing.router import Router
from antiphon.gateway.sealing import Seal, find_sealing_keys
from antiphon.gateway.upstreams import UpstreamAddress
from antiphon.gateway.worker_pool import WorkerPool
from antiphon.ops.exposition import SharedMetrics
from antiphon.ops.file_descriptors import watch_descriptors
from antiphon.ops.health_checks import run_health_checks
from antiphon.ops.logger import Logger
from antiphon.ops.maintenance import MaintenanceTasks
from antiphon.ops.memory import release_memory_after_peaks
from antiphon.ops.metrics import Metrics, timed_store
from antiphon.ops.readiness import Readiness, watch_store
from antiphon.ops.retention import run_retention
from antiphon.ops.telemetry import Telemetry, TelemetryOpener, open_telemetry
from antiphon.ops.usage_counter import UsageCounter
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import Store
from antiphon.store.opening import open_store
from antiphon.trace.writer import TraceWriter
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport

OpenStore = Callable[[StoreConfig, Mapping[str, str]], Awaitable[Store | None]]
MIB: Final = 1024 * 1024
FIRST_BYTE_TIMEOUT: Final = 10.0  # seconds until a stream sends its head without an event
KEEPALIVE_INTERVAL: Final = 15.0  # seconds between two writes to a stream


class BackgroundControl(Protocol):
    """The interface of the background runner."""

    waiting_jobs: int  # over all processes, as last polled
    queued_turns: QueuedTurns

    @property
    def running_jobs(self) -> int: ...

    def wake(self) -> None: ...

    async def reserve_place(self, limit: int) -> bool: ...

    def cancel(self, id: str) -> None: ...

    def stop_claiming(self) -> None: ...

    def force_shutdown(self) -> None: ...

    async def stop(self, grace: float) -> None: ...


class ProcessState(Struct, eq=False):
    """The state of a process, which the services of all its configurations share."""

    current: Services  # of the newest configuration
    requests_in_flight: int = 0  # requests and turns whose answer is not finished
    open_websockets: int = 0
    stopping_since: float | None = None  # None while serving


class Services:
    """One for each configuration of a serving process: a reload makes a new one, which shares all but the settings, and
    turns under way keep theirs. `first_byte_timeout`, `keepalive_interval` and `websocket_lifetime` (WS-9) are
    seconds. They, `background_timings` and `open_store` differ from their defaults only in tests."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        transport: Transport,
        logger: Logger,
        *,
        addresses: Mapping[str, UpstreamAddress] | None = None,
        debug: bool = False,
        first_byte_timeout: float = FIRST_BYTE_TIMEOUT,
        keepalive_interval: float = KEEPALIVE_INTERVAL,
        websocket_lifetime: float = 3600.0,
        background_timings: BackgroundTimings = BackgroundTimings(),  # noqa: B008
        open_store: OpenStore = open_store,
        metrics_folder: Path | None = None,
        open_telemetry: TelemetryOpener = open_telemetry,
    ) -> None:
        self.process = ProcessState(self)
        self.transport = transport
        self.logger = logger
        self.debug = debug
        self.first_byte_timeout = first_byte_timeout
        self.keepalive_interval = keepalive_interval
        self.websocket_lifetime = websocket_lifetime
        self.background_timings = background_timings
        self.readiness = Readiness()
        self.store: Store | None = None  # set by `open`, if there is a store
        self.telemetry: Telemetry | None = None  # set by `open`, if telemetry is enabled
        self._open_store = open_store
        self._open_telemetry = open_telemetry
        self.usage: UsageCounter | None = None  # set by `open`, if there is a store
        self._maintenance_tasks: MaintenanceTasks | None = None  # set by `open`
        self._loop: asyncio.AbstractEventLoop | None = None  # set by `open`
        self.background: BackgroundControl | None = None  # set if there is a store
        self._environ = environ
        self._addresses = addresses or {}
        self.admission = TurnAdmission(*_turn_limits(config))
        self._set_config(config, Routes(config, environ, self._addresses), None)
        self.stamps = Stamps(new_id, now)
        self.seal = Seal(find_sealing_keys(config, environ))
        self.workers = WorkerPool(config.server.body_workers)
        self.pad = random_padding
        shared = SharedMetrics(metrics_folder, os.getpid()) if metrics_folder is not None else None
        self.metrics = Metrics(config.listed_models(), shared)
        self._register_metrics()
        keys = [address.key for address in self._addresses.values() if address.key]
        self.traces = TraceWriter(config.trace, [*config.secrets(environ), *keys]) if config.trace.dir else None

    def _set_config(self, config: Config, routes: Routes, previous_router: Router | None) -> None:
        server = config.server
        self.config = config
        self.max_body = server.max_body_mib * MIB
        self.output_limits = OutputLimits(max_bytes=server.max_answer_mib * MIB, max_items=server.max_output_items)
        self.input_limits = InputLimits(max_items=server.max_input_items, max_tools=server.max_tools)
        self.routes = routes
        self.router = Router(config, routes, previous=previous_router)
        self.models = ModelCatalog(routes, self.transport, time.monotonic)

    def make_routes(self, config: Config) -> Routes:
        """The routes of a new configuration. It reads files and changes nothing, so another thread may call it."""
        embedded_names = {upstream.name for upstream in config.upstreams if upstream.embedded}
        addresses = {name: address for name, address in self._addresses.items() if name in embedded_names}
        return Routes(config, self._environ, addresses, self.process.current.routes)

    def reconfigure(self, config: Config, routes: Routes) -> Services:
        """Makes services for a new configuration, which new turns use."""
        services = copy.copy(self.process.current)
        services._set_config(config, routes, self.process.current.router)
        self.admission.set_limits(*_turn_limits(config))
        self.metrics.add_models(config.listed_models())
        if self.traces is not None:
            self.traces.add_secrets(config.secrets(self._environ))
        self.process.current = services
        return services

    async def open(self) -> None:
        """Opens the services that need a running event loop."""
        self._loop = asyncio.get_running_loop()
        self.metrics.start()
        self.telemetry = self._open_telemetry(self.config, self._environ, self.metrics, self.logger)
        if self.telemetry is not None:
            self.logger.add_listener(self.telemetry.end_request)
        tasks = self._maintenance_tasks = MaintenanceTasks(self.logger)
        tasks.start("garbage collection", self._collect_garbage)
        tasks.start("memory", release_memory_after_peaks)
        tasks.start("file descriptors", partial(watch_descriptors, self.logger))
        tasks.start("health checks", partial(run_health_checks, lambda: self.process.current))
        store = await self._open_store(self.config.store, self._environ)
        if store is not None:
            self.store = timed_store(store, self.metrics)
            self.usage = UsageCounter(self.store, self.metrics.model_label, self.logger)
            self.logger.add_listener(self.usage.count_request)
            tasks.start("retention", partial(run_retention, self.store, self.config.store, self.logger))
            tasks.start("usage", self.usage.run)
            tasks.start("readiness", partial(watch_store, store, self.readiness, self.logger))
        self.readiness.set_problem("start", None)

    def stop_being_ready(self) -> None:
        """Called at the first stop signal, before the port is closed."""
        self.readiness.set_problem("shutdown", "the gateway is shutting down")

    def start_shutdown(self) -> None:
        """Starts the grace period: nothing new is accepted, and everything in flight has the same time to finish."""
        if self.process.stopping_since is None:
            self.process.stopping_since = time.monotonic()
            if self.background is not None:
                self.background.stop_claiming()

    def force_shutdown(self) -> None:
        """Ends the grace period. A signal handler may call this at any time."""
        if self._loop is not None and self.background is not None:
            self._loop.call_soon_threadsafe(self.background.force_shutdown)

    async def close(self) -> None:
        """Stops the background runner, waits shortly for requests in flight, and closes everything."""
        self.start_shutdown()
        if self.background is not None:
            assert self.process.stopping_since is not None
            await self.background.stop(
                max(0.0, self.process.stopping_since + self.config.server.grace - time.monotonic())
            )
        end = time.monotonic() + CLOSE_TIMEOUT
        while self.process.requests_in_flight and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self._maintenance_tasks is not None:
            await self._maintenance_tasks.close()
        self.logger.flush()  # calls its listeners too
        if self.usage is not None:
            with suppress(TimeoutError):  # a store that does not answer must not block the shutdown
                await asyncio.wait_for(self.usage.flush(), CLOSE_TIMEOUT)
        await self.workers.close()
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
        """Frees reference cycles that libraries leave, which the automatic collection would find too late (see `run`),
        and the interpreter's free lists, which grow to megabytes."""
        while True:
            await asyncio.sleep(GC_INTERVAL)
            gc.collect()

    def _count_running(self) -> float:
        return self.background.running_jobs if self.background is not None else 0

    def _count_waiting(self) -> float:
        """Divides by the workers: each reports the same queue, and the values are summed."""
        return self.background.waiting_jobs / self.config.server.workers if self.background is not None else 0

    def _count_resting_targets(self) -> dict[str, float]:
        return self.process.current.router.resting_counts()

    def _register_metrics(self) -> None:
        self.logger.add_listener(self.metrics.count_request)
        transport = getattr(self.transport, "network", self.transport)  # `AgentTransport` wraps the network
        add_gauge = self.metrics.add_gauge
        add_gauge(
            "antiphon_requests_in_flight",
            "Requests and turns in flight.",
            lambda: self.process.requests_in_flight,
        )
        add_gauge("antiphon_open_turns", "Open turns.", lambda: self.admission.open_turns)
        add_gauge("antiphon_websockets", "Open WebSockets.", lambda: self.process.open_websockets)
        add_gauge("antiphon_background_running", "Running background responses.", self._count_running)
        add_gauge(
            "antiphon_background_waiting",
            "Queued background responses of all processes, at the last poll.",
            self._count_waiting,
        )
        self.metrics.add_upstream_gauge(
            "antiphon_resting_targets",
            "Targets of an upstream that rest after failures.",
            self._count_resting_targets,
        )
        if isinstance(transport, HttpTransport):
            add_gauge(
                "antiphon_upstream_connections",
                "Open connections to upstreams, in use or idle.",
                lambda: transport.open_connections,
            )
            add_gauge(
                "antiphon_upstream_connections_in_use",
                "Connections to upstreams in use.",
                lambda: transport.connections_in_use,
            )


def _turn_limits(config: Config) -> tuple[int, int | None]:
    """The largest numbers of open turns: of a process, and of a key if there are keys."""
    return config.server.max_open_turns, config.server.max_open_turns_per_key if config.keys else None


CLOSE_TIMEOUT: Final = 5.0  # seconds
GC_INTERVAL: Final = 60.0  # seconds
