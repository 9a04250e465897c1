"""`/v1/responses` over a WebSocket: one turn at a time, each a `response.create` message answered by its events.

The connection remembers the newest response, so that a client without stored responses can continue it. Messages that
arrive during a turn wait in a short queue; while it is full, nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from antiphon.api.request_options import (
    agent_session,
    requested_strictness,
    requested_style,
    wants_loss_events,
)
from antiphon.dialects import responses
from antiphon.dialects.responses.stream_out import MESSAGE_END
from antiphon.errors import ApiError, ClientFault, InvalidJson
from antiphon.gateway.client_body import ClientBody, InvalidMessage
from antiphon.gateway.history import HistorySource, PastTurns, past_turns_of
from antiphon.gateway.ids import new_id
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.prepare_turn import PreparedTurn, TurnPreparer, prepare_turn
from antiphon.gateway.request_scope import RequestLog, RequestScope, run_in_scope, shutdown_error
from antiphon.gateway.run_turn import deliver_events, drain_upstream, run_turn, violation_reporter
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import TurnOutline
from antiphon.http.access_policy import Caller
from antiphon.http.asgi import Scope, first_header
from antiphon.http.websocket import WebSocket
from antiphon.ops.services import Services
from antiphon.protocol.events import ResponseCompleted, ResponseCreated, ResponseInProgress, StreamEvent
from antiphon.protocol.status import ResponseStatus
from antiphon.store.interface import StoredTurn
from antiphon.upstream.transport import Flow

Authenticate = Callable[[Scope], Caller]  # the owner of the key of a connection; raises if the key is not valid
LIFETIME_CODE: Final = "websocket_connection_limit_reached"
CLOSE_CODES: Final = {"server_shutdown": 1001, "invalid_api_key": 1008}  # RFC 6455, 7.4.1
MAX_QUEUED_MESSAGES: Final = 8  # messages in the queue
MAX_QUEUED_BYTES: Final = 1024 * 1024  # bytes in the queue; a single message may be larger


def responses_websocket(services: Services, authenticate: Authenticate) -> Callable[[WebSocket], None]:
    """The endpoint for WebSockets. `authenticate` checks the key of a connection again after a reload."""

    def open_connection(socket: WebSocket) -> None:
        ResponsesConnection(services, socket, authenticate)

    return open_connection


class ResponsesConnection:
    """The turns of one WebSocket."""

    def __init__(self, services: Services, socket: WebSocket, authenticate: Authenticate) -> None:
        self._services = services
        self._authenticate = authenticate
        self._socket = socket
        self._newest_id: str | None = None  # WS-5: the response that can be continued here without being stored
        self._past_turns: PastTurns | None = None  # that response with its history; None if the store has all of it
        self._queued_messages: deque[bytes | ApiError] = deque()
        self._turn_task: asyncio.Task[None] | None = None
        self._drain_tasks: set[asyncio.Task[None]] = set()  # they read upstreams to their end
        self._stop_error: ApiError | None = None  # if set, no more turns are accepted
        self._is_closed = False
        services.process.open_websockets += 1
        socket.on_message = self._enqueue
        socket.on_binary = self._on_binary
        socket.on_lifetime_exceeded = self._on_lifetime_exceeded
        socket.on_shutdown = self._on_shutdown
        socket.on_closed = self._on_closed

    # Callbacks of the socket

    def _on_binary(self) -> None:
        self._enqueue(InvalidJson("expected JSON in a text message, got a binary message"))

    def _on_lifetime_exceeded(self) -> None:
        """WS-9."""
        self._stop(
            ClientFault(
                "this connection has reached its maximum age of one hour: open a new one",
                code=LIFETIME_CODE,
            )
        )

    def _on_shutdown(self) -> None:
        self._services.start_shutdown()
        self._stop(shutdown_error())
        if self._turn_task is not None:
            asyncio.get_running_loop().call_later(self._services.config.server.grace, self._turn_task.cancel)

    def _on_closed(self) -> None:
        """WS-12."""
        self._is_closed = True
        self._services.process.open_websockets -= 1
        self._queued_messages.clear()
        if self._turn_task is not None:
            self._turn_task.cancel()

    # One turn after the other (WS-4)

    def _enqueue(self, message: bytes | ApiError) -> None:
        self._queued_messages.append(message)
        if self._is_queue_full():
            self._socket.pause()
        self._start_next_turn()

    def _is_queue_full(self) -> bool:
        queued_bytes = sum(len(message) for message in self._queued_messages if isinstance(message, bytes))
        return len(self._queued_messages) >= MAX_QUEUED_MESSAGES or queued_bytes >= MAX_QUEUED_BYTES

    def _start_next_turn(self) -> None:
        if self._turn_task is not None or self._is_closed:
            return
        if self._stop_error is not None:
            self._close_with_error(self._stop_error)
        elif self._queued_messages:
            message = self._queued_messages.popleft()
            if not self._is_queue_full():
                self._socket.resume()
            self._turn_task = asyncio.get_running_loop().create_task(self._run_turn(message))
            self._turn_task.add_done_callback(self._on_turn_done)

    def _on_turn_done(self, task: asyncio.Task[None]) -> None:
        self._turn_task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.logger.fault("a turn failed inside the gateway", error, request_id=self._socket.id)
        self._start_next_turn()

    def _stop(self, error: ApiError) -> None:
        """Starts no further turn. The turn in flight may finish."""
        self._stop_error = self._stop_error or error
        self._start_next_turn()

    def _close_with_error(self, error: ApiError) -> None:
        """Sends an error for each waiting turn (WS-3). WS-9 requires at least one error; otherwise an idle
        client gets none, which it could take for the end of its next turn."""
        is_lifetime_exceeded = error.code == LIFETIME_CODE
        for _ in range(max(len(self._queued_messages), 1 if is_lifetime_exceeded else 0)):
            self.send_error(error)
        self._queued_messages.clear()
        self._socket.close(CLOSE_CODES.get(error.code, 1000), error.code)

    async def _run_turn(self, message: bytes | ApiError) -> None:
        services = self._services.process.current  # a turn begins with the newest configuration
        is_reloaded = services is not self._services
        self._services = services
        id = new_id("req")
        log_entry = RequestLog(
            request_id=id, method="WEBSOCKET", path=self._socket.scope["path"], owner=self._socket.owner
        )
        trace = services.traces.start_trace(id) if services.traces is not None else None
        if services.telemetry is not None:
            log_entry.traceparent = first_header(self._socket.scope, b"traceparent").decode("latin-1")
        delivery = WebSocketTurn(self, RequestScope(log_entry, trace))
        services.process.requests_in_flight += 1
        try:
            work = self._run_message(services, delivery, message, is_reloaded=is_reloaded)
            del message  # frees memory during a long answer
            await run_in_scope(services, delivery.scope, delivery, work)
        finally:
            services.process.requests_in_flight -= 1

    async def _run_message(
        self, services: Services, delivery: WebSocketTurn, message: bytes | ApiError, *, is_reloaded: bool
    ) -> None:
        if self._socket.is_write_paused:  # a client that does not read its answers gets no further turn
            await self._socket.wait_until_writable()
        if is_reloaded:
            self._check_key()
        if isinstance(message, ApiError):
            raise message.without_traceback()
        with services.admission.admit(self._socket.owner):
            turn = delivery.run(message)
            del message  # frees memory during a long answer
            await turn

    def _check_key(self) -> None:
        """Refuses the turn, and all further ones, if a reload removed the key of the connection or gave it to another
        owner."""
        try:
            if self._authenticate(self._socket.scope).owner != self._socket.owner:
                message = "the key of this connection has another owner now: open a new connection"
                raise ClientFault(message, code="invalid_api_key", status=401)
        except ClientFault as error:
            self._stop_error = error.without_traceback()
            raise

    def send_error(self, error: ApiError) -> bytes:
        """Sends an error and returns the message."""
        status, body = responses.error_from_hub(error)
        message = b'{"type":"error","status":%d,%b' % (status, body[1:])
        self._socket.send(message)
        return message

    # For `WebSocketTurn`

    @property
    def services(self) -> Services:
        return self._services

    @property
    def socket(self) -> WebSocket:
        return self._socket

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def history_source(self, outline: TurnOutline) -> HistorySource:
        """WS-6: with `store: false`, only the response of this connection can be continued. WS-8: stored responses can
        be continued anywhere, and so can conversations, which are always stored."""
        is_stored = (
            self._newest_id is not None and self._past_turns is None and outline.previous_response_id == self._newest_id
        )
        store = self._services.store if outline.is_stored or is_stored or outline.has_conversation else None
        return HistorySource(
            owner=self._socket.owner,
            store=store,
            limit=self._services.max_body,
            find_local_turns=self._find_local_turns,
        )

    def _find_local_turns(self, id: str) -> PastTurns | None:
        return self._past_turns if id == self._newest_id else None

    def has_only_copy(self, id: str | None) -> bool:
        """Whether this connection has the only copy of a response."""
        return self._past_turns is not None and id == self._newest_id

    def remember(self, id: str, turns: PastTurns | None) -> None:
        """WS-5: replaces the remembered response by the newest. Stored responses are not copied here, so that a deleted
        response cannot be continued (PREV-3)."""
        self._newest_id, self._past_turns = id, turns

    def forget(self, previous_id: str | None) -> None:
        """WS-7: after a failed turn, forgets the response that it continued."""
        if previous_id is not None and previous_id == self._newest_id:
            self._newest_id = self._past_turns = None

    def drain_later(self, turn: UpstreamTurn, flow: Flow) -> None:
        """Reads the last bytes of the upstream in a task, so that the next turn does not wait for them."""
        task = asyncio.get_running_loop().create_task(drain_upstream(turn, flow))
        self._drain_tasks.add(task)
        task.add_done_callback(self._drain_tasks.discard)


class WebSocketTurn:
    """One turn of a WebSocket: its requester, and the sink of its events."""

    def __init__(self, connection: ResponsesConnection, scope: RequestScope) -> None:
        self.scope = scope
        self._previous_id: str | None = None  # the response that the turn continues
        self._connection = connection
        self._services = connection.services
        self._socket = connection.socket
        self._log_entry = scope.log_entry
        self._trace = scope.trace
        self._past_turns: PastTurns | None = None  # None: the store has the response and its history
        self._prepared_turn: PreparedTurn | None = None

    async def run(self, message: bytes) -> None:
        asgi_scope = self._socket.scope
        if self._trace is not None:
            self._trace.record_client_request("WEBSOCKET", asgi_scope["path"], asgi_scope["headers"], message)
        style = requested_style(asgi_scope, self._socket.key_style, self._services.config.server.style)
        prepared_turn = await self._prepare_turn(message)
        del message  # frees the history during a long answer
        turn, is_warm_up = prepared_turn.turn, prepared_turn.is_warm_up
        is_stored = turn.prepared.request.store is True and not self._connection.has_only_copy(self._previous_id)
        self._past_turns = None if is_stored else prepared_turn.past_turns
        prepared_turn.past_turns = []
        reports_losses = wants_loss_events(asgi_scope)

        def make_pipe(turn: UpstreamTurn) -> Pipe:
            return turn.make_pipe(
                responses.EventsFromHub(turn.prepared.request, style=style, framing="websocket"),
                reports_losses=reports_losses,
                on_violation=violation_reporter(self._services, self.scope.id),
                separator=MESSAGE_END,
            )

        self._prepared_turn = prepared_turn
        if self._trace is not None:
            self._trace.record_note("style", style)
        flow: Flow | None = None
        try:
            if is_warm_up:
                await deliver_events(self._services, self.scope, prepared_turn, make_pipe, self, _warm_up(turn))
            else:
                flow = await run_turn(self._services, self.scope, prepared_turn, make_pipe, self)
        finally:
            if flow is None:
                prepared_turn.turn.abort()
        if flow is not None:
            self._connection.drain_later(prepared_turn.turn, flow)

    # The requester

    async def respond_with_error(self, error: ApiError) -> None:
        """WS-3, WS-10: ends a turn that failed before its first event."""
        self._log_entry.error, self._log_entry.status = error.code, error.status
        self._connection.forget(self._previous_id)
        message = self._connection.send_error(error)
        if self._trace is not None:
            self._trace.record_client_head(error.status, [])
            self._trace.record_client_piece(message)

    async def interruption_error(self) -> ApiError | None:
        return None if self._connection.is_closed else shutdown_error()

    @property
    def is_disconnected(self) -> bool:
        return self._connection.is_closed

    # The sink

    @property
    def has_started(self) -> bool:
        return self._log_entry.status is not None

    def try_write(self, data: bytes) -> bool:
        if self._socket.is_write_paused:
            return False
        self._send(data)
        return True

    async def write(self, data: bytes) -> None:
        await self._socket.wait_until_writable()
        self._send(data)

    async def end(self, data: bytes, stored_turn: StoredTurn | None) -> None:
        pipe = None if self._prepared_turn is None else self._prepared_turn.pipe
        response = None if pipe is None else pipe.response
        if response is None or response.status == ResponseStatus.FAILED or stored_turn is None:
            self._connection.forget(self._previous_id)
        elif self._past_turns is None:
            self._connection.remember(stored_turn.id, None)
        else:
            self._connection.remember(stored_turn.id, [*self._past_turns, *past_turns_of(stored_turn)])
        self._send(data)

    def _send(self, data: bytes) -> None:
        if not data:
            return
        if self._log_entry.status is None:
            self._log_entry.status = 200
            if self._trace is not None:
                self._trace.record_client_head(200, [])  # the head that an HTTP stream would have
        for message in data.split(MESSAGE_END):
            self._socket.send(message)
        if self._trace is not None:
            self._trace.record_client_piece(data + MESSAGE_END)

    async def _prepare_turn(self, message: bytes) -> PreparedTurn:
        try:
            preparer = TurnPreparer(
                self._services,
                ClientBody(content=message, form="message"),
                self._find_history_source,
                self._log_entry,
                self._trace,
                keeps_history=True,
                strict=requested_strictness(self._socket.scope),
                find_session=partial(agent_session, self._socket.scope),
            )
            return await prepare_turn(preparer)
        except InvalidMessage as fault:
            self._previous_id = fault.previous_id
            raise fault.error.without_traceback() from None

    def _find_history_source(self, outline: TurnOutline) -> HistorySource:
        self._previous_id = outline.previous_response_id
        return self._connection.history_source(outline)


def _warm_up(turn: UpstreamTurn) -> list[StreamEvent]:
    """`generate: false`: stores the input without calling the upstream, so that a client can send input in advance."""
    initial_response = turn.initial_response
    done = replace(initial_response, status=ResponseStatus.COMPLETED, completed_at=initial_response.created_at)
    return [
        ResponseCreated(sequence_number=0, response=initial_response),
        ResponseInProgress(sequence_number=1, response=initial_response),
        ResponseCompleted(sequence_number=2, response=done),
    ]
