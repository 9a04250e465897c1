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
from antiphon.cli.json_edit import set_members

NO_KEY: Final = "none"  # agents refuse to start without a key; a gateway without keys ignores it
PROVIDER: Final = "antiphon"
# opencode writes this line into a file that lacks it, and `setup --undo` would then refuse a changed file.
OPENCODE_SCHEMA: Final = "https://opencode.ai/config.json"


class Endpoint(Struct, frozen=True):
    """The gateway and the model that an agent uses."""

    url: str
    model: str
    key: str = NO_KEY


class Launch(Struct, frozen=True):
    """One run of an agent: variables, options before the user's own, and files in a folder of the run. `kept_folders`
    are folders in it that outlive the run: the agent's sessions."""

    variables: Mapping[str, str]
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    kept_folders: tuple[str, ...] = ()


class FileChange(Struct, frozen=True):
    """A file of the user, and the edit of its text. If `other_path` exists, that file is changed instead."""

    path: Path
    edit: Callable[[str], str]
    other_path: Path | None = None


class Agent(Struct, frozen=True):
    """An agent: its program, and how it is connected to the gateway. `hint` is the command after a permanent set-up."""

    program: str
    install: str
    launch: Callable[[Endpoint, Path], Launch]
    changes: Callable[[Endpoint, Mapping[str, str]], list[FileChange]]
    hint: Callable[[Endpoint], str]


# Claude Code


def _launch_claude(endpoint: Endpoint, folder: Path) -> Launch:
    settings = json.dumps({"hasCompletedOnboarding": True})
    return Launch(
        {**_claude_variables(endpoint), "CLAUDE_CONFIG_DIR": str(folder)},
        ("--model", endpoint.model),
        {".claude.json": settings},
        ("projects",),  # `claude --resume` reads it
    )


