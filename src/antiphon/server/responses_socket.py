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

from antiphon.dialects import responses
from antiphon.dialects.responses.events_from_hub import MESSAGE_END
from antiphon.errors import ApiError, ClientFault, InvalidJson, MissingField
from antiphon.gateway.history import Archive
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.turn import Turn, is_json
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCompleted, ResponseCreated, ResponseInProgress, StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.status import ResponseStatus
from antiphon.server.asgi import first_of
from antiphon.server.body import ClientLeft
from antiphon.server.client_style import style_for, wants_losses
from antiphon.server.exchange import shutdown
from antiphon.server.logs import RequestLine
from antiphon.server.services import Services, new_id
from antiphon.server.turns import Begun, begin, end, keep_abandoned
from antiphon.server.websocket import Socket
from antiphon.store.interface import Turn as Kept
from antiphon.trace.writing import Trace

MAX_WAITING: Final = 8  # turns that a client may send ahead


def responses_socket(services: Services) -> Callable[[Socket], None]:
    """The endpoint."""

    def speak(socket: Socket) -> None:
        Conversation(services, socket)

    return speak


class Conversation:
    """One connection."""

    def __init__(self, services: Services, socket: Socket) -> None:
        self._services = services
        self._socket = socket
        self._is_older = b"responses_websockets" in first_of(socket.scope, b"openai-beta")
        self._memory: dict[str, list[Kept]] = {}  # WS-5: the newest response with all it continued
        self._waiting: deque[bytes | ApiError] = deque()
        self._running: asyncio.Task[None] | None = None
        self._last_words: ApiError | None = None  # no more turns are taken
        self._is_gone = False
        socket.on_message = self._message
        socket.on_binary = self._binary
        socket.on_limit = self._limit
        socket.on_shutdown = self._shutdown
        socket.on_gone = self._gone

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
        self._stop(shutdown())
        if self._running is not None:
            asyncio.get_running_loop().call_later(self._services.config.server.grace, self._running.cancel)

    def _gone(self) -> None:
        """WS-12."""
        self._is_gone = True
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()

    # One turn after the other (WS-4)

    def _take(self, message: bytes | ApiError) -> None:
        self._waiting.append(message)
        if len(self._waiting) >= MAX_WAITING:
            self._socket.pause()
        self._go_on()

    def _go_on(self) -> None:
        if self._running is not None or self._is_gone:
            return
        if self._last_words is not None:
            self._part(self._last_words)
        elif self._waiting:
            message = self._waiting.popleft()
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
        """WS-9 wants words in any case. Of a server that stops, each turn that waits is told its end (WS-3), and who has asked
        nothing hears goodbye and no error that it could take for the end of its next turn."""
        is_stopping = why.code == "server_shutdown"
        for _ in range(len(self._waiting) if is_stopping else 1):
            self._say_error(why)
        self._waiting.clear()
        self._socket.close(1001 if is_stopping else 1000, why.code)

    async def _turn(self, message: bytes | ApiError) -> None:
        services = self._services
        id = new_id("req")
        line = RequestLine(request_id=id, method="WEBSOCKET", path=self._socket.scope["path"], owner=self._socket.owner)
        trace = services.traces.begin(id) if services.traces is not None else None
        asked: Request | None = None
        services.under_way += 1
        try:
            if isinstance(message, ApiError):
                raise message
            if trace is not None:
                trace.client_request("WEBSOCKET", self._socket.scope["path"], self._socket.scope["headers"], message)
            asked = self._read(message)
            await _Telling(self, line, trace).turn(asked)
        except ApiError as error:
            self._fail(error, asked, line)
        except asyncio.CancelledError:
            if not self._is_gone:
                self._fail(shutdown(), asked, line)
        except Exception as error:
            services.logger.fault("a request failed inside the gateway", error, request_id=id)
            self._fail(ApiError("something went wrong inside the gateway; its log has more under this request's id"), asked, line)
        finally:
            services.under_way -= 1
            line.client_left = self._is_gone
            services.logger.request(line)
            if trace is not None:
                trace.note("error", line.error)
                trace.finish()

    def _read(self, message: bytes) -> Request:
        """WS-1, WS-2: what is asked."""
        members = _members(message)
        if "type" not in members:
            raise MissingField("type is missing: wanted 'response.create'", param="type")
        kind = msgspec.json.decode(members["type"])
        if kind != "response.create":
            raise ClientFault(f"type: got {str(kind)[:50]!r}, wanted 'response.create'", param="type")
        for name in NOT_HERE:
            if name in members and not (name == "stream" and self._is_older):
                raise ClientFault(f"{name}: on a WebSocket there is no such field, every turn is told as events", param=name)
        del members["type"]
        members.pop("stream", None)
        return codec.decode_request(codec.encode(members))

    def _fail(self, error: ApiError, asked: Request | None, line: RequestLine) -> None:
        """WS-3, WS-10: a turn that failed before its response was told of. WS-7: what it wanted to continue is forgotten."""
        line.error, line.status = error.code, error.status
        self.forget(asked)
        self._say_error(error)

    def forget(self, asked: Request | None) -> None:
        """WS-7."""
        if asked is not None and asked.previous_response_id:
            self._memory.pop(asked.previous_response_id, None)

    def _say_error(self, error: ApiError) -> None:
        status, body = responses.error_from_hub(error)
        self._socket.send(b'{"type":"error","status":%d,%b' % (status, body[1:]))

    # What a turn needs of its connection

    @property
    def services(self) -> Services:
        return self._services

    @property
    def socket(self) -> Socket:
        return self._socket

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    @property
    def is_older(self) -> bool:
        return self._is_older

    def archive(self, request: Request) -> Archive:
        """WS-6: who stores nothing has only this connection to go back to. WS-8: what is stored can be continued anywhere."""
        store = self._services.store if request.store is not False else None
        return Archive(owner=self._socket.owner, store=store, remembered=self._memory.get)

    def remember(self, before: list[Kept], kept: Kept) -> None:
        self._memory = {kept.id: [*before, kept]}


