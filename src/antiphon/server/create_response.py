"""`POST /v1/responses`: a turn, as a stream or in one piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from antiphon.dialects import responses
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.turn import Turn, is_json, prepare
from antiphon.profiles.known_clients import Style, style_of
from antiphon.protocol import codec
from antiphon.protocol.grammar import Violation
from antiphon.protocol.request import Request
from antiphon.server.asgi import JSON, Headers, Scope, first_of
from antiphon.server.body import check_head, read_body
from antiphon.server.exchange import Exchange, losses_header, shutdown
from antiphon.server.services import Services
from antiphon.server.stream import EventStream

SSE: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # proxies that would hold events back
]
LINGER: Final = 0.5  # seconds that an upstream has to end its body once it has said everything


async def create_response(services: Services, exchange: Exchange) -> None:
    """One turn from body to answer."""
    limit = services.max_body
    check_head(exchange.scope, limit)
    body = await read_body(exchange.receive, limit)
    if exchange.trace is not None:
        exchange.trace.client_request("POST", exchange.scope["path"], exchange.scope["headers"], body)
    turn = _begin(services, exchange, body)
    del body  # large, and a stream may last
    exchange.watch()
    try:
        if turn.prepared.request.stream:
            await _stream(services, exchange, turn)
        else:
            await _whole(services, exchange, turn)
    finally:
        exchange.unwatch()
        turn.abort()


def _begin(services: Services, exchange: Exchange, body: bytes) -> Turn:
    """Everything that can be wrong with a request comes out here, before the upstream sees any of it."""
    request, losses = responses.request_to_hub(body)
    line, trace = exchange.line, exchange.trace
    line.model = request.model or None
    if trace is not None:
        trace.hub_request(codec.encode(request))
    target = services.routes.find(request.model)
    line.upstream = target.upstream.name
    if trace is not None:
        config = target.upstream.config
        trace.route(target.upstream.name, config.dialect, target.model, config.profile_name, bool(request.stream))
    prepared = prepare(_checked(request), target)
    prepared.losses.extend(losses)
    exchange.note_losses(prepared.losses)
    turn = Turn(prepared, services.stamps, services.pad, trace)
    line.response_id = turn.opening.id
    return turn


def _checked(request: Request) -> Request:
    if not request.stream and request.stream_options:
        raise ClientFault("stream_options: only a request with `stream: true` may have them", param="stream_options")
    return request


async def _whole(services: Services, exchange: Exchange, turn: Turn) -> None:
    answer = await turn.ask(services.transport)
    response = await turn.whole(answer)
    exchange.note_response(response)
    body, losses = responses.response_from_hub(response, turn.prepared.request)
    turn.losses.extend(losses)
    exchange.note_losses(turn.losses)
    await exchange.answer(200, [JSON, *losses_header(turn.losses)], body)


async def _stream(services: Services, exchange: Exchange, turn: Turn) -> None:
    style = _style(exchange.scope)
    if exchange.trace is not None:
        exchange.trace.note("style", style)
    pipe = turn.pipe(
        responses.EventsFromHub(turn.prepared.request, style=style),
        tells_losses=_wants_losses(exchange.scope),
        on_violation=_reporter(services, exchange) if services.debug else None,
    )
    stream = EventStream(
        exchange.send, lambda: [*SSE, *losses_header(pipe.losses)], first=services.patience, silence=services.silence
    )
    try:
        await _pump(services, exchange, turn, pipe, stream)
    finally:
        stream.close()
        exchange.note_losses(pipe.losses)
        if pipe.response is not None:
            exchange.note_response(pipe.response)


async def _pump(services: Services, exchange: Exchange, turn: Turn, pipe: Pipe, stream: EventStream) -> None:
    """Upstream pieces to client bytes. What fails before the 200 is raised, what fails after it is told in the stream (STR-8)."""
    pieces: AsyncIterator[bytes] | None = None
    try:
        answer = await turn.ask(services.transport)
        if is_json(answer):
            out = pipe.tell(await turn.whole_as_events(answer))
        else:
            out = b""
            pieces = turn.pieces(answer)
            async for piece in pieces:
                out = pipe.feed(piece)
                if pipe.ended:
                    break
                if out:
                    if not stream.started:
                        exchange.line.note_first_event()
                    await stream.write(out)
                    out = b""
            if not pipe.ended:
                out += pipe.finish()
    except ApiError as error:
        if not stream.started:
            raise
        out = pipe.finish(error)
    except asyncio.CancelledError:
        if exchange.left or not stream.started:
            raise
        exchange.come_back()  # the server stops, and this client can still be told
        out = pipe.finish(shutdown())
    except Exception as error:
        if not stream.started:
            raise
        services.logger.fault("a stream broke off inside the gateway", error, request_id=exchange.id)
        out = pipe.finish(ApiError("something went wrong inside the gateway"))
    if pipe.error is not None and not stream.started:
        raise pipe.error
    await stream.end(out)
    if pieces is not None:
        await _drain(exchange, turn, pieces)


async def _drain(exchange: Exchange, turn: Turn, pieces: AsyncIterator[bytes]) -> None:
    """Lets the upstream's body come to its end, so that its connection can be used again."""
    exchange.unwatch()
    timer = asyncio.get_running_loop().call_later(LINGER, turn.abort)
    with suppress(ApiError):
        async for _ in pieces:
            pass
    timer.cancel()


def _style(scope: Scope) -> Style:
    """API-6: what the client says it reads, else what clients like it are known to read."""
    match first_of(scope, b"antiphon-style"):
        case b"":
            return style_of(first_of(scope, b"user-agent")[:512].decode("latin-1"))
        case b"standard":
            return "standard"
        case b"older":
            return "older"
        case other:
            came = other[:50].decode("latin-1")
            raise ClientFault(f"the header Antiphon-Style: got {came!r}, wanted 'standard' or 'older'", param="antiphon-style")


def _wants_losses(scope: Scope) -> bool:
    """Whether the client asked for the extension event that tells what was lost."""
    asked = first_of(scope, b"antiphon-extensions").decode("latin-1").lower()
    return "losses" in (word.strip() for word in asked.split(","))


def _reporter(services: Services, exchange: Exchange) -> Callable[[Violation], None]:
    def report(violation: Violation) -> None:
        services.logger.event(
            "grammar_violation", request_id=exchange.id, row=violation.row, message=violation.message, sequence=violation.sequence
        )

    return report
