"""Codex completes a turn through the gateway: a shell command, a patch that really changes a file, a last word.

`make test-clients` installs it into `.clients` and runs this; `make test` does not. The upstream is strict: what real servers
refuse fails the test. Codex runs in a process group of its own, which is ended whatever happens.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.clients.blocks import block
from tests.running import running

from antiphon import config, fakes
from antiphon.fakes import ChatServer, Reply, ResponsesServer, turn

pytestmark = pytest.mark.heavy

CODEX = Path(__file__).parents[3] / ".clients" / "node_modules" / ".bin" / "codex"
SECONDS = 120
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
IN_THE_SHELL = Way("mock-1", ("exec_command", {"cmd": LOOK}), ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}EOF\n"}))
WAYS = pytest.mark.parametrize("way", [FREEFORM, IN_JAVASCRIPT, IN_THE_SHELL], ids=lambda way: way.model)


@WAYS
def test_codex_completes_a_turn_over_a_chat_server(way: Way, tmp_path: Path) -> None:
    with ChatServer(script(way), strict_fields=True) as upstream:
        said = turn_of_codex(way, upstream, tmp_path, {})
        assert upstream.refusals == []
    check_turn(said, tmp_path)
    called, looked = upstream.received[1].json["messages"][-2:]
    assert called["tool_calls"][0]["function"]["name"] == way.look[0]
    assert (looked["role"], looked["tool_call_id"]) == ("tool", "call_1")
    assert "hello" in looked["content"]


@WAYS
def test_codex_completes_a_turn_over_a_responses_server_that_knows_only_functions(way: Way, tmp_path: Path) -> None:
    profile = tmp_path / "plain.toml"
    profile.write_text(block("extension_tools"))
    with ResponsesServer(script(way)) as upstream:
        said = turn_of_codex(way, upstream, tmp_path, {"dialect": "responses", "profile": str(profile)})
        assert upstream.refusals == []
    check_turn(said, tmp_path)
    assert {tool["type"] for received in upstream.received for tool in received.json["tools"]} == {"function"}
    assert upstream.received[2].json["input"][-1]["call_id"] == "call_2"


def script(way: Way) -> list[Reply]:
    """Looks, then patches, then says that it is done."""
    return [
        turn(fakes.reasoning("I look ", "first."), fakes.text("Let me look."), call("call_1", *way.look)),
        turn(fakes.reasoning("Now I know."), call("call_2", *way.patch)),
        turn(fakes.text(LAST_WORDS[:12], LAST_WORDS[12:])),
    ]


def call(id: str, name: str, arguments: Mapping[str, str]) -> Any:
    """A call in pieces of seven characters, so that escapes are cut in two."""
    text = msgspec.json.encode(arguments).decode()
    return fakes.tool_call(id, name, *(text[at : at + 7] for at in range(0, len(text), 7)))


def turn_of_codex(way: Way, upstream: Any, folder: Path, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """What `codex exec --json` says, through a gateway configured as the documentation has it."""
    (documented,) = config.parse(block("[[upstreams]]"), "antiphon.toml", {}).upstreams
    assert documented.upstream_model("gpt-5.5") == "mock-1"
    models = [*documented.models, config.ModelRule(from_=way.model, to="mock-1")]
    served = msgspec.structs.replace(documented, base_url=upstream.base_url, models=models, **changes)
    workplace = folder / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    with running(config.Config(upstreams=[served])) as gateway:
        home = folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(block("model_providers").replace("http://127.0.0.1:8080", gateway.url))
        events = exec_codex(way, home, workplace)
        assert {line["status"] for line in gateway.requests(3)} == {200}
    assert {received.json["model"] for received in upstream.received} == {"mock-1"}
    return events


def exec_codex(way: Way, home: Path, workplace: Path) -> list[dict[str, Any]]:
    if not CODEX.exists():
        pytest.fail("Codex is not installed; run `make test-clients`")
    # No sandbox: it needs rights that a container rarely has, and what is run is written above.
    settings = ["--model", way.model, "--dangerously-bypass-approvals-and-sandbox", "-c", "analytics.enabled=false"]
    _, *documented = shlex.split(block("codex exec").splitlines()[-1])
    asked = [str(CODEX), *documented, "--json", *settings]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "ANTIPHON_API_KEY": "any"}
    with subprocess.Popen(
        asked,
        cwd=workplace,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            told, complaints = process.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, (told + complaints).decode()
    return [msgspec.json.decode(line) for line in told.splitlines()]


def check_turn(events: list[dict[str, Any]], folder: Path) -> None:
    workplace = folder / "workplace"
    assert (workplace / "looked.txt").read_text() == "looked\n"
    assert (workplace / "greeting.txt").read_text() == 'hello, "world" \\o/ 👋\n'
    assert (workplace / "notes" / "why.txt").read_text() == "Friendlier.\n"
    assert [event["type"] for event in events if event["type"].startswith("turn.")] == ["turn.started", "turn.completed"]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["text"] for item in items if item["type"] == "agent_message"] == ["Let me look.", LAST_WORDS]
    commands = [item for item in items if item["type"] == "command_execution"]
    assert [command["exit_code"] for command in commands] == [0]
    changed = [Path(change["path"]).name for item in items if item["type"] == "file_change" for change in item["changes"]]
    assert sorted(changed) == ["greeting.txt", "why.txt"]
