"""Prepares, finishes and abandons turns, for HTTP and WebSocket alike. The history is resolved first, and the response
is stored before the client receives its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from antiphon.errors import ApiError, ClientFault, StorageUnavailable
from antiphon.gateway.compaction import CompactionOpener
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.conversation import JoinedConversation, conversation_id_of
from antiphon.gateway.history import HistorySource, PastTurns, is_self_contained, lacks_reasoning, resolve_history
from antiphon.gateway.managed_turn import ManagedTurn
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.planning import needs_context_plan
from antiphon.gateway.preparation import prepare_request
from antiphon.gateway.recording import ResponseRecorder
from antiphon.gateway.request_log import RequestLog
from antiphon.gateway.turn import UpstreamTurn
from antiphon.protocol import codec
from antiphon.protocol.errors import Error
from antiphon.protocol.grammar import Violation
from antiphon.protocol.losses import Loss, Losses
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus
from antiphon.store.interface import StoredTurn
from antiphon.trace.writer import Trace
from antiphon.upstream.transport import Flow


class PreparedTurn:
    """A turn that is ready to be sent, and the turns that it continues."""

    def __init__(self, turn: UpstreamTurn, before: PastTurns) -> None:
        self.turn = turn
        self.before = before


async def prepare_turn(
    services: GatewayContext,
    request: Request,
    losses: Losses,
    archive: HistorySource,
    log_entry: RequestLog,
    trace: Trace | None,
    *,
    keeps_history: bool = False,
    strict: bool | None = None,
) -> PreparedTurn:
    """Validates and prepares a request; raises every client error before the upstream is contacted. With
    `keeps_history` the turn is recorded although it is not stored. `strict` refuses lossy translation; None means the
    upstream's setting."""
    log_entry.model = request.model or None
    target = services.routes.find(request.model)
    upstream = target.upstream
    log_entry.upstream = upstream.name
    if strict is None:
        strict = upstream.config.losses == "strict"
    incoming_losses = list(losses) if strict else []
    if trace is not None:
        config = upstream.config
        trace.record_route(upstream.name, config.dialect, target.model, config.profile_name, bool(request.stream))
    if request.stream_options and not request.stream:
        raise ClientFault("stream_options: allowed only with `stream: true`", param="stream_options")
    stored = services.store if request.store is not False else None
    conversation = conversation_id_of(request)
    before: PastTurns = []
    own = raw = None
    wire = upstream.profile.wire
    maker = wire.maker if stored is not None and wire.wants_reasoning_back else None
    if not is_self_contained(request) or (maker is not None and lacks_reasoning(request)):
        allow_orphans = getattr(upstream.profile.wire, "orphan_outputs", "error") != "error"
        opener = CompactionOpener(
            seal=services.seal, owner=archive.owner, keeps_foreign=upstream.config.dialect == "responses"
        )
        resolved = await resolve_history(request, archive, allow_orphans=allow_orphans, opener=opener, maker=maker)
        request, own, before, raw = resolved.request, resolved.new_items, resolved.past_turns, resolved.sealed_items
        losses.extend(resolved.losses)
    plan = None
    if needs_context_plan(request, own):
        own = input_items(request) if own is None else own
        plan = await services.planner.make_plan(
            request, own if raw is None else raw, own, target, archive.owner, losses
        )
        request = plan.request
    if trace is not None:
        trace.record_hub_request(codec.encode(request))
        trace.record_note("kept", int(stored is not None))
    prepared = prepare_request(request, target, is_stored=stored is not None)
    if strict:
        _refuse_losses([*incoming_losses, *prepared.losses])
    if plan is not None and plan.compactor is not None:
        prepared.losses = Losses()  # the compacted conversation is translated later
    prepared.losses.extend(losses)
    recorder = None
    joined = (
        JoinedConversation(id=conversation, store=archive.store)
        if conversation is not None and archive.store is not None
        else None
    )
    if stored is not None or joined is not None or keeps_history:
        recorder = ResponseRecorder(
            stored, archive.owner, input_items(request) if own is None else own, services.stamps, joined
        )
    turn = (
        UpstreamTurn(prepared, services.stamps, services.pad, trace, recorder, services.output_limits)
        if plan is None
        else ManagedTurn(prepared, services.stamps, services.pad, trace, recorder, plan, services.output_limits)
    )
    turn.allows_lossy_retry = not strict
    turn.on_retry = partial(_log_refused_reasoning, services, upstream.name, turn.initial_response.id)
    if services.telemetry is not None:
        turn.extra_headers = services.telemetry.start_turn(log_entry)
    log_entry.response_id = turn.initial_response.id
    log_entry.losses = len(prepared.losses)
    if trace is not None:
        turn.note_omissions()
        trace.record_losses(prepared.losses)
    return PreparedTurn(turn, before)


