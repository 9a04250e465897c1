"""Prepares the data of a turn: from the client's body, through the history that it continues, to the upstream's body.

This is the work of a request that takes time. It asks a `PreparationHost` for everything that is not in the body, so it
runs in the process of the gateway or, for large bodies, in another one (`worker_pool`). `prepare_request`, the
translation itself, is pure: from a request and a plan to the upstream's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from operator import attrgetter
from typing import Any, Final, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.original_form import keep_original_form, without_restored_losses
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.common.request_fields import refuse_several_answers
from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS, Wire
from antiphon.errors import ClientFault, UnsupportedParameter
from antiphon.gateway.client_body import (
    BodyForm,
    ClientBody,
    InputLimits,
    check_input,
    check_part_types,
    read_client_body,
)
from antiphon.gateway.compaction import CompactionOpener
from antiphon.gateway.history import (
    CALLS,
    COMPACTION_KINDS,
    OUTPUTS,
    HistorySource,
    PastTurns,
    resolve_history,
)
from antiphon.gateway.planning import ContextPlan, has_trigger, plan_context
from antiphon.gateway.recording import RecordedInput, input_with_ids, without_recorded_input
from antiphon.gateway.restore_reasoning import find_missing_reasoning
from antiphon.gateway.routing.facts import RequestFacts, facts_of, with_history
from antiphon.gateway.routing.wishes import RoutingWishes, take_wishes
from antiphon.gateway.sealing import Seal
from antiphon.gateway.tool_choice import check_a_tool_is_left, check_tool_choice
from antiphon.gateway.upstreams import TranslationPlan
from antiphon.protocol import codec
from antiphon.protocol.items import (
    AdditionalTools,
    ItemParam,
    ItemReference,
    MessageParam,
    ReasoningParam,
    ToolSearchOutput,
)
from antiphon.protocol.losses import Loss, Losses
from antiphon.protocol.request import Request, conversation_id_of, input_items
from antiphon.protocol.stamps import Stamps


class OriginalRequest(Struct, frozen=True):
    """The body of a client, and its dialect."""

    dialect: ClientDialectName
    body: bytes


class PreparedRequest(Struct, kw_only=True):
    """A translated request. Only `body`, `retry_source` and `original` hold the history; they are released before or
    when the body is sent, because a response may take long and its reader needs only the settings and tools."""

    plan: TranslationPlan
    request: Request  # the client's, with effective values
    upstream_request: Request  # the one that the upstream gets
    body: bytes
    losses: Losses
    #: The request with its history, if it may hold a part that the upstream refuses.
    retry_source: Request | None = None
    original: OriginalRequest | None = None

    def release_retry_source(self) -> bool:
        """Releases the history for a retry, which has to be prepared again then; whether there was one. The decoded
        history of the requests in flight would fill the caches of the processor."""
        has_source = self.retry_source is not None
        self.retry_source = self.original = None
        return has_source


class RetryRequest(Struct, frozen=True, kw_only=True):
    """The request for a retry without a part that the upstream refused."""

    body: bytes
    losses: Losses
    wire: Wire | None = None  # wire options without the part; None: the part was in this turn's history


class TurnOutline(Struct, frozen=True, kw_only=True):
    """The facts of a request that decide where it goes and what it may look up."""

    model: str | None
    streams: bool
    is_stored: bool  # unless the gateway stores nothing
    previous_response_id: str | None
    has_conversation: bool
    is_warm_up: bool  # `generate: false`
    facts: RequestFacts | None = None  # if the model has several targets; they take time to find
    has_whole_facts: bool = False  # the facts are those of the whole conversation


class Directions(Struct, frozen=True, kw_only=True):
    """How the gateway wants a request to be prepared."""

    model: str  # the client's name of the model, or the default
    upstream: str  # its name
    plan: TranslationPlan
    strict: bool  # refuse lossy translation
    maker: str | None  # the maker of the reasoning that the upstream wants back
    limits: InputLimits
    keeps_history: bool  # the turn is recorded although it is not stored
    is_traced: bool


class PreparationHost(Protocol):
    """The gateway, as the preparation of one turn sees it."""

    @property
    def seal(self) -> Seal: ...

    @property
    def stamps(self) -> Stamps: ...

    async def accepts_wishes(self, wishes: RoutingWishes) -> bool:
        """Whether what the client says about routing is for this gateway, which then routes by it."""
        ...

    async def direct(self, outline: TurnOutline) -> Directions | None:
        """Routes the request, or raises the client's error. None: the model has several targets, and the outline lacks
        the facts by which one is chosen: those of the request, or those of the whole conversation."""
        ...

    async def history_source(self) -> HistorySource:
        """The source of what the request refers to. Called after `direct`, whatever it returned."""
        ...

    async def context_size(self) -> int | None:
        """The context size of the routed model, if it is known."""
        ...


class QueuedRequest(Struct, frozen=True, kw_only=True):
    """A request for the background queue."""

    content: bytes
    streams: bool  # whether the client wants the events as they come
    is_self_contained: bool  # nothing of the store was needed to prepare it


class TurnData(Struct, kw_only=True):
    """The data of a prepared turn."""

    prepared: PreparedRequest
    losses: Losses  # all losses so far
    past_turns: PastTurns
    conversation_id: str | None
    recorded_input: RecordedInput | None  # None: the turn is not recorded
    context_plan: ContextPlan | None  # None: the conversation is sent as it is
    hub_request: bytes | None  # for the trace
    queued_request: QueuedRequest | None  # for the background queue
    is_warm_up: bool
    can_retry: bool = False  # set if another process has released `prepared.retry_source`


class _History(Struct, frozen=True, kw_only=True):
    """A request whose input is the whole conversation."""

    request: Request
    new_items: list[ItemParam] | None = None  # None: the input of the request, which continues nothing
    past_turns: PastTurns = []
    sealed_items: list[ItemParam] | None = None  # None: there is no compaction in the conversation


async def prepare_data(body: ClientBody, host: PreparationHost) -> TurnData:
    """Prepares the data of a turn, or raises the client's error. Nothing is sent to the upstream."""
    request, losses, has_unknown_parts = read_client_body(body)
    if (request.extra or losses) and body.form in FORMS_WITH_WISHES:
        rest = await _take_wishes(body, host)
        if rest is not None:
            body = rest
            request, losses, has_unknown_parts = read_client_body(body)
    outline = outline_of(request)
    directions = await host.direct(outline)
    if directions is None:
        outline = replace(outline, facts=facts_of(request), has_whole_facts=is_self_contained(request))
        directions = await host.direct(outline)
    if directions is None:
        directions = await host.direct(await _with_whole_facts(outline, request, host))
    assert directions is not None  # it has the facts
    plan = directions.plan
    check_input(request, directions.limits, CLIENT_DIALECTS[body.dialect].input_field)
    is_translated = has_unknown_parts and body.dialect != plan.profile.dialect
    if is_translated and not getattr(plan.wire, "native_types", False):
        check_part_types(request, body, losses)
    if request.model != directions.model or request.generate is not UNSET:
        request = replace(request, model=directions.model, generate=UNSET)
    original = OriginalRequest(body.dialect, body.content) if body.form == "turn" else None
    translation_losses = list(losses) if directions.strict else []
    if request.stream_options and not request.stream:
        raise ClientFault("stream_options: allowed only with `stream: true`", param="stream_options")
    conversation_id = conversation_id_of(request)
    streams, is_queued = bool(request.stream), body.form == "stored"
    if request.background and not is_queued:
        # It is prepared as the runner would prepare what is stored of it.
        request, original = replace(request, stream=True, stream_options=UNSET), None
    history = (
        _History(request=request)
        if _is_whole(request, directions)
        else await _resolve_history(request, host, directions, losses)
    )
    if request.tool_choice:
        check_tool_choice(history.request, FIELD_OF_TOOL_CHOICE.get(body.dialect, "tool_choice"))
    context_plan = (
        await _plan_context(history, host, losses) if needs_context_plan(history.request, history.new_items) else None
    )
    full_request = history.request if context_plan is None else context_plan.request
    prepared = prepare_request(full_request, plan, original)
    if original is not None and original.dialect == plan.profile.dialect and len(losses):
        losses = without_restored_losses(losses, original.body, prepared.body)
        translation_losses = [loss for loss in translation_losses if loss in losses]
    if directions.strict:
        refuse_losses([*translation_losses, *prepared.losses])
    if original is not None and CLIENT_DIALECTS[original.dialect].needs_a_tool:
        check_a_tool_is_left(full_request, prepared.losses, directions.upstream)
    if context_plan is not None and context_plan.compacts:
        prepared.losses = Losses()  # the compacted conversation is translated later
    prepared.losses.extend(losses)
    is_recorded = plan.is_stored or conversation_id is not None or directions.keeps_history
    new_items = input_items(history.request) if history.new_items is None else history.new_items
    # The input of a queued request was recorded when it was queued.
    recorded_input = input_with_ids([] if is_queued else new_items, host.stamps) if is_recorded else None
    return TurnData(
        prepared=prepared,
        losses=prepared.losses,
        past_turns=history.past_turns,
        conversation_id=conversation_id,
        recorded_input=recorded_input,
        context_plan=context_plan,
        hub_request=codec.encode(full_request) if directions.is_traced else None,
        queued_request=QueuedRequest(
            content=_encode_for_queue(request, recorded_input if history.new_items is None else None),
            streams=streams,
            is_self_contained=history.new_items is None,
        )
        if request.background and not is_queued
        else None,
        is_warm_up=outline.is_warm_up,
    )


