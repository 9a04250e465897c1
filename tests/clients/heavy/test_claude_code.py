"""Claude Code does a task through the gateway, over a server of each dialect: it runs a command, then reads and writes
at once, and answers. Its other fields (betas, adaptive thinking, system messages in the middle, cache marks) are
forwarded or left out, and no strict server refuses them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import CHAT, MESSAGES, PLAIN_MESSAGES, RESPONSES, SERVERS, Behind, call
from tests.clients.heavy.npm_programs import installed, run

from antiphon import testing
from antiphon.testing import Reply, turn

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."
WORDS = '"friendlier" \\o/ 👋\n'


@pytest.mark.parametrize("behind", [*SERVERS, PLAIN_MESSAGES], ids=lambda behind: behind.profile)
def test_claude_code_completes_a_tool_loop(behind: Behind, tmp_path: Path) -> None:
    """RSN-2, API-6: three calls, two of them at once; results in order, reasoning returned to its server."""
    workplace = place(tmp_path)
    with behind.gateway(plan(workplace)) as (gateway, upstream):
        events = run_claude(gateway.url, workplace, tmp_path)
        turns = behind.turns(upstream)
    assert (workplace / "looked.txt").read_text() == "looked\n"
    assert (workplace / "why.txt").read_text() == WORDS
    assert (events[-1]["subtype"], events[-1]["is_error"], events[-1]["result"]) == ("success", False, LAST_WORDS)
    assert [len(each.results) for each in turns] == [0, 1, 3]
    last = turns[-1]
    assert [(made.id, made.name) for made in last.calls] == [
        ("call_1", "Bash"),
        ("call_2", "Read"),
        ("call_3", "Write"),
    ]
    assert [id for id, _ in last.results] == ["call_1", "call_2", "call_3"]
    assert all("hello" in text for _, text in last.results[:2])
    assert last.thoughts == 2


@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_claude_code_continues_after_a_failed_tool(behind: Behind, tmp_path: Path) -> None:
    """F-4: a command that exits with 3 is an `is_error` result, for which only servers of the same API have a field."""
    plan = {0: turn(call("call_1", "Bash", command="exit 3", description="Fails")), 1: turn(testing.text("It failed."))}
    with behind.gateway(plan) as (gateway, upstream):
        events = run_claude(gateway.url, place(tmp_path), tmp_path)
        [(_, text)] = behind.turns(upstream)[-1].results
    assert events[-1]["result"] == "It failed."
    assert text.startswith("[tool error] ") is (behind is not MESSAGES)
    assert "Exit code 3" in text


def test_claude_code_betas_and_cache_marks_reach_a_messages_server(tmp_path: Path) -> None:
    """REQ-7, F-4: betas, adaptive thinking, system messages in the middle, cache marks; nothing is lost."""
    workplace = place(tmp_path)
    with MESSAGES.gateway(plan(workplace)) as (gateway, upstream):
        run_claude(gateway.url, workplace, tmp_path)
        assert {line["losses"] for line in gateway.requests(3)} == {0}
    last = upstream.received[-1]
    assert "context-management-" in last.headers["anthropic-beta"]
    assert last.json["context_management"]["edits"]
    assert last.json["thinking"] == {"type": "adaptive"}
    assert last.json["output_config"]["effort"]
    assert [message["role"] for message in last.json["messages"]] == ["user", "system", *["assistant", "user"] * 2]
    marked = [block for block in last.json["messages"][-1]["content"] if "cache_control" in block]
    assert [block["tool_use_id"] for block in marked] == ["call_3"]


@pytest.mark.parametrize(
    ("first", "second"), [(MESSAGES, RESPONSES), (RESPONSES, CHAT), (CHAT, MESSAGES)], ids=lambda behind: behind.profile
)
def test_claude_code_continues_with_another_server(first: Behind, second: Behind, tmp_path: Path) -> None:
    """RSN-3: the reasoning of the first server never reaches the second, which accepts the rest of the history."""
    workplace = place(tmp_path)
    with first.gateway(plan(workplace)) as (gateway, _):
        run_claude(gateway.url, workplace, tmp_path)
    more = {
        3: turn(testing.reasoning("Again."), call("call_4", "Bash", command="cat why.txt", description="Looks")),
        4: turn(testing.text("Done.")),
    }
    with second.gateway(more) as (gateway, upstream):
        events = run_claude(gateway.url, workplace, tmp_path, "--continue")
        last = second.turns(upstream)[-1]
    assert events[-1]["result"] == "Done."
    assert [id for id, _ in last.results] == ["call_1", "call_2", "call_3", "call_4"]
    assert WORDS.strip() in last.results[-1][1]
    assert last.thoughts == 1


@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_claude_code_requests_a_title_in_parallel(behind: Behind, tmp_path: Path) -> None:
    """REQ-1: as JSON by a schema, without tools; its traffic to other hosts is switched off by separate settings."""
    elsewhere = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    with behind.gateway({0: turn(testing.text("Hello."))}) as (gateway, upstream):
        events = run_claude(gateway.url, place(tmp_path), tmp_path, **elsewhere)
        gateway.requests(2)
    assert events[-1]["result"] == "Hello."
    assert sorted(bool(behind.read(received.json).tools) for received in upstream.received) == [False, True]


def place(folder: Path) -> Path:
    workplace = folder / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    return workplace


def plan(workplace: Path) -> dict[int, Reply]:
    """Reads; reads and writes at once; then answers that it is done."""
    look = "cat greeting.txt && echo looked > looked.txt"
    return {
        0: turn(
            testing.reasoning("I look ", "first."),
            testing.text("Let me ", "look."),
            call("call_1", "Bash", command=look, description="Looks"),
        ),
        1: turn(
            testing.reasoning("Now I know."),
            call("call_2", "Read", file_path=str(workplace / "greeting.txt")),
            call("call_3", "Write", file_path=str(workplace / "why.txt"), content=WORDS),
        ),
        3: turn(testing.text(LAST_WORDS[:12], LAST_WORDS[12:])),
    }


def run_claude(gateway: str, workplace: Path, home: Path, *options: str, **changes: str) -> list[dict[str, Any]]:
    """The output of `claude -p`, line by line."""
    *exports, asked = block("ANTHROPIC_BASE_URL").replace("http://127.0.0.1:8080", gateway).splitlines()
    environ = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    _, *documented = shlex.split(asked)
    command = [str(installed("claude")), *documented, *OPTIONS, *options]
    output = run(command, workplace, home, {**environ, "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1", **changes})
    return [msgspec.json.decode(line) for line in output.splitlines()]


# The commands are written above, so no permission is needed.
OPTIONS = ("--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
