"""`antiphon setup` with the real agents: each then answers by itself, and `--undo` restores the bytes of its files."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.heavy.npm_programs import run
from tests.clients.heavy.test_run_agents import AGENTS, PROGRAMS
from tests.running import running

from antiphon.config import Config, UpstreamConfig
from antiphon.testing import ChatServer, text, turn

pytestmark = [pytest.mark.io, pytest.mark.heavy]
#: Settings that the user of each agent has already, with comments where the agent accepts them.
SETTINGS = {
    "claude": {".claude/settings.json": '{"includeCoAuthoredBy": false,\n   "env": {"OTHER": "1"}}'},
    "codex": {".codex/config.toml": '# mine\nmodel = "gpt-5"\napproval_policy = "never"  # always\n'},
    "opencode": {".config/opencode/opencode.json": '{\n  // mine\n  "autoupdate": false, // never\n}\n'},
    "gemini": {
        ".gemini/settings.json": '{\r\n  // mine\r\n  "ui": {"hideTips": true}\r\n}\r\n',
        ".gemini/.env": "# mine\nOTHER=1",
    },
    "aider": {".aider.conf.yml": "# mine\ngit: false\n"},
    "llm": {".config/io.datasette.llm/extra-openai-models.yaml": "# mine\n- model_id: x\n  model_name: x\n"},
}
ENVIRONMENT = {"IS_SANDBOX": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "NO_COLOR": "1"}


@pytest.fixture
def gateway() -> Iterator[str]:
    with ChatServer(lambda _: turn(text("walnut"))) as server:
        upstream = UpstreamConfig(name="lab", dialect="chat", base_url=server.base_url, models=["mock-1"])
        with running(Config(upstreams=[upstream])) as gateway:
            yield gateway.url


def antiphon(home: Path, url: str, *words: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "ANTIPHON_URL": url}
    command = [sys.executable, "-m", "antiphon", "setup", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True, cwd=home).stdout


def bytes_of(home: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in home.rglob("*") if file.is_file()}


@pytest.mark.parametrize("has_settings", [True, False], ids=["settings", "empty-home"])
@pytest.mark.parametrize("agent", AGENTS)
def test_agent_answers_after_setup_and_undo_restores_its_files(
    agent: str, has_settings: bool, gateway: str, tmp_path: Path
) -> None:
    home, workplace = tmp_path / "home", tmp_path / "work"
    for folder in (home, workplace):
        folder.mkdir()
    for name, settings in SETTINGS[agent].items() if has_settings else ():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(settings.encode())
    before = bytes_of(home)
    shown = antiphon(home, gateway, agent, "-m", "mock-1", "--yes")
    written = {file: content for file, content in bytes_of(home).items() if before.get(file) != content}
    files = {file: content for file, content in written.items() if ".local" not in file.parts}
    assert files
    for file, content in files.items():
        added = [
            line for line in content.decode().splitlines() if line not in before.get(file, b"").decode().splitlines()
        ]
        assert str(file) in shown
        assert [line for line in added if f"+{line}" not in shown.splitlines()] == []
    command = shlex.split(shown.partition("start it with: ")[2].splitlines()[0])
    environ = {**ENVIRONMENT, "PATH": os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"]])}
    words = AGENTS[agent] if agent != "llm" else ()  # its command has a question
    assert "walnut" in run(["env", *command, *words], workplace, home, environ)
    antiphon(home, gateway, agent, "--undo")
    after = bytes_of(home)
    assert {file: after.get(file) for file in before} == before
    assert [file for file in files if file in after and file not in before] == []
