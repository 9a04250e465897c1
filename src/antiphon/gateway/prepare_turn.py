"""Prepares a turn: routes it, has its data prepared (`turn_data`), and makes the turn that is ready to be sent.

Nothing is sent to the upstream here, so every error of the client is raised before the upstream is contacted. Large
bodies, and requests that continue a large history, are prepared in another process, so that they do not block others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.compactor import Compactor
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.conversation import JoinedConversation
from antiphon.gateway.history import HistorySource, PastTurns
from antiphon.gateway.managed_turn import ManagedTurn
from antiphon.gateway.pipe import Pipe
from antiphon.gateway.recording import ResponseRecorder, stored_target
from antiphon.gateway.remote_preparation import HostAnswers, prepare_data_remotely, prepare_retry_remotely
from antiphon.gateway.request_scope import RequestLog
from antiphon.gateway.routing.attempts import ModelRoute, RouteGroup, RouteTarget, TurnAttempts, make_group
from antiphon.gateway.routing.facts import RequestFacts, depends_on_history
from antiphon.gateway.routing.stickiness import (
    Session,
    cache_seconds,
    make_session,
    target_with_label,
)
from antiphon.gateway.routing.wishes import QueuedRouting, RoutingWishes, add_routing, apply_wishes
from antiphon.gateway.sealing import Seal
from antiphon.gateway.short_answer import AnswerShortener
from antiphon.gateway.stored_items import LargeHistory
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import (
    Directions,
    QueuedRequest,
    RetryRequest,
    TurnData,
    TurnOutline,
    prepare_data,
    prepare_retry_data,
    refuse_losses,
)
from antiphon.gateway.upstreams import Target, Upstream
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.protocol import codec
from antiphon.protocol.losses import Loss
from antiphon.protocol.nesting import has_many_values
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import Store
from antiphon.trace.writer import Trace

HistorySourceFor = Callable[[TurnOutline], HistorySource]
ClientHeaders = Callable[[Upstream], dict[str, str]]  # an upstream → headers of the client that it gets


class PreparedTurn(Struct):
    """A turn that is ready to be sent, and the turns that it continues. If its target fails, `prepare_next` replaces
    `turn` by one for another target."""

    turn: UpstreamTurn
    recorder: ResponseRecorder | None
    past_turns: PastTurns
    queued_request: QueuedRequest | None  # if the client wants a background response
    is_warm_up: bool  # `generate: false`
    attempts: TurnAttempts
    preparer: TurnPreparer | None = None  # None: no other target can be asked
    pipe: Pipe | None = None  # of the current attempt of a stream
    is_held_back: bool = False  # another target may still answer
    session: Session | None = None  # None: the model has one target
    facts: RequestFacts | None = None

    async def prepare_next(self) -> None:
        """Prepares the turn for the current attempt."""
        assert self.preparer is not None
        earlier = self.turn
        turn, _ = await self.preparer.prepare()
        turn.initial_response, turn.recorder = earlier.initial_response, earlier.recorder
        self.turn = turn
        self.note_target()

    def note_target(self) -> None:
        if self.recorder is not None and not self.attempts.route.is_lone:
            self.recorder.answered_by = self.attempts.current.target.label

    def note_answer(self, services: GatewayContext) -> None:
        """Remembers where the conversation is answered, so that its next turn finds a warm cache."""
        if self.session is not None and self.facts is not None:
            target = self.attempts.current.target
            services.router.remember_answer(self.session, target, self.facts, self.turn.initial_response.id)

    def release(self) -> None:
        """Frees the request, once no other target will be asked, and this one not again."""
        self.preparer = self.turn.prepare_retry = self.turn.on_retry = None


async def prepare_turn(preparer: TurnPreparer) -> PreparedTurn:
    """Prepares the turn of a body, for the first target that it can be translated for."""
    turn, data = await preparer.prepare_possible()
    if preparer.route.prefers_fewest_losses:
        turn, data = await preparer.prepare_with_fewest_losses()
    turn.recorder = recorder = preparer.make_recorder(data)
    attempts, log_entry = preparer.attempts, preparer.log_entry
    assert attempts is not None  # it was routed
    log_entry.response_id = turn.initial_response.id
    log_entry.attempts = attempts.records
    prepared_turn = PreparedTurn(
        turn,
        recorder,
        data.past_turns,
        preparer.add_queued_routing(data.queued_request),
        data.is_warm_up,
        attempts,
        None if attempts.is_single else preparer,
        session=preparer.session,
        facts=preparer.facts,
    )
    prepared_turn.note_target()
    return prepared_turn


_LATER: Final[Any] = None  # the value of a field before `direct` sets it


class TurnPreparer(Struct, eq=False):
    """Prepares the turn of one body for any of its targets, and answers what the preparation asks of the gateway
    (`PreparationHost`). It holds the whole body."""

    services: GatewayContext
    body: ClientBody
    history_source_for: HistorySourceFor
    log_entry: RequestLog
    trace: Trace | None
    keeps_history: bool = False  # the turn is recorded although it is not stored
    strict: bool | None = None  # refuse lossy translation; None: the upstream's setting
    client_headers: ClientHeaders | None = None  # gives the headers of the client that an upstream gets
    find_session: Callable[[], str | None] | None = None  # finds the session of the client's agent
    wishes: RoutingWishes | None = None  # what the client says about routing, or said when the request was queued
    wish_losses: list[Loss] = []  # what of it is not offered
    attempts: TurnAttempts | None = None  # set by `direct`, with the next six
    route: ModelRoute = _LATER
    session: Session | None = None  # None: the model has one target
    facts: RequestFacts | None = None
    first_target: RouteTarget | None = None  # that has the conversation in its cache
    directions: Directions = _LATER
    target: Target = _LATER
    history_source_of_turn: HistorySource = _LATER
    telemetry_headers: dict[str, str] | None = None  # None: the span of the turn has not begun
    examined_target: Target | None = None  # whose translation is only counted
    is_remote: bool = False  # another process prepared the data

    @property
    def stamps(self) -> Stamps:
        return self.services.stamps

    @property
    def seal(self) -> Seal:
        return self.services.seal

    async def prepare_with_fewest_losses(self) -> tuple[UpstreamTurn, TurnData]:
        """Prepares the turn again, for the target that loses least."""
        groups = groups_by_losses(self.route, await self.count_losses(self.route.targets))
        self.attempts = self.services.router.begin_turn(self.route, self.facts, self.first_target, groups)
        return await self.prepare_possible()

    async def count_losses(self, targets: Iterable[RouteTarget]) -> dict[RouteTarget, list[Loss] | ApiError]:
        """What the translation for each target would lose, or the error that it would be. Nothing is sent."""
        losses: dict[RouteTarget, list[Loss] | ApiError] = {}
        for target in islice(targets, MAX_COUNTED_TARGETS):
            self.examined_target = target.target
            try:
                losses[target] = list((await self._prepare_data())[0].losses)
            except ClientFault as error:
                losses[target] = error.without_traceback()
            finally:
                self.examined_target = None
        return losses

    async def prepare_possible(self) -> tuple[UpstreamTurn, TurnData]:
        """Prepares the turn for the first target that it can be translated for."""
        first_error: ApiError | None = None
        while True:
            try:
                return await self.prepare()
            except ClientFault as error:
                failure = error.without_traceback()
            first_error = first_error or failure
            attempts = self.attempts
            is_final = attempts is None or failure.code not in TARGET_DEPENDENT_CODES
            if is_final or attempts is None or attempts.skip(self.services.router.clock()) is None:
                raise first_error.without_traceback()

    async def prepare(self) -> tuple[UpstreamTurn, TurnData]:
        """Prepares the turn for the current attempt. Nothing of other attempts remains in it."""
        data, self.is_remote = await self._prepare_data()
        for loss in self.wish_losses:
            data.losses.add(loss.path, loss.what, loss.why)
        turn = self._make_turn(data)
        if data.prepared.release_retry_source() or data.can_retry:
            turn.prepare_retry, turn.on_retry = self._prepare_retry, self._log_refused_reasoning
        if self.directions.strict:
            turn.allows_lossy_retry = False
        dialect = self.target.upstream.server_dialect
        if self.is_remote and dialect.without_settings is not None and codec.large_settings(turn.initial_response):
            turn.shortener = AnswerShortener(dialect, self.services.workers)
        turn.headers = self._headers()
        self.log_entry.losses = len(data.losses)
        trace = self.trace
        if trace is not None:
            if data.hub_request is not None:
                trace.record_hub_request(data.hub_request)
            trace.record_note("kept", int(self.directions.plan.is_stored))
            turn.note_omissions()
            trace.record_losses(data.losses)
        return turn, data

    def _headers(self) -> dict[str, str]:
        if self.telemetry_headers is None:
            telemetry = self.services.telemetry
            self.telemetry_headers = NO_HEADERS if telemetry is None else telemetry.start_turn(self.log_entry)
        attempts = self.attempts
        assert attempts is not None  # it was routed
        upstream = self.target.upstream
        headers = upstream.headers_with_key(attempts.current.key)
        client_headers = NO_HEADERS if self.client_headers is None else self.client_headers(upstream)
        if self.telemetry_headers or client_headers:
            return {**headers, **self.telemetry_headers, **client_headers}
        return headers

    async def direct(self, outline: TurnOutline) -> Directions | None:
        services = self.services
        model = services.router.choose_model(outline.model, self.wishes)
        self.log_entry.model = model
        self.history_source_of_turn = self.history_source_for(outline)
        attempts = self.attempts
        if attempts is None:
            route = services.router.find(model)
            if route.is_lone and self.wishes is None and outline.facts is None:
                self.route = route
                attempts = self.attempts = services.router.begin_turn(route)
            else:
                attempts = await self._begin_turn(route, outline)
                if attempts is None:
                    return None
        target = self.target = self.examined_target or attempts.current.target.target
        name = self.log_entry.upstream = target.upstream.name
        if self.trace is not None and self.examined_target is None:
            config = target.upstream.config
            self.trace.record_route(name, config.dialect, target.model, config.profile_name, outline.streams)
        assert model is not None  # it was routed
        self.directions = Directions(
            model=model,
            upstream=name,
            plan=target.plan_translation(is_stored=outline.is_stored and services.store is not None),
            strict=self._is_strict(target),
            maker=target.upstream.reasoning_maker,
            limits=services.input_limits,
            keeps_history=self.keeps_history,
            is_traced=self.trace is not None,
        )
        if self.directions.strict:
            refuse_losses(self.wish_losses)
        return self.directions

    async def accepts_wishes(self, wishes: RoutingWishes) -> bool:
        if not self.services.router.accepts(wishes):
            return False
        self.wishes = wishes
        return True

    def add_queued_routing(self, queued_request: QueuedRequest | None) -> QueuedRequest | None:
        """Adds what a background job needs to know to route the request as this turn."""
        if queued_request is None:
            return None
        session = None if self.find_session is None else self.find_session()
        routing = QueuedRouting(wishes=self.wishes, strict=self.strict, session=session)
        return replace(queued_request, content=add_routing(queued_request.content, routing))

    def _is_strict(self, target: Target) -> bool:
        if self.wishes is not None and self.wishes.requires_parameters:
            return True
        return target.upstream.config.losses == "strict" if self.strict is None else self.strict

    async def _begin_turn(self, route: ModelRoute, outline: TurnOutline) -> TurnAttempts | None:
        """The attempts of a turn with a choice of targets; None if the facts to choose by are missing."""
        router, facts = self.services.router, outline.facts
        if facts is None:
            return None
        if self.wishes is not None:
            route, self.wish_losses = apply_wishes(route, self.wishes, router.find_served)
        needs_history = not outline.has_whole_facts and not route.is_lone
        if needs_history and depends_on_history(target.target for target in route.targets):
            return None
        self.route, self.facts = route, facts
        first: RouteTarget | None = None
        agent_session = None if self.find_session is None else self.find_session()
        session = make_session(self._archive.owner, route.name, outline.previous_response_id, facts, agent_session)
        if self.wishes is None or not self.wishes.order:
            first = router.find_sticky(route, session) or await self._find_stored_target(session)
        self.session, self.first_target = session, first
        self.attempts = router.begin_turn(route, facts, first)
        return self.attempts

    async def _find_stored_target(self, session: Session) -> RouteTarget | None:
        """The target that answered the stored conversation before, in this process or in another."""
        store = self.services.store
        if store is None:
            return None
        id = session.previous_response_id
        if session.conversation_id is not None:
            id = await find_newest_response(store, session.owner, session.conversation_id)
        record = await store.get(session.owner, id) if id else None
        target = None if record is None else target_with_label(self.route, stored_target(record.head))
        if record is None or target is None or self.facts is None:
            return None
        is_cached = self.stamps.now() < record.created_at + cache_seconds(target, self.facts)
        return target if is_cached else None

    @property
    def _archive(self) -> HistorySource:
        """The source of what the request refers to. Most requests refer to nothing."""
        return replace(self.history_source_of_turn, max_local_bytes=LARGE_INPUT)

    async def history_source(self) -> HistorySource:
        return self._archive

    async def context_size(self) -> int | None:
        return await self.services.models.context_size(self.target)

    def make_recorder(self, data: TurnData) -> ResponseRecorder | None:
        """The recorder of a turn; None if nothing is recorded."""
        if data.recorded_input is None:
            return None
        services = self.services
        store = services.store if self.directions.plan.is_stored else None
        conversation = (
            JoinedConversation(id=data.conversation_id, store=services.store, workers=services.workers)
            if data.conversation_id is not None and services.store is not None
            else None
        )
        return ResponseRecorder(store, self._archive.owner, data.recorded_input, services.stamps, conversation)

    async def _prepare_data(self) -> tuple[TurnData, bool]:
        """The data of the turn, and whether another process prepared it."""
        if is_quick_to_prepare(self.body.content):
            try:
                return await prepare_data(self.body, self), False
            except LargeHistory:
                pass  # the whole preparation starts again, in another process
        return await self._run_remotely(prepare_data_remotely, self.body), True

    async def _prepare_retry(self, refused_parts: Sequence[RefusedPart]) -> RetryRequest | None:
        """Prepares the turn again without the parts that the upstream refused, where it was prepared before."""
        if not self.is_remote:
            return await prepare_retry_data(self.body, self, refused_parts)
        retry: RetryRequest | None = await self._run_remotely(prepare_retry_remotely, self.body, refused_parts)
        return retry

    def _log_refused_reasoning(self, error: ApiError) -> None:
        self.services.logger.event(
            "reasoning_refused",
            level="warning",
            upstream=self.target.upstream.name,
            response_id=self.log_entry.response_id,
            code=error.code,
            message=error.message,
        )

    async def _run_remotely(self, work: Callable[..., Any], *arguments: Any) -> Any:
        answer = HostAnswers(self, lambda: self._archive).answer
        return await self.services.workers.run(work, *arguments, answer=answer, owner=self.log_entry.owner or "")

    def _make_turn(self, data: TurnData) -> UpstreamTurn:
        services, trace, target, plan = self.services, self.trace, self.target, data.context_plan
        stamps, pad, limits = services.stamps, services.pad, services.output_limits
        if plan is None:
            return UpstreamTurn(data.prepared, target, stamps, pad, trace, None, limits)
        compactor = Compactor(
            seal=services.seal,
            owner=self._archive.owner,
            target=target,
            context_size=plan.context_size,
            stamps=stamps,
            workers=services.workers,
        )
        return ManagedTurn(data.prepared, target, stamps, pad, trace, None, plan, compactor, limits)


async def find_newest_response(store: Store, owner: str, conversation_id: str) -> str | None:
    """The newest response of a conversation, by its newest item."""
    page = await store.list_entries(owner, conversation_id, after=None, order="desc", limit=1)
    if page is None or not page.entries:
        return None
    numbers = await store.find_items(owner, [page.entries[0].id])
    turn = await store.get_turn(owner, next(iter(numbers.values()))) if numbers else None
    return None if turn is None else turn.id


def is_quick_to_prepare(body: bytes) -> bool:
    """Whether the event loop prepares a body itself. The time depends on the size and on the number of values."""
    size = len(body)
    return size <= SMALL_INPUT or (size <= LARGE_INPUT and not has_many_values(body, MAX_LOCAL_VALUES))


def groups_by_losses(route: ModelRoute, losses: Mapping[RouteTarget, list[Loss] | ApiError]) -> tuple[RouteGroup, ...]:
    """The groups of a route, each divided by the number of losses. A target whose losses were not counted, or that
    cannot be asked at all, comes last in its group."""
    groups: list[RouteGroup] = []
    for group in route.groups:
        by_count: dict[int, list[RouteTarget]] = {}
        for target in group.targets:
            lost = losses.get(target)
            by_count.setdefault(len(lost) if isinstance(lost, list) else MANY_LOSSES, []).append(target)
        groups += [
            make_group(by_count[count], f"{group.reason}, {'most' if count == MANY_LOSSES else count} losses")
            for count in sorted(by_count)
        ]
    return tuple(groups)


NO_HEADERS: Final[dict[str, str]] = {}
SMALL_INPUT: Final = 64 * 1024  # bytes of a body whose values are not counted
MAX_LOCAL_VALUES: Final = 12_000  # values of a body; each takes up to 8 µs, most of them 1 to 2
MAX_COUNTED_TARGETS: Final = 16  # targets of a model whose losses are counted
MANY_LOSSES: Final = 1_000_000
#: Errors of a request that another target may not have.
TARGET_DEPENDENT_CODES: Final = frozenset(
    {"lossy_translation", "unsupported_parameter", "orphan_tool_output", "invalid_value"}
)
