"""Prepares a turn in explicit steps: route, resolve the history, plan the context, prepare the upstream's request.

Nothing is sent to the upstream here, so every error of the client is raised before the upstream is contacted.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec import Struct

from antiphon.dialects.common.original_form import without_restored_losses
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.compaction import CompactionOpener
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.conversation import JoinedConversation
from antiphon.gateway.history import (
    CALLS,
    COMPACTION_KINDS,
    OUTPUTS,
    HistorySource,
    PastTurns,
    resolve_history,
)
from antiphon.gateway.managed_turn import ContextPlan, ManagedTurn
from antiphon.gateway.planning import has_trigger
from antiphon.gateway.preparation import OriginalRequest, PreparedRequest, prepare_request
from antiphon.gateway.recording import ResponseRecorder
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.restore_reasoning import find_missing_reasoning
from antiphon.gateway.routes import Target
from antiphon.gateway.tool_choice import check_a_tool_is_left, check_tool_choice
from antiphon.gateway.turn import UpstreamTurn
from antiphon.protocol import codec
from antiphon.protocol.items import ItemParam, ItemReference
from antiphon.protocol.losses import Loss, Losses
from antiphon.protocol.request import Request, conversation_id_of, input_items
from antiphon.store.interface import Store
from antiphon.trace.writer import Trace


class PreparedTurn(Struct, frozen=True):
    """A turn that is ready to be sent, and the turns that it continues."""

    turn: UpstreamTurn
    recorder: ResponseRecorder | None
    past_turns: PastTurns


class _History(Struct, frozen=True, kw_only=True):
    """A request whose input is the whole conversation."""

    request: Request
    new_items: list[ItemParam] | None = None  # None: the input of the request, which continues nothing
    past_turns: PastTurns = []
    sealed_items: list[ItemParam] | None = None  # None: there is no compaction in the conversation


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
    original: OriginalRequest | None = None,
) -> PreparedTurn:
    """Prepares the turn of a request. `losses` are those of its translation to the hub. With `keeps_history` the turn
    is recorded although it is not stored. `strict` refuses lossy translation; None means the upstream's setting."""
    request = services.routes.with_model(request)
    target = _route(services, request, log_entry, trace)
    if strict is None:
        strict = target.upstream.config.losses == "strict"
    translation_losses = list(losses) if strict else []
    if request.stream_options and not request.stream:
        raise ClientFault("stream_options: allowed only with `stream: true`", param="stream_options")
    store = services.store if request.store is not False else None
    conversation_id = conversation_id_of(request)
    history = await _resolve_history(services, request, archive, target, is_stored=store is not None, losses=losses)
    if request.tool_choice:
        field = FIELD_OF_TOOL_CHOICE.get(original.dialect if original else "", "tool_choice")
        check_tool_choice(history.request, field)
    plan = await _plan_context(services, history, archive.owner, target, losses)
    request = history.request if plan is None else plan.request
    if trace is not None:
        trace.record_hub_request(codec.encode(request))
        trace.record_note("kept", int(store is not None))
    prepared = prepare_request(request, target.plan_translation(is_stored=store is not None), original)
    if original is not None and original.dialect == target.upstream.profile.dialect and len(losses):
        losses = without_restored_losses(losses, original.body, prepared.body)
        translation_losses = [loss for loss in translation_losses if loss in losses]
    if strict:
        _refuse_losses([*translation_losses, *prepared.losses])
    if original is not None and CLIENT_DIALECTS[original.dialect].needs_a_tool:
        check_a_tool_is_left(request, prepared.losses, target.upstream.name)
    if plan is not None and plan.compactor is not None:
        prepared.losses = Losses()  # the compacted conversation is translated later
    prepared.losses.extend(losses)
    recorder = _make_recorder(services, archive, store, conversation_id, history, keeps_history=keeps_history)
    turn = _make_turn(services, prepared, target, trace, recorder, plan)
    turn.allows_lossy_retry = not strict
    turn.on_retry = partial(_log_refused_reasoning, services, target.upstream.name, turn.initial_response.id)
    if services.telemetry is not None:
        turn.extra_headers = services.telemetry.start_turn(log_entry)
    log_entry.response_id = turn.initial_response.id
    log_entry.losses = len(prepared.losses)
    if trace is not None:
        turn.note_omissions()
        trace.record_losses(prepared.losses)
    return PreparedTurn(turn, recorder, history.past_turns)


