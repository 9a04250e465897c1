"""How a turn begins and how it ends, on HTTP and on WebSocket alike: what it stands on is looked up first, and what it came to is
kept before the client hears that it is over.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from antiphon.errors import ApiError, ClientFault, StorageUnavailable
from antiphon.gateway.history import Archive, ground, stands_alone
from antiphon.gateway.keeping import Keeper
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.turn import Turn, prepare
from antiphon.protocol import codec
from antiphon.protocol.errors import Error
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.server.logs import RequestLine
from antiphon.server.services import Services
from antiphon.store.interface import Turn as Kept
from antiphon.trace.writing import Trace


class Begun:
    """A turn that may be asked, and all that it continues."""

    def __init__(self, turn: Turn, before: list[Kept]) -> None:
        self.turn = turn
        self.before = before


async def begin(
    services: Services,
    request: Request,
    losses: Losses,
    archive: Archive,
    line: RequestLine,
    trace: Trace | None,
    *,
    remembers: bool = False,
) -> Begun:
    """Everything that can be wrong with a request comes out here, before the upstream sees any of it. With `remembers` the turn is
    written down though nobody stores it."""
    line.model = request.model or None
    target = services.routes.find(request.model)
    upstream = target.upstream
    line.upstream = upstream.name
    if trace is not None:
        config = upstream.config
        trace.route(upstream.name, config.dialect, target.model, config.profile_name, bool(request.stream))
    if request.stream_options and not request.stream:
        raise ClientFault("stream_options: only a request with `stream: true` may have them", param="stream_options")
    stored = services.store if request.store is not False else None
    before: list[Kept] = []
    own = None
    if not stands_alone(request):
        allow_orphans = getattr(upstream.profile.wire, "orphan_outputs", "error") != "error"
        found = await ground(request, archive, allow_orphans=allow_orphans)
        request, own, before = found.request, found.own, found.turns
        losses.extend(found.losses)
    if trace is not None:
        trace.hub_request(codec.encode(request))
        trace.note("kept", int(stored is not None))
    prepared = prepare(request, target, keeps=stored is not None)
    prepared.losses.extend(losses)
    keeper = None
    if stored is not None or remembers:
        keeper = Keeper(stored, archive.owner, input_items(request) if own is None else own, services.stamps)
    turn = Turn(prepared, services.stamps, services.pad, trace, keeper)
    line.response_id = turn.opening.id
    line.losses = len(prepared.losses)
    if trace is not None:
        trace.losses(prepared.losses)
    return Begun(turn, before)


async def end(services: Services, turn: Turn, pipe: Pipe) -> tuple[bytes, Kept | None]:
    """The end of a stream, once its response is safe, and what was kept; else that it could not be kept, which is its failure."""
    if turn.keeper is None or pipe.kept is None:
        return b"", None
    try:
        kept = await _keep_surely(turn.keeper, pipe.kept)
    except StorageUnavailable as error:
        services.logger.fault("a response could not be kept", error, response_id=turn.opening.id)
        return (pipe.fail(error) if pipe.holds else b""), None
    return pipe.release(), kept


async def _keep_surely(keeper: Keeper, response: Response) -> Kept:
    """Whoever is told to hurry in the middle of this would not know whether the response is kept. It is kept once more, in its own
    place: what comes of that is what came of both."""
    try:
        return await keeper.keep(response)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return await keeper.keep(response)


async def keep_abandoned(services: Services, turn: Turn, pipe: Pipe | None) -> None:
    """A turn whose client left: what there is of it is kept as a failed response, so that every turn that began has one end."""
    if turn.keeper is None or turn.keeper.has_begun:
        return
    left = ApiError("the client left before the end", code="client_disconnected")
    response: Response | None = None
    if pipe is not None:
        pipe.finish(left)
        response = pipe.kept
    if response is None or response.status != ResponseStatus.FAILED:
        error = Error(code=left.code, message=left.message)
        response = replace(response or turn.opening, status=ResponseStatus.FAILED, completed_at=None, error=error)
    try:
        await turn.keeper.keep(response)
    except StorageUnavailable as error:
        services.logger.fault("a response could not be kept", error, response_id=turn.opening.id)
