"""What a configuration can be asked once it is read: models, keys, profiles."""

from __future__ import annotations

import pickle
from hashlib import sha256

import pytest

from antiphon.config import Config, KeyConfig, ModelRule, UpstreamConfig, key_hash
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


def test_the_first_rule_that_matches_names_the_upstreams_model() -> None:
    assert [LAB.upstream_model(asked) for asked in ("mock-1", "mock-7", "fast", "lab/fast", "other")] == [
        "mock-1",
        "mock-7",
        "mock-1",
        "fast",
        None,
    ]


def test_a_wildcard_that_stands_for_nothing_names_no_model() -> None:
    assert LAB.upstream_model("lab/") is None


def test_listed_models_are_those_that_can_be_named_each_once() -> None:
    assert LAB.listed_models() == ["mock-1", "fast"]
    assert LAB.has_patterns
    plain = UpstreamConfig(name="x", dialect="chat", models=["a", ModelRule(from_="b", to="c")])
    assert plain.listed_models() == ["a", "b"]
    assert not plain.has_patterns


def test_an_upstream_serves_every_model_unless_it_says_which() -> None:
    assert UpstreamConfig(name="x", dialect="chat").upstream_model("anything") == "anything"


def test_an_upstream_has_the_usual_profile_of_its_dialect_unless_it_names_one() -> None:
    assert UpstreamConfig(name="x", dialect="chat").profile_name == "chat"
    assert UpstreamConfig(name="x", dialect="responses").profile_name == "open-responses"
    assert UpstreamConfig(name="x", dialect="chat", embedded=True).profile_name == "local"
    assert UpstreamConfig(name="x", dialect="chat", profile="mine").profile_name == "mine"


def test_an_upstreams_key_is_read_when_it_is_asked_for_and_is_nowhere_else() -> None:
    config = Config(upstreams=[LAB], keys=[ALICE, BOB])
    environ = {"LAB_KEY": "sk-upstream", "BOB_KEY": "sk-client"}
    assert LAB.api_key(environ) == "sk-upstream"
    assert LAB.api_key({"LAB_KEY": ""}) is LAB.api_key({}) is None
    assert UpstreamConfig(name="x", dialect="chat").api_key(environ) is None
    assert config.secrets(environ) == ["sk-upstream", "sk-client"]
    assert "sk-" not in repr(config)


def test_a_key_that_is_held_twice_is_one_secret() -> None:
    assert Config(upstreams=[LAB, LAB]).secrets({"LAB_KEY": "sk-1"}) == ["sk-1"]
    assert Config(upstreams=[LAB], keys=[ALICE]).secrets({}) == []


def test_clients_are_known_by_the_hashes_of_their_keys() -> None:
    """HTTP-6: a hash in the file and a key in the environment are the same to whoever compares."""
    owners = Config(keys=[ALICE, BOB]).key_hashes({"BOB_KEY": "sk-client"})
    assert {hash: key.name for hash, key in owners.items()} == {
        key_hash(b"open sesame"): "alice",
        key_hash(b"sk-client"): "bob",
    }
    assert key_hash(b"open sesame") == sha256(b"open sesame").digest()


def test_a_key_that_is_gone_is_an_error_and_not_one_key_less() -> None:
    """Without any key everybody may ask: a variable that is missing in a worker must not open the door."""
    with pytest.raises(
        ConfigError, match="the key of 'bob' is missing: expected it in the environment variable BOB_KEY"
    ):
        Config(keys=[BOB]).key_hashes({"BOB_KEY": ""})


def test_a_configuration_is_frozen_and_survives_the_way_to_another_process() -> None:
    config = Config(upstreams=[LAB], keys=[ALICE])
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(AttributeError):
        config.keys = []  # type: ignore[misc]
