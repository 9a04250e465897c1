"""The order of targets: priority, strategy, health and ability."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.gateway.routing.making import at, make_route

from antiphon.gateway.routing.choice import MAX_COMPARED, ModelRoute, TargetOrder, make_group


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
