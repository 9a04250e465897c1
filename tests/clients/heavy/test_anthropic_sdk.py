"""The Node SDK of Messages runs its tool runner through the gateway, over a server of each dialect.

The runner requests a thread. With a store it sends only new messages, and the gateway has the rest; without one it gets the
refusal that it expects, and continues with whole histories."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clients.heavy.behind import GEMINI, SERVERS, Behind, Conversation, call
from tests.clients.heavy.npm_programs import CLIENTS, run

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.heavy

QUESTION = "Look at both files."
PLAN = {
    0: turn(
        testing.reasoning("I look."),
        call("call_1", "look", path="greeting.txt"),
        call("call_2", "look", path="none.txt"),
    ),
    2: turn(testing.reasoning("Again."), call("call_3", "look", path="greeting.txt")),
    3: turn(testing.text("One of ", "them.")),
}


@pytest.mark.parametrize("how", ["stream", "whole"])
@pytest.mark.parametrize("behind", [*SERVERS, GEMINI], ids=lambda behind: behind.profile)
def test_tool_runner_of_the_node_sdk_continues_its_thread(behind: Behind, how: str, tmp_path: Path) -> None:
    """API-7, RSN-2: the client sends each message once; the server gets every message once, with its own reasoning."""
    with behind.gateway(PLAN, f"sqlite:///{tmp_path}/antiphon.db") as (gateway, upstream):
        output = run_tool_runner(gateway.url, how, tmp_path)
        turns = behind.turns(upstream)
        last = upstream.received[-1].body.decode()
    assert (output["text"], output["stop"]) == ("One of them.", "end_turn")
    threads = [request.get("thread") for request in output["requests"]]
    created = [message["id"] for message in output["messages"]]
    assert threads[0] == {"type": "create"}
    assert threads[1:] == [{"type": "continue", "previous_message_id": id} for id in created[:2]]
    assert [len(request["messages"]) for request in output["requests"]] == [1, 1, 1]
    check_turns(behind, turns)
    assert turns[-1].thoughts == 2
    assert last.count(QUESTION) == 1


@pytest.mark.parametrize("how", ["stream", "whole"])
@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_tool_runner_of_the_node_sdk_continues_without_threads(behind: Behind, how: str, tmp_path: Path) -> None:
    """API-6, API-7, F-4: three turns after one refusal."""
    with behind.gateway(PLAN, statuses=(200, 400)) as (gateway, upstream):
        output = run_tool_runner(gateway.url, how, tmp_path)
        turns = behind.turns(upstream)
    assert (output["text"], output["stop"]) == ("One of them.", "end_turn")
    assert [request.get("thread") for request in output["requests"]] == [{"type": "create"}, None, None, None]
    check_turns(behind, turns)


def run_tool_runner(gateway: str, how: str, folder: Path) -> dict[str, Any]:
    """The output of the program, which is placed beside its packages."""
    workplace = folder / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    if not (CLIENTS / "@anthropic-ai" / "sdk").exists():
        pytest.fail("the Node SDK of Messages is not installed; run `make test-clients`")
    (folder / "node_modules").symlink_to(CLIENTS)
    program = shutil.copy(Path(__file__).with_name("anthropic_sdk.mjs"), folder)
    output: dict[str, Any] = msgspec.json.decode(
        run(["node", str(program), gateway, how, QUESTION], workplace, folder, {})
    )
    return output


def check_turns(behind: Behind, turns: list[Conversation]) -> None:
    """The results of each turn; the failed call is marked as failed at the server too."""
    ids = ["call_1", "call_2", "call_3"]
    assert [[id for id, _ in each.results] for each in turns] == [[], ids[:2], ids]
    assert [made.id for made in turns[-1].calls] == ids
    first, failed, _ = (text for _, text in turns[-1].results)
    assert first == "hello\n"
    assert "ENOENT" in failed
    assert failed.startswith("[tool error] ") is (behind.dialect != "messages")
