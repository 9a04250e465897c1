"""`antiphon run` with the real agents: each answers once, and writes nothing into the home folder of its user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.clients.heavy.npm_programs import CLIENTS, run
from tests.running import running

from antiphon.config import Config, UpstreamConfig
from antiphon.testing import ChatServer, text, turn

pytestmark = [pytest.mark.io, pytest.mark.heavy]
QUESTION = "Say the word."
PROGRAMS = (CLIENTS / ".bin", *(CLIENTS.parent / "python" / name / "bin" for name in ("aider", "sdks")))
AGENTS = {
    "claude": ("-p", QUESTION),
    "codex": ("exec", "--skip-git-repo-check", QUESTION),
    "opencode": ("run", QUESTION),
    "gemini": ("--skip-trust", "-p", QUESTION),
    "aider": ("--no-git", "--no-check-update", "--no-analytics", "--edit-format", "ask", "--message", QUESTION),
    "llm": (QUESTION,),
}
# Downloads of programs, and caches, which are no settings.
CACHES = {".aider", ".cache", ".npm"}


@pytest.mark.parametrize("agent", AGENTS)
def test_agent_runs_with_a_configuration_of_its_own(agent: str, tmp_path: Path) -> None:
    home, workplace = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    workplace.mkdir()
    path = os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"]])
    with ChatServer(lambda _: turn(text("walnut"))) as server:
        upstream = UpstreamConfig(name="lab", dialect="chat", base_url=server.base_url, models=["mock-1"])
        with running(Config(upstreams=[upstream])) as gateway:
            command = [sys.executable, "-m", "antiphon", "run", agent, "--url", gateway.url, "-m", "mock-1", "--"]
            environ = {"PATH": path, "IS_SANDBOX": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "NO_COLOR": "1"}
            output = run([*command, *AGENTS[agent]], workplace, home, environ)
    assert "walnut" in output
    assert {entry.name for entry in home.iterdir()} - {".local"} <= CACHES
    kept = [entry.relative_to(home).as_posix() for entry in home.glob(".local/*/*/*/*")]
    assert kept == ([".local/state/antiphon/run/claude"] if agent == "claude" else [])  # its sessions
