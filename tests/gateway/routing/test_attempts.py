"""The order of targets: priority, strategy, health and ability. Which target and key is asked after each kind of failure,
when, and with which error a turn ends."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.gateway.routing.making import Clock, at, make_route, make_router

from antiphon.config import RetryConfig, TargetConfig
from antiphon.errors import AnswerTooLarge, ApiError, ClientFault, UpstreamFault
from antiphon.gateway.routing.attempts import MAX_COMPARED, Attempt, ModelRoute, TargetOrder, TurnAttempts, make_group
from antiphon.gateway.routing.failures import model_refusal

REFUSED = UpstreamFault("refused", code="upstream_unavailable")
BROKEN = UpstreamFault("broken", code="upstream_error")
UNAUTHORIZED = UpstreamFault("no", code="upstream_auth_failed")
TOO_LONG = ClientFault("long", code="context_length_exceeded")
INVALID = ClientFault("invalid")


def limited(retry_after: float | None = None) -> UpstreamFault:
    return UpstreamFault(
        "slow down", type="too_many_requests", code="rate_limit_exceeded", status=429, retry_after=retry_after
    )


class Turn:
    """A turn of the model `m`, with a clock that stands still unless an attempt waits."""

    def __init__(self, *targets: TargetConfig, **settings: object) -> None:
        self.clock = Clock()
        self.router = make_router(targets, clock=self.clock, draws=0.5, **settings)  # type: ignore[arg-type]
        self.attempts = self.new_attempts()

    def new_attempts(self) -> TurnAttempts:
        return self.router.begin_turn(self.router.find("m"))

    def asked(self, *errors: ApiError) -> list[str]:
        """Each attempt as `upstream` or `upstream#key`, with its delay if it has one; `None` at the end."""
        attempt: Attempt | None = self.attempts.current
        names: list[str] = []
        for error in errors:
            assert attempt is not None
            names.append(self._name(attempt))
            self.clock.now += attempt.delay
            self.attempts.begin(self.clock.now)
            attempt = self.attempts.fail(error, self.clock.now)
        return [*names, "None" if attempt is None else self._name(attempt)]

    def _name(self, attempt: Attempt) -> str:
        upstream = attempt.target.target.upstream
        key = f"#{attempt.key}" if upstream.key_ring.count > 1 else ""
        return f"{upstream.name}{key}" + (f" +{attempt.delay:g}" if attempt.delay else "")


def test_refused_target_is_asked_again_only_if_no_other_is_left() -> None:
    turn = Turn(at("a"), at("b", 2))
    assert turn.asked(REFUSED, REFUSED, REFUSED, REFUSED) == ["a", "b", "a +0.5", "b", "None"]
    assert Turn(at("a"), at("b", 2)).asked(REFUSED, BROKEN, BROKEN) == ["a", "b", "b +0.5", "None"]


def test_broken_server_is_asked_again_in_the_next_round_after_a_pause() -> None:
    turn = Turn(at("a"), at("b", 2), retry=RetryConfig(rounds=3))
    assert turn.asked(*[BROKEN] * 6) == ["a", "b", "a +0.5", "b", "a +1", "b", "None"]


def test_pauses_grow_to_five_seconds() -> None:
    turn = Turn(at("a"), retry=RetryConfig(rounds=7))
    assert turn.asked(*[BROKEN] * 7) == ["a", "a +0.5", "a +1", "a +2", "a +4", "a +5", "a +5", "None"]


def test_pauses_differ_by_a_fifth() -> None:
    for draw, delay in ((0.0, 0.4), (1.0, 0.6)):
        router = make_router([at("a")], draws=draw)
        attempts = router.begin_turn(router.find("m"))
        attempts.begin(1000.0)
        attempt = attempts.fail(BROKEN, 1000.0)
        assert attempt is not None
        assert attempt.delay == pytest.approx(delay)


def test_limited_key_is_replaced_by_the_next_key_then_by_the_next_target() -> None:
    turn = Turn(at("a"), at("b", 2), keys=2)
    assert turn.asked(limited(), limited(), BROKEN) == ["a#0", "a#1", "b#0", "a#0 +0.5"]
    assert turn.attempts.current.target.target.upstream.key_ring.resting(turn.clock.now) == [0, 1]


def test_retry_after_is_honoured() -> None:
    assert Turn(at("a")).asked(limited(7.0)) == ["a", "a +7"]
    assert Turn(at("a")).asked(limited(200.0)) == ["a", "None"]  # it cannot begin before the deadline


def test_target_whose_keys_are_all_limited_rests() -> None:
    turn = Turn(at("a"), at("b", 2))
    turn.asked(limited(7.0))
    assert turn.new_attempts().current.target.target.upstream.name == "b"
    turn.clock.now += 7.0
    assert turn.new_attempts().current.target.target.upstream.name == "a"


@pytest.mark.parametrize(("first", "second", "key"), [(60.0, 1.0, 1), (1.0, 60.0, 0)])
def test_key_that_may_be_used_first_is_used_in_the_next_round(first: float, second: float, key: int) -> None:
    turn = Turn(at("a"), keys=2)
    assert turn.asked(limited(first), limited(second)) == ["a#0", "a#1", f"a#{key} +1"]


def test_target_that_may_be_asked_first_is_asked_first_in_the_next_round() -> None:
    turn = Turn(at("a"), at("b", 2))
    assert turn.asked(limited(20.0), BROKEN, BROKEN) == ["a", "b", "b +0.5", "a +19.5"]


@pytest.mark.parametrize("errors", [(limited(1.0), UNAUTHORIZED), (UNAUTHORIZED, limited(1.0))])
def test_limited_key_is_used_again_whatever_became_of_the_other(errors: tuple[ApiError, ApiError]) -> None:
    turn = Turn(at("a"), keys=2)
    key = 0 if errors[1] is UNAUTHORIZED else 1
    assert turn.asked(*errors) == ["a#0", "a#1", f"a#{key} +1"]


def test_refused_key_is_dead_for_all_targets_of_its_upstream() -> None:
    turn = Turn(at("a"), TargetConfig(upstream="a", model="y", priority=2))
    assert turn.asked(UNAUTHORIZED) == ["a", "None"]
    assert turn.attempts.final_error().code == "upstream_auth_failed"


def test_refused_target_is_asked_again_if_all_others_must_wait_too_long() -> None:
    turn = Turn(at("a"), at("b", 2), retry=RetryConfig(deadline=3.0))
    assert turn.asked(REFUSED, limited(10.0)) == ["a", "b", "a +0.5"]


def test_key_rotates_once_for_each_attempt_that_begins() -> None:
    turn = Turn(at("a"), keys=2)
    turn.new_attempts()  # as for an explanation, or for a choice by losses
    keys = []
    for _ in range(4):
        attempts = turn.new_attempts()
        attempts.begin(turn.clock.now)
        keys.append(attempts.current.key)
    assert keys == [0, 1, 0, 1]


def test_refused_key_is_dead_for_the_turn_and_rests() -> None:
    turn = Turn(at("a"), at("b", 2), keys=2)
    assert turn.asked(UNAUTHORIZED, BROKEN, BROKEN) == ["a#0", "a#1", "b#0", "a#1 +0.5"]
    assert turn.new_attempts().current.key == 1


def test_turn_without_a_valid_key_ends_with_its_own_error() -> None:
    turn = Turn(at("a"), at("b", 2), keys=2)
    assert turn.asked(*[UNAUTHORIZED] * 4) == ["a#0", "a#1", "b#0", "b#1", "None"]
    error = turn.attempts.final_error()
    assert (error.status, error.code) == (502, "upstream_credentials_exhausted")


def test_lone_refused_key_keeps_the_error_of_the_server() -> None:
    turn = Turn(at("a"))
    assert turn.asked(UNAUTHORIZED) == ["a", "None"]
    assert turn.attempts.final_error().code == "upstream_auth_failed"


@pytest.mark.parametrize(("error", "code"), [(BROKEN, "upstream_error"), (UNAUTHORIZED, "upstream_auth_failed")])
def test_skipped_target_does_not_hide_the_error_of_another(error: ApiError, code: str) -> None:
    turn = Turn(at("a"), at("b", 2), at("c", 3), retry=RetryConfig(rounds=1))
    turn.attempts.skip(turn.clock.now)
    turn.attempts.begin(turn.clock.now)
    turn.attempts.fail(error, turn.clock.now)
    assert turn.attempts.skip(turn.clock.now) is None
    assert turn.attempts.final_error().code == code


def test_refused_keys_do_not_hide_another_error() -> None:
    turn = Turn(at("a"), at("b", 2), retry=RetryConfig(rounds=1))
    assert turn.asked(BROKEN, UNAUTHORIZED) == ["a", "b", "None"]
    assert turn.attempts.final_error().code == "upstream_error"


def test_answer_that_is_too_large_for_the_gateway_is_final_and_no_failure_of_its_target() -> None:
    turn = Turn(at("a"), at("b", 2))
    state = turn.attempts.current.target.state
    assert turn.asked(AnswerTooLarge("large")) == ["a", "None"]
    assert (state.failures, turn.attempts.records[-1].outcome) == (0, "gateway")


def test_final_error_says_that_an_attempt_was_paid() -> None:
    paid = UpstreamFault("cut", code="upstream_disconnected")
    paid.was_paid = True
    turn = Turn(at("a"), at("b", 2), retry=RetryConfig(rounds=1))
    assert turn.asked(paid, limited()) == ["a", "b", "None"]
    error = turn.attempts.final_error()
    assert (error.code, error.was_paid) == ("rate_limit_exceeded", True)


@pytest.mark.parametrize("error", [INVALID, ApiError("bug"), TOO_LONG, model_refusal()])
def test_faults_of_the_request_are_asked_of_no_other(error: ApiError) -> None:
    turn = Turn(at("a"), at("b", 2))
    assert turn.asked(error) == ["a", "None"]
    assert turn.attempts.final_error().code == error.code


def test_too_long_request_is_asked_of_the_targets_for_it() -> None:
    turn = Turn(at("a"), at("b", 2), on_context_length=[at("long"), at("longer", 2)])
    assert turn.asked(TOO_LONG, TOO_LONG, BROKEN) == ["a", "long", "longer", "None"]


def test_refused_request_is_asked_of_the_targets_for_it_once() -> None:
    turn = Turn(at("a"), at("b", 2), on_refusal=[at("mild")])
    assert turn.attempts.handles_refusals
    assert turn.asked(model_refusal()) == ["a", "mild"]
    assert not turn.attempts.handles_refusals
    assert turn.asked(TOO_LONG) == ["mild", "None"]


def test_failure_of_a_special_target_does_not_hide_why_it_was_asked() -> None:
    """Agents shorten the conversation after `context_length_exceeded`."""
    turn = Turn(at("a"), on_context_length=[at("c")])
    assert turn.asked(TOO_LONG, BROKEN) == ["a", "c", "None"]
    assert turn.attempts.final_error().code == "context_length_exceeded"


def test_special_target_that_failed_already_is_not_asked_again() -> None:
    turn = Turn(at("a"), at("b", 2), on_context_length=[at("a"), at("long", 2)])
    assert turn.asked(TOO_LONG, BROKEN) == ["a", "long", "None"]
    turn = Turn(at("a"), at("b", 2), on_refusal=[at("a")])
    assert turn.asked(BROKEN) == ["a", "b"]
    assert not turn.attempts.handles_refusals


def test_nothing_begins_after_the_deadline() -> None:
    turn = Turn(at("a"), at("b", 2), retry=RetryConfig(deadline=10.0))
    turn.attempts.begin(turn.clock.now)
    turn.clock.now += 11.0
    assert not turn.attempts.may_ask_another(turn.clock.now)
    assert turn.attempts.fail(BROKEN, turn.clock.now) is None
    limited_turn = Turn(at("a"), keys=2, retry=RetryConfig(deadline=10.0))
    limited_turn.attempts.begin(limited_turn.clock.now)
    assert limited_turn.attempts.fail(limited(), limited_turn.clock.now + 11.0) is None


def test_another_target_may_be_asked_until_the_last_attempt() -> None:
    turn = Turn(at("a"), at("b", 2))
    expected = [True, True, True, False]
    for may_ask in expected:
        assert turn.attempts.may_ask_another(turn.clock.now) is may_ask
        turn.attempts.begin(turn.clock.now)
        turn.attempts.fail(BROKEN, turn.clock.now)


def test_lone_target_holds_nothing_back_unless_there_are_special_targets() -> None:
    assert not Turn(at("a")).attempts.may_ask_another(1000.0)
    turn = Turn(at("a"), on_refusal=[at("b")])
    assert turn.attempts.may_ask_another(1000.0)
    turn.asked(model_refusal())
    assert not turn.attempts.may_ask_another(1000.0)


def test_turn_is_single_only_without_any_alternative() -> None:
    once = RetryConfig(rounds=1)
    assert Turn(at("a"), retry=once).attempts.is_single
    assert not Turn(at("a")).attempts.is_single
    assert not Turn(at("a"), retry=once, keys=2).attempts.is_single
    assert not Turn(at("a"), retry=once, on_refusal=[at("b")]).attempts.is_single


@pytest.mark.parametrize("error", [BROKEN, REFUSED, UNAUTHORIZED, limited(), TOO_LONG, INVALID])
def test_only_attempt_is_final_whatever_fails(error: ApiError) -> None:
    turn = Turn(at("a"), retry=RetryConfig(rounds=1))
    assert not turn.attempts.may_ask_another(turn.clock.now)
    assert turn.asked(error) == ["a", "None"]
    assert turn.attempts.final_error().message == error.message
    assert [(record.number, record.outcome != "answered") for record in turn.attempts.records] == [(1, True)]


def test_skipped_target_counts_as_no_attempt() -> None:
    turn = Turn(at("a"), at("b", 2))
    attempt = turn.attempts.skip(turn.clock.now)
    assert attempt is not None
    assert attempt.target.target.upstream.name == "b"
    turn.attempts.begin(turn.clock.now)
    turn.attempts.note_first_content(turn.clock.now + 2.0)
    turn.attempts.finish(None, turn.clock.now + 3.0)
    assert [record.outcome for record in turn.attempts.records] == ["answered"]
    assert len(turn.attempts.records) == 1
    assert turn.attempts.records[-1].duration_ms == pytest.approx(3000.0)
    assert attempt.target.state.latency(turn.clock.now) == pytest.approx(2.0)


def test_attempt_ends_once() -> None:
    turn = Turn(at("a"), at("b", 2))
    state = turn.attempts.current.target.state
    turn.attempts.begin(turn.clock.now)
    assert state.in_flight == 1
    turn.attempts.finish(BROKEN, turn.clock.now)
    turn.attempts.finish(None, turn.clock.now)
    turn.attempts.abandon(turn.clock.now)
    assert (state.in_flight, state.failures) == (0, 1)
    assert turn.attempts.records[-1].outcome == "server"


def test_abandoned_attempt_says_nothing_about_its_target() -> None:
    turn = Turn(at("a"), at("b", 2))
    turn.attempts.begin(turn.clock.now)
    turn.attempts.abandon(turn.clock.now)
    state = turn.attempts.current.target.state
    assert (state.in_flight, state.failures, turn.attempts.records[-1].outcome) == (0, 0, "abandoned")


# The order of targets


def order_of(route: ModelRoute, **settings: object) -> list[str]:
    order = TargetOrder(route.groups, route.strategy, random.Random(1).random, **settings)  # type: ignore[arg-type]
    names: list[str] = []
    while (target := order.next(0.0)) is not None:
        assert order.has_more == (len(names) + 1 < len(route.targets))
        names.append(target.target.upstream.name)
    return names


def first_counts(route: ModelRoute, draws: int = 4000) -> Counter[str]:
    generator = random.Random(7)
    counts: Counter[str] = Counter()
    for _ in range(draws):
        target = TargetOrder(route.groups, route.strategy, generator.random).next(0.0)
        assert target is not None
        counts[target.target.upstream.name] += 1
    return counts


def test_lower_priority_comes_first_and_each_target_once() -> None:
    names = order_of(make_route(at("c", 3), at("a"), at("b1", 2), at("b2", 2)))
    assert (names[0], {*names[1:3]}, names[3]) == ("a", {"b1", "b2"}, "c")


def test_weights_are_the_shares_of_requests() -> None:
    counts = first_counts(make_route(at("a", weight=3), at("b")))
    assert counts["a"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_weights_are_the_shares_of_requests_in_large_groups() -> None:
    route = make_route(at("a", weight=100), *(at(f"b{number}") for number in range(100)))
    assert len(route.targets) > MAX_COMPARED
    assert first_counts(route)["a"] / 4000 == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("others", [2, 40])
def test_least_busy_target_is_chosen_for_its_weight(others: int) -> None:
    route = make_route(*(at(f"busy{number}") for number in range(others)), at("big", weight=10), strategy="least-busy")
    for target in route.targets:
        target.state.in_flight = 5
    chosen = first_counts(route, 400)
    assert chosen["big"] == (400 if others == 2 else pytest.approx(400 * 8 / 41, abs=60))


def test_fastest_target_is_chosen() -> None:
    route = make_route(at("slow"), at("quick"), strategy="fastest")
    for target, seconds in zip(route.targets, (2.0, 0.5), strict=True):
        target.state.note_first_content(seconds, 0.0)
    assert first_counts(route, 50) == {"quick": 50}


def test_resting_target_comes_last_whatever_its_priority() -> None:
    route = make_route(at("a"), at("b", 2), at("c", 3))
    route.targets[0].state.rest(10.0, 0.0)
    assert order_of(route) == ["b", "c", "a"]


def test_target_that_cannot_carry_the_request_comes_after_those_that_can() -> None:
    route = make_route(at("a"), at("b", 2), at("c", 3))
    route.targets[2].state.rest(10.0, 0.0)
    unable = route.targets[0]
    assert order_of(route, cannot_carry=lambda target: "no images" if target is unable else "") == ["b", "a", "c"]


def test_first_target_is_preferred_unless_it_rests() -> None:
    route = make_route(at("a"), at("b", 2), at("c", 3))
    assert order_of(route, first=route.targets[1]) == ["b", "a", "c"]
    route.targets[1].state.rest(10.0, 0.0)
    assert order_of(route, first=route.targets[1]) == ["a", "c", "b"]


def test_lone_target_is_never_shut_out() -> None:
    route = make_route(at("a"))
    route.targets[0].state.rest(10.0, 0.0)
    assert route.is_lone
    assert order_of(route) == ["a"]


def test_large_group_with_resting_targets_is_searched_completely() -> None:
    route = make_route(*(at(f"t{number}") for number in range(100)))
    for target in route.targets[:99]:
        target.state.rest(10.0, 0.0)
    assert order_of(route)[0] == "t99"
    assert len(order_of(route)) == 100


def test_group_has_the_sums_of_its_weights() -> None:
    route = make_route(at("a", weight=2), at("b", weight=3))
    assert make_group(route.targets).weight_sums == (2, 5)
    assert route.targets[0].label == "a/x"