async def _take_wishes(body: ClientBody, host: PreparationHost) -> ClientBody | None:
    """The body without its words about routing; None if it has none, or if they are for a router behind this gateway.
    No dialect has such members, so they are unknown members, which are in `extra` or are losses."""
    rest, wishes = take_wishes(body.content)
    if wishes is None or not await host.accepts_wishes(wishes):
        return None
    return replace(body, content=rest)


async def _with_whole_facts(outline: TurnOutline, request: Request, host: PreparationHost) -> TurnOutline:
    """The outline with the facts of the whole conversation. Its history is read for any target; the one that is chosen
    may open more of it."""
    archive = await host.history_source()
    opener = CompactionOpener(seal=host.seal, owner=archive.owner, keeps_foreign=True)
    resolved = await resolve_history(request, archive, allow_orphans=True, opener=opener)
    assert outline.facts is not None  # those of the request
    return replace(outline, facts=with_history(outline.facts, resolved.request), has_whole_facts=True)


async def prepare_retry_data(
    body: ClientBody, host: PreparationHost, refused_parts: Sequence[RefusedPart]
) -> RetryRequest | None:
    """Prepares a turn again, without the parts that the upstream refused; None if it lacks one of them."""
    prepared = (await prepare_data(body, host)).prepared
    if prepared.retry_source is None:
        return None
    return prepare_retry(prepared.retry_source, prepared.plan, refused_parts, prepared.original)


