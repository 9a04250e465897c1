"""Command-line agents that can use the gateway: how each is started for one run, and how it is set up permanently.

Everything here is data and text: no file is read or written. `antiphon run` and `antiphon setup` do that.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon.cli.exits import InvalidUsage

NO_KEY: Final = "none"  # agents refuse to start without a key; a gateway without keys ignores it
PROVIDER: Final = "antiphon"


class Endpoint(Struct, frozen=True):
    """The gateway and the model that an agent uses."""

    url: str
    model: str
    key: str = NO_KEY


class Launch(Struct, frozen=True):
    """One run of an agent: variables, options before the user's own, and files in a folder of the run."""

    variables: Mapping[str, str]
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = {}


class FileChange(Struct, frozen=True):
    """A file of the user, by its path from the home folder, and the function from its text to the new one."""

    path: str
    edit: Callable[[str], str]


class Agent(Struct, frozen=True):
    """An agent: its program, and how it is connected to the gateway. `hint` is the command after a permanent set-up."""

    program: str
    install: str
    launch: Callable[[Endpoint, Path], Launch]
    changes: Callable[[Endpoint], list[FileChange]]
    hint: Callable[[Endpoint], str]


# Claude Code


def _launch_claude(endpoint: Endpoint, folder: Path) -> Launch:
    settings = json.dumps({"hasCompletedOnboarding": True})
    return Launch(
        {**_claude_variables(endpoint), "CLAUDE_CONFIG_DIR": str(folder)},
        ("--model", endpoint.model),
        {".claude.json": settings},
    )


