"""The state of one target in this process: its health, its requests in flight, and how fast it is.

A target rests after a share of failures in a window. After the rest one request tries it again: its success ends the
rest, its failure begins another.
"""

from __future__ import annotations

from typing import Final, Literal

from antiphon.config import HealthConfig

Health = Literal["healthy", "resting", "trial"]
Outcome = Literal["success", "failure", "unknown"]


class TargetState:
    """The mutable state of a target. Times are seconds of one monotonic clock."""

    __slots__ = (
        "_buckets",
        "_config",
        "_is_on_trial",
        "_latency",
        "_latency_expires_at",
        "_rests_until",
        "attempts",
        "failures",
        "in_flight",
    )

    def __init__(self, config: HealthConfig) -> None:
        self.in_flight = 0
        self.attempts = 0  # since the start of the process
        self.failures = 0
        self._config = config
        self._buckets: dict[int, list[int]] = {}  # by number: attempts and failures
        self._rests_until: float | None = None
        self._is_on_trial = False
        self._latency = 0.0
        self._latency_expires_at = 0.0

    def is_resting(self, now: float) -> bool:
        """Whether the target should be asked only if no other is left. During a trial it rests for other requests."""
        return self._rests_until is not None and (now < self._rests_until or self._is_on_trial)

    def health(self, now: float) -> Health:
        if self._rests_until is None:
            return "healthy"
        return "resting" if now < self._rests_until else "trial"

    def rest_seconds(self, now: float) -> float:
        """The seconds of rest that are left."""
        return max(0.0, self._rests_until - now) if self._rests_until is not None else 0.0

    def begin(self, now: float) -> None:
        """An attempt begins."""
        self.in_flight += 1
        self.attempts += 1
        if self._rests_until is not None and now >= self._rests_until:
            self._is_on_trial = True

    def end(self, outcome: Outcome, now: float) -> None:
        """An attempt has ended. Its outcome is unknown if the client disconnected."""
        self.in_flight -= 1
        self.failures += outcome == "failure"
        if self._rests_until is not None and now >= self._rests_until:
            self._end_trial(outcome, now)
        elif outcome != "unknown":
            self._count(outcome == "failure", now)

    def rest(self, seconds: float, now: float) -> None:
        """Rests for so long, because the server asked for it."""
        self._rests_until = max(now + seconds, self._rests_until or 0.0)
        self._is_on_trial = False

    def wake(self) -> None:
        """Ends the rest."""
        self._rests_until, self._is_on_trial = None, False
        self._buckets.clear()

    def note_first_content(self, seconds: float, now: float) -> None:
        """Notes the time until the first content of an answer."""
        weight = LATENCY_WEIGHT if now < self._latency_expires_at else 1.0
        self._latency += weight * (seconds - self._latency)
        self._latency_expires_at = now + LATENCY_LIFETIME

    def latency(self, now: float) -> float:
        """The usual seconds until the first content; 0 if it was not measured lately, so that it is measured again."""
        return self._latency if now < self._latency_expires_at else 0.0

    def _end_trial(self, outcome: Outcome, now: float) -> None:
        self._is_on_trial = False
        if outcome == "success":
            self.wake()
        elif outcome == "failure":
            self._rests_until = now + self._config.rest

    def _count(self, is_failure: bool, now: float) -> None:
        number = int(now / self._config.window * BUCKETS)
        for old in [old for old in self._buckets if old <= number - BUCKETS]:
            del self._buckets[old]
        bucket = self._buckets.setdefault(number, [0, 0])
        bucket[0] += 1
        bucket[1] += is_failure
        if is_failure and self._rests_until is None:
            attempts, failures = (sum(counts) for counts in zip(*self._buckets.values(), strict=True))
            if attempts >= self._config.min_requests and failures >= self._config.failure_share * attempts:
                self._rests_until = now + self._config.rest


BUCKETS: Final = 10  # parts of the window, each forgotten as a whole
LATENCY_WEIGHT: Final = 0.3  # of the newest measurement in the average
LATENCY_LIFETIME: Final = 300.0  # seconds
