"""`gateway/upstreams`: which refusals are remembered, which key is taken, when a target rests, and how it returns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.config import HealthConfig
from antiphon.dialects.responses import ResponsesWire
from antiphon.gateway.upstreams import (
    LIFETIME,
    MAX_MODEL_NAME,
    MAX_MODELS,
    KeyRing,
    Outcome,
    RefusalMemory,
    TargetState,
)

WIRE = ResponsesWire(no_reasoning_models=("*",))
CONFIG = HealthConfig(window=60.0, min_requests=4, failure_share=0.5, rest=30.0)


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_refusal_is_remembered_for_an_hour_and_for_its_model() -> None:
    clock = Clock()
    memory = RefusalMemory(clock)
    memory.remember("m", "encrypted_reasoning", WIRE)
    refusals = memory.find("m")
    assert refusals is not None
    assert (refusals.refused, refusals.wire) == (("encrypted_reasoning",), WIRE)
    assert memory.find("other") is None
    clock.seconds += LIFETIME - 1
    assert memory.find("m") is refusals
    clock.seconds += 1
    assert memory.find("m") is None


def test_second_refusal_is_remembered_with_the_first() -> None:
    memory = RefusalMemory(Clock())
    memory.remember("m", "reasoning", ResponsesWire())
    memory.remember("m", "encrypted_reasoning", WIRE)
    memory.remember("m", "encrypted_reasoning", WIRE)
    refusals = memory.find("m")
    assert refusals is not None
    assert (refusals.refused, refusals.wire) == (("reasoning", "encrypted_reasoning"), WIRE)


@given(names=st.lists(st.integers(0, 2 * MAX_MODELS), min_size=1, max_size=20))
def test_refusal_memory_is_limited(names: list[int]) -> None:
    """The oldest is evicted first, and a repeated refusal becomes the newest."""
    memory = RefusalMemory(Clock())
    for number in range(MAX_MODELS):
        memory.remember(str(number), "encrypted_reasoning", WIRE)
    order = [str(number) for number in range(MAX_MODELS)]
    for name in map(str, names):
        memory.remember(name, "encrypted_reasoning", WIRE)
        order = [*[other for other in order if other != name][-(MAX_MODELS - 1) :], name]
    assert [name for name in map(str, range(2 * MAX_MODELS + 1)) if memory.find(name)] == sorted(order, key=int)


def test_overlong_model_name_is_not_remembered() -> None:
    memory = RefusalMemory(Clock())
    memory.remember("m" * MAX_MODEL_NAME, "encrypted_reasoning", WIRE)
    memory.remember("m" * (MAX_MODEL_NAME + 1), "encrypted_reasoning", WIRE)
    assert memory.find("m" * MAX_MODEL_NAME) is not None
    assert memory.find("m" * (MAX_MODEL_NAME + 1)) is None


def test_keys_are_taken_in_turn() -> None:
    ring = KeyRing(3)
    assert [take(ring, 0.0) for _ in range(4)] == [0, 1, 2, 0]
    assert [ring.choose(0.0) for _ in range(2)] == [1, 1]


def take(ring: KeyRing, now: float) -> int | None:
    number = ring.choose(now)
    assert number is not None
    ring.advance(number)
    return number


def test_resting_key_is_taken_only_if_no_other_is_left() -> None:
    ring = KeyRing(2)
    ring.rest(0, 10.0, 100.0)
    assert [take(ring, 100.0) for _ in range(2)] == [1, 1]
    assert ring.resting(100.0) == [0]
    assert ring.choose(100.0, {1}) == 0
    assert ring.choose(100.0, {0, 1}) is None
    assert ring.resting(110.0) == []


@pytest.mark.parametrize("count", [0, 1])
def test_lone_key_is_always_taken(count: int) -> None:
    ring = KeyRing(count)
    ring.rest(0, 10.0, 100.0)
    assert ring.choose(100.0) == 0
    assert ring.choose(100.0, {0}) is None


def attempt(state: TargetState, outcome: Outcome, now: float) -> None:
    state.begin(now)
    state.end(outcome, now)


def resting_state() -> TargetState:
    state = TargetState(CONFIG)
    for _ in range(4):
        attempt(state, "failure", 100.0)
    return state


def test_target_rests_after_a_share_of_failures_of_enough_requests() -> None:
    state = TargetState(CONFIG)
    for outcome in ("success", "success", "failure"):
        attempt(state, outcome, 100.0)
    assert state.health(100.0) == "healthy"
    attempt(state, "failure", 100.0)
    assert state.is_resting(100.0)
    assert (state.health(100.0), state.rest_seconds(110.0)) == ("resting", 20.0)
    assert (state.attempts, state.failures, state.in_flight) == (4, 2, 0)


def test_few_failures_are_no_reason_to_rest() -> None:
    state = TargetState(CONFIG)
    for _ in range(3):
        attempt(state, "failure", 100.0)
    assert not state.is_resting(100.0)
    assert state.rest_seconds(100.0) == 0.0


def test_failures_before_the_window_are_forgotten() -> None:
    state = TargetState(CONFIG)
    for now in (0.0, 20.0, 40.0, 61.0):
        attempt(state, "failure", now)
    assert not state.is_resting(61.0)


def test_unknown_outcomes_are_not_counted() -> None:
    state = TargetState(CONFIG)
    for _ in range(10):
        attempt(state, "unknown", 100.0)
    assert not state.is_resting(100.0)


def test_one_request_tries_a_target_after_its_rest() -> None:
    state = resting_state()
    assert not state.is_resting(130.0)
    assert state.health(130.0) == "trial"
    state.begin(130.0)
    assert state.is_resting(130.0)  # for all others
    state.end("success", 131.0)
    assert state.health(131.0) == "healthy"


@pytest.mark.parametrize(("outcome", "health"), [("failure", "resting"), ("unknown", "trial")])
def test_trial_without_success_does_not_end_the_rest(outcome: Outcome, health: str) -> None:
    state = resting_state()
    attempt(state, outcome, 130.0)
    assert state.health(130.0) == health


def test_server_can_ask_for_a_rest() -> None:
    state = TargetState(CONFIG)
    state.rest(7.0, 100.0)
    assert state.is_resting(106.9)
    assert not state.is_resting(107.0)
    state.rest(2.0, 100.0)
    assert state.is_resting(106.9)  # the longer rest counts
    state.wake()
    assert not state.is_resting(100.0)


def test_failures_during_a_rest_do_not_prolong_it() -> None:
    state = resting_state()
    for _ in range(5):
        attempt(state, "failure", 110.0)
    assert state.rest_seconds(110.0) == 20.0


def test_latency_is_an_average_of_late_measurements() -> None:
    state = TargetState(CONFIG)
    assert state.latency(100.0) == 0.0
    state.note_first_content(1.0, 100.0)
    state.note_first_content(2.0, 101.0)
    assert state.latency(101.0) == pytest.approx(1.3)
    assert state.latency(402.0) == 0.0
    state.note_first_content(5.0, 402.0)
    assert state.latency(402.0) == 5.0
