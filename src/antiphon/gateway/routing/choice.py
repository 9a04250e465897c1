"""Chooses the targets of a turn, one after the other, without sorting all of them.

Targets that can serve the request and do not rest come first, then those that cannot carry all of it, then resting
ones. Within these, a lower priority comes first, and the strategy of the model chooses within one priority. A strategy
is one function in `STRATEGIES`; choosing by price would be another.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct

from antiphon.config.routing import RetryConfig, Strategy
from antiphon.gateway.routes import Target
from antiphon.gateway.routing.health import TargetState

Random = Callable[[], float]  # from 0 to 1


class RouteTarget(Struct, frozen=True, eq=False):
    """A target of a model with its share and its state. It is equal only to itself."""

    target: Target
    state: TargetState
    priority: int = 1
    weight: int = 1

    @property
    def label(self) -> str:
        return f"{self.target.upstream.name}/{self.target.model}"


class RouteGroup(Struct, frozen=True, eq=False):
    """Targets among which the strategy chooses, and the sums of their weights."""

    targets: tuple[RouteTarget, ...]
    weight_sums: tuple[int, ...]
    reason: str = ""  # why the group is where it is


class ModelRoute(Struct, frozen=True, eq=False, kw_only=True):
    """The targets of a model, by priority, and how they are asked."""

    name: str
    groups: tuple[RouteGroup, ...]
    retry: RetryConfig
    strategy: Strategy = "weighted"
    prefers_fewest_losses: bool = False
    on_context_length: tuple[RouteTarget, ...] = ()
    on_refusal: tuple[RouteTarget, ...] = ()

    @property
    def targets(self) -> list[RouteTarget]:
        return [target for group in self.groups for target in group.targets]

    @property
    def is_lone(self) -> bool:
        """Whether there is one target only."""
        return len(self.groups) == 1 and len(self.groups[0].targets) == 1


def make_group(targets: Iterable[RouteTarget], reason: str = "") -> RouteGroup:
    members = tuple(targets)
    return RouteGroup(members, tuple(accumulate(target.weight for target in members)), reason)


def groups_by_priority(targets: Iterable[RouteTarget]) -> tuple[RouteGroup, ...]:
    by_priority: dict[int, list[RouteTarget]] = {}
    for target in targets:
        by_priority.setdefault(target.priority, []).append(target)
    return tuple(make_group(by_priority[priority], f"priority {priority}") for priority in sorted(by_priority))


class TargetOrder:
    """The order in which the targets of one turn are asked. `cannot_carry` says why a target cannot serve all of the
    request; empty if it can."""

    __slots__ = ("_asked", "_cannot_carry", "_first", "_groups", "_is_lone", "_random", "_strategy")

    def __init__(
        self,
        groups: Sequence[RouteGroup],
        strategy: Strategy,
        random: Random,
        *,
        first: RouteTarget | None = None,
        cannot_carry: Callable[[RouteTarget], str] | None = None,
    ) -> None:
        self._groups = groups
        self._strategy = STRATEGIES[strategy]
        self._random = random
        self._first = first  # the target that has the prompt of this conversation in its cache
        self._cannot_carry = cannot_carry
        self._asked: set[RouteTarget] = set()
        self._is_lone = len(groups) == 1 and len(groups[0].targets) == 1

    def next(self, now: float) -> RouteTarget | None:
        """The next target; None if all were asked."""
        target = self._choose_next(now)
        if target is not None:
            self._asked.add(target)
        return target

    @property
    def has_more(self) -> bool:
        return len(self._asked) < sum(len(group.targets) for group in self._groups)

    def _choose_next(self, now: float) -> RouteTarget | None:
        if self._is_lone:  # it is never shut out
            return None if self._asked else self._groups[0].targets[0]
        if self._first is not None and self._first not in self._asked and self.tier(self._first, now) == 0:
            return self._first
        for tier in TIERS:
            for group in self._groups:
                target = self._choose_in(group, tier, now)
                if target is not None:
                    return target
        return None

    def tier(self, target: RouteTarget, now: float) -> int:
        """0: it can serve the request. 1: it would lose some of it. 2: it rests."""
        if target.state.is_resting(now):
            return 2
        return 1 if self._cannot_carry is not None and self._cannot_carry(target) else 0

    def _choose_in(self, group: RouteGroup, tier: int, now: float) -> RouteTarget | None:
        candidates: list[RouteTarget] = []
        if len(group.targets) > MAX_COMPARED and tier == 0:
            candidates = self._sample(group, now)
        candidates = candidates or [
            target for target in group.targets if target not in self._asked and self.tier(target, now) == tier
        ]
        return self._strategy(candidates, self._random, now) if candidates else None

    def _sample(self, group: RouteGroup, now: float) -> list[RouteTarget]:
        """A few targets of a large group; one that is drawn by weight, if the weight alone decides."""
        sample: list[RouteTarget] = []
        sums, is_weighted = group.weight_sums, self._strategy is _choose_weighted
        for _ in range(SAMPLE_SIZE):
            draw = self._random()
            target = group.targets[bisect(sums, draw * sums[-1]) if is_weighted else int(draw * len(sums))]
            if target not in self._asked and self.tier(target, now) == 0:
                sample.append(target)
                if is_weighted:
                    break
        return sample


def _choose_weighted(candidates: Sequence[RouteTarget], random: Random, now: float) -> RouteTarget:
    del now
    if len(candidates) == 1:
        return candidates[0]
    sums = list(accumulate(target.weight for target in candidates))
    return candidates[bisect(sums, random() * sums[-1])]


def _choose_least_busy(candidates: Sequence[RouteTarget], random: Random, now: float) -> RouteTarget:
    del now
    return min(candidates, key=lambda target: ((target.state.in_flight + 1) / target.weight, random()))


def _choose_fastest(candidates: Sequence[RouteTarget], random: Random, now: float) -> RouteTarget:
    return min(candidates, key=lambda target: (target.state.latency(now), random()))


TIERS: Final = range(3)
MAX_COMPARED: Final = 16  # targets that are compared; of larger groups, a sample is
SAMPLE_SIZE: Final = 8
STRATEGIES: Final[dict[Strategy, Callable[[Sequence[RouteTarget], Random, float], RouteTarget]]] = {
    "weighted": _choose_weighted,
    "least-busy": _choose_least_busy,
    "fastest": _choose_fastest,
}