def _claude_variables(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.model,  # Claude Code uses it for small tasks
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _change_claude(endpoint: Endpoint) -> list[FileChange]:
    members = {"env": _claude_variables(endpoint), "model": endpoint.model}
    return [FileChange(".claude/settings.json", _merge_json(members))]


# Codex


def _launch_codex(endpoint: Endpoint, folder: Path) -> Launch:
    return Launch(
        {"CODEX_HOME": str(folder), "ANTIPHON_API_KEY": endpoint.key}, (), {"config.toml": _codex_config(endpoint)}
    )


def _codex_config(endpoint: Endpoint) -> str:
    return f"""model = {json.dumps(endpoint.model)}
model_provider = "{PROVIDER}"

[model_providers.{PROVIDER}]
name = "Antiphon"
base_url = {json.dumps(endpoint.url + "/v1")}
wire_api = "responses"
env_key = "ANTIPHON_API_KEY"
"""


def _change_codex(endpoint: Endpoint) -> list[FileChange]:
    return [FileChange(f".codex/{PROVIDER}.config.toml", lambda _: _codex_config(endpoint))]


# opencode


def _launch_opencode(endpoint: Endpoint, folder: Path) -> Launch:
    variables = {name: str(folder / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    config = json.dumps(_opencode_config(endpoint), indent=2)
    return Launch({**variables, "OPENCODE_CONFIG": str(folder / "opencode.json")}, (), {"opencode.json": config})


def _opencode_config(endpoint: Endpoint) -> dict[str, Any]:
    provider = {
        "npm": "@ai-sdk/openai",
        "name": "Antiphon",
        "options": {"baseURL": f"{endpoint.url}/v1", "apiKey": endpoint.key},
        "models": {endpoint.model: {}},
    }
    model = f"{PROVIDER}/{endpoint.model}"
    return {"provider": {PROVIDER: provider}, "model": model, "small_model": model}


def _change_opencode(endpoint: Endpoint) -> list[FileChange]:
    return [FileChange(".config/opencode/opencode.json", _merge_json(_opencode_config(endpoint)))]


# Gemini CLI


def _launch_gemini(endpoint: Endpoint, folder: Path) -> Launch:
    variables = {"GEMINI_CLI_HOME": str(folder), **_gemini_variables(endpoint)}
    return Launch(variables, ("-m", endpoint.model), {".gemini/settings.json": json.dumps(GEMINI_SETTINGS)})


def _gemini_variables(endpoint: Endpoint) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": endpoint.url, "GEMINI_API_KEY": endpoint.key}


def _change_gemini(endpoint: Endpoint) -> list[FileChange]:
    variables = {**_gemini_variables(endpoint), "GEMINI_MODEL": endpoint.model}
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    return [
        FileChange(".gemini/settings.json", _merge_json(GEMINI_SETTINGS)),
        FileChange(".gemini/.env", _append(lines, tuple(f"{name}=" for name in variables))),
    ]


# aider


def _launch_aider(endpoint: Endpoint, folder: Path) -> Launch:
    del folder  # it needs no file
    variables = {"OPENAI_API_BASE": f"{endpoint.url}/v1", "OPENAI_API_KEY": endpoint.key}
    return Launch(variables, ("--model", f"openai/{endpoint.model}", "--no-show-model-warnings"))


def _change_aider(endpoint: Endpoint) -> list[FileChange]:
    lines = (
        f"model: openai/{endpoint.model}\nopenai-api-base: {endpoint.url}/v1\nopenai-api-key: {endpoint.key}\n"
        "show-model-warnings: false\n"
    )
    return [FileChange(".aider.conf.yml", _append(lines, ("model:", "openai-api-base:", "openai-api-key:")))]


# llm


def _launch_llm(endpoint: Endpoint, folder: Path) -> Launch:
    files = {
        "extra-openai-models.yaml": _llm_models(endpoint),
        "default_model.txt": endpoint.model,
        "keys.json": json.dumps({PROVIDER: endpoint.key}),
    }
    return Launch({"LLM_USER_PATH": str(folder)}, (), files)


def _llm_models(endpoint: Endpoint) -> str:
    key_name = "" if endpoint.key == NO_KEY else f"  api_key_name: {PROVIDER}\n"
    return (
        f"- model_id: {json.dumps(endpoint.model)}\n"
        f"  model_name: {json.dumps(endpoint.model)}\n"
        f"  api_base: {json.dumps(endpoint.url + '/v1')}\n"
        f"{key_name}  supports_schema: true\n  supports_tools: true\n"
    )


def _change_llm(endpoint: Endpoint) -> list[FileChange]:
    own = f"- model_id: {json.dumps(endpoint.model)}"
    return [FileChange(".config/io.datasette.llm/extra-openai-models.yaml", _append(_llm_models(endpoint), (own,)))]


def _llm_hint(endpoint: Endpoint) -> str:
    command = f'llm -m {shlex.quote(endpoint.model)} "Say hello."'
    return command if endpoint.key == NO_KEY else f"llm keys set {PROVIDER}, then {command}"


# Edits of files


def _merge_json(members: Mapping[str, Any]) -> Callable[[str], str]:
    """Return an edit that sets members of a JSON object, and of the objects in it."""

    def edit(text: str) -> str:
        try:
            value = json.loads(text) if text.strip() else {}
        except ValueError as error:
            raise InvalidUsage(f"the file is not JSON ({error}); repair it, or add the settings by hand") from None
        if not isinstance(value, dict):
            raise InvalidUsage("the file is not a JSON object; repair it, or add the settings by hand")
        return json.dumps(_merge(value, members), indent=2, ensure_ascii=False) + "\n"

    return edit


def _merge(value: dict[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(value)
    for name, member in members.items():
        old = merged.get(name)
        is_object = isinstance(old, dict) and isinstance(member, dict)
        merged[name] = _merge(old, member) if is_object and isinstance(old, dict) else member
    return merged


def _append(lines: str, starts: tuple[str, ...]) -> Callable[[str], str]:
    """Return an edit that appends lines, unless the file has a line that begins like one of them."""

    def edit(text: str) -> str:
        for line in text.splitlines():
            if line.startswith(starts):
                raise InvalidUsage(f"the file has the line {line.partition('=')[0]!r} already: change it by hand")
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{lines}"

    return edit


GEMINI_SETTINGS: Final = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
AGENTS: Final = {
    "claude": Agent(
        "claude", "npm install -g @anthropic-ai/claude-code", _launch_claude, _change_claude, lambda _: "claude"
    ),
    "codex": Agent(
        "codex", "npm install -g @openai/codex", _launch_codex, _change_codex, lambda _: f"codex -p {PROVIDER}"
    ),
    "opencode": Agent(
        "opencode", "npm install -g opencode-ai", _launch_opencode, _change_opencode, lambda _: "opencode"
    ),
    "gemini": Agent("gemini", "npm install -g @google/gemini-cli", _launch_gemini, _change_gemini, lambda _: "gemini"),
    "aider": Agent("aider", "uv tool install aider-chat", _launch_aider, _change_aider, lambda _: "aider"),
    "llm": Agent("llm", "uv tool install llm", _launch_llm, _change_llm, _llm_hint),
}