def outline_of(request: Request) -> TurnOutline:
    return TurnOutline(
        model=request.model or None,
        streams=bool(request.stream),
        is_stored=request.store is not False,
        previous_response_id=request.previous_response_id or None,
        has_conversation=bool(request.conversation),
        is_warm_up=request.generate is False,
    )


def is_self_contained(request: Request) -> bool:
    """Whether a request can be sent without any lookup. Quick to check for most requests."""
    if request.previous_response_id or request.conversation:
        return False
    if type(request.input) is not list:
        return True
    call_ids: set[str] = set()
    for item, kind in zip(request.input, map(type, request.input), strict=True):  # this runs for every item
        if kind is MessageParam:
            continue
        if kind in CALL_KINDS:
            call_ids.add(item.call_id)  # type: ignore[union-attr, arg-type]
        elif kind in DEPENDENT_KINDS and getattr(item, "call_id", None) not in call_ids:
            return False
    return True


def lacks_reasoning(request: Request) -> bool:
    """Whether the history has a call or a reasoning item without its sealed reasoning."""
    return type(request.input) is list and any(find_missing_reasoning(request.input))


def _is_whole(request: Request, directions: Directions) -> bool:
    """Whether a request has its whole history, with the sealed reasoning that the upstream wants back."""
    wants_reasoning = directions.maker is not None and directions.plan.is_stored
    return is_self_contained(request) and not (wants_reasoning and lacks_reasoning(request))


async def _resolve_history(request: Request, host: PreparationHost, directions: Directions, losses: Losses) -> _History:
    """Loads what the request refers to, and the sealed reasoning that the upstream wants back."""
    profile = directions.plan.profile
    maker = directions.maker if directions.plan.is_stored else None
    archive = await host.history_source()
    opener = CompactionOpener(
        seal=host.seal,
        owner=archive.owner,
        keeps_foreign=SERVER_DIALECTS[profile.dialect].opens_foreign_compaction,
    )
    allow_orphans = getattr(profile.wire, "orphan_outputs", "error") != "error"
    resolved = await resolve_history(request, archive, allow_orphans=allow_orphans, opener=opener, maker=maker)
    losses.extend(resolved.losses)
    return _History(
        request=resolved.request,
        new_items=resolved.new_items,
        past_turns=resolved.past_turns,
        sealed_items=resolved.sealed_items,
    )


