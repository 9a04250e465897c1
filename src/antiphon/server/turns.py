"""How a turn begins and how it ends, on HTTP and on WebSocket alike: what it stands on is looked up first, and what it came to is
kept before the client hears that it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from antiphon.errors import ApiError, ClientFault, StorageUnavailable
from antiphon.gateway.compaction import Unsealing
from antiphon.gateway.conversation import Joined, conversation_of
from antiphon.gateway.history import Archive, Past, ground, lacks_reasoning, stands_alone
from antiphon.gateway.keeping import Keeper
from antiphon.gateway.managed_turn import ManagedTurn
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.planning import is_planned
from antiphon.gateway.preparing import prepare
from antiphon.gateway.turn import Turn
from antiphon.protocol import codec
from antiphon.protocol.errors import Error
from antiphon.protocol.grammar import Violation
from antiphon.protocol.losses import Loss, Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.server.logs import RequestLine
from antiphon.server.services import Services
from antiphon.store.interface import Turn as Kept
from antiphon.trace.writing import Trace
from antiphon.upstream.transport import Flow


class Begun:
    """A turn that may be asked, and all that it continues."""

    def __init__(self, turn: Turn, before: Past) -> None:
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
    strict: bool | None = None,
) -> Begun:
    """Everything that can be wrong with a request comes out here, before the upstream sees any of it. With `remembers` the turn is
    written down though nobody stores it; `strict` has it refused if its translation loses anything, None leaves that to the
    upstream's setting."""
    line.model = request.model or None
    target = services.routes.find(request.model)
    upstream = target.upstream
    line.upstream = upstream.name
    if strict is None:
        strict = upstream.config.losses == "strict"
    came = list(losses) if strict else []
    if trace is not None:
        config = upstream.config
        trace.route(upstream.name, config.dialect, target.model, config.profile_name, bool(request.stream))
    if request.stream_options and not request.stream:
        raise ClientFault("stream_options: only a request with `stream: true` may have them", param="stream_options")
    stored = services.store if request.store is not False else None
    conversation = conversation_of(request)
    before: Past = []
    own = raw = None
    wire = upstream.profile.wire
    maker = wire.maker if stored is not None and wire.wants_reasoning_back else None
    if not stands_alone(request) or (maker is not None and lacks_reasoning(request)):
        allow_orphans = getattr(upstream.profile.wire, "orphan_outputs", "error") != "error"
        unsealing = Unsealing(seal=services.seal, owner=archive.owner, keeps_foreign=upstream.config.dialect == "responses")
        found = await ground(request, archive, allow_orphans=allow_orphans, unsealing=unsealing, maker=maker)
        request, own, before, raw = found.request, found.own, found.past, found.raw
        losses.extend(found.losses)
    plan = None
    if is_planned(request, own):
        own = input_items(request) if own is None else own
        plan = await services.planner.plan(request, own if raw is None else raw, own, target, archive.owner, losses)
        request = plan.request
    if trace is not None:
        trace.hub_request(codec.encode(request))
        trace.note("kept", int(stored is not None))
    prepared = prepare(request, target, keeps=stored is not None)
    if strict:
        _refuse_losses([*came, *prepared.losses])
    if plan is not None and plan.compactor is not None:
        prepared.losses = Losses()  # what is sent will be another conversation
    prepared.losses.extend(losses)
    keeper = None
    joined = Joined(id=conversation, store=archive.store) if conversation is not None and archive.store is not None else None
    if stored is not None or joined is not None or remembers:
        keeper = Keeper(stored, archive.owner, input_items(request) if own is None else own, services.stamps, joined)
    turn = (
        Turn(prepared, services.stamps, services.pad, trace, keeper, services.output_limits)
        if plan is None
        else ManagedTurn(prepared, services.stamps, services.pad, trace, keeper, plan, services.output_limits)
    )
    turn.asks_again = not strict
    turn.on_asking_again = partial(_log_refused_reasoning, services, upstream.name, turn.opening.id)
    if services.telemetry is not None:
        turn.headers = services.telemetry.begin(line)
    line.response_id = turn.opening.id
    line.losses = len(prepared.losses)
    if trace is not None:
        turn.note_left_out()
        trace.losses(prepared.losses)
    return Begun(turn, before)


def _log_refused_reasoning(services: Services, upstream: str, response_id: str, error: ApiError) -> None:
    said = {"upstream": upstream, "response_id": response_id, "code": error.code, "message": error.message}
    services.logger.event("reasoning_refused", level="warning", **said)


def _refuse_losses(losses: list[Loss]) -> None:
    """REQ-6: what a turn does to its conversation by the client's own wish (`truncation`) is no loss of translation."""
    if losses:
        told = "; ".join(map(str, losses[:MOST_TOLD])) + ("; …" if len(losses) > MOST_TOLD else "")
        raise ClientFault(
            f"losses are to be refused, and this upstream cannot be told all: {told}",
            code="lossy_translation",
            param=losses[0].path,
        )


async def end(services: Services, turn: Turn, pipe: Pipe) -> tuple[bytes, Kept | None]:
    """The end of a stream, once its response is safe, and what was kept; else that it could not be kept, which is its failure."""
    if turn.keeper is None or pipe.kept is None:
        return b"", None
    try:
        kept = await turn.keeper.keep(pipe.kept)
    except StorageUnavailable as error:
        services.logger.fault("a response could not be kept", error, response_id=turn.opening.id)
        return (pipe.fail(error) if pipe.holds else b""), None
    return pipe.release(), kept


async def keep_abandoned(services: Services, turn: Turn, pipe: Pipe | None) -> None:
    """A turn whose client left: what there is of it is kept as a failed response, so that every turn that began has one end. The
    upstream does not wait for that."""
    turn.abort()
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


async def drain(turn: Turn, flow: Flow) -> None:
    """Lets the upstream's body come to its end, so that its connection can be used again."""
    if turn.has_heard_all:
        return
    timer = asyncio.get_running_loop().call_later(LINGER, turn.abort)
    with suppress(ApiError):
        await flow(_anything)
    timer.cancel()


def _anything(piece: bytes) -> bool:
    del piece
    return True


def reporter(services: Services, request_id: str) -> Callable[[Violation], None] | None:
    """`serve --debug`: what is wrong with a stream of ours is a line in the log."""
    if not services.debug:
        return None

    def report(violation: Violation) -> None:
        services.logger.event(
            "grammar_violation", request_id=request_id, row=violation.row, message=violation.message, sequence=violation.sequence
        )

    return report


MOST_TOLD: Final = 20  # losses
LINGER: Final = 0.5  # seconds that an upstream has to end its body once it has said everything