def _route(services: GatewayContext, request: Request, log_entry: RequestLog, trace: Trace | None) -> Target:
    log_entry.model = request.model or None
    target = services.routes.find(request.model)
    config = target.upstream.config
    log_entry.upstream = target.upstream.name
    if trace is not None:
        trace.record_route(
            target.upstream.name, config.dialect, target.model, config.profile_name, bool(request.stream)
        )
    return target


def is_self_contained(request: Request) -> bool:
    """Whether a request can be sent without any lookup. Quick to check for most requests."""
    if request.previous_response_id or request.conversation:
        return False
    if type(request.input) is not list:
        return True
    call_ids: set[str] = set()
    for item in request.input:
        kind = type(item)  # `isinstance` costs ten times as much, and this runs for every item of every request
        if kind in CALL_KINDS:
            call_ids.add(item.call_id)  # type: ignore[union-attr, arg-type]
        elif kind in DEPENDENT_KINDS and getattr(item, "call_id", None) not in call_ids:
            return False
    return True


def lacks_reasoning(request: Request) -> bool:
    """Whether the history has a call or a reasoning item without its sealed reasoning."""
    return type(request.input) is list and any(find_missing_reasoning(request.input))


async def _resolve_history(
    services: GatewayContext,
    request: Request,
    archive: HistorySource,
    target: Target,
    *,
    is_stored: bool,
    losses: Losses,
) -> _History:
    """Loads what the request refers to, and the sealed reasoning that the upstream wants back."""
    upstream = target.upstream
    wire = upstream.profile.wire
    maker = upstream.reasoning_maker if is_stored else None
    if is_self_contained(request) and (maker is None or not lacks_reasoning(request)):
        return _History(request=request)
    opener = CompactionOpener(
        seal=services.seal, owner=archive.owner, keeps_foreign=upstream.server_dialect.opens_foreign_compaction
    )
    allow_orphans = getattr(wire, "orphan_outputs", "error") != "error"
    resolved = await resolve_history(request, archive, allow_orphans=allow_orphans, opener=opener, maker=maker)
    losses.extend(resolved.losses)
    return _History(
        request=resolved.request,
        new_items=resolved.new_items,
        past_turns=resolved.past_turns,
        sealed_items=resolved.sealed_items,
    )


async def _plan_context(
    services: GatewayContext, history: _History, owner: str, target: Target, losses: Losses
) -> ContextPlan | None:
    """Plans how the conversation is shortened; None if it is sent as it is."""
    request, new_items = history.request, history.new_items
    if not needs_context_plan(request, new_items):
        return None
    if new_items is None:
        new_items = input_items(request)
    sealed_items = new_items if history.sealed_items is None else history.sealed_items
    return await services.planner.make_plan(request, sealed_items, new_items, target, owner, losses)


def needs_context_plan(request: Request, new_items: list[ItemParam] | None) -> bool:
    """Whether a request asks for compaction or truncation. `new_items` are known if its history was resolved."""
    return (
        bool(request.context_management)
        or request.truncation == "auto"
        or (new_items is not None and has_trigger(new_items))
    )


def _make_recorder(
    services: GatewayContext,
    archive: HistorySource,
    store: Store | None,
    conversation_id: str | None,
    history: _History,
    *,
    keeps_history: bool,
) -> ResponseRecorder | None:
    """The recorder of a turn; None if nothing is recorded."""
    conversation = (
        JoinedConversation(id=conversation_id, store=archive.store)
        if conversation_id is not None and archive.store is not None
        else None
    )
    if store is None and conversation is None and not keeps_history:
        return None
    new_items = input_items(history.request) if history.new_items is None else history.new_items
    return ResponseRecorder(store, archive.owner, new_items, services.stamps, conversation)


def _make_turn(
    services: GatewayContext,
    prepared: PreparedRequest,
    target: Target,
    trace: Trace | None,
    recorder: ResponseRecorder | None,
    plan: ContextPlan | None,
) -> UpstreamTurn:
    stamps, pad, limits = services.stamps, services.pad, services.output_limits
    if plan is None:
        return UpstreamTurn(prepared, target, stamps, pad, trace, recorder, limits)
    return ManagedTurn(prepared, target, stamps, pad, trace, recorder, plan, limits)


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


FIELD_OF_TOOL_CHOICE: Final = {"gemini": "toolConfig.functionCallingConfig"}  # where it is not `tool_choice`
MAX_LISTED_LOSSES: Final = 20  # losses in an error message
CALL_KINDS: Final[frozenset[type]] = frozenset(CALLS)
DEPENDENT_KINDS: Final[frozenset[type]] = frozenset({ItemReference, *COMPACTION_KINDS, *OUTPUTS})
