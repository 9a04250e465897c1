"""Runs a prepared turn: sends it to the upstream, passes the answer to a sink piece by piece, and records the response
before the client receives its end. HTTP, WebSocket and background work differ only in their sinks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from antiphon.errors import ApiError, ClientFault, StorageUnavailable
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.pipe import MAX_OUTPUT_BYTES, REFUSAL_REASONS, Pipe
from antiphon.gateway.prepare_turn import PreparedTurn
from antiphon.gateway.request_scope import RequestScope
from antiphon.gateway.routing.attempts import Attempt, TurnAttempts
from antiphon.gateway.routing.failures import model_refusal
from antiphon.gateway.routing.records import AttemptRecord
from antiphon.gateway.turn import UpstreamTurn, is_json
from antiphon.protocol.content import Refusal
from antiphon.protocol.errors import Error
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.grammar import Violation
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.store.interface import StoredTurn
from antiphon.upstream.transport import Flow

T = TypeVar("T")
MakePipe = Callable[[UpstreamTurn], Pipe]  # the client's pipe for the turn of an attempt


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
    services: GatewayContext, scope: RequestScope, prepared_turn: PreparedTurn, make_pipe: MakePipe, sink: Sink
) -> Flow | None:
    """Runs a turn to its end. Returns the rest of the upstream's body, if it should be read (`drain_upstream`)."""
    return await StreamedTurn(services, scope, prepared_turn, make_pipe).run(sink)


async def deliver_events(
    services: GatewayContext,
    scope: RequestScope,
    prepared_turn: PreparedTurn,
    make_pipe: MakePipe,
    sink: Sink,
    events: Iterable[StreamEvent],
) -> None:
    """Delivers and records a turn that needs no upstream."""
    await StreamedTurn(services, scope, prepared_turn, make_pipe).deliver(sink, events)


