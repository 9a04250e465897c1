"""The scope of one request: its log entry, its trace, and the one policy for its errors, whether it arrived over HTTP,
over a WebSocket or from the background queue. It has the only catch-all of the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from antiphon.errors import ApiError, ClientDisconnected
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.request_log import RequestLog
from antiphon.trace.writer import Trace


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


@asynccontextmanager
async def request_scope(services: GatewayContext, scope: RequestScope, requester: Requester) -> AsyncIterator[None]:
    """Serves one request: answers its errors, then writes its log entry and its trace."""
    try:
        yield
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
            scope.trace.record_note("error", scope.log_entry.error)
            scope.trace.finish()


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
