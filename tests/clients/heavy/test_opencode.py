"""opencode does a task through the gateway with each of its providers, over a server of each dialect: it runs a
command, then reads and writes at once, then answers. In parallel it requests a title."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import CHAT, SERVERS, Behind, call
from tests.clients.heavy.npm_programs import installed, run

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."


@pytest.mark.parametrize("provider", ["responses", "messages", "chat"])
@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_opencode_completes_a_tool_loop(behind: Behind, provider: str, tmp_path: Path) -> None:
    """RSN-2, API-6: three calls, two of them at once; results in order, reasoning returned to its server."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    plan = {
        0: turn(
            testing.reasoning("I look ", "first."),
            testing.text("Let me ", "look."),
            call("call_1", "bash", command="cat greeting.txt && echo looked > looked.txt", description="Looks"),
        ),
        1: turn(
            testing.reasoning("Now I know."),
            call("call_2", "read", filePath=str(workplace / "greeting.txt")),
            call("call_3", "write", filePath=str(workplace / "why.txt"), content='"friendlier" \\o/ 👋\n'),
        ),
        3: turn(testing.text(LAST_WORDS[:12], LAST_WORDS[12:])),
    }
    with behind.gateway(plan) as (gateway, upstream):
        events = run_opencode(provider, gateway.url, workplace, tmp_path)
        turns = behind.turns(upstream)
    assert (workplace / "looked.txt").read_text() == "looked\n"
    assert (workplace / "why.txt").read_text() == '"friendlier" \\o/ 👋\n'
    assert [event["part"]["text"] for event in events if event["type"] == "text"] == ["Let me look.", LAST_WORDS]
    assert [len(each.results) for each in turns] == [0, 1, 3]
    last = turns[-1]
    assert [(made.id, made.name) for made in last.calls] == [
        ("call_1", "bash"),
        ("call_2", "read"),
        ("call_3", "write"),
    ]
    assert [id for id, _ in last.results] == ["call_1", "call_2", "call_3"]
    assert all("hello" in text for _, text in last.results[:2])
    # A chat client has no field for sealed reasoning: only a server that sends plain reasoning gets it back.
    assert last.thoughts == (0 if provider == "chat" and behind is not CHAT else 2)


def run_opencode(provider: str, gateway: str, workplace: Path, home: Path) -> list[dict[str, Any]]:
    """The output of `opencode run`, line by line."""
    (workplace / "opencode.json").write_text(block("opencode.ai/config.json").replace("http://127.0.0.1:8080", gateway))
    _, *documented = shlex.split(block("opencode run").replace("responses/", f"{provider}/"))
    output = run([str(installed("opencode")), *documented, "--format", "json", "--auto"], workplace, home, ALONE)
    return [msgspec.json.decode(line) for line in output.splitlines()]


# It contacts no other host: no update check, no model list, no language servers, no sharing.
ALONE = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_SHARE": "1",
}
