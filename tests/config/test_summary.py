"""The summary that people see when a server starts."""

from __future__ import annotations

from antiphon.config import (
    Config,
    KeyConfig,
    ModelConfig,
    ModelRule,
    TargetConfig,
    TraceConfig,
    UpstreamConfig,
    describe_config,
)

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


def test_summary_shows_the_targets_of_models() -> None:
    """Targets without an entry are shown too, since nobody wrote them down."""
    spare = UpstreamConfig(name="spare", dialect="chat", base_url="http://spare/v1", models=["local", "mock-9"])
    coder = ModelConfig(
        name="coder",
        targets=[
            TargetConfig(upstream="lab", model="mock-1", priority=2, weight=3),
            TargetConfig(upstream="local", model="local", priority=2),
            TargetConfig(upstream="spare", model="mock-9"),
        ],
        on_context_length=[TargetConfig(upstream="lab", model="mock-long")],
    )
    assert describe_config(Config(upstreams=[LAB, LOCAL, spare], models=[coder]))[3:-2] == [
        "model coder: spare/mock-9, then lab/mock-1 (weight 3) or local/local; on context length: lab/mock-long",
        "model local: local/local, then spare/local",
        "model mock-9: lab/mock-9, then spare/mock-9",
    ]
