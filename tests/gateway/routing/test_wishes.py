"""The words of OpenRouter, Vercel and LiteLLM about routing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.gateway.routing.making import at, make_route

from antiphon.errors import ClientFault
from antiphon.gateway.routing.attempts import ModelRoute
from antiphon.gateway.routing.wishes import (
    MAX_NAMES,
    QueuedRouting,
    RoutingWishes,
    add_routing,
    apply_wishes,
    take_routing,
    take_wishes,
)
from antiphon.protocol.losses import Loss

NAMES = ("only", "sort")
REST = {"model": "m", "input": "Hi"}


def wishes_of(**words: Any) -> RoutingWishes:
    rest, wishes = take_wishes(msgspec.json.encode({**REST, **words}))
    assert msgspec.json.decode(rest) == REST
    assert wishes is not None
    return wishes


def labels(route: ModelRoute) -> list[list[str]]:
    return [[target.target.upstream.name for target in group.targets] for group in route.groups]


def applied(wishes: RoutingWishes, *others: ModelRoute) -> tuple[ModelRoute, list[str]]:
    route = make_route(at("a"), at("b"), at("c", 2))
    by_name = {"m": route, **{f"other{number}": other for number, other in enumerate(others)}}
    wanted, losses = apply_wishes(route, wishes, by_name.get)
    return wanted, [loss.path for loss in losses]


@pytest.mark.parametrize(
    "body",
    [
        b"[1]",
        b"{",
        b'["models"]',
        b'{"models": [',
        b'{"model": "m"}',
        b'{"provider": "x"}',
        b'{"models": {}}',
        b'{"num_retries": true}',
        b'{"providerOptions": {"openai": {}}}',
    ],
)
def test_body_without_routing_words_is_unchanged(body: bytes) -> None:
    assert take_wishes(body) == (body, None)


def test_words_of_openrouter_are_read() -> None:
    provider = {
        "order": ["a"],
        "only": ["a", "b"],
        "ignore": ["c"],
        "allow_fallbacks": False,
        "require_parameters": True,
        "sort": {"by": "latency"},
        "zdr": True,
        "quantizations": None,
    }
    wishes = wishes_of(models=["m", "n"], provider=provider)
    assert (wishes.models, wishes.order, wishes.only, wishes.ignore) == (("m", "n"), ("a",), ("a", "b"), ("c",))
    assert (wishes.allows_fallbacks, wishes.requires_parameters, wishes.sort) == (False, True, "latency")
    assert [loss.path for loss in wishes.losses] == ["provider.zdr"]


def test_words_of_vercel_are_read_and_options_of_providers_stay() -> None:
    options = {"order": ["a"], "only": ["b"], "models": ["n"], "sort": "ttft", "byok": {}}
    body = msgspec.json.encode({**REST, "providerOptions": {"gateway": options, "openai": {"x": 1}}})
    rest, wishes = take_wishes(body)
    assert msgspec.json.decode(rest) == {**REST, "providerOptions": {"openai": {"x": 1}}}
    assert wishes is not None
    assert (wishes.order, wishes.only, wishes.models, wishes.sort) == (("a",), ("b",), ("n",), "ttft")
    assert [loss.path for loss in wishes.losses] == ["providerOptions.gateway.byok"]
    assert wishes_of(providerOptions={"gateway": {}}) == RoutingWishes(model="m", words=("providerOptions",))


@pytest.mark.parametrize(("body", "model"), [({"model": "m"}, "m"), ({"model": 3}, None), ({}, None)])
def test_words_have_the_model_of_the_request(body: dict[str, Any], model: str | None) -> None:
    _, wishes = take_wishes(msgspec.json.encode({**body, "num_retries": 1, "provider": {}}))
    assert wishes is not None
    assert (wishes.model, set(wishes.words)) == (model, {"num_retries", "provider"})


def test_words_of_litellm_are_read() -> None:
    wishes = wishes_of(fallbacks=["n", {"model": "o"}, 3], num_retries=-1)
    assert (wishes.models, wishes.retries) == (("n", "o"), 0)


def test_order_comes_first_and_the_rest_follows() -> None:
    route, losses = applied(RoutingWishes(order=("C", "b", "x")))
    assert labels(route) == [["c"], ["b"], ["a"]]
    assert losses == ["provider.order"]


def test_only_and_ignore_filter() -> None:
    assert labels(applied(RoutingWishes(only=("b", "c")))[0]) == [["b"], ["c"]]
    assert labels(applied(RoutingWishes(ignore=("a",)))[0]) == [["b"], ["c"]]


@pytest.mark.parametrize(
    ("wishes", "special", "losses"),
    [
        (RoutingWishes(only=("a",)), [], []),
        (RoutingWishes(only=("a", "s")), ["s"], []),
        (RoutingWishes(ignore=("S",)), [], []),
        (RoutingWishes(ignore=("b",)), ["s"], []),
        (RoutingWishes(allows_fallbacks=False), [], []),
        (RoutingWishes(order=("a", "s"), allows_fallbacks=False), [], ["provider.order"]),
        (RoutingWishes(order=("b",)), ["s"], []),
    ],
)
def test_targets_for_special_failures_are_those_that_the_caller_allows(
    wishes: RoutingWishes, special: list[str], losses: list[str]
) -> None:
    route = make_route(at("a"), at("b"), on_context_length=[at("s")], on_refusal=[at("s")])
    wanted, reported = apply_wishes(route, wishes, {"m": route}.get)
    for targets in (wanted.on_context_length, wanted.on_refusal):
        assert [target.target.upstream.name for target in targets] == special
    assert [loss.path for loss in reported] == losses


@pytest.mark.parametrize(
    "wishes",
    [
        RoutingWishes(only=("x",)),
        RoutingWishes(ignore=("a", "B", "c")),
        RoutingWishes(only=("a",), ignore=("a",)),
        RoutingWishes(order=("x",), allows_fallbacks=False),
    ],
)
def test_caller_who_excludes_every_target_gets_an_error_that_names_them(wishes: RoutingWishes) -> None:
    with pytest.raises(ClientFault, match="'a', 'b', 'c'") as raised:
        applied(wishes)
    assert (raised.value.code, raised.value.status, raised.value.param) == ("model_not_found", 404, "provider")


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ({"provider": {"only": "b"}}, ["provider.only"]),
        ({"provider": {"ignore": "a", "order": {"b": 1}}}, ["provider.order", "provider.ignore"]),
        ({"provider": {"only": [1, "b", None, ""]}}, ["provider.only[0]", "provider.only[2]", "provider.only[3]"]),
        ({"provider": {"allow_fallbacks": "false"}}, ["provider.allow_fallbacks"]),
        ({"provider": {"require_parameters": 1}}, ["provider.require_parameters"]),
        ({"provider": {"sort": 5}}, ["provider.sort"]),
        ({"provider": {"sort": {"by": 5, "partition": "none"}}}, ["provider.sort.partition", "provider.sort"]),
        ({"providerOptions": {"gateway": {"only": "b", "sort": []}}}, ["providerOptions.gateway." + n for n in NAMES]),
        ({"models": [3]}, ["models[0]"]),
        ({"fallbacks": ["n", {"model": "o", "messages": []}]}, ["fallbacks[1].messages"]),
        ({"provider": {"only": None, "allow_fallbacks": None, "sort": None}}, []),
    ],
)
def test_words_of_a_wrong_type_are_losses(words: dict[str, Any], paths: list[str]) -> None:
    assert [loss.path for loss in wishes_of(**words).losses] == paths


@pytest.mark.parametrize("member", ["order", "only", "ignore"])
def test_list_with_too_many_names_is_refused(member: str) -> None:
    most = [f"n{number}" for number in range(MAX_NAMES)]
    assert getattr(wishes_of(provider={member: most}), member) == tuple(most)
    with pytest.raises(ClientFault, match="at most 100") as raised:
        applied(wishes_of(provider={member: [*most, "a"]}))
    assert (raised.value.code, raised.value.param) == ("invalid_value", f"provider.{member}")


def test_losses_of_words_are_bounded() -> None:
    assert len(wishes_of(provider={f"option{number}": 1 for number in range(2000)}).losses) == 1000


def test_order_of_an_excluded_target_has_no_effect() -> None:
    assert labels(applied(RoutingWishes(order=("a",), ignore=("a",)))[0]) == [["b"], ["c"]]


def test_without_fallbacks_only_the_order_or_the_first_priority_is_asked() -> None:
    ordered, _ = applied(RoutingWishes(order=("c",), allows_fallbacks=False))
    first, _ = applied(RoutingWishes(allows_fallbacks=False))
    assert (labels(ordered), labels(first)) == ([["c"]], [["a", "b"]])
    assert ordered.retry.rounds == first.retry.rounds == 1


def test_further_models_follow() -> None:
    other = msgspec.structs.replace(make_route(at("d")), name="other0")
    route, losses = applied(RoutingWishes(models=("m", "other0", "unknown")), other)
    assert labels(route) == [["a", "b"], ["c"], ["d"]]
    assert losses == ["models[2]"]


def test_target_of_several_models_is_asked_once() -> None:
    others = [make_route(at("c"), at("d")), make_route(at("a"), at("d"))]
    named = [msgspec.structs.replace(other, name=f"other{number}") for number, other in enumerate(others)]
    route, losses = applied(RoutingWishes(models=("other0", "other1", "other0")), *named)
    assert labels(route) == [["a", "b"], ["c"], ["d"]]
    assert losses == []


def test_retries_are_at_most_those_of_the_configuration() -> None:
    assert applied(RoutingWishes(retries=0))[0].retry.rounds == 1
    assert applied(RoutingWishes(retries=9))[0].retry.rounds == 2


@pytest.mark.parametrize(
    ("sort", "strategy", "losses"), [("tps", "fastest", []), ("price", "weighted", ["provider.sort"])]
)
def test_sort_is_a_strategy(sort: str, strategy: str, losses: list[str]) -> None:
    route, paths = applied(RoutingWishes(sort=sort))
    assert (route.strategy, paths) == (strategy, losses)


def test_routing_of_a_queued_request_returns_and_leaves_no_trace() -> None:
    request = b'{"model":"m",\n"routing ":1}'
    for routing in (
        QueuedRouting(),
        QueuedRouting(strict=False),
        QueuedRouting(session="a\n session", wishes=RoutingWishes(order=("b",), losses=(Loss("provider.zdr", "zdr"),))),
    ):
        assert take_routing(add_routing(request, routing)) == (request, routing)
