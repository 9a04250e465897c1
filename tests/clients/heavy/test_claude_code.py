"""Claude Code does a task through the gateway, over a server of each dialect: it runs a command, then reads and writes at once, then
says its last word. What it sends besides a conversation (its betas, adaptive thinking, system messages in the middle, marks for the
cache) is carried or left out, and no strict server minds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import PLAIN_MESSAGES, SERVERS, Behind, call
from tests.clients.heavy.npm_programs import installed, run

from antiphon import fakes
from antiphon.fakes import turn

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."


@pytest.mark.parametrize("behind", [*SERVERS, PLAIN_MESSAGES], ids=lambda behind: behind.profile)
def test_claude_code_completes_a_loop_of_tools(behind: Behind, tmp_path: Path) -> None:
    """RSN-2, API-6: three calls, two of them at once; results in their order, thoughts back at their maker."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    plan = {
        0: turn(
            fakes.reasoning("I look ", "first."),
            fakes.text("Let me ", "look."),
            call("call_1", "Bash", command="cat greeting.txt && echo looked > looked.txt", description="Looks"),
        ),
        1: turn(
            fakes.reasoning("Now I know."),
            call("call_2", "Read", file_path=str(workplace / "greeting.txt")),
            call("call_3", "Write", file_path=str(workplace / "why.txt"), content='"friendlier" \\o/ 👋\n'),
        ),
        3: turn(fakes.text(LAST_WORDS[:12], LAST_WORDS[12:])),
    }
    with behind.gateway(plan) as (gateway, upstream):
        events = run_claude(gateway.url, workplace, tmp_path)
        turns = behind.turns(upstream)
    assert (workplace / "looked.txt").read_text() == "looked\n"
    assert (workplace / "why.txt").read_text() == '"friendlier" \\o/ 👋\n'
    assert (events[-1]["subtype"], events[-1]["is_error"], events[-1]["result"]) == ("success", False, LAST_WORDS)
    assert [len(told.results) for told in turns] == [0, 1, 3]
    last = turns[-1]
    assert [(made.id, made.name) for made in last.calls] == [("call_1", "Bash"), ("call_2", "Read"), ("call_3", "Write")]
    assert [id for id, _ in last.results] == ["call_1", "call_2", "call_3"]
    assert all("hello" in text for _, text in last.results[:2])
    assert last.thoughts == 2


def run_claude(gateway: str, workplace: Path, home: Path, *options: str) -> list[dict[str, Any]]:
    """What `claude -p` tells, line by line."""
    *exports, asked = block("ANTHROPIC_BASE_URL").replace("http://127.0.0.1:8080", gateway).splitlines()
    environ = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    _, *documented = shlex.split(asked)
    command = [str(installed("claude")), *documented, *OPTIONS, *options]
    told = run(command, workplace, home, {**environ, "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1"})
    return [msgspec.json.decode(line) for line in told.splitlines()]


# What is run is written above: nobody has to be asked for leave.
OPTIONS = ("--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
