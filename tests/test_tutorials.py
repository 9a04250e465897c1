"""Every tutorial is played as a reader plays it: its commands in their order, with the real model or strict servers.

The Claude Code tutorial has a program in place of Claude Code; `make test-clients` runs `antiphon run` with the real
one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest
from tests.page_player import Block, Player, blocks_of, reader
from tests.sources import REPO
from tests.store import postgres_server

from antiphon import sse
from antiphon.config import load_config
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.events import OutputTextDelta
from antiphon.protocol.grammar import find_violations
from antiphon.testing import ChatServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
TUTORIALS = REPO / "docs" / "tutorials"
# Commands that are not played: another target tests each of them, or they ask a question.
CONSOLE = {
    '$ uvx "antiphon[local]" serve\n': "make test-install",
    "$ make run\n": "tests/test_readme.py",
    "$ antiphon setup claude --model qwen3-coder\n": "tests/cli/test_setup.py",
}
Check = Callable[[Player], None]
Value = TypeVar("Value")


def play(
    name: str,
    player: Player,
    checks: Mapping[str, Check] | None = None,
    before: Mapping[str, Check] | None = None,
    exit_codes: Mapping[str, int] | None = None,
) -> None:
    """Plays a tutorial. The keys of the tables are the heading above a block, or text in it; each must occur."""
    unused = {*(checks or {}), *(before or {}), *(exit_codes or {})}
    for block in blocks_of(TUTORIALS / f"{name}.md"):
        if block.language == "console":
            assert block.text in CONSOLE
            continue
        unused -= {key for key in unused if _belongs(key, block)}
        for prepare in _matching(before, block):
            prepare(player)
        player.play(block, next(iter(_matching(exit_codes, block)), 0))
        for check in _matching(checks, block):
            check(player)
    assert unused == set()


def _matching(table: Mapping[str, Value] | None, block: Block) -> list[Value]:
    return [value for key, value in (table or {}).items() if _belongs(key, block)]


def _belongs(key: str, block: Block) -> bool:
    return key == block.section or key in block.text


def _stop_first(player: Player) -> None:
    player.servers[0].stop()


def _says(word: str) -> Check:
    def check(player: Player) -> None:
        assert word.lower() in player.output.lower()

    return check


def test_every_tutorial_has_a_test() -> None:
    names = {path.stem.replace("-", "_") for path in TUTORIALS.glob("*.md")}
    assert {f"test_{name}_tutorial" for name in names} <= set(globals())


@pytest.mark.time_limit(300)
def test_first_answer_tutorial(tmp_path: Path) -> None:
    """F-3, API-6, PREV-1: the real model, as a new user starts it."""
    with reader(tmp_path) as player:
        checks: dict[str, Check] = {
            "antiphon ask -c": _says("walnut"),
            "previous_response_id": _says("walnut"),
            '"input": "Say hello.", "max_output_tokens": 30}': _is_a_response,
            '"stream": true': _is_a_stream,
            "text_format=Person": _is_a_person,
            "genai.Client": _has_three_answers,
        }
        play("first-answer", player, checks)
        [export] = [
            block for block in blocks_of(TUTORIALS / "first-answer.md") if block.text.startswith("export ANTHROPIC")
        ]
        player.play(Block("", "sh", export.text + LISTING))
        assert player.output.split() == ["local", "models/local"]


LISTING = """
python - <<END
from anthropic import Anthropic
from google import genai
print(*(model.id for model in Anthropic().models.list()))
with genai.Client() as client:
    print(*(model.name for model in client.models.list()))
END
"""


def _is_a_response(player: Player) -> None:
    response = decode_response(player.output.encode())
    assert response.model == "local"
    assert response.output_text.strip()


def _is_a_stream(player: Player) -> None:
    frames = sse.Decoder().feed(player.output.encode())
    events = [decode_event(frame.data) for frame in frames[:-1]]
    assert frames[-1].data == sse.DONE
    assert find_violations(events) == []
    assert len([event for event in events if isinstance(event, OutputTextDelta)]) > 1


def _is_a_person(player: Player) -> None:
    created, *streamed, parsed = player.output.splitlines()
    assert "Lima" in created
    assert "".join(streamed).strip()
    assert parsed == "name='Alice' age=30"


def _has_three_answers(player: Player) -> None:
    assert len([line for line in player.output.splitlines() if line.strip()]) >= 3


CLAUDE = f"""#!{sys.executable}
import json, os, sys, urllib.request
model = os.environ.get("ANTHROPIC_MODEL") or sys.argv[sys.argv.index("--model") + 1]
body = {{"model": model, "max_tokens": 100, "messages": [{{"role": "user", "content": sys.argv[sys.argv.index("-p") + 1]}}]}}
headers = {{"content-type": "application/json", "anthropic-version": "2023-06-01"}}
headers["x-api-key"] = os.environ.get("ANTHROPIC_API_KEY") or os.environ["ANTHROPIC_AUTH_TOKEN"]
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(), headers)
print(json.load(urllib.request.urlopen(request))["content"][0]["text"])
"""


def test_claude_code_tutorial(tmp_path: Path) -> None:
    program = tmp_path / "programs" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE)
    program.chmod(0o755)
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"theme": "dark"}')
    with ChatServer(models=["qwen3-coder"]) as server, reader(tmp_path, **{"11434": str(server.port)}) as player:
        checks = {
            "config check --live": _says("qwen3-coder"),
            "antiphon ask": _says("Say hello."),
            "antiphon run": _says("Say hello."),
        }
        play("claude-code", player, checks)
        assert not server.refusals
        assert {request.json["model"] for request in server.received if request.method == "POST"} == {"qwen3-coder"}
    assert json.loads(settings.read_text()) == {"theme": "dark"}, "--undo restores the file"


def test_fallback_tutorial(tmp_path: Path) -> None:
    with reader(tmp_path) as player:
        play(
            "fallback",
            player,
            checks={"antiphon route explain": _says("second")},
            before={"3. Stop the first server": _stop_first},
        )
    environ = {"ANTHROPIC_API_KEY": "sk-test-key", "OPENAI_API_KEY": "sk-test-key"}
    config = load_config(tmp_path / "providers.toml", environ)
    assert [upstream.name for upstream in config.upstreams] == ["anthropic", "openai"]
    assert [model.name for model in config.models] == ["assistant"]


@pytest.mark.time_limit(300)
def test_many_machines_tutorial(tmp_path: Path) -> None:
    """API-2: two processes on one PostgreSQL."""
    documented = "postgresql://antiphon@127.0.0.1:5432/antiphon"
    with reader(tmp_path, **{documented: postgres_server.fresh_url()}) as player:
        play(
            "many-machines",
            player,
            checks={
                "previous_response_id": _says("walnut"),
                "capital of Peru": _says("Lima"),
                "/readyz": _says('"status":"ok"'),
            },
            before={"4. Stop one": _stop_first},
        )


def test_write_an_agent_tutorial(tmp_path: Path) -> None:
    with reader(tmp_path) as player:
        play("write-an-agent", player, checks={"python -m pytest": _says("1 passed")})


def test_test_your_server_tutorial(tmp_path: Path) -> None:
    with reader(tmp_path) as player:
        play("test-your-server", player, exit_codes={"antiphon check http://127.0.0.1:9001": 1})
        assert (tmp_path / "lab.toml").is_file()
