"""Runs a prepared turn: sends it to the upstream, passes the answer to a sink piece by piece, and records the response
before the client receives its end. HTTP, WebSocket and background work differ only in their sinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from msgspec.structs import replace

from antiphon.errors import ApiError, StorageUnavailable
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.request_scope import RequestScope
from antiphon.gateway.turn import UpstreamTurn, is_json
from antiphon.protocol.errors import Error
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.grammar import Violation
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.store.interface import StoredTurn
from antiphon.upstream.transport import Flow


class Sink(Protocol):
    """Takes the client's bytes of one turn."""

    @property
    def has_started(self) -> bool:
        """Whether the client may have received bytes. From then on, an error is part of the answer (STR-8)."""
        ...

    def try_write(self, data: bytes) -> bool:
        """Writes data without waiting; False if that is not possible, and nothing was written."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits until data can be written, and writes it. If it is cancelled, nothing was written."""
        ...

    async def end(self, data: bytes, stored_turn: StoredTurn | None) -> None:
        """Writes the last data. `stored_turn` is None if the turn was not recorded."""
        ...


async def run_turn(
    services: GatewayContext, scope: RequestScope, turn: UpstreamTurn, pipe: Pipe, sink: Sink
) -> Flow | None:
    """Runs a turn to its end. Returns the rest of the upstream's body, if it should be read (`drain_upstream`)."""
    streamed_turn = StreamedTurn(services, scope, turn, pipe, sink)
    scope.turn = streamed_turn
    return await streamed_turn.run()


async def deliver_events(
    services: GatewayContext,
    scope: RequestScope,
    turn: UpstreamTurn,
    pipe: Pipe,
    sink: Sink,
    events: Iterable[StreamEvent],
) -> None:
    """Delivers and records a turn that needs no upstream."""
    streamed_turn = StreamedTurn(services, scope, turn, pipe, sink)
    scope.turn = streamed_turn
    await streamed_turn.deliver(events)


class StreamedTurn:
    """A turn whose answer is written in pieces."""

    def __init__(
        self, services: GatewayContext, scope: RequestScope, turn: UpstreamTurn, pipe: Pipe, sink: Sink
    ) -> None:
        self._services = services
        self._log_entry = scope.log_entry
        self._trace = scope.trace
        self._turn = turn
        self._pipe = pipe
        self._sink = sink
        self._unwritten = b""  # what the sink could not take without waiting
        self._is_ending = False

    async def run(self) -> Flow | None:
        try:
            return await self._run()
        finally:
            if not self._is_ending:
                self._note_result()

    async def _run(self) -> Flow | None:
        turn, pipe = self._turn, self._pipe
        flow: Flow | None = None
        answer = await turn.send_request(self._services.transport)
        if is_json(answer):
            data = pipe.write_events(await turn.read_response_as_events(answer))
        else:
            flow = turn.body_flow(answer)
            while not await flow(self._take_piece) and not pipe.has_ended:
                await self._sink.write(self._unwritten)
                self._unwritten = b""
            data = b"" if pipe.has_ended else pipe.finish()
        if pipe.error is not None and not self._sink.has_started:
            raise pipe.error.without_traceback()
        await self._end(data)
        return None if pipe.is_cut_off else flow

    async def deliver(self, events: Iterable[StreamEvent]) -> None:
        await self._end(self._pipe.write_events(events))

    async def fail(self, error: ApiError) -> bool:
        has_response = self._pipe.has_ended and self._pipe.error is None
        if self._is_ending or not (self._sink.has_started or has_response):
            return False
        await self._end(self._pipe.finish(error))
        return True

    async def abandon(self) -> None:
        await record_abandoned_turn(self._services, self._turn, self._pipe)
        self._note_result()

    def _note_result(self) -> None:
        losses = self._pipe.losses
        self._log_entry.losses = len(losses)
        if self._trace is not None:
            self._trace.record_losses(losses)
        if self._pipe.response is not None:
            self._log_entry.note_response(self._pipe.response, self._pipe.event_count)

    def _take_piece(self, piece: bytes) -> bool:
        """Passes a piece of the upstream's body on. The flow stops if the sink cannot take the result without waiting,
        and at the end of the answer, because the response may have to be saved."""
        data = self._pipe.feed(piece)
        if not self._pipe.has_ended:
            if not data:
                return True
            if self._log_entry.first_event_ms is None:
                self._log_entry.note_first_event()
            if self._sink.try_write(data):
                return True
        self._unwritten = data
        return False

    async def _end(self, data: bytes) -> None:
        self._is_ending = True
        self._log_entry.note_first_event()
        data = self._pipe.join((self._unwritten, data))
        if data and self._pipe.is_holding_end and self._sink.try_write(data):
            data = b""  # the client has everything but the terminal event while the response is stored
        last, stored_turn = await record_turn(self._services, self._turn, self._pipe)
        self._note_result()
        await self._sink.end(self._pipe.join((data, last)), stored_turn)