def _claude_variables(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.key,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.model,  # Claude Code uses it for small tasks
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _change_claude(endpoint: Endpoint, environ: Mapping[str, str]) -> list[FileChange]:
    members = {"env": _claude_variables(endpoint), "model": endpoint.model}
    folder = _folder(environ, "CLAUDE_CONFIG_DIR", ".claude")
    return [FileChange(folder / "settings.json", _json_edit(members))]


# Codex


def _launch_codex(endpoint: Endpoint, folder: Path) -> Launch:
    return Launch(
        {"CODEX_HOME": str(folder), "ANTIPHON_API_KEY": endpoint.key}, (), {"config.toml": _codex_config(endpoint)}
    )


def _codex_config(endpoint: Endpoint) -> str:
    # Codex does not start if the variable is missing.
    key_name = "" if endpoint.key == NO_KEY else 'env_key = "ANTIPHON_API_KEY"\n'
    return f"""model = {json.dumps(endpoint.model)}
model_provider = "{PROVIDER}"

[model_providers.{PROVIDER}]
name = "Antiphon"
base_url = {json.dumps(endpoint.url + "/v1")}
wire_api = "responses"
{key_name}"""


def _codex_hint(endpoint: Endpoint) -> str:
    command = f"codex -p {PROVIDER}"
    return command if endpoint.key == NO_KEY else f"{command} (it reads the key from ANTIPHON_API_KEY)"


def _change_codex(endpoint: Endpoint, environ: Mapping[str, str]) -> list[FileChange]:
    folder = _folder(environ, "CODEX_HOME", ".codex")
    return [FileChange(folder / f"{PROVIDER}.config.toml", lambda _: _codex_config(endpoint))]


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
    settings = {"provider": {PROVIDER: provider}, "model": model, "small_model": model}
    return {"$schema": OPENCODE_SCHEMA, **settings}


def _change_opencode(endpoint: Endpoint, environ: Mapping[str, str]) -> list[FileChange]:
    folder = _folder(environ, "XDG_CONFIG_HOME", ".config") / "opencode"
    # Settings in opencode.jsonc have priority.
    return [FileChange(folder / "opencode.json", _json_edit(_opencode_config(endpoint)), folder / "opencode.jsonc")]


# Gemini CLI


def _launch_gemini(endpoint: Endpoint, folder: Path) -> Launch:
    # The folders that the user trusts are in the other home; without trust, a run with a prompt ends with 55.
    trust = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
    variables = {"GEMINI_CLI_HOME": str(folder), **trust, **_gemini_variables(endpoint)}
    return Launch(variables, ("-m", endpoint.model), {".gemini/settings.json": json.dumps(GEMINI_SETTINGS)})


def _gemini_variables(endpoint: Endpoint) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": endpoint.url, "GEMINI_API_KEY": endpoint.key}


def _change_gemini(endpoint: Endpoint, environ: Mapping[str, str]) -> list[FileChange]:
    folder = _folder(environ, "GEMINI_CLI_HOME", "") / ".gemini"
    variables = {**_gemini_variables(endpoint), "GEMINI_MODEL": endpoint.model}
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    return [
        FileChange(folder / "settings.json", _json_edit(GEMINI_SETTINGS)),
        FileChange(folder / ".env", _append(lines, tuple(f"{name}=" for name in variables))),
    ]


# aider


def _launch_aider(endpoint: Endpoint, folder: Path) -> Launch:
    del folder  # it needs no file
    variables = {"OPENAI_API_BASE": f"{endpoint.url}/v1", "OPENAI_API_KEY": endpoint.key}
    return Launch(variables, ("--model", f"openai/{endpoint.model}", "--no-show-model-warnings"))


def _change_aider(endpoint: Endpoint, environ: Mapping[str, str]) -> list[FileChange]:
    lines = (
        f"model: openai/{endpoint.model}\nopenai-api-base: {endpoint.url}/v1\nopenai-api-key: {endpoint.key}\n"
        "show-model-warnings: false\n"
    )
    file = _folder(environ, None, "") / ".aider.conf.yml"
    return [FileChange(file, _append(lines, ("model:", "openai-api-base:", "openai-api-key:")))]


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


def _change_llm(endpoint: Endpoint, environ: Mapping[str, str]) -> list[FileChange]:
    own = f"- model_id: {json.dumps(endpoint.model)}"
    default = _folder(environ, "XDG_CONFIG_HOME", ".config") / "io.datasette.llm"
    folder = _folder(environ, "LLM_USER_PATH", str(default))
    return [FileChange(folder / "extra-openai-models.yaml", _append(_llm_models(endpoint), (own,)))]


def _llm_hint(endpoint: Endpoint) -> str:
    command = f'llm -m {shlex.quote(endpoint.model)} "Say hello."'
    return command if endpoint.key == NO_KEY else f"llm keys set {PROVIDER}, then {command}"


# Edits of files


def _folder(environ: Mapping[str, str], variable: str | None, default: str) -> Path:
    """The folder that a variable of the agent names, or the default one in the home folder."""
    named = environ.get(variable) if variable else None
    return Path(named) if named else Path(environ.get("HOME") or Path.home(), default)


def _json_edit(members: Mapping[str, Any]) -> Callable[[str], str]:
    """Return an edit that sets members of a JSON object, and of the objects in it."""
    return lambda text: set_members(text, members)


def _append(lines: str, starts: tuple[str, ...]) -> Callable[[str], str]:
    """Return an edit that appends lines, unless the file has a line that begins like one of them."""

    def edit(text: str) -> str:
        for line in text.splitlines():
            for start in starts:
                if line.startswith(start):  # the rest of the line may be a key
                    raise InvalidUsage(f"the file has a line {start!r} already: change it by hand")
        newline = "\r\n" if "\r\n" in text else "\n"
        separator = "" if not text or text.endswith("\n") else newline
        return f"{text}{separator}{lines.replace(chr(10), newline)}"

    return edit


GEMINI_SETTINGS: Final = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
AGENTS: Final = {
    "claude": Agent(
        "claude", "npm install -g @anthropic-ai/claude-code", _launch_claude, _change_claude, lambda _: "claude"
    ),
    "codex": Agent("codex", "npm install -g @openai/codex", _launch_codex, _change_codex, _codex_hint),
    "opencode": Agent(
        "opencode", "npm install -g opencode-ai", _launch_opencode, _change_opencode, lambda _: "opencode"
    ),
    "gemini": Agent("gemini", "npm install -g @google/gemini-cli", _launch_gemini, _change_gemini, lambda _: "gemini"),
    "aider": Agent("aider", "uv tool install aider-chat", _launch_aider, _change_aider, lambda _: "aider"),
    "llm": Agent("llm", "uv tool install llm", _launch_llm, _change_llm, _llm_hint),
}
