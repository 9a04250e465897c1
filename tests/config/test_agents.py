"""Agents as upstreams in the configuration: required settings and the summary."""

from __future__ import annotations

import pytest

from antiphon.config import Config, UpstreamConfig, check_config, describe_config, parse_config
from antiphon.errors import ConfigError

TEXT = '[[upstreams]]\nname = "mine"\ndialect = "responses"\nagent = "my_agents.lab:run"\nmodels = ["mine"]\n'


def test_agent_upstream_needs_no_base_url() -> None:
    (upstream,) = parse_config(TEXT, "antiphon.toml", {}).upstreams
    assert upstream.agent == "my_agents.lab:run"
    assert describe_config(Config(upstreams=[upstream]))[0] == "mine  responses  my_agents.lab:run  mine"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"agent": "my_agents"},
            "upstreams[0].agent: expected a module and the name of an agent in it, such as 'my_agents:run', "
            "got 'my_agents'",
        ),
        (
            {"base_url": "http://127.0.0.1:9001/v1"},
            "upstreams[0].base_url: not allowed for an agent, which has no address",
        ),
        ({"api_key_env": "KEY"}, "upstreams[0].api_key_env: not allowed for an agent, which needs no key"),
        ({"dialect": "chat"}, "upstreams[0].dialect: expected 'responses', the dialect of agents, got 'chat'"),
    ],
)
def test_agent_upstream_rejects_settings_of_servers(change: dict[str, str], expected: str) -> None:
    settings = {"name": "mine", "dialect": "responses", "agent": "my_agents:run", **change}
    with pytest.raises(ConfigError) as raised:
        check_config(Config(upstreams=[UpstreamConfig(**settings)]), {"KEY": "x"})  # type: ignore[arg-type]
    assert expected.replace("'", '"') in str(raised.value).replace("'", '"')