class WholeTurn:
    """A turn whose answer is written in one piece."""

    def __init__(self, services: GatewayContext, turn: UpstreamTurn) -> None:
        self._services = services
        self._turn = turn

    async def run(self) -> Response:
        return await self._turn.read_response(await self._turn.send_request(self._services.transport))

    async def fail(self, error: ApiError) -> bool:
        del error
        return False

    async def abandon(self) -> None:
        await record_abandoned_turn(self._services, self._turn, None)


async def record_turn(services: GatewayContext, turn: UpstreamTurn, pipe: Pipe) -> tuple[bytes, StoredTurn | None]:
    """Stores the response, then returns the end of the stream and the stored turn. If storing fails, the stream ends
    with a failure."""
    if turn.recorder is None or pipe.recorded_response is None:
        return b"", None
    try:
        stored_turn = await turn.recorder.save(pipe.recorded_response)
    except StorageUnavailable as error:
        services.logger.fault("a response could not be stored", error, response_id=turn.initial_response.id)
        return (pipe.fail(error) if pipe.is_holding_end else b""), None
    return pipe.release(), stored_turn


async def record_abandoned_turn(services: GatewayContext, turn: UpstreamTurn, pipe: Pipe | None) -> None:
    """Stores the turn of a client that disconnected as a failed response, so that every started turn has an end. Aborts
    the upstream first."""
    turn.abort()
    if turn.recorder is None or turn.recorder.has_started:
        return
    error = ApiError("the client disconnected before the end", code="client_disconnected")
    response: Response | None = None
    if pipe is not None:
        pipe.finish(error)
        response = pipe.recorded_response
    if response is None or response.status != ResponseStatus.FAILED:
        failure = Error(code=error.code, message=error.message)
        response = replace(
            response or turn.initial_response, status=ResponseStatus.FAILED, completed_at=None, error=failure
        )
    try:
        await turn.recorder.save(response)
    except StorageUnavailable as storage_error:
        services.logger.fault("a response could not be stored", storage_error, response_id=turn.initial_response.id)


async def drain_upstream(turn: UpstreamTurn, flow: Flow) -> None:
    """Reads the upstream's body to its end, so that its connection can be reused."""
    if turn.has_complete_response:
        return
    timer = asyncio.get_running_loop().call_later(DRAIN_TIMEOUT, turn.abort)
    with suppress(ApiError):
        await flow(_discard_piece)
    timer.cancel()


def _discard_piece(piece: bytes) -> bool:
    del piece
    return True


def violation_reporter(services: GatewayContext, request_id: str) -> Callable[[Violation], None] | None:
    """`serve --debug`: logs grammar violations of our own streams."""
    if not services.debug:
        return None

    def report(violation: Violation) -> None:
        services.logger.event(
            "grammar_violation",
            request_id=request_id,
            row=violation.row,
            message=violation.message,
            sequence=violation.sequence,
        )

    return report


DRAIN_TIMEOUT: Final = 0.5  # seconds that an upstream has to end its body after the terminal event
