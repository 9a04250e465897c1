"""Rules between settings. Every case is a whole configuration with one fault."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec.structs import replace

from antiphon.config import (
    CompactionConfig,
    Config,
    KeyConfig,
    ModelConfig,
    ModelRule,
    ServerConfig,
    TargetConfig,
    UpstreamConfig,
    check_config,
    is_loopback,
)
from antiphon.config.checks import find_problems
from antiphon.errors import ConfigError

LAB = UpstreamConfig(name="lab", dialect="chat", base_url="http://127.0.0.1:9001/v1")
LOCAL = UpstreamConfig(name="local", dialect="chat", embedded=True, models=["local"])
KEY = KeyConfig(name="alice", sha256=sha256(b"sk-alice").hexdigest())
ENVIRON = {
    "LAB_KEY": "sk-lab",
    "BROKEN_KEY": "sk-lab\n",
    "EMPTY_KEY": "",
    "ALICE_KEY": "sk-alice",
    "LONG_KEY": "sk-0123456789abc",
}


def problems_of(config: Config) -> list[str]:
    return [str(problem) for problem in find_problems(config, ENVIRON)]


def upstream(**changes: object) -> Config:
    return Config(upstreams=[replace(LAB, **changes)])


def test_valid_configuration_has_no_problems() -> None:
    config = Config(
        server=ServerConfig(
            host="0.0.0.0",
            allowed_hosts=["gateway.example.com", "10.0.0.7", "::1", "*"],
            allowed_origins=[
                "https://App.example.com",
                "http://localhost:3000",
                "http://[::1]:3000",
                "vscode-webview://panel",
            ],
        ),
        upstreams=[replace(LAB, api_key_env="LAB_KEY"), LOCAL],
        keys=[KEY, KeyConfig(name="bob", env="LONG_KEY")],
    )
    assert problems_of(config) == []
    check_config(config, ENVIRON)


def test_check_config_raises_the_first_problem() -> None:
    with pytest.raises(ConfigError, match=r"^upstreams\[0\]\.base_url: missing"):
        check_config(upstream(base_url="", api_key_env="EMPTY_KEY"), ENVIRON)


# Listening address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_loopback_host_needs_no_keys(host: str) -> None:
    assert is_loopback(host)
    assert problems_of(Config(server=ServerConfig(host=host))) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "gateway.example.com", "localhost.example.com", "127.1"])
def test_public_host_without_keys_is_refused_with_a_remedy(host: str) -> None:
    """Without keys, anybody who reaches the address could use the gateway."""
    (problem,) = problems_of(Config(server=ServerConfig(host=host)))
    for words in (
        f'server.host: other machines can reach "{host}"',
        'Listen on "127.0.0.1"',
        "[[keys]]",
        'printf %s "$KEY" | sha256sum',
    ):
        assert words in problem
    assert problems_of(Config(server=ServerConfig(host=host), keys=[KEY])) == []


@pytest.mark.parametrize("host", ["", "http://127.0.0.1", "127.0.0.1:8080", "[::1]", "two words", "a" * 300])
def test_invalid_host_is_refused(host: str) -> None:
    assert (
        "expected an address or a host name without a port"
        in problems_of(Config(server=ServerConfig(host=host), keys=[KEY]))[0]
    )


@pytest.mark.parametrize("host", ["", "https://a.example.com", "a.example.com:443", "a.example.com/x", "*.example.com"])
def test_invalid_allowed_host_is_refused(host: str) -> None:
    (problem,) = problems_of(Config(server=ServerConfig(allowed_hosts=["good.example.com", host])))
    assert problem.startswith("server.allowed_hosts[1]: expected ")


@pytest.mark.parametrize(
    "origin", ["", "*", "null", "app.example.com", "https://app.example.com/", "https://app.example.com/x"]
)
def test_invalid_allowed_origin_is_refused(origin: str) -> None:
    (problem,) = problems_of(Config(server=ServerConfig(allowed_origins=[origin])))
    assert problem.startswith("server.allowed_origins[0]: expected ")


# Upstreams


@pytest.mark.parametrize("name", ["", " lab", "la\nb", "x" * 101])
def test_unprintable_name_is_refused(name: str) -> None:
    assert "upstreams[0].name: expected" in problems_of(upstream(name=name))[0]
    assert "keys[0].name: expected" in problems_of(Config(keys=[replace(KEY, name=name)]))[0]


@pytest.mark.parametrize("model", ["mock-1", "lab/x", "local"])
def test_default_model_that_an_upstream_serves_is_accepted(model: str) -> None:
    lab = replace(LAB, models=["mock-*", ModelRule(from_="lab/*", to="*")])
    assert problems_of(Config(server=ServerConfig(default_model=model), upstreams=[lab, LOCAL])) == []


@pytest.mark.parametrize("model", ["other", ""])
def test_default_model_that_no_upstream_serves_is_refused(model: str) -> None:
    config = Config(server=ServerConfig(default_model=model), upstreams=[replace(LAB, models=["mock-*"]), LOCAL])
    assert problems_of(config) == [
        f'server.default_model: expected a model that an upstream serves, such as "mock-*", "local", got "{model}"'
    ]


def test_duplicate_upstream_name_is_refused() -> None:
    assert problems_of(Config(upstreams=[LAB, LOCAL, LAB])) == [
        "upstreams[2].name: duplicate name 'lab': each upstream needs a different name"
    ]


@pytest.mark.parametrize("url", ["https://api.example.com", "http://[::1]:9001/v1", "http://localhost:1/a/b"])
def test_valid_base_url_is_accepted(url: str) -> None:
    assert problems_of(upstream(base_url=url)) == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "missing: expected the URL of a server"),
        ("127.0.0.1:9001/v1", "not the URL of a server"),
        ("ftp://sk-1/v1", "not the URL of a server"),
        ("https:///v1", "not the URL of a server"),
        ("https://sk-1@example.com/v1", "contains a user name or a key"),
        ("https://user:sk-1@example.com/v1", "contains a user name or a key"),
        ("https://example.com/v1?key=sk-1", "contains a query or a fragment"),
        ("https://example.com/v1?", "contains a query or a fragment"),
        ("https://example.com/v1#sk-1", "contains a query or a fragment"),
        ("https://example.com:port/v1", "not a valid URL ("),
        ("https://[::1/v1", "not a valid URL ("),
        ("https://example.com/v 1", "contains spaces or characters outside ASCII"),
        ("https://example.com/\nv1", "contains spaces or characters outside ASCII"),
    ],
)
def test_invalid_base_url_is_refused_without_showing_keys(url: str, expected: str) -> None:
    (problem,) = problems_of(upstream(base_url=url))
    assert problem.startswith(f"upstreams[0].base_url: {expected}")
    assert "sk-1" not in problem


def test_embedded_model_rejects_address_key_and_other_dialects() -> None:
    assert problems_of(Config(upstreams=[LOCAL])) == []
    odd = replace(
        LOCAL, base_url="http://127.0.0.1:1", api_key_env="LAB_KEY", dialect="responses", profile="open-responses"
    )
    assert [problem.partition(":")[0] for problem in problems_of(Config(upstreams=[odd]))] == [
        "upstreams[0].base_url",
        "upstreams[0].api_key_env",
        "upstreams[0].dialect",
    ]


def test_second_embedded_model_is_refused() -> None:
    assert problems_of(Config(upstreams=[LOCAL, replace(LOCAL, name="again")])) == [
        "upstreams[1].embedded: only one upstream can be the embedded model, and 'local' already is"
    ]


@pytest.mark.parametrize("variable", ["MISSING_KEY", "EMPTY_KEY"])
def test_unset_key_variable_is_reported_with_its_upstream(variable: str) -> None:
    assert problems_of(upstream(api_key_env=variable)) == [
        f"upstreams[0].api_key_env: the environment variable {variable} is not set: "
        "it must hold the key of upstream 'lab'"
    ]


def test_key_with_invalid_characters_is_reported_but_not_shown() -> None:
    (problem,) = problems_of(upstream(api_key_env="BROKEN_KEY"))
    assert "the environment variable BROKEN_KEY contains spaces or characters outside ASCII" in problem
    assert "sk-lab" not in problem


@pytest.mark.parametrize("slip", ["", "sk-1234", "$LAB_KEY", "gsk_abcdefghijklmnop1234567890"])
def test_key_instead_of_a_variable_name_is_reported_but_not_shown(slip: str) -> None:
    (problem,) = problems_of(upstream(api_key_env=slip))
    assert problem.startswith("upstreams[0].api_key_env: not the name of an environment variable")
    assert not slip or slip not in problem


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([], "upstreams[0].models: empty"),
        (["a", ""], "upstreams[0].models[1]: empty"),
        ([ModelRule(from_="", to="a")], "upstreams[0].models[0]: empty name"),
        ([ModelRule(from_="a", to="")], "upstreams[0].models[0]: empty name"),
        (
            [ModelRule(from_="a", to="*")],
            'upstreams[0].models[0]: the * in to = "*" matches no single * in from = "a"',
        ),
        ([ModelRule(from_="*/*", to="*")], "upstreams[0].models[0]: the * in to = "),
        ([ModelRule(from_="*", to="**")], "upstreams[0].models[0]: the * in to = "),
    ],
)
def test_invalid_model_rules_are_refused(models: list[str | ModelRule], expected: str) -> None:
    (problem,) = problems_of(upstream(models=models))
    assert problem.startswith(expected)


def test_unknown_profile_or_profile_of_another_dialect_is_refused() -> None:
    assert "unknown profile 'chatt'; did you mean 'chat'?" in problems_of(upstream(profile="chatt"))[0]
    assert problems_of(upstream(profile="openai")) == [
        "upstreams[0].profile: 'openai' is for servers of dialect 'responses'; expected a profile of dialect 'chat'"
    ]


# Keys


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (KeyConfig(name="alice"), "keys[0]: the key 'alice' has neither sha256 nor env"),
        (
            KeyConfig(name="alice", sha256="0" * 64, env="ALICE_KEY"),
            "keys[0].env: the key 'alice' has both sha256 and env",
        ),
        (
            KeyConfig(name="alice", sha256="sk-alice"),
            "keys[0].sha256: expected the SHA-256 of the key as 64 hex digits",
        ),
        (
            KeyConfig(name="alice", sha256="0" * 64 + "\n"),
            "keys[0].sha256: expected the SHA-256 of the key as 64 hex digits",
        ),
        (
            KeyConfig(name="alice", sha256=sha256(b"").hexdigest()),
            "keys[0].sha256: this is the hash of the empty string",
        ),
        (KeyConfig(name="alice", env="MISSING_KEY"), "keys[0].env: the environment variable MISSING_KEY is not set"),
        (KeyConfig(name="alice", env="sk-alice"), "keys[0].env: not the name of an environment variable"),
    ],
)
def test_invalid_client_key_is_reported_but_not_shown(key: KeyConfig, expected: str) -> None:
    (problem,) = problems_of(Config(keys=[key]))
    assert problem.startswith(expected)
    assert "sk-alice" not in problem


def test_key_shared_by_two_owners_is_refused() -> None:
    """A key must have exactly one owner."""
    keys = [KEY, KeyConfig(name="bob", env="ALICE_KEY"), KeyConfig(name="carol")]
    assert (
        problems_of(Config(keys=keys))[1]
        == "keys[1]: 'bob' has the same key as 'alice': each owner needs a different key"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "gateway.example.com"])
def test_short_keys_are_refused_on_a_public_address(host: str) -> None:
    server = ServerConfig(host=host, metrics_key_env="ALICE_KEY")
    keys = [KeyConfig(name="bob", env="LAB_KEY"), KeyConfig(name="carol", env="LONG_KEY")]
    problems = problems_of(Config(server=server, keys=keys))
    assert [line.partition(":")[0] for line in problems] == ["keys[0].env", "server.metrics_key_env"]
    assert problems[0] == (
        f'keys[0].env: the key in the environment variable LAB_KEY has 6 characters, and other machines can reach "{host}": '
        "expected at least 16. To create one: openssl rand -hex 32"
    )
    assert problems_of(Config(server=replace(server, host="127.0.0.1"), keys=keys)) == []


def test_metrics_key_must_be_set() -> None:
    (problem,) = problems_of(Config(server=ServerConfig(metrics_key_env="MISSING_KEY")))
    assert problem.startswith("server.metrics_key_env: the environment variable MISSING_KEY is not set")
    config = Config(server=ServerConfig(metrics_key_env="LONG_KEY"))
    assert problems_of(config) == []
    assert config.secrets(ENVIRON) == ["sk-0123456789abc"]


def test_two_keys_of_one_owner_are_accepted() -> None:
    assert problems_of(Config(keys=[KEY, KeyConfig(name="alice", env="LAB_KEY")])) == []


def test_compaction_keys_must_be_set_valid_and_distinct() -> None:
    environ = {"A": "ab" * 32, "SAME": "AB" * 32, "B": "cd" * 32, "BAD": "secret-but-short", "EMPTY": ""}
    config = Config(compaction=CompactionConfig(keys_env=["A", "B"]))
    assert list(find_problems(config, environ)) == []
    assert config.secrets(environ) == ["ab" * 32, "cd" * 32]
    config = Config(compaction=CompactionConfig(keys_env=["A", "BAD", "GONE", "EMPTY", "SAME"]))
    problems = [str(problem) for problem in find_problems(config, environ)]
    assert [line.partition(":")[0] for line in problems] == [f"compaction.keys_env[{at}]" for at in (1, 2, 3, 4)]
    assert "openssl rand -hex 32" in problems[0]
    assert "secret-but-short" not in problems[0]
    assert "GONE is not set" in problems[1]
    assert "the same key as A" in problems[3]


# Several keys


@pytest.mark.parametrize(
    ("variables", "problems"),
    [
        (["LAB_KEY", "ALICE_KEY"], []),
        ([], ["upstreams[0].api_key_env: empty: expected at least one variable"]),
        (["LAB_KEY", "MISSING"], []),  # a warning, because one key is enough
        (["MISSING"], ["upstreams[0].api_key_env: the environment variable MISSING is not set"]),
        (["LAB_KEY", "LAB_KEY"], ["upstreams[0].api_key_env[1]: LAB_KEY holds the same key as an earlier variable"]),
    ],
)
def test_each_of_several_keys_is_checked(variables: list[str], problems: list[str]) -> None:
    messages = problems_of(upstream(api_key_env=variables))
    assert len(messages) == len(problems)
    assert all(message.startswith(problem) for message, problem in zip(messages, problems, strict=True))


def test_default_model_may_be_a_routed_model() -> None:
    entry = ModelConfig(name="coder", targets=[TargetConfig(upstream="lab", model="x")])
    named = replace(LAB, models=["x"])
    config = Config(server=ServerConfig(default_model="coder"), upstreams=[named], models=[entry])
    assert problems_of(config) == []
    assert problems_of(replace(config, models=[])) != []
