"""Codex completes a turn through the gateway: a shell command, a patch that really changes a file, a final answer. Over
a WebSocket it continues with a second turn.

`make test-clients` installs it into `.clients` and runs these tests; `make test` does not. The upstream is strict: a
request that real servers refuse fails the test."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import CHAT, MESSAGES, RESPONSES
from tests.clients.heavy.npm_programs import installed, run
from tests.running import running

from antiphon import config, testing
from antiphon.store.opening import open_store
from antiphon.testing import ChatServer, MessagesServer, Reply, ResponsesServer, turn
from antiphon.trace.reader import list_traces, read_trace

pytestmark = pytest.mark.heavy

PATCH = """\
*** Begin Patch
*** Update File: greeting.txt
@@
-hello
+hello, "world" \\o/ 👋
*** Add File: notes/why.txt
+Friendlier.
*** End Patch
"""
LOOK = "cat greeting.txt && echo looked > looked.txt"
LAST_WORDS = "The greeting is friendlier now."


class Way(NamedTuple):
    """How a model of this name runs a command and applies a patch: the tool, and its arguments."""

    model: str
    look: tuple[str, dict[str, str]]
    patch: tuple[str, dict[str, str]]


def javascript(tool: str, given: Any) -> tuple[str, dict[str, str]]:
    return "functions__exec", {"input": f"text(await tools.{tool}({msgspec.json.encode(given).decode()}));"}


FREEFORM = Way("gpt-5.5", ("exec_command", {"cmd": LOOK}), ("apply_patch", {"input": PATCH}))
IN_JAVASCRIPT = Way("gpt-6.1-sol", javascript("exec_command", {"cmd": LOOK}), javascript("apply_patch", PATCH))
IN_THE_SHELL = Way(
    "mock-1", ("exec_command", {"cmd": LOOK}), ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}EOF\n"})
)
WAYS = pytest.mark.parametrize("way", [FREEFORM, IN_JAVASCRIPT, IN_THE_SHELL], ids=lambda way: way.model)


@WAYS
def test_codex_completes_a_turn_over_a_chat_server(way: Way, tmp_path: Path) -> None:
    with ChatServer(script(way), strict_fields=True) as upstream:
        lines = turn_of_codex(way, upstream, tmp_path, {})
        assert upstream.refusals == []
    check_turn(lines, tmp_path)
    called, looked = upstream.received[1].json["messages"][-2:]
    assert called["tool_calls"][0]["function"]["name"] == way.look[0]
    assert (looked["role"], looked["tool_call_id"]) == ("tool", "call_1")
    assert "hello" in looked["content"]


@WAYS
def test_codex_completes_a_turn_over_a_responses_server_with_functions_only(way: Way, tmp_path: Path) -> None:
    profile = tmp_path / "plain.toml"
    profile.write_text(block("extension_tools"))
    with ResponsesServer(script(way)) as upstream:
        lines = turn_of_codex(way, upstream, tmp_path, {"dialect": "responses", "profile": str(profile)})
        assert upstream.refusals == []
    check_turn(lines, tmp_path)
    assert {tool["type"] for received in upstream.received for tool in received.json["tools"]} == {"function"}
    assert upstream.received[2].json["input"][-1]["call_id"] == "call_2"


def test_codex_returns_reasoning_to_a_chat_server(tmp_path: Path) -> None:
    """RSN-2: a server that refuses a call without its reasoning."""
    with ChatServer(script(FREEFORM), strict_fields=True, wants_reasoning=True) as upstream:
        lines = turn_of_codex(FREEFORM, upstream, tmp_path, {"profile": "deepseek"})
        assert upstream.refusals == []
    check_turn(lines, tmp_path)
    assert CHAT.read(upstream.received[2].json).thoughts == 2


@WAYS
def test_codex_completes_a_turn_over_a_messages_server(way: Way, tmp_path: Path) -> None:
    """RSN-2: with its signed reasoning, which Codex stores sealed."""
    with MessagesServer(script(way), system_messages=True) as upstream:
        lines = turn_of_codex(way, upstream, tmp_path, {"dialect": "messages", "profile": "anthropic"})
        assert upstream.refusals == []
    check_turn(lines, tmp_path)
    last = MESSAGES.read(upstream.received[2].json)
    assert [(made.id, made.name) for made in last.calls] == [("call_1", way.look[0]), ("call_2", way.patch[0])]
    assert [id for id, _ in last.results] == ["call_1", "call_2"]
    assert "hello" in last.results[0][1]
    assert last.thoughts == 2


def test_codex_completes_a_turn_over_a_responses_server_with_its_tools(tmp_path: Path) -> None:
    """RSN-2: tools and sealed reasoning are forwarded unchanged."""
    replies = script(FREEFORM)
    replies[1] = turn(
        testing.reasoning("Now I know."), testing.custom_call("call_2", "apply_patch", PATCH[:30], PATCH[30:])
    )
    with ResponsesServer(replies, own_tools=["web_search", "namespace", "tool_search"]) as upstream:
        lines = turn_of_codex(FREEFORM, upstream, tmp_path, {"dialect": "responses", "profile": "openai"})
        assert upstream.refusals == []
    check_turn(lines, tmp_path)
    last = RESPONSES.read(upstream.received[2].json)
    assert [made.arguments for made in last.calls] == [{"cmd": LOOK}, {"input": PATCH}]
    assert [id for id, _ in last.results] == ["call_1", "call_2"]
    assert last.thoughts == 2


WEBSOCKET = "supports_websockets = true"


def test_codex_continues_a_session_over_a_websocket(tmp_path: Path) -> None:
    """WS-1, WS-2, WS-5, PREV-4: each run warms up its connection, then sends only new items; nothing is stored."""
    look = call("call_1", "exec_command", {"cmd": "echo looked >> looked.txt"})
    again = call("call_2", "exec_command", {"cmd": "cat looked.txt"})
    replies = [
        turn(testing.reasoning("I look."), look),
        turn(testing.text("Done.")),
        turn(again),
        turn(testing.text("Done again.")),
    ]
    with ChatServer(replies, strict_fields=True) as upstream:
        served = config.UpstreamConfig(name="lab", dialect="chat", base_url=upstream.base_url)
        store = config.StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db")
        traces = config.TraceConfig(dir=str(tmp_path / "traces"))
        with running(config.Config(upstreams=[served], store=store, trace=traces)) as gateway:
            home, workplace = places(tmp_path, gateway.url, WEBSOCKET)
            first = exec_codex(FREEFORM, home, workplace)
            second = exec_codex(
                FREEFORM, home, workplace, ["exec", "resume", "--last", "--skip-git-repo-check", "And again."]
            )
            lines = gateway.requests(6)
        assert upstream.refusals == []
    assert [(line["method"], line["status"]) for line in lines] == [("WEBSOCKET", 200)] * 6
    assert asyncio.run(count_stored(store)) == 0
    assert [message_of(events) for events in (first, second)] == ["Done.", "Done again."]
    assert [event["type"] for event in second if event["type"].startswith("turn.")] == [
        "turn.started",
        "turn.completed",
    ]
    (looked,) = [event["item"] for event in second if event["type"] == "item.completed" and "command" in event["item"]]
    assert looked["aggregated_output"] == "looked\n"
    warm, asked, answered = requests_in(tmp_path / "traces")[3:]
    assert warm["generate"] is False
    assert warm["store"] is False
    assert asked["previous_response_id"]
    assert [item["type"] for item in answered["input"]] == ["function_call_output"]
    calls = [
        message["tool_calls"][0]["id"] for message in upstream.received[3].json["messages"] if "tool_calls" in message
    ]
    assert calls == ["call_1", "call_2"]


def test_codex_falls_back_to_http_if_websockets_are_disabled(tmp_path: Path) -> None:
    with ChatServer([turn(testing.text(LAST_WORDS))], strict_fields=True) as upstream:
        served = config.UpstreamConfig(name="lab", dialect="chat", base_url=upstream.base_url)
        server = config.ServerConfig(websocket=False)
        with running(config.Config(upstreams=[served], server=server)) as gateway:
            home, workplace = places(tmp_path, gateway.url, WEBSOCKET)
            output = exec_codex(FREEFORM, home, workplace)
            lines = gateway.requests(1)
    assert message_of(output) == LAST_WORDS
    assert [(line["method"], line["status"]) for line in lines] == [("POST", 200)]


async def count_stored(url: config.StoreConfig) -> int:
    store = await open_store(url, {})
    assert store is not None
    try:
        return (await store.stats()).responses
    finally:
        await store.close()


def message_of(events: list[dict[str, Any]]) -> str:
    """Codex's final answer."""
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return str([item["text"] for item in items if item["type"] == "agent_message"][-1])


