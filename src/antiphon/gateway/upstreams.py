"""The upstreams of a configuration, and their state in this process: keys, refused parts, and the health of targets.

Keys and profiles are loaded at the start and at each reload. A target, one model of an upstream, rests after a share of
failures in a window. After the rest one request tries it again: its success ends the rest, its failure begins another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from antiphon import __version__
from antiphon.config import Config, HealthConfig, Timeouts, UpstreamConfig
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.dialects.dialect import ServerDialect
from antiphon.dialects.registry import SERVER_DIALECTS, Wire
from antiphon.profiles import Profile, load_profile

AGENT_SCHEME: Final = "agent:"  # prefix of the base URL of an in-process agent
SECONDS_PER_DAY: Final = 86_400.0  # seconds; an agent may work for long
USER_AGENT: Final = f"antiphon/{__version__}"

Health = Literal["healthy", "resting", "trial"]
Outcome = Literal["success", "failure", "unknown"]


class TranslationPlan(Struct, frozen=True, kw_only=True):
    """How a request is translated for its upstream."""

    model: str  # the upstream's name for the model
    profile: Profile
    wire: Wire  # the profile's wire options without parts that the upstream refused for this model
    is_stored: bool = False  # whether the gateway stores the response


class RememberedRefusals(Struct, frozen=True):
    """The parts refused for one model, and the wire options without them."""

    refused: tuple[RefusedPart, ...]
    wire: Wire
    expires_at: float


class RefusalMemory:
    """The parts that one upstream refused, so that later requests leave them out. It is per process, and holds at most
    `MAX_MODELS` models, each for an hour."""

    __slots__ = ("_by_model", "_now")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._by_model: dict[str, RememberedRefusals] = {}
        self._now = now

    def find(self, model: str) -> RememberedRefusals | None:
        """The refusals of a model; None if there are none or they have expired."""
        entry = self._by_model.get(model)
        if entry is None or self._now() < entry.expires_at:
            return entry
        del self._by_model[model]
        return None

    def remember(self, model: str, refused: RefusedPart, wire: Wire) -> None:
        """Remembers that the upstream accepted a request for this model without `refused`, written with `wire`."""
        if len(model) > MAX_MODEL_NAME:
            return
        remembered = self.find(model)
        self._by_model.pop(model, None)
        if len(self._by_model) >= MAX_MODELS:
            del self._by_model[next(iter(self._by_model))]
        earlier_parts = tuple(part for part in remembered.refused if part != refused) if remembered is not None else ()
        self._by_model[model] = RememberedRefusals((*earlier_parts, refused), wire, self._now() + LIFETIME)


class KeyRing:
    """The state of the keys of one upstream, by their numbers."""

    __slots__ = ("_next", "_rests_until", "count")

    def __init__(self, count: int) -> None:
        self.count = count  # 0: the server needs no key
        self._next = 0
        self._rests_until: dict[int, float] = {}

    def choose(
        self, now: float, excluded: Collection[int] = (), waits: Mapping[int, float] | None = None
    ) -> int | None:
        """The number of the next key: the one that need not wait, or the shortest time. `waits` has the seconds of keys
        for which the caller knows better than their rests. None if all are excluded."""
        if self.count <= 1:
            return None if 0 in excluded else 0
        order = [(self._next + step) % self.count for step in range(self.count)]
        usable = [number for number in order if number not in excluded]
        rests = {number: max(0.0, self._rests_until.get(number, 0.0) - now) for number in usable}
        wait_times = {**rests, **(waits or {})}
        return min(usable, key=lambda number: wait_times[number], default=None)

    def advance(self, number: int) -> None:
        """A key is used: the next request begins with the one after it."""
        self._next = (number + 1) % max(1, self.count)

    def rest(self, number: int, seconds: float, now: float) -> None:
        self._rests_until[number] = now + seconds

    def rest_seconds(self, now: float) -> float:
        """The seconds until a key does not rest."""
        waits = [self._rests_until.get(number, 0.0) - now for number in range(max(1, self.count))]
        return max(0.0, min(waits))

    def resting(self, now: float) -> list[int]:
        """The keys that rest."""
        return sorted(number for number, until in self._rests_until.items() if now < until)


class UpstreamAddress(Struct, frozen=True, kw_only=True):
    """The address and keys of an upstream. For the embedded model, they are known only once it runs."""

    base_url: str
    key: str | None = None
    more_keys: tuple[str, ...] = ()
    timeouts: Timeouts | None = None


class Upstream(Struct, frozen=True, kw_only=True):
    """One upstream, ready for requests. `headers` is the complete list of headers it is sent (allow-list), with its
    first key."""

    name: str
    config: UpstreamConfig
    profile: Profile
    server_dialect: ServerDialect
    base_url: str
    headers: dict[str, str]
    timeouts: Timeouts
    keys: tuple[str, ...] = ()
    key_ring: KeyRing = field(default_factory=lambda: KeyRing(0))
    #: The maker of the reasoning that this upstream wants back; None if it wants none back.
    reasoning_maker: str | None = None
    refusals: RefusalMemory = field(default_factory=RefusalMemory)

    def headers_with_key(self, number: int) -> dict[str, str]:
        """The headers with one of its keys."""
        if number == 0:
            return self.headers
        return self.headers | _key_header(self.profile, self.keys[number])

    def keep_state(self, previous: Upstream | None) -> Upstream:
        """This upstream with what is known of the same one in the configuration before: resting keys, refusals."""
        if previous is None or not self.is_same_server(previous):
            return self
        refusals = previous.refusals if self.profile == previous.profile else self.refusals
        return replace(self, key_ring=previous.key_ring, refusals=refusals)

    def is_same_server(self, other: Upstream) -> bool:
        """Whether another upstream is the same server with the same keys, so that its health is known."""
        return (self.base_url, self.config.dialect, self.keys) == (other.base_url, other.config.dialect, other.keys)

    def redact_key(self, body: bytes) -> bytes:
        """A server's body with our keys removed, in case the server repeats one (ERR-5)."""
        for key in self.keys:
            if len(key) >= MIN_REDACTED_KEY_LENGTH:
                body = body.replace(key.encode(), b"[key]")
        return body