async def _plan_context(history: _History, host: PreparationHost, losses: Losses) -> ContextPlan | None:
    """Plans how the conversation is shortened; None if it is sent as it is."""
    request, new_items = history.request, history.new_items
    if new_items is None:
        new_items = input_items(request)
    sealed_items = new_items if history.sealed_items is None else history.sealed_items
    return await plan_context(request, sealed_items, new_items, host.seal, host.context_size, losses)


def needs_context_plan(request: Request, new_items: list[ItemParam] | None) -> bool:
    """Whether a request asks for compaction or truncation. `new_items` are known if its history was resolved."""
    return (
        bool(request.context_management)
        or request.truncation == "auto"
        or (new_items is not None and has_trigger(new_items))
    )


def _encode_for_queue(request: Request, recorded_input: RecordedInput | None) -> bytes:
    """The runner always streams, whatever this client wants. A later change of the default model has no effect.
    `recorded_input` is None if it is not the input of the request."""
    queued = replace(request, stream=UNSET)
    return codec.encode(queued) if recorded_input is None else without_recorded_input(queued, recorded_input)


def refuse_losses(losses: list[Loss]) -> None:
    """REQ-6: refuses translation losses. What `truncation` drops at the client's request is no translation loss."""
    if losses:
        listed = "; ".join(map(str, losses[:MAX_LISTED_LOSSES])) + ("; …" if len(losses) > MAX_LISTED_LOSSES else "")
        raise ClientFault(
            f"strict mode: the request cannot be translated without loss: {listed}",
            code="lossy_translation",
            param=losses[0].path,
        )


# The translation


def prepare_request(
    request: Request, plan: TranslationPlan, original: OriginalRequest | None = None
) -> PreparedRequest:
    """Translates a request. The gateway keeps the state: the upstream gets the whole conversation, and `store: false`.
    A client of the upstream's dialect, whose body is `original`, keeps the form of its request."""
    is_own_client = original is not None and original.dialect == plan.profile.dialect
    if plan.is_stored or not is_own_client:
        refuse_several_answers(request)  # only answers that pass as they came can be several
    losses = Losses()
    if request.extra and THREAD in request.extra:
        request = _offer_tools_of_thread(request)
    if not plan.is_stored and (request.store or request.background or request.extra):
        _check_not_stored(request, losses)
    # With the effective value of `store`, which the client gets back.
    client_request = request if request.store is plan.is_stored else replace(request, store=plan.is_stored)
    sent_request = _without_gateway_parameters(client_request, plan.model)
    upstream_request, quirk_losses = plan.profile.apply_quirks(sent_request)
    losses.extend(quirk_losses)
    server_dialect = SERVER_DIALECTS[plan.profile.dialect]
    wire = _wire_for(plan, original) if is_own_client else plan.wire
    body, dialect_losses = server_dialect.request_from_hub(upstream_request, wire)
    losses.extend(dialect_losses)
    if is_own_client:
        body = _in_original_form(body, plan, original, sent_request)
    kinds = _kinds_of_items(upstream_request)
    can_retry = server_dialect.wire_after_refusal is not None or ReasoningParam in kinds
    upstream_settings = client_settings = _without_history(upstream_request, kinds)
    if client_request is not upstream_request:
        has_same_input = client_request.input is upstream_request.input
        client_settings = _without_history(client_request, kinds if has_same_input else _kinds_of_items(client_request))
    return PreparedRequest(
        plan=plan,
        request=client_settings,
        upstream_request=upstream_settings,
        body=body,
        losses=losses,
        retry_source=upstream_request if can_retry else None,
        original=original if can_retry else None,
    )


def _wire_for(plan: TranslationPlan, original: OriginalRequest | None) -> Wire:
    is_own_client = original is not None and original.dialect == plan.profile.dialect
    has_own_wire = bool(SERVER_DIALECTS[plan.profile.dialect].own_client_wire)
    return plan.profile.own_client_wire if is_own_client and has_own_wire else plan.wire


def _in_original_form(
    body: bytes, plan: TranslationPlan, original: OriginalRequest | None, sent_request: Request
) -> bytes:
    if original is None or original.dialect != plan.profile.dialect:
        return body
    server_dialect = SERVER_DIALECTS[plan.profile.dialect]
    neutral_wire = server_dialect.wire_type(**server_dialect.own_client_wire)
    has_profile = bool(plan.profile.quirks) or _wire_for(plan, original) != neutral_wire

    def translate_neutrally() -> bytes:
        return server_dialect.request_from_hub(sent_request, neutral_wire)[0]

    read_body = CLIENT_DIALECTS[original.dialect].request_to_hub
    return keep_original_form(
        original.body,
        body,
        read_body,
        translate_neutrally if has_profile else None,
        keeps_turns=getattr(plan.wire, "consecutive_turns", False),
    )


