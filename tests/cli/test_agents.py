"""Agents: the settings for one run, and the edits of the user's files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.agents import AGENTS, Endpoint
from antiphon.cli.exits import InvalidUsage

ENDPOINT = Endpoint("http://127.0.0.1:8080", "mock-1", "sk-own")
OPEN = Endpoint("http://127.0.0.1:8080", "mock-1")
FOLDER = Path("/run/agent")
HOME = Path("/home/ada")


def _edited(agent: str, texts: Mapping[str, str], endpoint: Endpoint = ENDPOINT) -> dict[str, str]:
    """The new texts of the files, by their paths from the home folder."""
    changes = AGENTS[agent].changes(endpoint, {"HOME": str(HOME)})
    paths = [str(change.path.relative_to(HOME)) for change in changes]
    return {path: change.edit(texts.get(path, "")) for path, change in zip(paths, changes, strict=True)}


@pytest.mark.parametrize(
    ("agent", "variable", "path"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", "/x/settings.json"),
        ("codex", "CODEX_HOME", "/x/antiphon.config.toml"),
        ("opencode", "XDG_CONFIG_HOME", "/x/opencode/opencode.json"),
        ("gemini", "GEMINI_CLI_HOME", "/x/.gemini/settings.json"),
        ("llm", "XDG_CONFIG_HOME", "/x/io.datasette.llm/extra-openai-models.yaml"),
        ("llm", "LLM_USER_PATH", "/x/extra-openai-models.yaml"),
    ],
)
def test_change_is_in_the_folder_that_the_agent_reads(agent: str, variable: str, path: str) -> None:
    changes = AGENTS[agent].changes(ENDPOINT, {"HOME": str(HOME), variable: "/x"})
    assert str(changes[0].path) == path


def _json(texts: Mapping[str, str], path: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(texts[path])
    return value


@pytest.mark.parametrize("agent", AGENTS)
def test_launch_names_gateway_model_and_key(agent: str) -> None:
    launch = AGENTS[agent].launch(ENDPOINT, FOLDER)
    everything = f"{launch.variables} {launch.options} {launch.files}"
    assert ENDPOINT.url in everything
    assert ENDPOINT.model in everything
    assert ENDPOINT.key in everything


@pytest.mark.parametrize("agent", [name for name in AGENTS if name != "aider"])
def test_launch_keeps_files_of_the_user_out_of_the_run(agent: str) -> None:
    """A variable points to the folder of the run; aider is configured by variables and options alone."""
    launch = AGENTS[agent].launch(ENDPOINT, FOLDER)
    assert any(value.startswith(str(FOLDER)) for value in launch.variables.values())


def test_codex_configuration_is_toml() -> None:
    config = tomllib.loads(AGENTS["codex"].launch(ENDPOINT, FOLDER).files["config.toml"])
    provider = config["model_providers"][config["model_provider"]]
    assert (config["model"], provider["base_url"]) == ("mock-1", "http://127.0.0.1:8080/v1")


def test_claude_change_keeps_other_settings() -> None:
    before = '{"theme": "dark", "env": {"A": "1"}, "model": "opus"}'
    settings = _json(_edited("claude", {".claude/settings.json": before}), ".claude/settings.json")
    assert (settings["theme"], settings["model"], settings["env"]["A"]) == ("dark", "mock-1", "1")
    assert settings["env"]["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080"


def test_codex_change_is_a_profile_of_its_own() -> None:
    assert list(_edited("codex", {})) == [".codex/antiphon.config.toml"]
    assert AGENTS["codex"].hint(OPEN) == "codex -p antiphon"
    assert AGENTS["codex"].hint(ENDPOINT) == "codex -p antiphon (it reads the key from ANTIPHON_API_KEY)"


def test_codex_change_names_a_key_only_if_the_gateway_has_keys() -> None:
    """Codex does not start if the variable is missing."""
    path = ".codex/antiphon.config.toml"
    assert 'env_key = "ANTIPHON_API_KEY"' in _edited("codex", {})[path]
    assert "env_key" not in _edited("codex", {}, OPEN)[path]


def test_message_about_a_line_does_not_show_a_key() -> None:
    with pytest.raises(InvalidUsage) as error:
        _edited("aider", {".aider.conf.yml": "openai-api-key: sk-secret\n"})
    assert "sk-secret" not in str(error.value)


def test_opencode_change_adds_a_provider() -> None:
    path = ".config/opencode/opencode.json"
    config = _json(_edited("opencode", {path: '{"provider": {"other": {}}}'}), path)
    assert set(config["provider"]) == {"other", "antiphon"}
    assert config["model"] == "antiphon/mock-1"
    assert config["$schema"] == "https://opencode.ai/config.json", "opencode would change the file"


def test_gemini_launch_trusts_the_folder() -> None:
    """Its own list of trusted folders is in the home folder, which the run does not use."""
    assert AGENTS["gemini"].launch(ENDPOINT, FOLDER).variables["GEMINI_CLI_TRUST_WORKSPACE"] == "true"


def test_gemini_change_appends_to_the_environment_file() -> None:
    edited = _edited("gemini", {".gemini/.env": "OTHER=1"})
    assert edited[".gemini/.env"].splitlines() == [
        "OTHER=1",
        "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8080",
        "GEMINI_API_KEY=sk-own",
        "GEMINI_MODEL=mock-1",
    ]


def test_aider_change_refuses_a_file_that_names_a_model() -> None:
    with pytest.raises(InvalidUsage, match="has a line 'model:' already: change it by hand"):
        _edited("aider", {".aider.conf.yml": "model: x\n"})
    assert _edited("aider", {})[".aider.conf.yml"].startswith("model: openai/mock-1\n")


def test_llm_change_names_a_key_only_if_the_gateway_has_keys() -> None:
    path = ".config/io.datasette.llm/extra-openai-models.yaml"
    assert "  api_key_name: antiphon\n" in _edited("llm", {})[path]
    assert "api_key_name" not in _edited("llm", {}, OPEN)[path]
    assert AGENTS["llm"].hint(OPEN) == 'llm -m mock-1 "Say hello."'
    assert AGENTS["llm"].hint(ENDPOINT) == 'llm keys set antiphon, then llm -m mock-1 "Say hello."'


@pytest.mark.parametrize("text", ["{", "[]"])
def test_change_refuses_a_file_that_is_no_json_object(text: str) -> None:
    with pytest.raises(InvalidUsage, match="the file is not"):
        _edited("claude", {".claude/settings.json": text})
