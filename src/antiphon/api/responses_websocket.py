"""`/v1/responses` over a WebSocket: one turn after the other, each a `response.create` message and the events it brings.

The newest response stays in the memory of the connection, so that a client that has nothing stored can go on with it. What a client
sends ahead waits in a short queue; while that is full nothing more is read.
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

MAX_WAITING: Final = 8  # turns that a client may send ahead
MAX_AHEAD: Final = 1024 * 1024  # bytes of them, whatever their number; one may be larger


def responses_websocket(services: Services) -> Callable[[WebSocket], None]:
    """The endpoint."""

    def speak(socket: WebSocket) -> None:
        ResponsesConnection(services, socket)

    return speak


class ResponsesConnection:
    """One connection."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self._socket = socket
        self._newest: str | None = None  # WS-5: the response that can be continued here, though nobody stored it
        self._turns: PastTurns | None = None  # that response with all it continued; None if the store has all of it
        self._waiting: deque[bytes | ApiError] = deque()
        self._running: asyncio.Task[None] | None = None
        self._lingering: set[asyncio.Task[None]] = set()  # that let upstreams come to their end
        self._last_words: ApiError | None = None  # no more turns are taken
        self._is_gone = False
        services.open_websockets += 1
        socket.on_message = self._message
        socket.on_binary = self._binary
        socket.on_lifetime_exceeded = self._limit
        socket.on_shutdown = self._shutdown
        socket.on_closed = self._gone

    # What the socket says

    def _message(self, text: str) -> None:
        self._take(text.encode())

    def _binary(self) -> None:
        self._take(InvalidJson("a binary message came: wanted JSON in a text message"))

    def _limit(self) -> None:
        """WS-9."""
        self._stop(
            ClientFault(
                "this connection has lived for an hour, which is the limit: open another", code="websocket_connection_limit_reached"
            )
        )

    def _shutdown(self) -> None:
        self._services.start_shutdown()
        self._stop(shutdown_error())
        if self._running is not None:
            asyncio.get_running_loop().call_later(self._services.config.server.grace, self._running.cancel)

    def _gone(self) -> None:
        """WS-12."""
        self._is_gone = True
        self._services.open_websockets -= 1
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()

    # One turn after the other (WS-4)

    def _take(self, message: bytes | ApiError) -> None:
        self._waiting.append(message)
        if self._is_full():
            self._socket.pause()
        self._go_on()

    def _is_full(self) -> bool:
        ahead = sum(len(message) for message in self._waiting if isinstance(message, bytes))
        return len(self._waiting) >= MAX_WAITING or ahead >= MAX_AHEAD

    def _go_on(self) -> None:
        if self._running is not None or self._is_gone:
            return
        if self._last_words is not None:
            self._part(self._last_words)
        elif self._waiting:
            message = self._waiting.popleft()
            if not self._is_full():
                self._socket.resume()
            self._running = asyncio.get_running_loop().create_task(self._turn(message))
            self._running.add_done_callback(self._turn_is_over)

    def _turn_is_over(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._services.logger.fault("a turn failed inside the gateway", error, request_id=self._socket.id)
        self._go_on()

    def _stop(self, why: ApiError) -> None:
        """No further turn begins. The one under way may end."""
        self._last_words = self._last_words or why
        self._go_on()

    def _part(self, why: ApiError) -> None:
        """Each turn that waits is told its end (WS-3). WS-9 wants words in any case; of a server that stops, who has asked nothing
        hears goodbye and no error that it could take for the end of its next turn."""
        is_stopping = why.code == "server_shutdown"
        for _ in range(max(len(self._waiting), 0 if is_stopping else 1)):
            self._say_error(why)
        self._waiting.clear()
        self._socket.close(1001 if is_stopping else 1000, why.code)

    async def _turn(self, message: bytes | ApiError) -> None:
        services = self._services
        id = new_id("req")
        log_entry = RequestLog(request_id=id, method="WEBSOCKET", path=self._socket.scope["path"], owner=self._socket.owner)
        trace = services.traces.start_trace(id) if services.traces is not None else None
        if services.telemetry is not None:
            log_entry.traceparent = first_header(self._socket.scope, b"traceparent").decode("latin-1")
        telling = _Telling(self, log_entry, trace)
        services.requests_in_flight += 1
        try:
            if self._socket.is_write_paused:  # who does not read its answers asks for no more of them
                await self._socket.wait_until_writable()
            if isinstance(message, ApiError):
                raise message.without_traceback()
            if trace is not None:
                trace.client_request("WEBSOCKET", self._socket.scope["path"], self._socket.scope["headers"], message)
            style = requested_style(self._socket.scope, self._socket.key_style, services.config.server.style)
            members = _members(message)
            telling.continued = _text_in(members, "previous_response_id")
            turn = telling.turn(_read(members), style)
            del message, members  # large, and the answer may last
            await turn
        except ApiError as error:
            self._fail(error, telling)
        except (asyncio.CancelledError, ClientDisconnected):
            if not self._is_gone:
                self._fail(shutdown_error(), telling)
        except Exception as error:
            services.logger.fault("a request failed inside the gateway", error, request_id=id)
            self._fail(ApiError("something went wrong inside the gateway; its log has more under this request's id"), telling)
        finally:
            services.requests_in_flight -= 1
            log_entry.client_disconnected = self._is_gone
            services.logger.request(log_entry)
            if trace is not None:
                trace.note("error", log_entry.error)
                trace.finish()

    def _fail(self, error: ApiError, telling: _Telling) -> None:
        """WS-3, WS-10: a turn that failed before its response was told of."""
        telling.log_entry.error, telling.log_entry.status = error.code, error.status
        self.forget(telling.continued)
        telling.trace_error(error.status, self._say_error(error))

    def _say_error(self, error: ApiError) -> bytes:
        """The message that was sent."""
        status, body = responses.error_from_hub(error)
        message = b'{"type":"error","status":%d,%b' % (status, body[1:])
        self._socket.send(message)
        return message

    # What a turn needs of its connection

    @property
    def services(self) -> Services:
        return self._services

    @property
    def socket(self) -> WebSocket:
        return self._socket

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    def archive(self, request: Request) -> HistorySource:
        """WS-6: who stores nothing has only this connection to go back to. WS-8: what is stored can be continued anywhere, and so
        can conversations, which are stored in any case."""
        is_stored = self._newest is not None and self._turns is None and request.previous_response_id == self._newest
        store = self._services.store if request.store is not False or is_stored or request.conversation else None
        return HistorySource(
            owner=self._socket.owner, store=store, limit=self._services.max_body, find_local_turns=self._remembered
        )

    def _remembered(self, id: str) -> PastTurns | None:
        return self._turns if id == self._newest else None

    def holds(self, id: str | None) -> bool:
        """Whether it can be continued here and nowhere else."""
        return self._turns is not None and id == self._newest

    def remember(self, id: str, turns: PastTurns | None) -> None:
        """WS-5: the newest response takes the place of the one before. What the store has is not held here as well, and so is gone
        from here once it is deleted there (PREV-3)."""
        self._newest, self._turns = id, turns

    def forget(self, continued: str | None) -> None:
        """WS-7: what a turn wanted to continue, if it failed."""
        if continued is not None and continued == self._newest:
            self._newest = self._turns = None

    def let_end(self, turn: UpstreamTurn, flow: Flow) -> None:
        """The upstream's last bytes are nothing that the next turn has to wait for."""
        task = asyncio.get_running_loop().create_task(drain_upstream(turn, flow))
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)