class _Telling:
    """One turn, told as messages."""

    def __init__(self, conversation: Conversation, line: RequestLine, trace: Trace | None) -> None:
        self._conversation = conversation
        self._services = conversation.services
        self._socket = conversation.socket
        self._line = line
        self._trace = trace
        self._out = b""

    async def turn(self, request: Request) -> None:
        archive = self._conversation.archive(request)
        begun = await begin(
            self._services,
            replace(request, stream=True, generate=UNSET),
            Losses(),
            archive,
            self._line,
            self._trace,
            remembers=True,
        )
        scope = self._socket.scope
        style = "older" if self._conversation.is_older else style_for(scope)
        writer = responses.EventsFromHub(begun.turn.prepared.request, style=style, framing="websocket")
        pipe = begun.turn.pipe(writer, tells_losses=wants_losses(scope), between=MESSAGE_END)
        if self._trace is not None:
            self._trace.note("style", style)
        try:
            if request.generate is False:
                await self._end(request, begun, pipe, pipe.tell(_warm_up(begun.turn)))
            else:
                await self._ask(request, begun, pipe)
        finally:
            begun.turn.abort()
            self._line.losses = len(pipe.losses)
            if pipe.response is not None:
                self._note(pipe)

    async def _ask(self, request: Request, begun: Begun, pipe: Pipe) -> None:
        turn = begun.turn
        try:
            answer = await turn.ask(self._services.transport)
            if is_json(answer):
                out = pipe.tell(await turn.whole_as_events(answer))
            else:
                flow = turn.flow(answer)
                tap = _Tap(self, pipe)
                while not await flow(tap) and not pipe.ended:
                    self._send(tap.out)
                    await self._socket.drained()
                out = tap.out if pipe.ended else pipe.finish()
        except ApiError as error:
            if not self._has_begun(pipe):
                raise
            out = pipe.finish(error)
        except (asyncio.CancelledError, ClientLeft):
            if self._conversation.is_gone:
                await asyncio.shield(keep_abandoned(self._services, turn, pipe))
                return
            if not self._has_begun(pipe):
                raise
            out = pipe.finish(shutdown())
        if pipe.error is not None and self._line.status is None:
            raise pipe.error
        await self._end(request, begun, pipe, out)

    async def _end(self, request: Request, begun: Begun, pipe: Pipe, out: bytes) -> None:
        """What came last goes out, then the end, once the response is kept."""
        self._send(out)
        last, kept = await end(self._services, begun.turn, pipe)
        if pipe.response is None or pipe.response.status == ResponseStatus.FAILED or kept is None:
            self._conversation.forget(request)
        else:
            self._conversation.remember(begun.before, kept)
        self._send(last)

    def _has_begun(self, pipe: Pipe) -> bool:
        """Whether the client was told of the response (WS-3: from here on its failure is told as the response's)."""
        return self._line.status is not None or pipe.ended

    def _send(self, out: bytes) -> None:
        if not out:
            return
        if self._line.status is None:
            self._line.status = 200
            self._line.note_first_event()
        for message in out.split(MESSAGE_END):
            self._socket.send(message)
        if self._trace is not None:
            self._trace.client_piece(out + MESSAGE_END)

    def offer(self, out: bytes) -> bool:
        """Whether it could be sent at once, and more may come."""
        if self._socket.is_choked:
            return False
        self._send(out)
        return True

    def _note(self, pipe: Pipe) -> None:
        response = pipe.response
        assert response is not None
        if response.error is not None:
            self._line.error = response.error.code
        if response.usage is not None:
            self._line.input_tokens = response.usage.input_tokens
            self._line.output_tokens = response.usage.output_tokens


class _Tap:
    """From the upstream's flow to the socket; it stops for a client that does not read, and at the end."""

    def __init__(self, telling: _Telling, pipe: Pipe) -> None:
        self.out = b""
        self._telling = telling
        self._pipe = pipe

    def __call__(self, piece: bytes) -> bool:
        self.out = self._pipe.feed(piece)
        return not self._pipe.ended and (not self.out or self._telling.offer(self.out))


def _warm_up(turn: Turn) -> list[StreamEvent]:
    """`generate: false`: the input is taken in and nothing is asked, so that a client can send ahead what it will need."""
    opened = turn.opening
    done = replace(opened, status=ResponseStatus.COMPLETED, completed_at=opened.created_at)
    return [
        ResponseCreated(sequence_number=0, response=opened),
        ResponseInProgress(sequence_number=1, response=opened),
        ResponseCompleted(sequence_number=2, response=done),
    ]


def _members(message: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise InvalidJson("a message is a JSON object with the type 'response.create'; this is another kind of JSON") from None
    except (msgspec.DecodeError, RecursionError):
        codec.decode_request(message)  # says where it breaks
        raise InvalidJson("this message is no JSON") from None


NOT_HERE: Final = ("stream", "stream_options", "background")
