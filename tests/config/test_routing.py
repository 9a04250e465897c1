"""`[[models]]`: which targets a model has, with an entry and without one."""

from __future__ import annotations

from antiphon.config import Config, ModelConfig, ModelRule, TargetConfig, UpstreamConfig

PATTERN = UpstreamConfig(name="pattern", dialect="chat", base_url="http://a/v1", models=["gpt-*"])
LISTED = UpstreamConfig(name="listed", dialect="chat", base_url="http://b/v1", models=["gpt-5", "other"])
RENAMED = UpstreamConfig(
    name="renamed", dialect="chat", base_url="http://c/v1", models=[ModelRule(from_="gpt-5", to="five")]
)


def targets_of(config: Config, name: str) -> list[tuple[str, str, int]]:
    model = config.find_model(name)
    return [] if model is None else [(target.upstream, target.model, target.priority) for target in model.targets]


def test_model_without_entry_has_the_first_upstream_and_those_that_list_its_name() -> None:
    config = Config(upstreams=[LISTED, PATTERN, RENAMED])
    assert targets_of(config, "gpt-5") == [("listed", "gpt-5", 1), ("renamed", "five", 2)]


def test_pattern_serves_a_model_only_if_it_is_the_first() -> None:
    config = Config(upstreams=[PATTERN, LISTED])
    assert targets_of(config, "gpt-5") == [("pattern", "gpt-5", 1), ("listed", "gpt-5", 2)]
    assert targets_of(config, "gpt-4") == [("pattern", "gpt-4", 1)]
    assert targets_of(config, "unknown") == []


def test_entry_replaces_the_targets_of_upstreams() -> None:
    entry = ModelConfig(name="gpt-5", targets=[TargetConfig(upstream="renamed", model="five")])
    config = Config(upstreams=[LISTED, RENAMED], models=[entry])
    assert config.find_model("gpt-5") is entry
    assert config.serves("gpt-5")
    assert config.model_names() == ["gpt-5", "other"]
