"""`antiphon serve --agent`: what is served, and how the greeting describes it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.cli import serve
from antiphon.cli.entry import make_parser
from antiphon.config import Config
from antiphon.errors import ConfigError

MODULE = """
from antiphon.producer import Turn, agent

@agent(model="hello")
async def hello(turn: Turn) -> None:
    pass
"""
LAB = '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://127.0.0.1:9001/v1"\nmodels = ["mock-1"]\n'


def served(folder: Path, *words: str) -> tuple[Config, str]:
    configs: list[Config] = []

    def server(config: Config, *, debug: bool, announce: Callable[[str], None], source: object) -> None:
        del debug, source
        configs.append(config)
        announce("http://127.0.0.1:8080")

    out = io.StringIO()
    args = make_parser().parse_args(["serve", *words])
    serve.run(args, out, io.StringIO(), environ={"HOME": "/home/ada"}, cwd=folder, serve=server)
    return configs[0], out.getvalue()


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cli_agents.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "cli_agents", raising=False)


def test_agents_are_the_only_upstreams_without_a_configuration(tmp_path: Path) -> None:
    """F-5."""
    config, greeting = served(tmp_path, "--agent", "cli_agents:hello")
    assert [upstream.name for upstream in config.upstreams] == ["hello"]
    assert "hello  responses  cli_agents:hello  hello" in greeting
    assert "ask --model hello" in greeting


def test_agents_precede_the_configured_upstreams(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(LAB)
    config, _ = served(tmp_path, "--agent", "cli_agents:hello")
    assert [upstream.name for upstream in config.upstreams] == ["hello", "lab"]


def test_missing_agent_module_is_refused_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no module 'nowhere', neither in"):
        served(tmp_path, "--agent", "nowhere:hello")
