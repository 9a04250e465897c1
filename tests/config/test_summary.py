"""The summary that people see when a server starts."""

from __future__ import annotations

from antiphon.config import Config, KeyConfig, ModelRule, TraceConfig, UpstreamConfig, describe_config

LAB = UpstreamConfig(
    name="lab",
    dialect="responses",
    base_url="http://127.0.0.1:9001/v1",
    api_key_env="LAB_KEY",
    models=["mock-*", ModelRule(from_="fast", to="mock-1")],
)
LOCAL = UpstreamConfig(name="local", dialect="chat", embedded=True, models=["local"])


def test_summary_lists_upstreams_keys_and_traces() -> None:
    keys = [
        KeyConfig(name="alice", sha256="0" * 64),
        KeyConfig(name="bob", env="BOB_KEY"),
        KeyConfig(name="alice", env="OTHER"),
    ]
    assert describe_config(Config(upstreams=[LAB, LOCAL], keys=keys, trace=TraceConfig(dir="traces"))) == [
        "lab    responses  http://127.0.0.1:9001/v1  mock-*, fast → mock-1",
        "local  chat       embedded                  local",
        "keys: alice, bob",
        "traces: in traces",
    ]


def test_summary_names_missing_keys_and_traces() -> None:
    assert describe_config(Config()) == ["keys: none; only this machine can connect", "traces: off"]