def prepare_retry(
    upstream_request: Request,
    plan: TranslationPlan,
    refused_parts: Sequence[RefusedPart],
    original: OriginalRequest | None = None,
) -> RetryRequest | None:
    """Translates a request without the parts that the upstream refused; None if it lacks one of them."""
    server_dialect = SERVER_DIALECTS[plan.profile.dialect]
    request, wire, losses = upstream_request, plan.wire, Losses()
    for refused in refused_parts:
        if refused == "reasoning":
            if ReasoningParam not in _kinds_of_items(request):
                return None
            items = [item for item in input_items(request) if type(item) is not ReasoningParam]
            request = replace(request, input=items)
            reason = "the server refused it, and the request was sent again without it"
            losses.add("input", "all earlier reasoning", reason)
        else:
            leave_out = server_dialect.wire_after_refusal
            changed_wire = leave_out(wire, plan.model, refused) if leave_out is not None else None
            if changed_wire is None:
                return None
            wire = changed_wire
    body, dialect_losses = server_dialect.request_from_hub(
        request, _wire_for(plan, original) if wire is plan.wire else wire
    )
    if wire is plan.wire:
        return RetryRequest(body=_in_original_form(body, plan, original, upstream_request), losses=losses)
    losses.extend(dialect_losses)
    return RetryRequest(body=_in_original_form(body, plan, original, upstream_request), losses=losses, wire=wire)


def _offer_tools_of_thread(request: Request) -> Request:
    """The request with the tools that its thread began with, which are the first items of the conversation."""
    items = input_items(request)
    tools = [tool for item in items if type(item) is AdditionalTools for tool in item.tools]
    remaining_items = [item for item in items if type(item) is not AdditionalTools]
    return replace(request, tools=tools or UNSET, input=remaining_items)


def _without_gateway_parameters(request: Request, model: str) -> Request:
    """The request with the upstream's name of the model, and without what the gateway does itself."""
    if request.model == model and request.store is False and _read_gateway_parameters(request) == NO_GATEWAY_PARAMETERS:
        return request
    return replace(request, model=model, store=False, **GATEWAY_PARAMETERS)


def _kinds_of_items(request: Request) -> Set[type]:
    return set(map(type, request.input)) if type(request.input) is list else NO_KINDS


def _without_history(request: Request, kinds: Set[type]) -> Request:
    """The request without the items that the reader of the answer does not need."""
    if OFFERING_ITEMS.isdisjoint(kinds):
        return replace(request, input=UNSET)
    return replace(request, input=[item for item in input_items(request) if type(item) in OFFERING_ITEMS])


def _check_not_stored(request: Request, losses: Losses) -> None:
    """Refuses what needs a stored response, and reports that the response is not stored."""
    if request.background:
        why = "this gateway stores no responses" if request.store is not False else "store is false"
        message = f"background: expected false, because {why}; a background response must be stored"
        raise UnsupportedParameter(message, param="background")
    if request.extra and THREAD in request.extra:
        message = "thread: the response is not stored here; send the whole conversation instead"
        raise UnsupportedParameter(message, param="thread")
    if request.store:
        losses.add("store", "the response is not stored", "this gateway stores no responses")


FIELD_OF_TOOL_CHOICE: Final = {"gemini": "toolConfig.functionCallingConfig"}  # where it is not `tool_choice`
FORMS_WITH_WISHES: Final[frozenset[BodyForm]] = frozenset({"turn", "message"})
MAX_LISTED_LOSSES: Final = 20  # losses in an error message
CALL_KINDS: Final[frozenset[type]] = frozenset(CALLS)
DEPENDENT_KINDS: Final[frozenset[type]] = frozenset({ItemReference, *COMPACTION_KINDS, *OUTPUTS})
THREAD: Final = "messages:thread"  # in the `extra` of a request that is stored as a part of a thread
OFFERING_ITEMS: Final = frozenset({AdditionalTools, ToolSearchOutput})
NO_KINDS: Final[frozenset[type]] = frozenset()
# Parameters that the gateway implements and does not send to upstreams.
GATEWAY_PARAMETERS: Final[dict[str, Any]] = dict.fromkeys(
    ("previous_response_id", "conversation", "background", "generate", "context_management"), UNSET
)
NO_GATEWAY_PARAMETERS: Final = tuple(GATEWAY_PARAMETERS.values())
_read_gateway_parameters: Final[Callable[[Request], tuple[Any, ...]]] = attrgetter(*GATEWAY_PARAMETERS)
