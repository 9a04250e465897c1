"""How a turn is told to the client that asked for it, as a stream or in one piece, in whatever dialect the client speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from antiphon.errors import ApiError
from antiphon.gateway.pipe import EventsFromHub, Pipe
from antiphon.gateway.turn import Turn, is_json
from antiphon.protocol.request import Request
from antiphon.server.asgi import JSON, Headers
from antiphon.server.body import ClientLeft
from antiphon.server.exchange import Exchange, losses_header, shutdown
from antiphon.server.services import Services
from antiphon.server.stream import SSE, WAITING, EventStream
from antiphon.server.turns import drain, end, keep_abandoned, reporter
from antiphon.upstream.transport import Flow


class StreamForm(Struct, frozen=True, kw_only=True):
    """What a stream looks like to one client."""

    events_from_hub: Callable[[Request], EventsFromHub]
    headers: Headers = field(default_factory=lambda: SSE)
    waiting: bytes = WAITING  # what is said when there is nothing to say
    tells_losses: bool = False


async def tell(services: Services, exchange: Exchange, turn: Turn, form: Callable[[], StreamForm]) -> None:
    """One turn, once it may be asked, to its end."""
    exchange.watch()
    try:
        if turn.prepared.request.stream:
            await _stream(services, exchange, turn, form())
        else:
            await _whole(services, exchange, turn)
    finally:
        exchange.unwatch()
        turn.abort()


async def _whole(services: Services, exchange: Exchange, turn: Turn) -> None:
    try:
        response = await turn.whole(await turn.ask(services.transport))
    except asyncio.CancelledError:
        exchange.come_back()
        if exchange.left:
            await keep_abandoned(services, turn, None)
            raise ClientLeft from None
        raise shutdown() from None
    exchange.note_response(response)
    body, losses = exchange.speech.response_from_hub(response, turn.prepared.request)
    turn.losses.extend(losses)
    exchange.note_losses(turn.losses)
    await exchange.answer(200, [JSON, *losses_header(turn.losses)], body)


async def _stream(services: Services, exchange: Exchange, turn: Turn, form: StreamForm) -> None:
    pipe = turn.pipe(
        form.events_from_hub(turn.prepared.request),
        tells_losses=form.tells_losses,
        on_violation=reporter(services, exchange.id),
    )
    stream = EventStream(
        exchange.send,
        lambda: [*form.headers, *losses_header(pipe.losses)],
        first=services.patience,
        silence=services.silence,
        send_now=exchange.send_now,
        write_now=exchange.write_now,
        waiting=form.waiting,
    )
    try:
        await _pump(services, exchange, turn, pipe, stream)
    finally:
        stream.close()
        exchange.note_losses(pipe.losses)
        if pipe.response is not None:
            exchange.note_response(pipe.response, pipe.events)


async def _pump(services: Services, exchange: Exchange, turn: Turn, pipe: Pipe, stream: EventStream) -> None:
    """Upstream pieces to client bytes. What fails before the 200 is raised, what fails after it is told in the stream (STR-8)."""
    flow: Flow | None = None
    tap = _Tap(exchange, pipe, stream)
    try:
        answer = await turn.ask(services.transport)
        if is_json(answer):
            out = pipe.tell(await turn.whole_as_events(answer))
        else:
            flow = turn.flow(answer)
            while not await flow(tap) and not pipe.ended:
                await stream.write(tap.out)
                tap.out = b""
            out = b"" if pipe.ended else pipe.finish()
    except ApiError as error:
        if not stream.started:
            raise
        out = pipe.finish(error)
    except asyncio.CancelledError:
        exchange.come_back()
        if exchange.left:
            await keep_abandoned(services, turn, pipe)
            raise ClientLeft from None
        if not stream.started:
            raise shutdown() from None
        out = pipe.finish(shutdown())  # the server stops, and this client can still be told
    except Exception as error:
        if not stream.started:
            raise
        services.logger.fault("a stream broke off inside the gateway", error, request_id=exchange.id)
        out = pipe.finish(ApiError("something went wrong inside the gateway"))
    if pipe.error is not None and not stream.started:
        raise pipe.error.anew()
    exchange.line.note_first_event()
    await stream.end(tap.out + out + (await end(services, turn, pipe))[0])
    if flow is not None and not pipe.is_cut_off:
        exchange.unwatch()
        await drain(turn, flow)


class _Tap:
    """Between an upstream's flow and a client's stream. Pieces pass through in the moment they come. Where one cannot, the flow
    stops with `out` to be written by the task, which can wait, and which may be told to end before it did. So it does for the end:
    the task may have to keep the response."""

    def __init__(self, exchange: Exchange, pipe: Pipe, stream: EventStream) -> None:
        self.out = b""
        self._line = exchange.line
        self._pipe = pipe
        self._stream = stream

    def __call__(self, piece: bytes) -> bool:
        out = self._pipe.feed(piece)
        if self._pipe.response is None:
            if not out:
                return True
            if self._line.first_event_ms is None:
                self._line.note_first_event()
            if self._stream.offer(out):
                return True
        self.out = out
        return False
