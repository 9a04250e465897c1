"""The providers that are used as soon as their key variable is set."""

from __future__ import annotations

import pytest

from antiphon.config import Config, default_config
from antiphon.dialects.chat.wire import ChatWire
from antiphon.profiles import load_profile, profile_names
from antiphon.profiles.providers import Provider, builtin_providers


def asked_of(config: Config, model: str) -> tuple[str, str] | None:
    """The upstream for a model, and the model name that it receives."""
    return next(((up.name, name) for up in config.upstreams if (name := up.upstream_model(model)) is not None), None)


def with_keys(*names: str) -> Config:
    return default_config({row.api_key_env: f"sk-{row.name}" for row in builtin_providers() if row.name in names})


@pytest.mark.parametrize("row", builtin_providers(), ids=lambda row: row.name)
def test_provider_is_an_upstream_if_its_variable_is_set(row: Provider) -> None:
    """Every row passes all checks of a configuration, its profile's dialect and its URL included."""
    config = with_keys(row.name)
    assert [upstream.name for upstream in config.upstreams] == ["local", row.name]
    assert row.base_url.startswith("https://")
    assert config.upstreams[1].api_keys({row.api_key_env: "sk"}) == ["sk"]
    assert asked_of(config, f"{row.name}/some/model") == (row.name, "some/model")


def test_provider_names_and_variables_are_unique() -> None:
    rows = builtin_providers()
    assert len({row.name for row in rows}) == len({row.api_key_env for row in rows}) == len(rows)


def test_well_known_model_names_need_no_prefix() -> None:
    config = with_keys(*(row.name for row in builtin_providers()))
    for model, name in {
        "local": "local",
        "gpt-5": "openai",
        "o3-mini": "openai",
        "claude-opus-4-5": "anthropic",
        "gemini-3-pro": "gemini",
        "llama-3.3-70b-versatile": "groq",
        "mistral-large-latest": "mistral",
        "deepseek-chat": "deepseek",
        "grok-4": "xai",
        "meta-llama/llama-3.3-70b-instruct": "openrouter",
    }.items():
        assert asked_of(config, model) == (name, model)
    assert asked_of(config, "olmo") is None


def test_provider_of_all_models_has_the_lowest_priority() -> None:
    assert asked_of(with_keys("openai", "openrouter"), "openai/gpt-5") == ("openai", "gpt-5")
    assert asked_of(with_keys("openrouter"), "openai/gpt-5") == ("openrouter", "openai/gpt-5")
    assert asked_of(with_keys("openai", "openrouter"), "openrouter/openai/gpt-5") == ("openrouter", "openai/gpt-5")


def test_provider_table_is_no_profile() -> None:
    assert "providers" not in profile_names()


def wire_of(name: str) -> ChatWire:
    wire = load_profile(name).wire
    assert isinstance(wire, ChatWire)
    return wire


def test_provider_profiles_omit_refused_settings() -> None:
    assert not {"logprobs", "top_logprobs"} & set(wire_of("groq").fields)
    assert not {"seed", "user", "logprobs"} & set(wire_of("mistral").fields)
    assert not wire_of("mistral").stream_usage
    assert wire_of("deepseek").json_output == "json_object"


def test_deepseek_profile_returns_all_reasoning() -> None:
    assert (wire_of("deepseek").reasoning_field, wire_of("deepseek").reasoning_history) == ("reasoning_content", "all")