def _log_refused_reasoning(services: GatewayContext, upstream: str, response_id: str, error: ApiError) -> None:
    fields = {"upstream": upstream, "response_id": response_id, "code": error.code, "message": error.message}
    services.logger.event("reasoning_refused", level="warning", **fields)


def _refuse_losses(losses: list[Loss]) -> None:
    """REQ-6: refuses translation losses. What `truncation` drops at the client's request is no translation loss."""
    if losses:
        listed = "; ".join(map(str, losses[:MAX_LISTED_LOSSES])) + ("; …" if len(losses) > MAX_LISTED_LOSSES else "")
        raise ClientFault(
            f"strict mode: the request cannot be translated without loss: {listed}",
            code="lossy_translation",
            param=losses[0].path,
        )


async def finish_turn(services: GatewayContext, turn: UpstreamTurn, pipe: Pipe) -> tuple[bytes, StoredTurn | None]:
    """Stores the response, then returns the end of the stream and the stored turn. If storing fails, the stream ends
    with a failure."""
    if turn.recorder is None or pipe.recorded_response is None:
        return b"", None
    try:
        stored_turn = await turn.recorder.save(pipe.recorded_response)
    except StorageUnavailable as error:
        services.logger.fault("a response could not be kept", error, response_id=turn.initial_response.id)
        return (pipe.fail(error) if pipe.is_holding_end else b""), None
    return pipe.release(), stored_turn


async def record_abandoned_turn(services: GatewayContext, turn: UpstreamTurn, pipe: Pipe | None) -> None:
    """Stores the turn of a client that disconnected as a failed response, so that every started turn has an end. Aborts
    the upstream first."""
    turn.abort()
    if turn.recorder is None or turn.recorder.has_started:
        return
    left = ApiError("the client left before the end", code="client_disconnected")
    response: Response | None = None
    if pipe is not None:
        pipe.finish(left)
        response = pipe.recorded_response
    if response is None or response.status != ResponseStatus.FAILED:
        error = Error(code=left.code, message=left.message)
        response = replace(
            response or turn.initial_response, status=ResponseStatus.FAILED, completed_at=None, error=error
        )
    try:
        await turn.recorder.save(response)
    except StorageUnavailable as error:
        services.logger.fault("a response could not be kept", error, response_id=turn.initial_response.id)


async def drain_upstream(turn: UpstreamTurn, flow: Flow) -> None:
    """Reads the upstream's body to its end, so that its connection can be reused."""
    if turn.has_complete_response:
        return
    timer = asyncio.get_running_loop().call_later(DRAIN_TIMEOUT, turn.abort)
    with suppress(ApiError):
        await flow(_anything)
    timer.cancel()


def _anything(piece: bytes) -> bool:
    del piece
    return True


def shutdown_error() -> ApiError:
    """The error for turns that did not finish before the shutdown."""
    return ApiError("the gateway is being stopped", code="server_shutdown", status=503)


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


MAX_LISTED_LOSSES: Final = 20  # losses in an error message
DRAIN_TIMEOUT: Final = 0.5  # seconds that an upstream has to end its body after the terminal event
