"""`POST /v1/responses`: a turn, as a stream or in one piece."""

from __future__ import annotations

import asyncio

from antiphon.dialects import responses
from antiphon.errors import ApiError
from antiphon.gateway.history import Archive
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.turn import Turn, is_json
from antiphon.server.asgi import JSON
from antiphon.server.background_endpoints import begin_in_background
from antiphon.server.body import ClientLeft, check_head, read_body
from antiphon.server.client_style import style_for, wants_losses
from antiphon.server.exchange import Exchange, losses_header, shutdown
from antiphon.server.services import Services
from antiphon.server.stream import SSE, EventStream
from antiphon.server.turns import begin, drain, end, keep_abandoned, reporter
from antiphon.upstream.transport import Flow


async def create_response(services: Services, exchange: Exchange) -> None:
    """One turn from body to answer."""
    limit = services.max_body
    check_head(exchange.scope, limit)
    body = await read_body(exchange.receive, limit)
    if exchange.trace is not None:
        exchange.trace.client_request("POST", exchange.scope["path"], exchange.scope["headers"], body)
    request, losses = responses.request_to_hub(body)
    del body  # large, and a stream may last
    owner = exchange.line.owner
    assert owner is not None  # the route is not public
    begun = await begin(services, request, losses, Archive(owner=owner, store=services.store), exchange.line, exchange.trace)
    turn = begun.turn
    if request.background:
        await begin_in_background(services, exchange, request, turn)
        return
    del request
    exchange.watch()
    try:
        if turn.prepared.request.stream:
            await _stream(services, exchange, turn)
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
    body, losses = responses.response_from_hub(response, turn.prepared.request)
    turn.losses.extend(losses)
    exchange.note_losses(turn.losses)
    await exchange.answer(200, [JSON, *losses_header(turn.losses)], body)


async def _stream(services: Services, exchange: Exchange, turn: Turn) -> None:
    style = style_for(exchange.scope)
    if exchange.trace is not None:
        exchange.trace.note("style", style)
    pipe = turn.pipe(
        responses.EventsFromHub(turn.prepared.request, style=style),
        tells_losses=wants_losses(exchange.scope),
        on_violation=reporter(services, exchange.id),
    )
    stream = EventStream(
        exchange.send,
        lambda: [*SSE, *losses_header(pipe.losses)],
        first=services.patience,
        silence=services.silence,
        send_now=exchange.send_now,
        write_now=exchange.write_now,
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
        raise pipe.error
    exchange.line.note_first_event()
    await stream.end(tap.out + out + (await end(services, turn, pipe))[0])
    if flow is not None:
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