def requests_in(folder: Path) -> list[dict[str, Any]]:
    """The messages that Codex sent."""
    requests = [read_trace(folder, summary.id).client_request for summary in list_traces(folder)]
    return [msgspec.json.decode(each.body.raw) for each in requests if each is not None]


def script(way: Way) -> list[Reply]:
    """Reads, then patches, then answers that it is done."""
    return [
        turn(testing.reasoning("I look ", "first."), testing.text("Let me look."), call("call_1", *way.look)),
        turn(testing.reasoning("Now I know."), call("call_2", *way.patch)),
        turn(testing.text(LAST_WORDS[:12], LAST_WORDS[12:])),
    ]


def call(id: str, name: str, arguments: Mapping[str, str]) -> Any:
    """A call in pieces of seven characters, so that escapes are cut in two."""
    text = msgspec.json.encode(arguments).decode()
    return testing.tool_call(id, name, *(text[at : at + 7] for at in range(0, len(text), 7)))


def turn_of_codex(way: Way, upstream: Any, folder: Path, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The output of `codex exec --json`, through a gateway configured as documented."""
    (documented,) = config.parse_config(block("[[upstreams]]"), "antiphon.toml", {}).upstreams
    assert documented.upstream_model("gpt-5.5") == "mock-1"
    models = [*documented.models, config.ModelRule(from_=way.model, to="mock-1")]
    served = msgspec.structs.replace(documented, base_url=upstream.base_url, models=models, **changes)
    with running(config.Config(upstreams=[served])) as gateway:
        home, workplace = places(folder, gateway.url)
        (workplace / "greeting.txt").write_text("hello\n")
        events = exec_codex(way, home, workplace)
        assert {line["status"] for line in gateway.requests(3)} == {200}
    assert {received.json["model"] for received in upstream.received} == {"mock-1"}
    return events


def places(folder: Path, gateway: str, *settings: str) -> tuple[Path, Path]:
    """Codex's home, with the documented configuration and more settings for the provider, and a folder to work in."""
    home, workplace = folder / "home", folder / "workplace"
    home.mkdir()
    workplace.mkdir()
    documented = block("model_providers").replace("http://127.0.0.1:8080", gateway)
    (home / "config.toml").write_text("\n".join([documented, *settings]))
    return home, workplace


def exec_codex(way: Way, home: Path, workplace: Path, command: Sequence[str] = ()) -> list[dict[str, Any]]:
    # No sandbox: it needs rights that a container rarely has, and the commands are written above.
    settings = ["--model", way.model, "--dangerously-bypass-approvals-and-sandbox", "-c", "analytics.enabled=false"]
    _, *documented = shlex.split(block("codex exec").splitlines()[-1])
    asked = [str(installed("codex")), *(command or documented), "--json", *settings]
    output = run(asked, workplace, home, {"CODEX_HOME": str(home), "ANTIPHON_API_KEY": "any"})
    return [msgspec.json.decode(line) for line in output.splitlines()]


def check_turn(events: list[dict[str, Any]], folder: Path) -> None:
    workplace = folder / "workplace"
    assert (workplace / "looked.txt").read_text() == "looked\n"
    assert (workplace / "greeting.txt").read_text() == 'hello, "world" \\o/ 👋\n'
    assert (workplace / "notes" / "why.txt").read_text() == "Friendlier.\n"
    assert [event["type"] for event in events if event["type"].startswith("turn.")] == [
        "turn.started",
        "turn.completed",
    ]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["Let me look.", LAST_WORDS]
    commands = [item for item in items if item["type"] == "command_execution"]
    assert [command["exit_code"] for command in commands] == [0]
    changed = [
        Path(change["path"]).name for item in items if item["type"] == "file_change" for change in item["changes"]
    ]
    assert sorted(changed) == ["greeting.txt", "why.txt"]
