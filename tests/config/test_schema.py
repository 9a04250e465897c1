"""Queries on a loaded configuration: models, keys, profiles."""

from __future__ import annotations

import pickle
from hashlib import sha256

import pytest

from antiphon.config import Config, KeyConfig, ModelRule, UpstreamConfig
from antiphon.errors import ConfigError

LAB = UpstreamConfig(
    name="lab",
    dialect="chat",
    base_url="http://127.0.0.1:9001/v1",
    api_key_env="LAB_KEY",
    models=["mock-1", ModelRule(from_="fast", to="mock-1"), ModelRule(from_="lab/*", to="*"), "mock-*", "fast"],
)
ALICE = KeyConfig(name="alice", sha256=sha256(b"open sesame").hexdigest().upper())
BOB = KeyConfig(name="bob", env="BOB_KEY")


def test_upstream_model_comes_from_the_first_matching_rule() -> None:
    assert [LAB.upstream_model(asked) for asked in ("mock-1", "mock-7", "fast", "lab/fast", "other")] == [
        "mock-1",
        "mock-7",
        "mock-1",
        "fast",
        None,
    ]


def test_wildcard_does_not_match_an_empty_name() -> None:
    assert LAB.upstream_model("lab/") is None


def test_listed_models_are_the_names_without_patterns_and_duplicates() -> None:
    assert LAB.listed_models() == ["mock-1", "fast"]
    assert LAB.has_patterns
    plain = UpstreamConfig(name="x", dialect="chat", models=["a", ModelRule(from_="b", to="c")])
    assert plain.listed_models() == ["a", "b"]
    assert not plain.has_patterns


def test_upstream_without_models_serves_every_model() -> None:
    assert UpstreamConfig(name="x", dialect="chat").upstream_model("anything") == "anything"


def test_profile_name_defaults_to_the_profile_of_the_dialect() -> None:
    assert UpstreamConfig(name="x", dialect="chat").profile_name == "chat"
    assert UpstreamConfig(name="x", dialect="responses").profile_name == "open-responses"
    assert UpstreamConfig(name="x", dialect="chat", embedded=True).profile_name == "local"
    assert UpstreamConfig(name="x", dialect="chat", profile="mine").profile_name == "mine"


def test_api_key_is_read_from_the_environment_and_not_in_the_repr() -> None:
    config = Config(upstreams=[LAB], keys=[ALICE, BOB])
    environ = {"LAB_KEY": "sk-upstream", "BOB_KEY": "sk-client"}
    assert LAB.api_keys(environ) == ["sk-upstream"]
    assert LAB.api_keys({"LAB_KEY": ""}) == LAB.api_keys({}) == []
    assert UpstreamConfig(name="x", dialect="chat").api_keys(environ) == []
    assert config.secrets(environ) == ["sk-upstream", "sk-client"]
    assert "sk-" not in repr(config)


def test_secrets_contain_each_key_once() -> None:
    assert Config(upstreams=[LAB, LAB]).secrets({"LAB_KEY": "sk-1"}) == ["sk-1"]
    assert Config(upstreams=[LAB], keys=[ALICE]).secrets({}) == []


def test_key_hashes_map_hashes_to_owners() -> None:
    """HTTP-6: a hash in the file and a key in the environment compare alike."""
    owners = Config(keys=[ALICE, BOB]).key_hashes({"BOB_KEY": "sk-client"})
    assert {hash: key.name for hash, key in owners.items()} == {
        sha256(b"open sesame").digest(): "alice",
        sha256(b"sk-client").digest(): "bob",
    }


def test_key_hashes_raise_for_a_missing_key() -> None:
    """Without any key everybody has access: a missing variable in a worker must not remove the access check."""
    with pytest.raises(
        ConfigError, match="the key of 'bob' is missing: expected it in the environment variable BOB_KEY"
    ):
        Config(keys=[BOB]).key_hashes({"BOB_KEY": ""})


def test_config_is_frozen_and_picklable() -> None:
    config = Config(upstreams=[LAB], keys=[ALICE])
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.keys = []  # type: ignore[misc]