class Target(Struct, frozen=True, kw_only=True):
    """The target of one turn: an upstream, and its name for the model."""

    upstream: Upstream
    model: str

    def plan_translation(self, *, is_stored: bool = False) -> TranslationPlan:
        """The plan for a request to this target. It leaves out what the upstream refused for this model."""
        profile = self.upstream.profile
        remembered = self.upstream.refusals.find(self.model)
        wire = profile.wire if remembered is None else remembered.wire
        return TranslationPlan(model=self.model, profile=profile, wire=wire, is_stored=is_stored)


class TargetState:
    """The mutable state of a target. Times are seconds of one monotonic clock."""

    __slots__ = (
        "_buckets",
        "_is_on_trial",
        "_latency",
        "_latency_expires_at",
        "_requested_until",
        "_rests_until",
        "attempts",
        "config",
        "failures",
        "in_flight",
    )

    def __init__(self, config: HealthConfig) -> None:
        self.in_flight = 0
        self.attempts = 0  # since the start of the process
        self.failures = 0
        self.config = config
        self._buckets: dict[int, list[int]] = {}  # by number: attempts and failures
        self._rests_until: float | None = None
        self._requested_until = 0.0  # the end of a rest that the server asked for
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
        self._rests_until = self._requested_until = max(now + seconds, self._rests_until or 0.0)
        self._is_on_trial = False

    def may_be_checked(self, now: float) -> bool:
        """Whether the target rests, and not because the server asked for it."""
        return self.is_resting(now) and now >= self._requested_until

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
            self._rests_until = now + self.config.rest

    def _count(self, is_failure: bool, now: float) -> None:
        number = int(now / self.config.window * BUCKETS)
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets = {old: counts for old, counts in self._buckets.items() if old > number - BUCKETS}
            bucket = self._buckets[number] = [0, 0]
        bucket[0] += 1
        bucket[1] += is_failure
        if is_failure and self._rests_until is None:
            attempts, failures = (sum(counts) for counts in zip(*self._buckets.values(), strict=True))
            if attempts >= self.config.min_requests and failures >= self.config.failure_share * attempts:
                self._rests_until = now + self.config.rest


def make_upstream(
    config: Config,
    upstream_config: UpstreamConfig,
    environ: Mapping[str, str],
    addresses: Mapping[str, UpstreamAddress],
) -> Upstream:
    address = addresses.get(upstream_config.name) or _configured_address(upstream_config, environ)
    profile = load_profile(upstream_config.profile_name)
    headers = {"content-type": "application/json", "user-agent": USER_AGENT, **profile.headers}
    keys = (address.key, *address.more_keys) if address.key else ()
    if keys:
        headers |= _key_header(profile, keys[0])
    return Upstream(
        name=upstream_config.name,
        config=upstream_config,
        profile=profile,
        server_dialect=SERVER_DIALECTS[profile.dialect],
        base_url=address.base_url.rstrip("/"),
        headers=headers,
        timeouts=upstream_config.timeouts or address.timeouts or config.timeouts,
        keys=keys,
        key_ring=KeyRing(len(keys)),
        reasoning_maker=profile.wire.maker if profile.wire.wants_reasoning_back else None,
    )


def _configured_address(upstream_config: UpstreamConfig, environ: Mapping[str, str]) -> UpstreamAddress:
    if upstream_config.agent:
        return UpstreamAddress(base_url=AGENT_SCHEME + upstream_config.agent, timeouts=Timeouts(total=SECONDS_PER_DAY))
    keys = upstream_config.api_keys(environ)
    return UpstreamAddress(base_url=upstream_config.base_url, key=keys[0] if keys else None, more_keys=tuple(keys[1:]))


def _key_header(profile: Profile, key: str) -> dict[str, str]:
    return {profile.key_header: f"Bearer {key}" if profile.key_header == "authorization" else key}


MIN_REDACTED_KEY_LENGTH: Final = 8  # shorter keys are not redacted: they may be ordinary words
MAX_MODELS: Final = 1024  # models of one upstream; the oldest is evicted
MAX_MODEL_NAME: Final = 256  # characters; longer names are not remembered: patterns accept any names
LIFETIME: Final = 3600.0  # seconds
REFUSED_KEY_REST: Final = 300.0  # seconds for which a key rests that the server refused
LIMITED_KEY_REST: Final = 5.0  # seconds for which a limited key rests if the server names no time
BUCKETS: Final = 10  # parts of the window, each forgotten as a whole
LATENCY_WEIGHT: Final = 0.3  # of the newest measurement in the average
LATENCY_LIFETIME: Final = 300.0  # seconds