class _Telling:
    """One turn, told as messages."""

    def __init__(self, conversation: ResponsesConnection, log_entry: RequestLog, trace: Trace | None) -> None:
        self.log_entry = log_entry
        self.continued: str | None = None  # the response that the turn goes on from
        self._conversation = conversation
        self._services = conversation.services
        self._socket = conversation.socket
        self._trace = trace

    async def turn(self, request: Request, style: EventStyle) -> None:
        is_warm_up = request.generate is False
        archive = self._conversation.archive(request)
        asked = replace(request, stream=True, generate=UNSET)
        strict = requested_strictness(self._socket.scope)
        prepared_turn = await prepare_turn(
            self._services, asked, Losses(), archive, self.log_entry, self._trace, keeps_history=True, strict=strict
        )
        del request, asked  # all that was ever said, and the answer may last
        turn = prepared_turn.turn
        # What the store will have, with all that it continues, is not held here as well.
        is_stored = turn.prepared.request.store is True and not self._conversation.holds(self.continued)
        before = None if is_stored else prepared_turn.before
        del prepared_turn
        scope = self._socket.scope
        pipe = turn.make_pipe(
            responses.EventsFromHub(turn.prepared.request, style=style, framing="websocket"),
            reports_losses=wants_loss_events(scope),
            on_violation=violation_reporter(self._services, self.log_entry.request_id),
            separator=MESSAGE_END,
        )
        if self._trace is not None:
            self._trace.note("style", style)
        flow: Flow | None = None
        try:
            if is_warm_up:
                await self._end(turn, pipe, before, pipe.write_events(_warm_up(turn)))
            else:
                flow = await self._ask(turn, pipe, before)
        finally:
            if flow is None:
                turn.abort()
            self.log_entry.losses = len(pipe.losses)
            if pipe.response is not None:
                self.log_entry.note_response(pipe.response, pipe.event_count)
        if flow is not None:
            self._conversation.let_end(turn, flow)

    async def _ask(self, turn: UpstreamTurn, pipe: Pipe, before: PastTurns | None) -> Flow | None:
        """The upstream's answer. Returns what is left of it, if anything is."""
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
            if not self._has_begun(pipe):
                raise
            out = pipe.finish(error)
        except (asyncio.CancelledError, ClientDisconnected):
            if self._conversation.is_gone:
                await asyncio.shield(record_abandoned_turn(self._services, turn, pipe))
                return None
            if not self._has_begun(pipe):
                raise
            out = pipe.finish(shutdown_error())
        except Exception as error:
            if not self._has_begun(pipe):
                raise
            self._services.logger.fault("a stream broke off inside the gateway", error, request_id=self.log_entry.request_id)
            out = pipe.finish(ApiError("something went wrong inside the gateway"))
        if pipe.error is not None and self.log_entry.status is None:
            raise pipe.error.without_traceback()
        await self._end(turn, pipe, before, MESSAGE_END.join(filter(None, (tap.take(), out))))
        if pipe.is_cut_off:
            return None
        return flow

    async def _end(self, turn: UpstreamTurn, pipe: Pipe, before: PastTurns | None, out: bytes) -> None:
        """What came last goes out, then the end, once the response is kept."""
        if pipe.is_holding_end:
            self._send(out)
            out = b""
        last, kept = await finish_turn(self._services, turn, pipe)
        if pipe.response is None or pipe.response.status == ResponseStatus.FAILED or kept is None:
            self._conversation.forget(self.continued)
        else:
            self._conversation.remember(kept.id, None if before is None else [*before, *past_turns_of(kept)])
        self._send(out or last)

    def _has_begun(self, pipe: Pipe) -> bool:
        """Whether the client was told of the response (WS-3: from here on its failure is told as the response's)."""
        return self.log_entry.status is not None or pipe.has_ended

    def _send(self, out: bytes) -> None:
        if not out:
            return
        if self.log_entry.status is None:
            self.log_entry.status = 200
            self.log_entry.note_first_event()
            if self._trace is not None:
                self._trace.client_head(200, [])  # what a stream would have begun with
        for message in out.split(MESSAGE_END):
            self._socket.send(message)
        if self._trace is not None:
            self._trace.client_piece(out + MESSAGE_END)

    def trace_error(self, status: int, message: bytes) -> None:
        if self._trace is not None:
            self._trace.client_head(status, [])
            self._trace.client_piece(message)

    def try_write(self, out: bytes) -> bool:
        """Whether it could be sent at once, and more may come."""
        if self._socket.is_write_paused:
            return False
        self._send(out)
        return True