class StreamedTurn:
    """A turn whose answer is written in pieces. While another target may still be asked, nothing is written before the
    first content of the answer."""

    def __init__(
        self, services: GatewayContext, scope: RequestScope, prepared_turn: PreparedTurn, make_pipe: MakePipe
    ) -> None:
        self._services = services
        self._scope = scope
        self._log_entry = scope.log_entry
        self._trace = scope.trace
        self._prepared_turn = prepared_turn
        self._attempts = prepared_turn.attempts
        self._make_pipe = make_pipe
        self._sink: Sink
        self._pipe: Pipe  # of the current attempt
        self._unwritten: bytes  # what is held back, or the sink could not take without waiting
        self._failure: ApiError | None  # why the answer of the current attempt is not accepted
        self._is_holding_back: bool
        self._is_committed = False  # some of the answer was written
        self._is_ending = False
        self._start_attempt()

    def _start_attempt(self) -> None:
        """Makes the pipe of the current attempt."""
        turn = self._prepared_turn
        self._pipe = turn.pipe = self._make_pipe(turn.turn)
        self._unwritten, self._failure = b"", None
        self._is_holding_back = turn.is_held_back = self._attempts.may_ask_another(self._services.router.clock())

    async def run(self, sink: Sink) -> Flow | None:
        self._sink = sink
        self._scope.turn = self
        try:
            while True:
                self._attempts.begin(self._services.router.clock())
                try:
                    return await self._run_attempt()
                except ApiError as error:
                    failure = error.without_traceback()
                if not await self._replace_attempt(failure):
                    await self._end_failed(failure)
                    return None
        finally:
            self._attempts.abandon(self._services.router.clock())
            self._prepared_turn.release()
            if not self._is_ending:
                self._note_result()

    async def _run_attempt(self) -> Flow | None:
        turn, pipe = self._prepared_turn.turn, self._pipe
        flow: Flow | None = None
        answer = await turn.send_request(self._services.transport)
        if is_json(answer):
            data = pipe.write_events(await turn.read_response_as_events(answer))
        else:
            flow = turn.body_flow(answer)
            while not await flow(self._take_piece) and self._failure is None:
                await self._write_backlog()
                if pipe.has_ended:
                    break
                await self._sink.write(self._unwritten)
                self._unwritten = b""
            data = b"" if pipe.has_ended or self._failure is not None else pipe.finish()
        failure = pipe.error or self._failure or self._find_refusal()
        if failure is not None and not self._is_committed:
            self._unwritten = pipe.join((self._unwritten, data))
            failure.was_paid = pipe.has_content
            raise failure.without_traceback()
        self._attempts.finish(pipe.error, self._services.router.clock())
        if pipe.error is None:
            self._prepared_turn.note_answer(self._services)
        await self._end(data)
        return None if pipe.is_cut_off else flow

    async def _replace_attempt(self, error: ApiError) -> bool:
        """Prepares another attempt after a failure; False if there is none, or some of the answer was written."""
        now = self._services.router.clock()
        if self._is_committed:
            self._attempts.finish(error, now)
            return False
        record, pipe = self._attempts.records[-1], self._pipe
        _note_billed_tokens(record, error)
        if not await prepare_next_attempt(self._services, self._scope, self._prepared_turn, error):
            return False  # the usage of the last attempt is that of the turn
        if not pipe.has_ended:
            pipe.finish(error)  # the usage so far
        _note_usage(record, pipe.response)
        self._start_attempt()
        if self._sink.has_started:
            self._pipe.report_no_losses_in_head()
        return True

    async def _end_failed(self, error: ApiError) -> None:
        """Ends a turn whose last attempt failed. If the client has a part of the answer, the failure is another."""
        self._is_holding_back = self._prepared_turn.is_held_back = False
        if self._pipe.error is not None and self._sink.has_started:
            await self._end(b"")
            return
        if not self._sink.has_started and not self._pipe.has_ended:
            data = self._pipe.finish(error)  # with the usage so far
            if self._pipe.error is None:  # the answer was complete before the connection failed
                await self._end(data)
                return
        raise error.without_traceback() if self._is_committed else self._attempts.final_error()

    async def deliver(self, sink: Sink, events: Iterable[StreamEvent]) -> None:
        self._sink = sink
        self._scope.turn = self
        self._prepared_turn.release()
        await self._end(self._pipe.write_events(list(events)))

    async def fail(self, error: ApiError) -> bool:
        has_response = self._pipe.has_ended and self._pipe.error is None
        if self._is_ending or not (self._sink.has_started or has_response):
            return False
        await self._end(self._pipe.finish(error))
        return True

    async def abandon(self) -> None:
        await record_abandoned_turn(self._services, self._prepared_turn.turn, self._pipe)
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
        if self._is_holding_back:
            data = self._pipe.join((self._unwritten, data))
            self._unwritten = b""
            if not self._release(data):
                self._unwritten = data
                return self._failure is None and not self._pipe.has_ended
        if not self._pipe.has_ended:
            if not data and not self._pipe.has_backlog:
                return True
            if not self._is_committed:
                self._commit()
            if not self._pipe.has_backlog and self._sink.try_write(data):
                return True
        self._unwritten = data
        return False

    def _release(self, data: bytes) -> bool:
        """Decides whether what was held back can be written."""
        if self._pipe.is_refusal and self._attempts.handles_refusals:
            # It is read to its end, which has what the server billed.
            self._failure = model_refusal() if len(data) > MAX_HELD_BYTES else None
            return False
        if self._pipe.error is not None or (not self._pipe.has_content and len(data) <= MAX_HELD_BYTES):
            return False
        self._is_holding_back = self._prepared_turn.is_held_back = False
        return True

    def _find_refusal(self) -> ApiError | None:
        """A refusal in an answer that was not streamed."""
        return model_refusal() if self._pipe.is_refusal and self._attempts.handles_refusals else None

    def _commit(self) -> None:
        """Some of the answer is written: no other target is asked from now on."""
        self._is_committed = True
        self._is_holding_back = self._prepared_turn.is_held_back = False
        self._prepared_turn.release()
        self._log_entry.note_first_event()
        self._attempts.note_first_content(self._services.router.clock())

    async def _write_backlog(self) -> None:
        """Writes what the pipe has left over from a large answer, each piece in a step of its own, so that others are
        served in between. The last piece remains unwritten."""
        while self._pipe.has_backlog:
            if not self._is_committed:
                self._commit()
            await self._sink.write(self._unwritten)
            await asyncio.sleep(BACKLOG_PAUSE if len(self._unwritten) > MAX_OUTPUT_BYTES else 0)
            self._unwritten = self._pipe.write_backlog()

    async def _end(self, data: bytes) -> None:
        self._unwritten = self._pipe.join((self._unwritten, data))
        del data  # it may be large
        await self._write_backlog()
        self._is_ending = True
        self._is_holding_back = self._prepared_turn.is_held_back = False
        self._log_entry.note_first_event()
        data, self._unwritten = self._unwritten, b""
        if data and self._pipe.is_holding_end and self._sink.try_write(data):
            data = b""  # the client has everything but the terminal event while the response is stored
        last, stored_turn = await record_turn(self._services, self._prepared_turn.turn, self._pipe)
        self._note_result()
        if data and len(last) > MAX_OUTPUT_BYTES:
            await self._sink.write(data)
            data = b""  # it is not joined with a large piece, which would copy that
        self._unwritten = self._pipe.join((data, last))
        await self._write_backlog()  # the rest of a large terminal event
        data, self._unwritten = self._unwritten, b""
        await self._sink.end(data, stored_turn)


