"""Finds the route of a model and plans the attempts of its turns. It holds the state of all targets of this process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from antiphon.config import Config, RetryConfig, TargetConfig
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing.attempts import (
    ModelRoute,
    Random,
    RouteGroup,
    RouteTarget,
    TargetOrder,
    TurnAttempts,
    groups_by_priority,
)
from antiphon.gateway.routing.facts import RequestFacts, find_obstacle
from antiphon.gateway.routing.stickiness import Session, StickyTargets, cache_seconds, target_with_label
from antiphon.gateway.routing.wishes import RoutingWishes
from antiphon.gateway.upstreams import Target, TargetState


class Router:
    """The routes of a configuration."""

    def __init__(
        self,
        config: Config,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
        random: Random = random.random,
        previous: Router | None = None,
    ) -> None:
        """`previous` is the router of the configuration before: the health of targets that stay is kept, and where
        conversations were answered."""
        self.clock = clock
        self._config = config
        self._routes = routes
        self._random = random
        self._by_name: dict[str, ModelRoute] = {}
        self._states: dict[tuple[str, str], TargetState] = {} if previous is None else self._keep_states(previous)
        self._sticky_targets: StickyTargets = StickyTargets() if previous is None else previous._sticky_targets
        self._with_others: set[tuple[str, str]] = set()  # the targets that a model has besides another one
        self._upstream_names = frozenset(upstream.name.lower() for upstream in config.upstreams)
        if previous is not None:
            self._find_again(previous)

    def find(self, model: object) -> ModelRoute:
        """The route of a client-side model name."""
        route = self._by_name.get(model) if type(model) is str else None
        return route or self._make_route(model)

    def find_served(self, model: str) -> ModelRoute | None:
        """The route of a model; None if it is not served."""
        try:
            return self.find(model)
        except ClientFault:
            return None

    def knows_upstream(self, name: str) -> bool:
        """Whether an upstream has this name, in upper or lower case."""
        return name.lower() in self._upstream_names

    def choose_model(self, model: str | None, wishes: RoutingWishes | None) -> str | None:
        """The model that is asked first: the one of the request, else the first of the caller's list that is served,
        else the default."""
        if model:
            return model
        served = filter(self.find_served, () if wishes is None else wishes.models)
        return next(served, None) or self._routes.default_model

    def accepts(self, wishes: RoutingWishes) -> bool:
        """Whether a caller's words about routing are for this gateway. Words whose providers are no upstreams of it, or
        that name only models which it does not serve, are for a router behind it, and so are words without names, if
        the only target of the model takes them."""
        names = (*wishes.order, *wishes.only, *wishes.ignore)
        if names or wishes.too_long is not None:
            return wishes.too_long is not None or any(map(self.knows_upstream, names))
        if wishes.models:
            return any(map(self.find_served, wishes.models))
        return not self._is_asked_of_a_router(wishes)

    def _is_asked_of_a_router(self, wishes: RoutingWishes) -> bool:
        """Whether the only target of a model takes a caller's words about routing, by its profile."""
        model = wishes.model or self._routes.default_model
        route = None if model is None else self.find_served(model)
        if route is None or not route.is_lone:
            return False
        fields = getattr(route.targets[0].target.upstream.profile.wire, "extra_fields", ())
        return set(wishes.words) <= set(fields)

    def find_sticky(self, route: ModelRoute, session: Session) -> RouteTarget | None:
        """The target that answered the conversation before, as far as this process knows."""
        return target_with_label(route, self._sticky_targets.find(session.key, self.clock()))

    def remember_answer(self, session: Session, target: RouteTarget, facts: RequestFacts, response_id: str) -> None:
        """Remembers which target answered, for the next turn of the conversation."""
        seconds, now = cache_seconds(target, facts), self.clock()
        for key in (session.key, session.response_key(response_id)):
            self._sticky_targets.remember(key, target.label, seconds, now)

    def make_order(
        self,
        route: ModelRoute,
        facts: RequestFacts | None = None,
        first: RouteTarget | None = None,
        groups: Sequence[RouteGroup] | None = None,
    ) -> TargetOrder:
        """The order of the targets of a turn."""
        cannot_carry = None if facts is None else lambda target: find_obstacle(target.target, facts)
        return TargetOrder(
            route.groups if groups is None else groups,
            route.strategy,
            self._random,
            first=first,
            cannot_carry=cannot_carry,
        )

    def begin_turn(
        self,
        route: ModelRoute,
        facts: RequestFacts | None = None,
        first: RouteTarget | None = None,
        groups: Sequence[RouteGroup] | None = None,
    ) -> TurnAttempts:
        """The attempts of a turn."""
        order = self.make_order(route, facts, first, groups) if route.only_attempt is None else None
        return TurnAttempts(route, order, self.clock(), self._random)

    @property
    def states(self) -> dict[tuple[str, str], TargetState]:
        """The state of every target that was used, by the names of its upstream and of its model there."""
        return self._states

    def resting_counts(self) -> dict[str, float]:
        """The number of resting targets of each upstream that was asked."""
        counts: dict[str, float] = {}
        now = self.clock()
        for (upstream, model), state in self._states.items():
            is_resting = state.is_resting(now) and self.may_rest(upstream, model)
            counts[upstream] = counts.get(upstream, 0.0) + is_resting
        return counts

    def may_rest(self, upstream: str, model: str) -> bool:
        """Whether another target can be asked in place of this one. A lone target is never shut out."""
        return (upstream, model) in self._with_others

    def _find_again(self, previous: Router) -> None:
        """Finds the routes that were in use, so that it is known which of the kept targets may rest."""
        for model in previous._by_name:
            with suppress(ApiError):  # it is not served any more
                self.find(model)

    def _keep_states(self, previous: Router) -> dict[tuple[str, str], TargetState]:
        """The states of the targets whose servers are still upstreams. Turns under way go on counting in them."""
        upstreams, earlier_upstreams = self._routes.by_name, previous._routes.by_name
        states: dict[tuple[str, str], TargetState] = {}
        for (name, model), state in previous._states.items():
            upstream = upstreams.get(name)
            if upstream is not None and upstream.is_same_server(earlier_upstreams[name]):
                state.config = self._config.health
                states[name, model] = state
        return states

    def _make_route(self, model: object) -> ModelRoute:
        self._routes.find(model)  # raises if there is none
        assert isinstance(model, str)
        entry = self._routes.find_entry(model)
        assert entry is not None
        is_entry = any(configured is entry for configured in self._config.models)
        targets = self._make_targets(entry.targets)
        has_choice = is_entry or len(targets) > 1 or targets[0].target.upstream.key_ring.count > 1
        retry = (entry.retry or self._config.retry) if has_choice else NO_RETRY
        route = ModelRoute(
            name=model,
            groups=groups_by_priority(targets),
            retry=retry,
            strategy=entry.strategy,
            prefers_fewest_losses=entry.prefer == "fewest-losses",
            on_context_length=self._make_targets(entry.on_context_length),
            on_refusal=self._make_targets(entry.on_refusal),
        )
        if not route.is_lone and len(self._with_others) < MAX_STATES:
            self._with_others.update((target.target.upstream.name, target.target.model) for target in targets)
        # Patterns accept any names, so the cache is bounded.
        if len(self._by_name) < MAX_CACHED_ROUTES and len(model) <= MAX_CACHED_NAME:
            self._by_name[model] = route
        return route

    def _make_targets(self, configs: Iterable[TargetConfig]) -> tuple[RouteTarget, ...]:
        return tuple(
            RouteTarget(
                Target(upstream=self._routes.upstream(config.upstream), model=config.model),
                self._state(config.upstream, config.model),
                config.priority,
                config.weight,
            )
            for config in configs
        )

    def _state(self, upstream: str, model: str) -> TargetState:
        """The state of a target, which all models share that use it."""
        state = self._states.get((upstream, model))
        if state is None:
            state = TargetState(self._config.health)
            if len(self._states) < MAX_STATES and len(model) <= MAX_CACHED_NAME:
                self._states[upstream, model] = state
        return state


NO_RETRY: Final = RetryConfig(rounds=1)  # for a lone target, whose failures clients see at once
MAX_CACHED_ROUTES: Final = 1024
MAX_CACHED_NAME: Final = 256
MAX_STATES: Final = 4096
