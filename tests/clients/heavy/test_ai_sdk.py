"""The AI SDK runs a loop of two tools through the gateway, with each of its providers, streaming and plain, over a
server of each dialect. Some of its providers drop reasoning that a server requires back; the gateway stores responses
here and restores it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import SERVERS, Behind, call
from tests.clients.heavy.npm_programs import CLIENTS, run

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."
WORDS = '"friendlier" \\o/ 👋\n'
PLAN = {
    0: turn(
        testing.reasoning("I look ", "first."),
        testing.text("Let me ", "look."),
        call("call_1", "look", path="greeting.txt"),
        testing.usage(100, 10),
    ),
    1: turn(
        testing.reasoning("Now I know."),
        call("call_2", "put", path="greeting.txt", text=WORDS),
        call("call_3", "put", path="why.txt", text="Friendlier."),
        testing.usage(200, 20),
    ),
    3: turn(testing.text(LAST_WORDS[:12], LAST_WORDS[12:]), testing.usage(300, 30)),
}


@pytest.mark.parametrize("how", ["stream", "generate"])
@pytest.mark.parametrize("provider", ["open-responses", "openai", "openai-chat", "anthropic"])
@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_ai_sdk_completes_a_tool_loop(behind: Behind, provider: str, how: str, tmp_path: Path) -> None:
    """RSN-2, API-6: three calls, two of them at once; results in order, reasoning returned to its server, usage
    summed."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    with behind.gateway(PLAN, f"sqlite:///{tmp_path}/antiphon.db") as (gateway, upstream):
        output = run_ai_sdk(provider, how, gateway.url, workplace, tmp_path)
        turns = behind.turns(upstream)
    assert (workplace / "greeting.txt").read_text() == WORDS
    assert (workplace / "why.txt").read_text() == "Friendlier."
    assert output["heard"] == "Let me look." + LAST_WORDS
    assert [step["finish"] for step in output["steps"]] == ["tool-calls", "tool-calls", "stop"]
    assert [step["calls"] for step in output["steps"]] == [["call_1"], ["call_2", "call_3"], []]
    in_order = [{"written": "greeting.txt"}, {"written": "why.txt"}]
    assert output["steps"][1]["results"] == (in_order[::-1] if how == "stream" else in_order)
    assert (output["usage"]["inputTokens"], output["usage"]["outputTokens"]) == (600, 60)
    assert [len(each.results) for each in turns] == [0, 1, 3]
    last = turns[-1]
    assert [(made.id, made.name) for made in last.calls] == [("call_1", "look"), ("call_2", "put"), ("call_3", "put")]
    assert [id for id, _ in last.results] == ["call_1", "call_2", "call_3"]
    assert last.results[0][1] == "hello\n"
    assert last.thoughts == 2


def run_ai_sdk(provider: str, how: str, gateway: str, workplace: Path, home: Path) -> dict[str, Any]:
    """The output of the program, which is placed beside its packages."""
    if not (CLIENTS / "ai").exists():
        pytest.fail("the AI SDK is not installed; run `make test-clients`")
    (home / "node_modules").symlink_to(CLIENTS)
    program = shutil.copy(Path(__file__).with_name("ai_sdk.mjs"), home)
    (home / "models.mjs").write_text(block("createOpenResponses").replace("http://127.0.0.1:8080", gateway))
    output = run(["node", str(program), provider, how], workplace, home, {})
    decoded: dict[str, Any] = msgspec.json.decode(output)
    return decoded
