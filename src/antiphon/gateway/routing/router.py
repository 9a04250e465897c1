"""Finds the route of a model and plans the attempts of its turns. It holds the state of all targets of this process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final

from antiphon.config import Config, RetryConfig, TargetConfig
from antiphon.gateway.routes import Routes, Target
from antiphon.gateway.routing.attempts import TurnAttempts
from antiphon.gateway.routing.choice import ModelRoute, Random, RouteTarget, TargetOrder, groups_by_priority
from antiphon.gateway.routing.health import TargetState


class Router:
    """The routes of a configuration."""

    def __init__(
        self,
        config: Config,
        routes: Routes,
        clock: Callable[[], float] = time.monotonic,
        random: Random = random.random,
    ) -> None:
        self.clock = clock
        self._config = config
        self._routes = routes
        self._random = random
        self._by_name: dict[str, ModelRoute] = {}
        self._states: dict[tuple[str, str], TargetState] = {}

    def find(self, model: object) -> ModelRoute:
        """The route of a client-side model name."""
        route = self._by_name.get(model) if type(model) is str else None
        return route or self._make_route(model)

    def begin_turn(self, route: ModelRoute) -> TurnAttempts:
        """The attempts of a turn."""
        order = TargetOrder(route.groups, route.strategy, self._random)
        return TurnAttempts(route, order, self.clock(), self._random)

    @property
    def states(self) -> dict[tuple[str, str], TargetState]:
        """The state of every target that was used, by the names of its upstream and of its model there."""
        return self._states

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
