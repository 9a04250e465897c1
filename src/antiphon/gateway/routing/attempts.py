"""The attempts of one turn: which target and key is asked first, which next after a failure, when, and when to give up.

Targets that can serve the request and do not rest come first, then those that cannot carry all of it, then resting
ones. Within these, a lower priority comes first, and the strategy of the model chooses within one priority. A strategy
is one function in `STRATEGIES`; choosing by price would be another. Every attempt begins in `TurnAttempts.begin`; a
budget would be checked there.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

from msgspec import Struct, field

from antiphon.config.routing import RetryConfig, Strategy
from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.routing.failures import (
    KEY_KINDS,
    REPEATABLE_KINDS,
    UNHEALTHY_KINDS,
    FailureKind,
    classify_failure,
)
from antiphon.gateway.routing.records import AttemptRecord
from antiphon.gateway.upstreams import LIMITED_KEY_REST, REFUSED_KEY_REST, Outcome, Target, TargetState

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


class ModelRoute(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """The targets of a model, by priority, and how they are asked."""

    name: str
    groups: tuple[RouteGroup, ...]
    retry: RetryConfig
    strategy: Strategy = "weighted"
    prefers_fewest_losses: bool = False
    on_context_length: tuple[RouteTarget, ...] = ()
    on_refusal: tuple[RouteTarget, ...] = ()

    @cached_property
    def targets(self) -> tuple[RouteTarget, ...]:
        return tuple(target for group in self.groups for target in group.targets)

    @cached_property
    def is_lone(self) -> bool:
        """Whether there is one target only."""
        return len(self.targets) == 1

    @cached_property
    def only_attempt(self) -> Attempt | None:
        """The attempt of every turn, if there is no choice and a failure is final; else None."""
        is_final = self.retry.rounds == 1 and not self.on_context_length and not self.on_refusal
        has_one_key = self.targets[0].target.upstream.key_ring.count <= 1
        return Attempt(self.targets[0], 0) if self.is_lone and is_final and has_one_key else None


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


class Attempt(Struct, frozen=True):
    """The next attempt: a target, the number of its key, and the seconds to wait before."""

    target: RouteTarget
    key: int
    delay: float = 0.0


class _Failure(Struct, frozen=True):
    kind: FailureKind
    not_before: float  # when the same target may be asked again


class _PastAttempts(Struct):
    """What earlier attempts of a turn mean for the next ones."""

    round: int = 1
    repeated: list[RouteTarget] = []  # targets of a later round that are not yet asked
    switched_for: FailureKind | None = None  # why the targets for a special failure are asked
    failures: dict[RouteTarget, _Failure] = {}
    errors: list[tuple[FailureKind, ApiError]] = []
    dead_keys: dict[int, set[int]] = {}  # by the id of the key ring, which targets of an upstream share
    key_times: dict[int, dict[int, float]] = {}  # the same: when a limited key may be used again
    tried_keys: set[int] = field(default_factory=lambda: {0})  # of the current target, in this round


class TurnAttempts:
    """The attempts of one turn. Call `begin` when an attempt starts, then `fail` or `finish`. Times are seconds of one
    monotonic clock. `order` is None if the route has only one attempt."""

    def __init__(self, route: ModelRoute, order: TargetOrder | None, now: float, random: Random) -> None:
        self.route = route
        self.records: list[AttemptRecord] = []  # of the attempts that began
        self._order = order
        self._random = random
        self._deadline = now + route.retry.deadline
        self.is_running = False
        attempt = route.only_attempt if order is None else self._next(now)
        assert attempt is not None  # a route has a target
        self.current = attempt

    @cached_property
    def _past(self) -> _PastAttempts:
        """Most turns never need it: their route has one attempt, and it succeeds."""
        return _PastAttempts()

    def may_ask_another(self, now: float) -> bool:
        """Whether another target may still be asked, if the current one fails. While that is so, nothing that commits
        the answer may be sent to the client."""
        if self._order is None or now > self._deadline:
            return False
        if self._order.has_more or self._past.repeated:
            return True
        if self._past.switched_for is not None:
            return False
        if self.route.on_refusal or self.route.on_context_length:
            return True
        return self._past.round < self.route.retry.rounds and not self.route.is_lone

    @property
    def is_single(self) -> bool:
        """Whether the first attempt is the only one, whatever happens."""
        return self._order is None

    @property
    def handles_refusals(self) -> bool:
        """Whether a refusal of the model is a failure, because there are targets for it."""
        others = self.route.on_refusal
        return bool(others) and self._past.switched_for is None and bool(self._without_failed(others))

    def begin(self, now: float) -> None:
        """The current attempt starts."""
        target, key = self.current.target, self.current.key
        target.state.begin(now)
        ring = target.target.upstream.key_ring
        if ring.count > 1:
            ring.advance(key)
        self.is_running = True
        number, upstream, model = len(self.records) + 1, target.target.upstream.name, target.target.model
        self.records.append(AttemptRecord(number=number, upstream=upstream, model=model, key=key, started_at=now))

    def note_first_content(self, now: float) -> None:
        self.current.target.state.note_first_content(now - self.records[-1].started_at, now)

    def finish(self, error: ApiError | None, now: float) -> None:
        """The current attempt has ended and is the last: with an answer, or with a failure after its first content."""
        if not self.is_running:
            return
        if error is None:
            self._end("answered", None, "success", now)
        else:
            kind = classify_failure(error)
            self._end(kind, error, _outcome_of(kind), now)

    def finish_whole(self, now: float) -> None:
        """The current attempt has ended with an answer in one piece."""
        self.is_running = False
        record = self.records[-1]
        seconds = now - record.started_at
        record.outcome, record.duration_ms = "answered", seconds * 1000
        state = self.current.target.state
        state.note_first_content(seconds, now)
        state.end("success", now)

    def abandon(self, now: float) -> None:
        """The turn is over for another reason than the target, if it is not over yet."""
        if self.is_running:
            self._end("abandoned", None, "unknown", now)

    def fail(self, error: ApiError, now: float) -> Attempt | None:
        """The current attempt failed before its first content. Returns the next one; None if the turn has failed
        (`final_error`)."""
        kind = classify_failure(error)
        self._end(kind, error, _outcome_of(kind), now)
        self._rest_key(kind, error, now)
        return self._after_failure(kind, error, now)

    def skip(self, now: float) -> Attempt | None:
        """The request cannot be sent to the current target. Nothing was sent, so it is no attempt."""
        return self._advance(now)

    def final_error(self) -> ApiError:
        """The error of a turn that failed: that of the last attempt whose key was not refused. Targets that were
        skipped have no part in it. If there is none, all keys were refused. If any attempt was paid, a retry of the
        client would pay again."""
        error = self._error_of_turn()
        error.was_paid = any(error.was_paid for _, error in self._past.errors)
        return error

    def _error_of_turn(self) -> ApiError:
        past = self._past
        if past.switched_for is not None:  # the targets for it failed too; agents need to know why they were asked
            return next(error for kind, error in past.errors if kind == past.switched_for).without_traceback()
        others = [error for kind, error in past.errors if kind != "credentials"]
        if others:
            return others[-1].without_traceback()
        key_count = sum(map(len, past.dead_keys.values()))
        if key_count == 1:
            return past.errors[0][1].without_traceback()  # ERR-4
        return UpstreamFault(
            f"the upstreams refused all {key_count} keys of the gateway", code="upstream_credentials_exhausted"
        )

    # Inside

    def _after_failure(self, kind: FailureKind, error: ApiError, now: float) -> Attempt | None:
        target = self.current.target
        self._note_failure(kind, error, now)
        self._past.errors.append((kind, error))
        match kind:
            case "request" | "gateway":
                return None
            case "context_length" | "refusal":
                return self._switch(kind, now)
            case "credentials" | "rate_limit":
                key = target.target.upstream.key_ring.choose(now, self._past.tried_keys | self._dead_keys_of(target))
                if key is not None and now <= self._deadline:
                    return self._set_current(target, key)
        return self._advance(now)

    def _note_failure(self, kind: FailureKind, error: ApiError, now: float) -> None:
        """Notes when the same target may be asked again; after a limit, when the same key may be used again."""
        target, key = self.current.target, self.current.key
        not_before = now + max(self._backoff(), error.retry_after or 0.0)
        if kind == "rate_limit":
            self._past.key_times.setdefault(id(target.target.upstream.key_ring), {})[key] = not_before
            not_before = now
        if kind == "credentials" and target in self._past.failures:
            return  # with another key it may still be asked again
        self._past.failures[target] = _Failure(kind, not_before)

    def _switch(self, kind: FailureKind, now: float) -> Attempt | None:
        """Goes on with the targets for a special failure, once."""
        if self._past.switched_for is None:
            targets = self.route.on_context_length if kind == "context_length" else self.route.on_refusal
            others = self._without_failed(targets)
            if not others:
                return None
            self._past.switched_for = kind
            self._past.repeated = []
            self._order = TargetOrder(groups_by_priority(others), "weighted", self._random)
        return self._advance(now) if self._past.switched_for == kind else None

    def _without_failed(self, targets: Sequence[RouteTarget]) -> list[RouteTarget]:
        """The targets for a special failure that did not fail as targets of the model."""
        failed_states = {id(target.state) for target in self._past.failures}
        return [target for target in targets if id(target.state) not in failed_states]

    def _advance(self, now: float) -> Attempt | None:
        attempt = self._next(now)
        if attempt is not None:
            self.current = attempt
        return attempt

    def _next(self, now: float) -> Attempt | None:
        """The next target of this round, else of the next one, that can begin before the deadline."""
        while now <= self._deadline:
            target = (self._order and self._order.next(now)) or self._next_repeated(now)
            if target is None:
                return None
            attempt = self._plan_attempt(target, now)
            if attempt is not None:
                self._past.tried_keys = {attempt.key}
                return attempt
        return None

    def _plan_attempt(self, target: RouteTarget, now: float) -> Attempt | None:
        """The next attempt at a target, with the key that may be used first; None if it cannot begin before the
        deadline, or has no key left."""
        ring, failure = target.target.upstream.key_ring, self._past.failures.get(target)
        waits = {key: max(0.0, time - now) for key, time in self._past.key_times.get(id(ring), {}).items()}
        key = ring.choose(now, self._dead_keys_of(target), waits)
        if key is None:
            return None
        delay = 0.0 if failure is None else max(0.0, failure.not_before - now, waits.get(key, 0.0))
        return Attempt(target, key, delay) if now + delay <= self._deadline else None

    def _next_repeated(self, now: float) -> RouteTarget | None:
        """The target of a later round that may be asked first."""
        past = self._past
        if not past.repeated and past.round < self.route.retry.rounds and past.switched_for is None:
            past.round += 1
            repeatable = [target for target in past.failures if past.failures[target].kind in REPEATABLE_KINDS]
            plans = {target: self._plan_attempt(target, now) for target in repeatable}
            # One that could not be connected is asked again only if no other is left.
            connected = [target for target in repeatable if past.failures[target].kind != "connection"]
            past.repeated = [target for target in connected if plans[target]] or repeatable
        if not past.repeated:
            return None
        target = min(past.repeated, key=lambda target: self._delay_of(target, now))
        past.repeated.remove(target)
        return target

    def _delay_of(self, target: RouteTarget, now: float) -> float:
        attempt = self._plan_attempt(target, now)
        return math.inf if attempt is None else attempt.delay

    def _set_current(self, target: RouteTarget, key: int) -> Attempt:
        self._past.tried_keys.add(key)
        self.current = Attempt(target, key)
        return self.current

    def _dead_keys_of(self, target: RouteTarget) -> set[int]:
        return self._past.dead_keys.get(id(target.target.upstream.key_ring), set())

    def _rest_key(self, kind: FailureKind, error: ApiError, now: float) -> None:
        if kind not in KEY_KINDS:
            return
        target, key = self.current.target, self.current.key
        ring = target.target.upstream.key_ring
        if kind == "credentials":
            self._past.dead_keys.setdefault(id(ring), set()).add(key)
            ring.rest(key, REFUSED_KEY_REST, now)
        else:
            ring.rest(key, LIMITED_KEY_REST if error.retry_after is None else error.retry_after, now)
        if ring.rest_seconds(now):
            target.state.rest(ring.rest_seconds(now), now)

    def _backoff(self) -> float:
        seconds = min(FIRST_BACKOFF * 2.0 ** (self._past.round - 1), MAX_BACKOFF)
        return seconds * (1.0 - JITTER + 2 * JITTER * self._random())

    def _end(self, kind: str, error: ApiError | None, outcome: Outcome, now: float) -> None:
        """Ends the current attempt, in its record and in the state of its target."""
        self.is_running = False
        record = self.records[-1]
        record.outcome = kind
        record.error = None if error is None else error.code
        record.duration_ms = (now - record.started_at) * 1000
        self.current.target.state.end(outcome, now)


def _outcome_of(kind: FailureKind) -> Outcome:
    """What a failure says about the health of its target."""
    return "failure" if kind in UNHEALTHY_KINDS else "unknown" if kind == "gateway" else "success"


FIRST_BACKOFF: Final = 0.5  # seconds before the second round
MAX_BACKOFF: Final = 5.0  # seconds
JITTER: Final = 0.2  # share by which a pause is shorter or longer
TIERS: Final = range(3)
MAX_COMPARED: Final = 16  # targets that are compared; of larger groups, a sample is
SAMPLE_SIZE: Final = 8
STRATEGIES: Final[dict[Strategy, Callable[[Sequence[RouteTarget], Random, float], RouteTarget]]] = {
    "weighted": _choose_weighted,
    "least-busy": _choose_least_busy,
    "fastest": _choose_fastest,
}
