"""The services that turns and background work use. `ops.services.Services` implements it."""

from __future__ import annotations

from typing import Literal, Protocol

from antiphon.gateway.client_body import InputLimits
from antiphon.gateway.model_catalog import ModelCatalog
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing.router import Router
from antiphon.gateway.sealing import Seal
from antiphon.gateway.worker_pool import WorkerPool
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.policy import PaddingSource
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import Store
from antiphon.trace.writer import TraceWriter
from antiphon.upstream.transport import Transport

Level = Literal["debug", "info", "warning", "error"]


class EventLogger(Protocol):
    """Writes log lines."""

    def event(self, name: str, /, *, level: Level = "info", **fields: object) -> None: ...

    def fault(self, message: str, error: BaseException, /, **fields: object) -> None: ...

    def request(self, log_entry: RequestLog) -> None: ...


class TurnTelemetry(Protocol):
    """Starts the span of a turn."""

    def start_turn(self, log_entry: RequestLog) -> dict[str, str]: ...


class GatewayProcess(Protocol):
    """The state of the process, which the services of all its configurations share."""

    @property
    def current(self) -> GatewayContext:
        """The services of the newest configuration, for the next turn."""
        ...


class GatewayContext(Protocol):
    """The services of one configuration. Read-only, so that more specific types satisfy it."""

    @property
    def process(self) -> GatewayProcess: ...

    @property
    def debug(self) -> bool: ...

    @property
    def logger(self) -> EventLogger: ...

    @property
    def max_body(self) -> int: ...

    @property
    def output_limits(self) -> OutputLimits: ...

    @property
    def pad(self) -> PaddingSource: ...

    @property
    def models(self) -> ModelCatalog: ...

    @property
    def input_limits(self) -> InputLimits: ...

    @property
    def router(self) -> Router: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def seal(self) -> Seal: ...

    @property
    def stamps(self) -> Stamps: ...

    @property
    def store(self) -> Store | None: ...

    @property
    def telemetry(self) -> TurnTelemetry | None: ...

    @property
    def traces(self) -> TraceWriter | None: ...

    @property
    def transport(self) -> Transport: ...

    @property
    def workers(self) -> WorkerPool: ...
