"""`/v1/responses` over a WebSocket: one turn at a time, each a `response.create` message answered by its events.

The connection remembers the newest response, so that a client without stored responses can continue it. Messages that
arrive during a turn wait in a short queue; while it is full, nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.api.request_options import requested_strictness, requested_style, wants_loss_events
from antiphon.dialects import responses
from antiphon.dialects.responses.events_from_hub import MESSAGE_END, EventStyle
from antiphon.errors import ApiError, ClientFault, InvalidJson, MissingField
from antiphon.gateway.history import HistorySource, PastTurns, past_turns_of
from antiphon.gateway.ids import new_id
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.request_log import RequestLog
from antiphon.gateway.turn import UpstreamTurn, is_json
from antiphon.gateway.turn_lifecycle import (
    drain_upstream,
    finish_turn,
    prepare_turn,
    record_abandoned_turn,
    shutdown_error,
    violation_reporter,
)
from antiphon.http.asgi import first_header
from antiphon.http.body import ClientDisconnected
from antiphon.http.websocket import WebSocket
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCompleted, ResponseCreated, ResponseInProgress, StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request
from antiphon.protocol.status import ResponseStatus
from antiphon.trace.writer import Trace
from antiphon.upstream.transport import Flow

MAX_WAITING: Final = 8  # messages in the queue
MAX_WAITING_BYTES: Final = 1024 * 1024  # bytes in the queue; a single message may be larger


def responses_websocket(services: Services) -> Callable[[WebSocket], None]:
    """The endpoint for WebSockets."""

    def open_connection(socket: WebSocket) -> None:
        ResponsesConnection(services, socket)

    return open_connection


class ResponsesConnection:
    """The turns of one WebSocket."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self._socket = socket
        self._newest_id: str | None = None  # WS-5: the response that can be continued here without being stored
        self._turns: PastTurns | None = None  # that response with its history; None if the store has all of it
        self._waiting: deque[bytes | ApiError] = deque()
        self._running: asyncio.Task[None] | None = None
        self._drain_tasks: set[asyncio.Task[None]] = set()  # they read upstreams to their end
        self._stop_error: ApiError | None = None  # if set, no more turns are accepted
        self._is_closed = False
        services.open_websockets += 1
        socket.on_message = self._on_message
        socket.on_binary = self._on_binary
        socket.on_lifetime_exceeded = self._on_lifetime_exceeded
        socket.on_shutdown = self._on_shutdown
        socket.on_closed = self._on_closed

    # Callbacks of the socket

    def _on_message(self, text: str) -> None:
        self._enqueue(text.encode())

    def _on_binary(self) -> None:
        self._enqueue(InvalidJson("got a binary message, expected JSON in a text message"))

    def _on_lifetime_exceeded(self) -> None:
        """WS-9."""
        self._stop(
            ClientFault(
                "this connection has lived for an hour, which is the limit: open another",
                code="websocket_connection_limit_reached",
            )
        )

    def _on_shutdown(self) -> None:
        self._services.start_shutdown()
        self._stop(shutdown_error())
        if self._running is not None:
            asyncio.get_running_loop().call_later(self._services.config.server.grace, self._running.cancel)

    def _on_closed(self) -> None:
        """WS-12."""
        self._is_closed = True
        self._services.open_websockets -= 1
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()

    # One turn after the other (WS-4)

    def _enqueue(self, message: bytes | ApiError) -> None:
        self._waiting.append(message)
        if self._is_full():
            self._socket.pause()
        self._start_next_turn()

    def _is_full(self) -> bool:
        waiting_bytes = sum(len(message) for message in self._waiting if isinstance(message, bytes))
        return len(self._waiting) >= MAX_WAITING or waiting_bytes >= MAX_WAITING_BYTES

    def _start_next_turn(self) -> None:
        if self._running is not None or self._is_closed:
            return
        if self._stop_error is not None:
            self._close_with_error(self._stop_error)
        elif self._waiting:
            message = self._waiting.popleft()
            if not self._is_full():
                self._socket.resume()
            self._running = asyncio.get_running_loop().create_task(self._turn(message))
            self._running.add_done_callback(self._on_turn_done)

    def _on_turn_done(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.logger.fault("a turn failed inside the gateway", error, request_id=self._socket.id)
        self._start_next_turn()

    def _stop(self, error: ApiError) -> None:
        """Starts no further turn. The turn in flight may finish."""
        self._stop_error = self._stop_error or error
        self._start_next_turn()

    def _close_with_error(self, error: ApiError) -> None:
        """Sends an error for each waiting turn (WS-3). WS-9 requires at least one error; a server that stops sends none
        to an idle client, which could take it for the end of its next turn."""
        is_stopping = error.code == "server_shutdown"
        for _ in range(max(len(self._waiting), 0 if is_stopping else 1)):
            self._send_error(error)
        self._waiting.clear()
        self._socket.close(1001 if is_stopping else 1000, error.code)

    async def _turn(self, message: bytes | ApiError) -> None:
        services = self._services
        id = new_id("req")
        log_entry = RequestLog(
            request_id=id, method="WEBSOCKET", path=self._socket.scope["path"], owner=self._socket.owner
        )
        trace = services.traces.start_trace(id) if services.traces is not None else None
        if services.telemetry is not None:
            log_entry.traceparent = first_header(self._socket.scope, b"traceparent").decode("latin-1")
        delivery = _TurnDelivery(self, log_entry, trace)
        services.requests_in_flight += 1
        try:
            if self._socket.is_write_paused:  # a client that does not read its answers gets no further turn
                await self._socket.wait_until_writable()
            if isinstance(message, ApiError):
                raise message.without_traceback()
            if trace is not None:
                trace.record_client_request(
                    "WEBSOCKET", self._socket.scope["path"], self._socket.scope["headers"], message
                )
            style = requested_style(self._socket.scope, self._socket.key_style, services.config.server.style)
            members = _members(message)
            delivery.previous_id = _text_in(members, "previous_response_id")
            turn = delivery.turn(_decode_request(members), style)
            del message, members  # frees memory during a long answer
            await turn
        except ApiError as error:
            self._fail(error, delivery)
        except (asyncio.CancelledError, ClientDisconnected):
            if not self._is_closed:
                self._fail(shutdown_error(), delivery)
        except Exception as error:
            services.logger.fault("a request failed inside the gateway", error, request_id=id)
            self._fail(ApiError(f"internal error; see the log for request id {id}"), delivery)
        finally:
            services.requests_in_flight -= 1
            log_entry.client_disconnected = self._is_closed
            services.logger.request(log_entry)
            if trace is not None:
                trace.record_note("error", log_entry.error)
                trace.finish()

    def _fail(self, error: ApiError, delivery: _TurnDelivery) -> None:
        """WS-3, WS-10: ends a turn that failed before its first event."""
        delivery.log_entry.error, delivery.log_entry.status = error.code, error.status
        self.forget(delivery.previous_id)
        delivery.trace_error(error.status, self._send_error(error))

    def _send_error(self, error: ApiError) -> bytes:
        """Sends an error and returns the message."""
        status, body = responses.error_from_hub(error)
        message = b'{"type":"error","status":%d,%b' % (status, body[1:])
        self._socket.send(message)
        return message

    # For `_Telling`

    @property
    def services(self) -> Services:
        return self._services

    @property
    def socket(self) -> WebSocket:
        return self._socket

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def archive(self, request: Request) -> HistorySource:
        """WS-6: with `store: false`, only the response of this connection can be continued. WS-8: stored responses can
        be continued anywhere, and so can conversations, which are always stored."""
        is_stored = (
            self._newest_id is not None and self._turns is None and request.previous_response_id == self._newest_id
        )
        store = self._services.store if request.store is not False or is_stored or request.conversation else None
        return HistorySource(
            owner=self._socket.owner,
            store=store,
            limit=self._services.max_body,
            find_local_turns=self._find_local_turns,
        )

    def _find_local_turns(self, id: str) -> PastTurns | None:
        return self._turns if id == self._newest_id else None

    def has_only_copy(self, id: str | None) -> bool:
        """Whether this connection has the only copy of a response."""
        return self._turns is not None and id == self._newest_id

    def remember(self, id: str, turns: PastTurns | None) -> None:
        """WS-5: replaces the remembered response by the newest. Stored responses are not copied here, so that a deleted
        response cannot be continued (PREV-3)."""
        self._newest_id, self._turns = id, turns

    def forget(self, previous_id: str | None) -> None:
        """WS-7: after a failed turn, forgets the response that it continued."""
        if previous_id is not None and previous_id == self._newest_id:
            self._newest_id = self._turns = None

    def drain_later(self, turn: UpstreamTurn, flow: Flow) -> None:
        """Reads the last bytes of the upstream in a task, so that the next turn does not wait for them."""
        task = asyncio.get_running_loop().create_task(drain_upstream(turn, flow))
        self._drain_tasks.add(task)
        task.add_done_callback(self._drain_tasks.discard)


class _TurnDelivery:
    """Delivers one turn as messages."""

    def __init__(self, connection: ResponsesConnection, log_entry: RequestLog, trace: Trace | None) -> None:
        self.log_entry = log_entry
        self.previous_id: str | None = None  # the response that the turn continues
        self._connection = connection
        self._services = connection.services
        self._socket = connection.socket
        self._trace = trace

    async def turn(self, request: Request, style: EventStyle) -> None:
        is_warm_up = request.generate is False
        archive = self._connection.archive(request)
        streamed_request = replace(request, stream=True, generate=UNSET)
        strict = requested_strictness(self._socket.scope)
        prepared_turn = await prepare_turn(
            self._services,
            streamed_request,
            Losses(),
            archive,
            self.log_entry,
            self._trace,
            keeps_history=True,
            strict=strict,
        )
        del request, streamed_request  # frees the history during a long answer
        turn = prepared_turn.turn
        # If the store will have the response and its history, they are not remembered here.
        is_stored = turn.prepared.request.store is True and not self._connection.has_only_copy(self.previous_id)
        past_turns = None if is_stored else prepared_turn.before
        del prepared_turn
        scope = self._socket.scope
        pipe = turn.make_pipe(
            responses.EventsFromHub(turn.prepared.request, style=style, framing="websocket"),
            reports_losses=wants_loss_events(scope),
            on_violation=violation_reporter(self._services, self.log_entry.request_id),
            separator=MESSAGE_END,
        )
        if self._trace is not None:
            self._trace.record_note("style", style)
        flow: Flow | None = None
        try:
            if is_warm_up:
                await self._end(turn, pipe, past_turns, pipe.write_events(_warm_up(turn)))
            else:
                flow = await self._run_upstream(turn, pipe, past_turns)
        finally:
            if flow is None:
                turn.abort()
            self.log_entry.losses = len(pipe.losses)
            if pipe.response is not None:
                self.log_entry.note_response(pipe.response, pipe.event_count)
        if flow is not None:
            self._connection.drain_later(turn, flow)

    async def _run_upstream(self, turn: UpstreamTurn, pipe: Pipe, past_turns: PastTurns | None) -> Flow | None:
        """Delivers the answer of the upstream. Returns its flow if that has to be drained."""
        flow: Flow | None = None
        tap = _Tap(self, pipe)
        try:
            answer = await turn.send_request(self._services.transport)
            if is_json(answer):
                out = pipe.write_events(await turn.read_response_as_events(answer))
            else:
                flow = turn.body_flow(answer)
                while not await flow(tap) and not pipe.has_ended:
                    self._send(tap.take())
                    await self._socket.wait_until_writable()
                out = b"" if pipe.has_ended else pipe.finish()
        except ApiError as error:
            if not self._has_started(pipe):
                raise
            out = pipe.finish(error)
        except (asyncio.CancelledError, ClientDisconnected):
            if self._connection.is_closed:
                await asyncio.shield(record_abandoned_turn(self._services, turn, pipe))
                return None
            if not self._has_started(pipe):
                raise
            out = pipe.finish(shutdown_error())
        except Exception as error:
            if not self._has_started(pipe):
                raise
            self._services.logger.fault(
                "a stream broke off inside the gateway", error, request_id=self.log_entry.request_id
            )
            out = pipe.finish(ApiError(f"internal error; see the log for request id {self.log_entry.request_id}"))
        if pipe.error is not None and self.log_entry.status is None:
            raise pipe.error.without_traceback()
        await self._end(turn, pipe, past_turns, MESSAGE_END.join(filter(None, (tap.take(), out))))
        if pipe.is_cut_off:
            return None
        return flow

    async def _end(self, turn: UpstreamTurn, pipe: Pipe, past_turns: PastTurns | None, out: bytes) -> None:
        """Sends the last events, and the terminal event after the response is saved."""
        if pipe.is_holding_end:
            self._send(out)
            out = b""
        last, recorded = await finish_turn(self._services, turn, pipe)
        if pipe.response is None or pipe.response.status == ResponseStatus.FAILED or recorded is None:
            self._connection.forget(self.previous_id)
        else:
            self._connection.remember(
                recorded.id, None if past_turns is None else [*past_turns, *past_turns_of(recorded)]
            )
        self._send(out or last)

    def _has_started(self, pipe: Pipe) -> bool:
        """Whether events were sent (WS-3: from then on an error is sent as a failure of the response)."""
        return self.log_entry.status is not None or pipe.has_ended

    def _send(self, out: bytes) -> None:
        if not out:
            return
        if self.log_entry.status is None:
            self.log_entry.status = 200
            self.log_entry.note_first_event()
            if self._trace is not None:
                self._trace.record_client_head(200, [])  # the head that an HTTP stream would have
        for message in out.split(MESSAGE_END):
            self._socket.send(message)
        if self._trace is not None:
            self._trace.record_client_piece(out + MESSAGE_END)

    def trace_error(self, status: int, message: bytes) -> None:
        if self._trace is not None:
            self._trace.record_client_head(status, [])
            self._trace.record_client_piece(message)

    def try_write(self, out: bytes) -> bool:
        """Sends a piece if the socket is writable. Returns whether it was sent."""
        if self._socket.is_write_paused:
            return False
        self._send(out)
        return True


class _Tap:
    """Passes the pieces of an upstream to the socket. The flow stops if the client does not read, and at the end."""

    def __init__(self, delivery: _TurnDelivery, pipe: Pipe) -> None:
        self._out = b""
        self._delivery = delivery
        self._pipe = pipe

    def __call__(self, piece: bytes) -> bool:
        out = self._pipe.feed(piece)
        if not self._pipe.has_ended and (not out or self._delivery.try_write(out)):
            return True
        self._out = out
        return False

    def take(self) -> bytes:
        """Takes the piece that was not sent."""
        out, self._out = self._out, b""
        return out


def _warm_up(turn: UpstreamTurn) -> list[StreamEvent]:
    """`generate: false`: stores the input without calling the upstream, so that a client can send input in advance."""
    initial_response = turn.initial_response
    done = replace(initial_response, status=ResponseStatus.COMPLETED, completed_at=initial_response.created_at)
    return [
        ResponseCreated(sequence_number=0, response=initial_response),
        ResponseInProgress(sequence_number=1, response=initial_response),
        ResponseCompleted(sequence_number=2, response=done),
    ]


def _decode_request(members: dict[str, Any]) -> Request:
    """WS-1, WS-2: decodes the request. `stream` is ignored, because many clients send it with every message."""
    if "type" not in members:
        raise MissingField("type is missing: wanted 'response.create'", param="type")
    kind = _text_in(members, "type")
    if kind != "response.create":
        description = repr(kind[:50]) if kind is not None else "something else than text"
        raise ClientFault(f"type: got {description}, wanted 'response.create'", param="type")
    if "stream_options" in members:
        raise ClientFault(
            "stream_options: not supported on a WebSocket, where every turn is sent as events: leave it out",
            param="stream_options",
        )
    request = codec.decode_request(codec.encode({name: raw for name, raw in members.items() if name != "type"}))
    if request.background:
        raise ClientFault(
            "background: got true, expected false: "
            "a WebSocket runs no turns in the background; POST /v1/responses does",
            param="background",
        )
    return request


def _members(message: bytes) -> dict[str, Any]:
    try:
        return decode_json(message, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidJson(
            "a message is a JSON object with the type 'response.create'; this is another kind of JSON"
        ) from None
    except msgspec.DecodeError:
        codec.decode_request(message)  # raises with the position of the error
        raise InvalidJson("the message is not valid JSON") from None


def _text_in(members: dict[str, Any], name: str) -> str | None:
    """A member that is a string; None if it is missing or not a string."""
    try:
        return decode_json(members.get(name, b"null"), type=str)
    except msgspec.DecodeError:
        return None
