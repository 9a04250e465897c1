"""Routes of models: from entries, and from upstreams that list the same name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.gateway.routing.making import at, make_router

from antiphon.config import Config, HealthConfig, RetryConfig, UpstreamConfig
from antiphon.errors import ClientFault
from antiphon.gateway.routes import Routes
from antiphon.gateway.routing import router as module
from antiphon.gateway.routing.facts import RequestFacts
from antiphon.gateway.routing.router import NO_RETRY, Router
from antiphon.gateway.routing.stickiness import Session
from antiphon.gateway.routing.wishes import RoutingWishes


def upstream(name: str, *models: str, **settings: object) -> UpstreamConfig:
    return UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}/v1", models=[*models], **settings)  # type: ignore[arg-type]


def router_of(*upstreams: UpstreamConfig, environ: dict[str, str] | None = None) -> Router:
    config = Config(upstreams=[*upstreams])
    return Router(config, Routes(config, environ or {}, {}))


def labels(router: Router, model: str) -> list[str]:
    return [target.label for target in router.find(model).targets]


def test_upstreams_that_list_a_model_are_asked_in_the_order_of_the_configuration() -> None:
    router = router_of(upstream("a", "m"), upstream("b", "*"), upstream("c", "m", "n"))
    assert labels(router, "m") == ["a/m", "c/m"]
    assert router.find("m").retry == RetryConfig()
    assert labels(router, "n") == ["b/n", "c/n"]


def test_lone_target_without_an_entry_is_asked_once() -> None:
    router = router_of(upstream("a", "*"))
    assert router.find("m").retry is NO_RETRY
    assert router.find("m") is router.find("m")


def test_entry_and_several_keys_have_retries() -> None:
    assert make_router([at("a")]).find("m").retry == RetryConfig()
    environ = {"A": "sk-a", "B": "sk-b"}
    keys = router_of(upstream("a", "*", api_key_env=["A", "B"]), environ=environ)
    assert keys.find("m").retry == RetryConfig()


@pytest.mark.parametrize("model", ["x", "", None, 3])
def test_unknown_model_is_an_error_of_the_client(model: object) -> None:
    with pytest.raises(ClientFault):
        router_of(upstream("a", "m")).find(model)


def test_models_share_the_state_of_a_target() -> None:
    router = router_of(upstream("a", "m"), upstream("b", "m"))
    assert router.find("m").targets[0].state is router.states["a", "m"]
    assert sorted(router.states) == [("a", "m"), ("b", "m")]


def test_routes_and_states_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CACHED_ROUTES", 2)
    monkeypatch.setattr(module, "MAX_STATES", 1)
    router = router_of(upstream("a", "*"))
    for model in ("x", "y", "z", "n" * 300):
        assert labels(router, model) == [f"a/{model}"]
    assert router.find("x") is router.find("x")
    assert router.find("z") is not router.find("z")
    assert list(router.states) == [("a", "x")]


def test_router_knows_its_upstreams_and_models() -> None:
    router = router_of(upstream("Lab", "m"), upstream("b", "m"))
    assert router.knows_upstream("lab")
    assert not router.knows_upstream("x")
    assert router.find_served("m") is router.find("m")
    assert router.find_served("x") is None


def test_router_accepts_words_that_name_an_upstream_or_a_model_of_it() -> None:
    router = router_of(upstream("Lab", "m"), upstream("b", "m"))
    accepted = [
        RoutingWishes(order=("x", "lab")),
        RoutingWishes(ignore=("B",)),
        RoutingWishes(models=("x", "m")),
        RoutingWishes(allows_fallbacks=False),
        RoutingWishes(only=("b",), models=("x",)),
        RoutingWishes(too_long="models"),
    ]
    refused = [
        RoutingWishes(only=("x",)),
        RoutingWishes(models=("x",)),
        RoutingWishes(order=("x",), models=("m",)),
    ]
    assert [router.accepts(wishes) for wishes in (*accepted, *refused)] == [True] * 6 + [False] * 3


def test_first_served_model_of_the_caller_is_asked_if_the_request_names_none() -> None:
    router = router_of(upstream("a", "m"), upstream("b", "n"))
    wishes = RoutingWishes(models=("x", "n", "m"))
    assert router.choose_model(None, wishes) == "n"
    assert router.choose_model("m", wishes) == "m"
    assert router.choose_model(None, None) is None
    assert router_of(upstream("a", "m")).choose_model(None, RoutingWishes(models=("x",))) == "m"


def test_words_without_names_are_left_to_a_router_that_is_the_only_target() -> None:
    profile = "openrouter"
    router = router_of(upstream("a", "m", profile=profile), upstream("b", "n"), upstream("c", "m2", profile=profile))
    words = RoutingWishes(words=("provider",))
    assert not router.accepts(replace(words, model="m"))
    assert router.accepts(replace(words, model="m", order=("a",)))
    assert router.accepts(replace(words, model="m", words=("provider", "num_retries")))
    assert router.accepts(replace(words, model="n"))
    assert router.accepts(replace(words, model="unknown"))
    assert router.accepts(words)
    shared = router_of(upstream("a", "m", profile=profile), upstream("b", "m", profile=profile))
    assert shared.accepts(replace(words, model="m"))


def test_resting_targets_are_counted_by_upstream() -> None:
    router = router_of(upstream("a", "m", "n"), upstream("b", "m"))
    router.find("m").targets[0].state.rest(10.0, router.clock())
    router.find("n")
    assert router.resting_counts() == {"a": 1.0, "b": 0.0}


def test_conversation_returns_to_the_target_that_answered() -> None:
    router = router_of(upstream("a", "m"), upstream("b", "m"))
    route, facts = router.find("m"), RequestFacts(opening="o")
    session = Session(owner="alice", model="m", opening="o")
    assert router.find_sticky(route, session) is None
    router.remember_answer(session, route.targets[1], facts, "resp_1")
    assert router.find_sticky(route, session) is route.targets[1]
    next_turn = Session(owner="alice", model="m", previous_response_id="resp_1")
    assert router.find_sticky(route, next_turn) is route.targets[1]
    assert router.begin_turn(route, facts, route.targets[1]).current.target is route.targets[1]


def test_health_and_conversations_of_targets_that_stay_are_kept() -> None:
    previous = router_of(upstream("a", "m"), upstream("b", "m"), upstream("c", "m"))
    states = [target.state for target in previous.find("m").targets]
    session = Session(owner="alice", model="m", opening="o")
    previous.remember_answer(session, previous.find("m").targets[0], RequestFacts(), "resp_1")
    elsewhere = UpstreamConfig(name="b", dialect="chat", base_url="http://elsewhere/v1", models=["m"])
    config = Config(upstreams=[upstream("a", "m", "n"), elsewhere], health=HealthConfig(min_requests=1))
    router = Router(config, Routes(config, {}, {}), previous=previous)
    first, second = router.find("m").targets
    assert first.state is states[0]
    assert first.state.config == config.health
    assert second.state is not states[1]
    assert sorted(router.states) == [("a", "m"), ("b", "m")]
    assert router.find_sticky(router.find("m"), session) is first
