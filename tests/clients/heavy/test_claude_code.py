"""Claude Code does a task through the gateway, over a server of each dialect: it runs a command, then reads and writes
at once, and answers. Its other fields (betas, adaptive thinking, system messages in the middle, cache marks) are
forwarded or left out, and no strict server refuses them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import CHAT, GEMINI, MESSAGES, PLAIN_MESSAGES, RESPONSES, SERVERS, Behind, call
from tests.clients.heavy.npm_programs import installed, run
from tests.running import running

from antiphon import config, testing
from antiphon.testing import (
    ChatServer,
    FakeServer,
    MessagesServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    turn,
)

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."
WORDS = '"friendlier" \\o/ 👋\n'


@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
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


def test_claude_code_system_messages_reach_a_plain_messages_server_as_user_text(tmp_path: Path) -> None:
    """RSN-3: the server refuses their role once; the rest of the session has them in the other form."""
    workplace = place(tmp_path)
    with PLAIN_MESSAGES.gateway(plan(workplace), refusals=1) as (gateway, upstream):
        events = run_claude(gateway.url, workplace, tmp_path)
        turns = PLAIN_MESSAGES.turns(upstream)
    assert (events[-1]["is_error"], events[-1]["result"]) == (False, LAST_WORDS)
    assert [len(each.results) for each in turns] == [0, 0, 1, 3]
    assert turns[-1].thoughts == 2


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
    with behind.gateway({0: turn(testing.text("Hello."))}) as (gateway, upstream):
        events = run_claude(gateway.url, place(tmp_path), tmp_path, **ELSEWHERE)
        gateway.requests(2)
    assert events[-1]["result"] == "Hello."
    assert sorted(bool(behind.read(received.json).tools) for received in upstream.received) == [False, True]


def test_claude_code_web_search_is_reported_as_unavailable(tmp_path: Path) -> None:
    """REQ-6: its search is a request of its own; an answer without the search would look like results."""
    plan = {
        0: turn(call("call_1", "WebSearch", query="weather in Rome")),
        1: turn(testing.text("I cannot search.")),
    }
    with CHAT.gateway(plan, statuses=(200, 400)) as (gateway, upstream):
        events = run_claude(gateway.url, place(tmp_path), tmp_path)
        [(_, text)] = CHAT.turns(upstream)[-1].results
    assert events[-1]["result"] == "I cannot search."
    assert "'web_search_20250305' is unavailable" in text


def test_claude_code_web_search_is_served_by_a_server_that_has_one(tmp_path: Path) -> None:
    def reply(received: ReceivedRequest) -> Reply:
        if received.json.get("tools") == [{"type": "web_search"}]:
            return turn(testing.text("It rains in Rome."))
        if "It rains in Rome." in received.body.decode():
            return turn(testing.text("Rain."))
        return turn(call("call_1", "WebSearch", query="weather in Rome"))

    with ResponsesServer(reply, strict_fields=True, own_tools=["web_search"]) as upstream:
        served = config.UpstreamConfig(name="lab", dialect="responses", base_url=upstream.base_url, profile="openai")
        with running(config.Config(upstreams=[served])) as gateway:
            events = run_claude(gateway.url, place(tmp_path), tmp_path)
    assert events[-1]["result"] == "Rain."


@pytest.mark.parametrize("behind", [*SERVERS, GEMINI], ids=lambda behind: behind.profile)
def test_claude_code_calls_an_mcp_tool_with_a_long_name(behind: Behind, tmp_path: Path) -> None:
    """TOOL-1: 128 characters, which servers of Messages accept, and others up to 64; the call arrives at the tool."""
    workplace = place(tmp_path)
    servers = {"notes": {"command": sys.executable, "args": [str(MCP_SERVER), str(workplace / "called.txt")]}}
    settings = tmp_path / "mcp.json"
    settings.write_text(msgspec.json.encode({"mcpServers": servers}).decode())
    name = f"mcp__notes__{'read_the_note_' * 8}now"

    def reply(received: ReceivedRequest) -> Reply:
        conversation = behind.read(received.json)
        if conversation.results:
            return turn(testing.text("It says hello."))
        [offered] = [tool for tool in conversation.tools if "read_the_note" in tool]
        return turn(call("call_1", offered, title="greeting"))

    with behind.gateway(reply) as (gateway, upstream):
        events = run_claude(gateway.url, workplace, tmp_path, "--mcp-config", str(settings), "--strict-mcp-config")
        [(_, text)] = behind.turns(upstream)[-1].results
        names = {tool for each in behind.turns(upstream) for tool in each.tools if "read_the_note" in tool}
    assert events[-1]["result"] == "It says hello."
    assert "The note greeting says hello." in text
    assert (workplace / "called.txt").read_text() == "greeting"
    uses = [
        block["name"]
        for event in events
        if event["type"] == "assistant"
        for block in event["message"]["content"]
        if block["type"] == "tool_use"
    ]
    assert uses == [name]
    assert len(name) > 64
    assert names == {name} or all(len(each) <= 64 for each in names)


@pytest.mark.parametrize(
    ("dialect", "profile", "serve"),
    [
        ("responses", "azure", lambda script: ResponsesServer(script, plain_models=["mock-1"])),
        ("messages", "messages", lambda script: MessagesServer(script, thinking=["disabled"])),
        ("messages", "anthropic", lambda script: MessagesServer(script, thinking=["disabled"], system_messages=True)),
        ("chat", "deepseek", lambda script: ChatServer(script, strict_fields=True)),
    ],
)
def test_claude_code_works_with_models_that_do_not_think(
    dialect: Any, profile: str, serve: Callable[..., FakeServer], tmp_path: Path
) -> None:
    """RSN-3, RSN-4: it requests thinking of every model. What a server refuses is left out, now and later."""
    with serve(lambda _: turn(testing.text("Hello."))) as upstream:
        served = config.UpstreamConfig(name="lab", dialect=dialect, base_url=upstream.base_url, profile=profile)
        with running(config.Config(upstreams=[served])) as gateway:
            workplace = place(tmp_path)
            results = [run_claude(gateway.url, workplace, tmp_path)[-1]["result"] for _ in range(2)]
            assert {line["status"] for line in gateway.requests(2)} == {200}
        assert len(upstream.refusals) <= 2
    assert results == ["Hello.", "Hello."]


def test_claude_code_discovers_models_by_their_aliases(tmp_path: Path) -> None:
    """API-5: it requests the list with `anthropic-version`, and keeps names that begin with `claude`."""
    workplace = place(tmp_path)
    with ChatServer(lambda _: turn(testing.text("Hello.")), models=["mock-1"]) as upstream:
        served = config.UpstreamConfig(name="lab", dialect="chat", base_url=upstream.base_url, models=["mock-1"])
        server = config.ServerConfig(claude_aliases=True)
        with running(config.Config(upstreams=[served], server=server)) as gateway:
            discovery = {"CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1", **ELSEWHERE}
            events = run_claude(gateway.url, workplace, tmp_path, "--model", "claude-via-mock-1", **discovery)
            lines = gateway.requests(2)
        assert upstream.refusals == []
    assert events[-1]["result"] == "Hello."
    assert ("GET", "/v1/models", 200) in {(line["method"], line["path"], line["status"]) for line in lines}
    caches = [path.read_text() for path in (tmp_path / ".claude").rglob("*.json")] + [
        (tmp_path / ".claude.json").read_text()
    ]
    assert any("claude-via-mock-1" in text for text in caches)
    assert {received.json["model"] for received in upstream.received if received.method == "POST"} == {"mock-1"}


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
MCP_SERVER = Path(__file__).with_name("mcp_server.py")
# Its traffic to other hosts is switched off by separate settings.
ELSEWHERE = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1"}