class _Tap:
    """From the upstream's flow to the socket; it stops for a client that does not read, and at the end."""

    def __init__(self, telling: _Telling, pipe: Pipe) -> None:
        self._out = b""
        self._telling = telling
        self._pipe = pipe

    def __call__(self, piece: bytes) -> bool:
        out = self._pipe.feed(piece)
        if not self._pipe.has_ended and (not out or self._telling.try_write(out)):
            return True
        self._out = out
        return False

    def take(self) -> bytes:
        """What could not be sent at once."""
        out, self._out = self._out, b""
        return out


def _warm_up(turn: UpstreamTurn) -> list[StreamEvent]:
    """`generate: false`: the input is taken in and nothing is asked, so that a client can send ahead what it will need."""
    opened = turn.opening
    done = replace(opened, status=ResponseStatus.COMPLETED, completed_at=opened.created_at)
    return [
        ResponseCreated(sequence_number=0, response=opened),
        ResponseInProgress(sequence_number=1, response=opened),
        ResponseCompleted(sequence_number=2, response=done),
    ]


def _read(members: dict[str, Any]) -> Request:
    """WS-1, WS-2: what is asked. `stream` is ignored: many clients send it with every frame."""
    if "type" not in members:
        raise MissingField("type is missing: wanted 'response.create'", param="type")
    kind = _text_in(members, "type")
    if kind != "response.create":
        came = repr(kind[:50]) if kind is not None else "something else than text"
        raise ClientFault(f"type: got {came}, wanted 'response.create'", param="type")
    if "stream_options" in members:
        raise ClientFault(
            "stream_options: not supported on a WebSocket, where every turn is sent as events: leave it out", param="stream_options"
        )
    request = codec.decode_request(codec.encode({name: raw for name, raw in members.items() if name != "type"}))
    if request.background:
        raise ClientFault(
            "background: got true, expected false: a WebSocket runs no turns in the background; POST /v1/responses does",
            param="background",
        )
    return request


def _members(message: bytes) -> dict[str, Any]:
    try:
        return decode_json(message, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidJson("a message is a JSON object with the type 'response.create'; this is another kind of JSON") from None
    except msgspec.DecodeError:
        codec.decode_request(message)  # says where it breaks
        raise InvalidJson("this message is no JSON") from None


def _text_in(members: dict[str, Any], name: str) -> str | None:
    """A member that is text; None if it is not there, or something else."""
    try:
        return decode_json(members.get(name, b"null"), type=str)
    except msgspec.DecodeError:
        return None
