"""`gateway/routes`: the target of a model."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.config import Config, ModelConfig, ModelRule, ServerConfig, TargetConfig, Timeouts, UpstreamConfig
from antiphon.errors import ApiError
from antiphon.gateway.routes import Routes
from antiphon.gateway.upstreams import UpstreamAddress


def lab(name: str = "lab", **settings: object) -> UpstreamConfig:
    return UpstreamConfig(**{"name": name, "dialect": "chat", "base_url": f"http://{name}/v1/", **settings})  # type: ignore[arg-type]


def test_first_matching_upstream_gets_its_own_model_name() -> None:
    upstreams = [
        lab("one", models=["mock-*", ModelRule(from_="fast", to="mock-1")]),
        lab("two", models=["*"]),
    ]
    routes = Routes(Config(upstreams=upstreams), {}, {})
    targets = {model: routes.find(model) for model in ("mock-7", "fast", "other")}
    assert {model: (target.upstream.name, target.model) for model, target in targets.items()} == {
        "mock-7": ("one", "mock-7"),
        "fast": ("one", "mock-1"),
        "other": ("two", "other"),
    }


@pytest.mark.parametrize(
    ("dialect", "base_url", "item_ids"),
    [
        ("chat", "http://two/v1", "own"),
        ("responses", "http://one/v1", "own"),
        ("responses", "http://two/v1", "drop"),
    ],
)
def test_server_of_openai_gets_ids_if_no_other_server_issues_ids(dialect: str, base_url: str, item_ids: str) -> None:
    openai = lab("one", dialect="responses", profile="openai")
    routes = Routes(Config(upstreams=[openai, lab("two", dialect=dialect, base_url=base_url)]), {}, {})
    profile = routes.upstream("one").profile
    assert (profile.wire.item_ids, profile.own_client_wire.item_ids) == (item_ids, item_ids)  # type: ignore[union-attr]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_claude_alias_is_routed_like_the_model_that_it_names(is_enabled: bool) -> None:
    """API-5: before the patterns of all upstreams; a name that is an alias of no model is an ordinary name."""
    upstreams = [
        lab("one", models=["mock-1", ModelRule(from_="fast", to="mock-2")]),
        lab("two", models=[ModelRule(from_="claude-*", to="other")]),
    ]
    routes = Routes(Config(upstreams=upstreams, server=ServerConfig(claude_aliases=is_enabled)), {}, {})
    aliases = ("claude-via-mock-1", "claude-via-fast", "claude-via-none", "claude-via-", "claude-via-claude-x")
    targets = [routes.find(model) for model in aliases]
    expected = [("one", "mock-1"), ("one", "mock-2")] if is_enabled else [("two", "other")] * 2
    assert [(target.upstream.name, target.model) for target in targets] == [*expected, *[("two", "other")] * 3]
    assert routes.find("claude-via-mock-1") is targets[0]


@pytest.mark.parametrize("model", [None, "", 7])
def test_missing_model_is_refused_with_examples(model: object) -> None:
    routes = Routes(Config(upstreams=[lab(models=["mock-*"])]), {}, {})
    with pytest.raises(ApiError, match=r"expected the name of a model, such as one that matches 'mock-\*'") as caught:
        routes.find(model)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "missing_field", "model")


def test_unserved_model_is_404_with_examples() -> None:
    names = [f"m{number}" for number in range(7)]
    routes = Routes(Config(upstreams=[lab(models=names)]), {}, {})
    with pytest.raises(ApiError, match=r"'m0', 'm1', 'm2', 'm3', 'm4', …") as caught:
        routes.find("x" * 500)
    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")
    assert len(caught.value.message) < 300


def test_upstream_receives_only_listed_headers() -> None:
    config = Config(upstreams=[lab(api_key_env="LAB_KEY"), lab("open")])
    with_key, without = Routes(config, {"LAB_KEY": "sk-lab"}, {}).upstreams
    assert set(with_key.headers) == {"content-type", "user-agent", "authorization"}
    assert with_key.headers["authorization"] == "Bearer sk-lab"
    assert set(without.headers) == {"content-type", "user-agent"}
    assert with_key.base_url == "http://lab/v1"


@pytest.mark.parametrize(
    ("dialect", "headers"),
    [
        ("messages", {"x-api-key": "sk-lab", "anthropic-version": "2023-06-01"}),
        ("gemini", {"x-goog-api-key": "sk-lab"}),
    ],
)
def test_key_header_and_headers_come_from_the_profile(dialect: str, headers: dict[str, str]) -> None:
    [upstream] = Routes(
        Config(upstreams=[lab(dialect=dialect, api_key_env="LAB_KEY")]), {"LAB_KEY": "sk-lab"}, {}
    ).upstreams
    assert {
        name: value for name, value in upstream.headers.items() if name not in ("content-type", "user-agent")
    } == headers


def test_timeouts_come_from_upstream_then_address_then_config() -> None:
    own, of_place, of_all = Timeouts(idle=1.0), Timeouts(idle=2.0), Timeouts(idle=3.0)
    config = Config(upstreams=[lab("a", timeouts=own), lab("b"), lab("c")], timeouts=of_all)
    place = UpstreamAddress(base_url="http://127.0.0.1:1/v1", key="secret", timeouts=of_place)
    routes = Routes(config, {}, {"a": place, "b": place})
    assert [upstream.timeouts.idle for upstream in routes.upstreams] == [1.0, 2.0, 3.0]
    assert routes.upstreams[1].headers["authorization"] == "Bearer secret"


def test_routes_resolve_names_over_the_cache_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.gateway.routes.MAX_CACHED_TARGETS", 1)
    routes = Routes(
        Config(upstreams=[UpstreamConfig(name="lab", dialect="chat", base_url="http://lab", models=["m-*"])]), {}, {}
    )
    for _ in range(2):
        assert [routes.find(name).model for name in ("m-1", "m-2")] == ["m-1", "m-2"]
    assert list(routes._targets) == ["m-1"]  # a pattern matches any number of names


def test_routes_do_not_cache_long_names() -> None:
    routes = Routes(
        Config(upstreams=[UpstreamConfig(name="lab", dialect="chat", base_url="http://lab", models=["*"])]), {}, {}
    )
    assert routes.find("m" * 10_000).model == "m" * 10_000
    assert not routes._targets


def test_default_model_comes_from_the_configuration() -> None:
    upstreams = [lab(models=["a", "b-*"])]
    assert Routes(Config(server=ServerConfig(default_model="b-1"), upstreams=upstreams), {}, {}).default_model == "b-1"
    assert Routes(Config(upstreams=upstreams), {}, {}).default_model is None


@pytest.mark.parametrize(
    ("upstreams", "default"),
    [
        ([lab(models=["a"])], "a"),
        ([lab(models=[ModelRule(from_="fast", to="a")])], "fast"),
        ([lab(models=["a"]), lab("other", models=["a"])], "a"),
        ([lab(models=["a", "b"])], None),
        ([lab(models=["a"]), lab("other", models=["b"])], None),
        ([lab(models=["a", "b-*"])], None),
        ([lab(models=["*"])], None),
        ([], None),
    ],
)
def test_only_listed_model_is_the_default_model(upstreams: list[UpstreamConfig], default: str | None) -> None:
    assert Routes(Config(upstreams=upstreams), {}, {}).default_model == default


def test_upstream_with_several_keys_sends_and_redacts_each() -> None:
    environ = {"A": "sk-first-key", "B": "sk-second-key", "C": "short"}
    routes = Routes(Config(upstreams=[lab(api_key_env=["A", "B", "C"])]), environ, {})
    upstream = routes.upstream("lab")
    headers = [upstream.headers_with_key(number)["authorization"] for number in range(3)]
    assert headers == ["Bearer sk-first-key", "Bearer sk-second-key", "Bearer short"]
    assert upstream.redact_key(b"sk-first-key sk-second-key short") == b"[key] [key] short"


def test_routed_model_has_its_first_target_by_priority() -> None:
    targets = [TargetConfig(upstream="two", model="y", priority=2), TargetConfig(upstream="one", model="x")]
    config = Config(upstreams=[lab("one"), lab("two")], models=[ModelConfig(name="coder", targets=targets)])
    routes = Routes(config, {}, {})
    assert (routes.find("coder").upstream.name, routes.find("coder").model) == ("one", "x")
    assert routes.entries == {"coder": "one"}


def test_upstream_without_its_key_leaves_the_others_in_use() -> None:
    """Its models are refused with the variable to set, or go to their other targets."""
    upstreams = [lab("one", models=["a", "b"], api_key_env="GONE"), lab("two", models=["b", "c"])]
    models = [
        ModelConfig(
            name="m",
            targets=[TargetConfig(upstream="one", model="a"), TargetConfig(upstream="two", model="c", priority=2)],
        ),
        ModelConfig(name="n", targets=[TargetConfig(upstream="one", model="a")]),
    ]
    routes = Routes(Config(upstreams=upstreams, models=models), {}, {})
    assert [routes.find(model).upstream.name for model in ("b", "c", "m")] == ["two"] * 3
    assert (routes.entries, [upstream.name for upstream in routes.upstreams]) == ({"m": "two"}, ["two"])
    for model in ("a", "n"):
        with pytest.raises(ApiError, match=f"the upstream 'one' of the model '{model}' has no key: set GONE") as caught:
            routes.find(model)
        assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert routes.find_entry("unknown") is None


@pytest.mark.parametrize(
    ("changed", "keeps_keys", "keeps_refusals"),
    [
        ({"models": ["other"]}, True, True),
        ({"profile": "groq"}, True, False),
        ({"base_url": "http://elsewhere/v1"}, False, False),
        ({"api_key_env": "SECOND"}, False, False),
        ({"name": "another"}, False, False),
    ],
)
def test_state_of_an_upstream_that_stays_is_kept(
    changed: dict[str, Any], keeps_keys: bool, keeps_refusals: bool
) -> None:
    environ = {"FIRST": "sk-first", "SECOND": "sk-second"}
    previous = Routes(Config(upstreams=[lab(api_key_env="FIRST")]), environ, {})
    [earlier] = previous.upstreams
    [upstream] = Routes(Config(upstreams=[lab(**{"api_key_env": "FIRST", **changed})]), environ, {}, previous).upstreams
    assert (upstream.key_ring is earlier.key_ring) is keeps_keys
    assert (upstream.refusals is earlier.refusals) is keeps_refusals
