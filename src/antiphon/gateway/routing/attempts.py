"""The attempts of one turn: which target and key is asked next after a failure, when, and when to give up.

Every attempt begins in `TurnAttempts.begin`; a budget would be checked there.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.routing.choice import ModelRoute, Random, RouteTarget, TargetOrder, groups_by_priority
from antiphon.gateway.routing.failures import (
    KEY_KINDS,
    REPEATABLE_KINDS,
    UNHEALTHY_KINDS,
    FailureKind,
    classify_failure,
)
from antiphon.gateway.routing.health import Outcome
from antiphon.gateway.routing.keys import LIMITED_KEY_REST, REFUSED_KEY_REST
from antiphon.gateway.routing.records import AttemptRecord


class Attempt(Struct, frozen=True):
    """The next attempt: a target, the number of its key, and the seconds to wait before."""

    target: RouteTarget
    key: int
    delay: float = 0.0


class _Failure(Struct, frozen=True):
    kind: FailureKind
    not_before: float  # when the same target may be asked again


class TurnAttempts:
    """The attempts of one turn. Call `begin` when an attempt starts, then `fail` or `finish`. Times are seconds of one
    monotonic clock."""

    def __init__(self, route: ModelRoute, order: TargetOrder, now: float, random: Random) -> None:
        self.route = route
        self.records: list[AttemptRecord] = []  # of attempts that began, and of targets that were skipped
        self._order = order
        self._random = random
        self._deadline = now + route.retry.deadline
        self._round = 1
        self._repeated: list[RouteTarget] = []  # targets of a later round that are not yet asked
        self._switched_for: FailureKind | None = None  # why the targets for a special failure are asked
        self._failures: dict[RouteTarget, _Failure] = {}
        self._errors: list[tuple[FailureKind, ApiError]] = []
        self._dead_keys: dict[RouteTarget, set[int]] = {}
        self._tried_keys: set[int] = set()  # of the current target, in this round
        self._is_running = False
        self.current = self._require(self._next(now))

    @staticmethod
    def _require(attempt: Attempt | None) -> Attempt:
        assert attempt is not None  # a route has a target
        return attempt

    @property
    def answer_count(self) -> int:
        """The number of attempts that began."""
        return sum(record.outcome != "skipped" for record in self.records)

    def may_ask_another(self, now: float) -> bool:
        """Whether another target may still be asked, if the current one fails. While that is so, nothing that commits
        the answer may be sent to the client."""
        if now > self._deadline:
            return False
        if self._order.has_more or self._repeated:
            return True
        if self._switched_for is not None:
            return False
        if self.route.on_refusal or self.route.on_context_length:
            return True
        return self._round < self.route.retry.rounds and not self.route.is_lone

    @property
    def is_single(self) -> bool:
        """Whether the first attempt is the only one, whatever happens."""
        route = self.route
        has_one_key = self.current.target.target.upstream.key_ring.count <= 1
        has_no_more = route.is_lone and not route.on_context_length and not route.on_refusal
        return has_no_more and has_one_key and route.retry.rounds == 1

    @property
    def handles_refusals(self) -> bool:
        """Whether a refusal of the model is a failure, because there are targets for it."""
        return self._switched_for is None and any(target not in self._failures for target in self.route.on_refusal)

    def begin(self, now: float) -> None:
        """The current attempt starts."""
        target = self.current.target
        target.state.begin(now)
        self._is_running = True
        self.records.append(self._make_record(now))

    def note_first_content(self, now: float) -> None:
        self.current.target.state.note_first_content(now - self.records[-1].started_at, now)

    def finish(self, error: ApiError | None, now: float) -> None:
        """The current attempt has ended and is the last: with an answer, or with a failure after its first content."""
        if self._is_running:
            kind = None if error is None else classify_failure(error)
            self._end_record("answered" if error is None else str(kind), error, now)
            self._end_state(kind, now)

    def abandon(self, now: float) -> None:
        """The turn is over for another reason than the target, if it is not over yet."""
        if self._is_running:
            self._end_record("abandoned", None, now)
            self._is_running = False
            self.current.target.state.end("unknown", now)

    def fail(self, error: ApiError, now: float) -> Attempt | None:
        """The current attempt failed before its first content. Returns the next one; None if the turn has failed
        (`final_error`)."""
        kind = classify_failure(error)
        self._end_record(kind, error, now)
        self._end_state(kind, now)
        self._rest_key(kind, error, now)
        return self._after_failure(kind, error, now)

    def skip(self, error: ApiError, now: float) -> Attempt | None:
        """The request cannot be sent to the current target. Nothing was sent."""
        self.records.append(self._make_record(now))
        self._end_record("skipped", error, now)
        self._errors.append(("request", error))
        return self._advance(now)

    def final_error(self) -> ApiError:
        """The error of a turn that failed: the last, unless only the key of its target was refused."""
        others = [error for kind, error in self._errors if kind != "credentials"]
        if others:
            return others[-1].without_traceback()
        if len(self._errors) == 1:
            return self._errors[0][1].without_traceback()
        return UpstreamFault(
            f"the upstreams refused all {len(self._errors)} keys of the gateway", code="upstream_credentials_exhausted"
        )

    # Inside

    def _after_failure(self, kind: FailureKind, error: ApiError, now: float) -> Attempt | None:
        target = self.current.target
        pause = max(self._backoff(), error.retry_after or 0.0)
        self._failures[target] = _Failure(kind, now + pause)
        self._errors.append((kind, error))
        match kind:
            case "request" | "gateway":
                return None
            case "context_length" | "refusal":
                return self._switch(kind, now)
            case "credentials" | "rate_limit":
                key = target.target.upstream.key_ring.take(now, self._excluded_keys(target))
                if key is not None and now <= self._deadline:
                    return self._set_current(target, key)
        return self._advance(now)

    def _switch(self, kind: FailureKind, now: float) -> Attempt | None:
        """Goes on with the targets for a special failure, once."""
        if self._switched_for is None:
            targets = self.route.on_context_length if kind == "context_length" else self.route.on_refusal
            others = [target for target in targets if target not in self._failures]
            if not others:
                return None
            self._switched_for = kind
            self._repeated = []
            self._order = TargetOrder(groups_by_priority(others), "weighted", self._random)
        return self._advance(now) if self._switched_for == kind else None

    def _advance(self, now: float) -> Attempt | None:
        attempt = self._next(now)
        if attempt is not None:
            self.current = attempt
        return attempt

    def _next(self, now: float) -> Attempt | None:
        """The next target of this round, else of the next one, that can begin before the deadline."""
        while now <= self._deadline:
            target = self._order.next(now) or self._next_repeated()
            if target is None:
                return None
            self._tried_keys = set()
            key = target.target.upstream.key_ring.take(now, self._excluded_keys(target))
            failure = self._failures.get(target)
            delay = 0.0 if failure is None else max(0.0, failure.not_before - now)
            if key is not None and now + delay <= self._deadline:
                self._tried_keys.add(key)
                return Attempt(target, key, delay)
        return None

    def _next_repeated(self) -> RouteTarget | None:
        if not self._repeated and self._round < self.route.retry.rounds and self._switched_for is None:
            self._round += 1
            repeatable = [target for target in self._failures if self._failures[target].kind in REPEATABLE_KINDS]
            # One that could not be connected is asked again only if no other is left.
            connected = [target for target in repeatable if self._failures[target].kind != "connection"]
            self._repeated = connected or repeatable
        return self._repeated.pop(0) if self._repeated else None

    def _set_current(self, target: RouteTarget, key: int) -> Attempt:
        self._tried_keys.add(key)
        self.current = Attempt(target, key)
        return self.current

    def _excluded_keys(self, target: RouteTarget) -> set[int]:
        return self._tried_keys | self._dead_keys.get(target, set())

    def _rest_key(self, kind: FailureKind, error: ApiError, now: float) -> None:
        if kind not in KEY_KINDS:
            return
        target, key = self.current.target, self.current.key
        ring = target.target.upstream.key_ring
        if kind == "credentials":
            self._dead_keys.setdefault(target, set()).add(key)
            ring.rest(key, REFUSED_KEY_REST, now)
            pause = REFUSED_KEY_REST
        else:
            pause = LIMITED_KEY_REST if error.retry_after is None else error.retry_after
            ring.rest(key, pause, now)
        if len(ring.resting(now)) >= max(1, ring.count):
            target.state.rest(pause, now)

    def _backoff(self) -> float:
        seconds = min(FIRST_BACKOFF * 2.0 ** (self._round - 1), MAX_BACKOFF)
        return seconds * (1.0 - JITTER + 2 * JITTER * self._random())

    def _make_record(self, now: float) -> AttemptRecord:
        target = self.current.target.target
        return AttemptRecord(
            number=len(self.records) + 1,
            upstream=target.upstream.name,
            model=target.model,
            key=self.current.key,
            started_at=now,
        )

    def _end_record(self, outcome: str, error: ApiError | None, now: float) -> None:
        record = self.records[-1]
        record.outcome = outcome
        record.error = None if error is None else error.code
        record.duration_ms = (now - record.started_at) * 1000

    def _end_state(self, kind: FailureKind | None, now: float) -> None:
        self._is_running = False
        outcome: Outcome = "failure" if kind in UNHEALTHY_KINDS else "unknown" if kind == "gateway" else "success"
        self.current.target.state.end(outcome, now)


FIRST_BACKOFF: Final = 0.5  # seconds before the second round
MAX_BACKOFF: Final = 5.0  # seconds
JITTER: Final = 0.2  # share by which a pause is shorter or longer
