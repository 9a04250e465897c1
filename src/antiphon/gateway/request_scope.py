"""The scope of one request: its log entry, its trace, and the one policy for its errors, whether it arrived over HTTP,
over a WebSocket or from the background queue. This module has the only catch-alls of the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from time import time as unix_time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from antiphon.errors import ApiError, ClientDisconnected
from antiphon.gateway.routing.records import AttemptRecord
from antiphon.protocol.response import Response
from antiphon.trace.writer import Trace

if TYPE_CHECKING:
    from antiphon.gateway.context import GatewayContext


class RequestLog(Struct, kw_only=True):
    """The log entry of one request. It is filled while the request is served, and `ops.logger` writes it once. Fields
    that are None are not written. No field is for content."""

    request_id: str
    method: str
    path: str  # without the query
    status: int | None = None  # None: no response, the client disconnected
    time: float = field(default_factory=unix_time)  # arrival, in seconds since 1970
    start_clock: float = field(default_factory=perf_counter)  # arrival on the monotonic clock, for durations
    duration_ms: float | None = None
    first_event_ms: float | None = None
    owner: str | None = None
    model: str | None = None
    upstream: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0  # of input_tokens
    cache_write_tokens: int = 0  # of input_tokens
    reasoning_tokens: int = 0  # of output_tokens
    events: int = 0  # events of a complete stream
    losses: int = 0
    error: str | None = None  # the error code sent to the client
    client_disconnected: bool = False
    is_deferred: bool = False  # the turn runs in the background and has its own entry
    traceparent: str = ""  # the client's trace context, for telemetry
    attempts: list[AttemptRecord] = []  # to get an answer from a target

    def note_first_event(self) -> None:
        """Sets the time of the first event; later calls do nothing."""
        if self.first_event_ms is None:
            self.first_event_ms = self._elapsed()

    def note_response(self, response: Response, events: int = 0) -> None:
        """Notes the result, and the number of events of a stream."""
        self.response_id = response.id
        self.events = events
        self.error = None if response.error is None else response.error.code
        usage = response.usage
        if usage is not None:
            self.input_tokens = usage.input_tokens
            self.output_tokens = usage.output_tokens
            self.cached_tokens = usage.input_tokens_details.cached_tokens
            self.cache_write_tokens = usage.input_tokens_details.cache_write_tokens or 0
            self.reasoning_tokens = usage.output_tokens_details.reasoning_tokens

    def note_end(self) -> None:
        """Sets the duration; later calls do nothing."""
        if self.duration_ms is None:
            self.duration_ms = self._elapsed()

    def _elapsed(self) -> float:
        return (perf_counter() - self.start_clock) * 1000


class Requester(Protocol):
    """The origin of a request: an HTTP exchange, a turn of a WebSocket, or a background job."""

    @property
    def is_disconnected(self) -> bool:
        """Whether the client has disconnected."""
        ...

    async def respond_with_error(self, error: ApiError) -> None:
        """Answers a request that failed before its answer began."""
        ...

    async def interruption_error(self) -> ApiError | None:
        """The error for a request whose task was cancelled; None if nobody waits for the answer any more."""
        ...


class RunningTurn(Protocol):
    """A turn that is being answered."""

    async def fail(self, error: ApiError) -> bool:
        """Ends the answer with an error; False if the answer has not begun, or is at its end."""
        ...

    async def abandon(self) -> None:
        """Records the end of a turn whose answer nobody waits for."""
        ...


class RequestScope:
    """One request while it is served."""

    def __init__(self, log_entry: RequestLog, trace: Trace | None) -> None:
        self.log_entry = log_entry
        self.trace = trace
        self.turn: RunningTurn | None = None  # set when the turn of the request starts to run

    @property
    def id(self) -> str:
        return self.log_entry.request_id


async def run_in_scope(
    services: GatewayContext, scope: RequestScope, requester: Requester, work: Awaitable[None]
) -> None:
    """Runs the work of one request: answers its errors, then writes its log entry and its trace."""
    try:
        await work
    except ClientDisconnected:
        scope.log_entry.client_disconnected = True
        await _abandon(scope)
    except ApiError as error:
        await _fail(scope, requester, error)
    except asyncio.CancelledError:
        uncancel_current_task()
        interruption = await requester.interruption_error()
        if interruption is None:
            await _abandon(scope)
        else:
            await _fail(scope, requester, interruption)
    except Exception as error:
        services.logger.fault("a request failed inside the gateway", error, request_id=scope.id)
        await _fail(scope, requester, ApiError(f"internal error; see the log for request id {scope.id}"))
    finally:
        scope.turn = None  # it refers to the requester, which may refer to the scope
        if requester.is_disconnected:
            scope.log_entry.client_disconnected = True
        services.logger.request(scope.log_entry)
        if scope.trace is not None:
            scope.trace.record_note("model", scope.log_entry.model)
            scope.trace.record_note("error", scope.log_entry.error)
            scope.trace.finish()


def call_listener(on_fault: Callable[[Exception], None], listener: Callable[..., None], *arguments: object) -> None:
    """Calls a function for something that happened on a connection, outside of a request. A fault goes to `on_fault`,
    which ends this connection; the event loop would drop what the connection has not sent yet."""
    try:
        listener(*arguments)
    except Exception as error:
        on_fault(error)


async def _fail(scope: RequestScope, requester: Requester, error: ApiError) -> None:
    """Ends the answer with an error, or answers with it (STR-8)."""
    if scope.turn is None or not await scope.turn.fail(error):
        await requester.respond_with_error(error)


async def _abandon(scope: RequestScope) -> None:
    if scope.turn is not None:
        await scope.turn.abandon()


def shutdown_error() -> ApiError:
    """The error for turns that did not finish before the shutdown."""
    return ApiError("the gateway is shutting down", code="server_shutdown", status=503)


def uncancel_current_task() -> None:
    """Lets the current task go on after it was cancelled, so that it can end its request."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