class WholeTurn:
    """A turn whose answer is written in one piece."""

    def __init__(self, services: GatewayContext, scope: RequestScope, prepared_turn: PreparedTurn) -> None:
        self._services = services
        self._scope = scope
        self._prepared_turn = prepared_turn

    async def run(self) -> Response:
        self._scope.turn = self
        attempts, clock = self._prepared_turn.attempts, self._services.router.clock
        try:
            while True:
                attempts.begin(clock())
                turn = self._prepared_turn.turn
                if attempts.handles_refusals:
                    turn.check_response = self._refuse_refusal
                try:
                    response = await turn.read_response(await turn.send_request(self._services.transport))
                except ApiError as error:
                    failure = error.without_traceback()
                    _note_billed_tokens(attempts.records[-1], failure)
                else:
                    now = clock()
                    attempts.finish_whole(now)
                    self._prepared_turn.note_answer(self._services)
                    return response
                if not await prepare_next_attempt(self._services, self._scope, self._prepared_turn, failure):
                    raise attempts.final_error()
        finally:
            if attempts.is_running:
                attempts.abandon(clock())
            self._prepared_turn.release()

    def _refuse_refusal(self, response: Response) -> None:
        if is_refusal(response):
            _note_usage(self._prepared_turn.attempts.records[-1], response)
            raise model_refusal()

    async def fail(self, error: ApiError) -> bool:
        del error
        return False

    async def abandon(self) -> None:
        await record_abandoned_turn(self._services, self._prepared_turn.turn, None)


async def run_attempts(
    services: GatewayContext,
    scope: RequestScope,
    attempts: TurnAttempts,
    ask: Callable[[Attempt], Awaitable[T]],
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Calls `ask` with attempt after attempt until one answers. It is for requests that are no turns of their own.
    `prepare` is called before each attempt and may skip its target."""
    clock = services.router.clock
    try:
        while True:
            if prepare is not None:
                await prepare()
            attempts.begin(clock())
            try:
                result = await ask(attempts.current)
            except ApiError as error:
                failure = error.without_traceback()
            else:
                attempts.finish(None, clock())
                return result
            attempt = attempts.fail(failure, clock())
            if attempt is None:
                raise attempts.final_error()
            log_failed_attempt(services, scope, attempts.records[-1])
            await asyncio.sleep(attempt.delay)
    finally:
        attempts.abandon(clock())


async def prepare_next_attempt(
    services: GatewayContext, scope: RequestScope, prepared_turn: PreparedTurn, error: ApiError
) -> bool:
    """Prepares the turn for another target after a failure; False if no other can be asked."""
    attempts, clock = prepared_turn.attempts, services.router.clock
    prepared_turn.turn.abort()
    attempt = attempts.fail(error, clock())
    if prepared_turn.preparer is None:
        return False
    log_failed_attempt(services, scope, attempts.records[-1])
    while attempt is not None:
        if attempt.delay:
            await asyncio.sleep(attempt.delay)
        try:
            await prepared_turn.prepare_next()
        except ClientFault:
            attempt = attempts.skip(clock())
        else:
            return True
    scope.log_entry.upstream = attempts.records[-1].upstream  # those that were skipped were not asked
    return False


def log_failed_attempt(services: GatewayContext, scope: RequestScope, record: AttemptRecord) -> None:
    """Notes in the log and in the trace that another target is asked, and why."""
    services.logger.event(
        "attempt_failed",
        level="warning",
        request_id=scope.id,
        attempt=record.number,
        upstream=record.upstream,
        model=record.model,
        kind=record.outcome,
        code=record.error,
        duration_ms=record.duration_ms,
    )
    if scope.trace is not None:
        summary = f"{record.number} {record.upstream}: {record.outcome}, {record.error}"
        scope.trace.record_note("attempt_failed", summary)


def _note_usage(record: AttemptRecord, response: Response | None) -> None:
    """Notes what a failed attempt was billed, if its server reported it."""
    if response is not None and response.usage is not None:
        record.input_tokens, record.output_tokens = response.usage.input_tokens, response.usage.output_tokens


def _note_billed_tokens(record: AttemptRecord, error: ApiError) -> None:
    """The same for an answer that was not streamed, whose error has the tokens."""
    if error.billed_tokens is not None:
        record.input_tokens, record.output_tokens = error.billed_tokens


def is_refusal(response: Response) -> bool:
    """Whether a whole answer is a refusal only, or was broken off by one."""
    parts = [part for item in response.output if isinstance(item, Message) for part in item.content]
    has_other_content = any(not isinstance(item, Message | Reasoning) for item in response.output)
    details = response.incomplete_details
    # The client has received nothing yet, so a text that the server broke off can be replaced too.
    is_filtered = details is not None and details.reason in REFUSAL_REASONS and not has_other_content
    has_refusal_only = bool(parts) and not has_other_content and all(isinstance(part, Refusal) for part in parts)
    return is_filtered or has_refusal_only


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
        while pipe.has_backlog:
            pipe.write_backlog()
            await asyncio.sleep(0)  # a large answer has many pieces
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


MAX_HELD_BYTES: Final = 1024 * 1024  # bytes that are held back at most; more are written
DRAIN_TIMEOUT: Final = 0.5  # seconds that an upstream has to end its body after the terminal event
#: Seconds after a large piece of an answer. Another request needs some steps of the event loop, and would otherwise
#: wait for a large piece in each.
BACKLOG_PAUSE: Final = 0.01
