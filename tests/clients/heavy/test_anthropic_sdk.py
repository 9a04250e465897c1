"""The Node SDK of Messages runs its tool runner through the gateway, over a server of each dialect.

The runner requests threads, which are not supported: it gets the refusal that it expects, and continues with whole
histories."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.clients.heavy.behind import SERVERS, Behind, call
from tests.clients.heavy.npm_programs import CLIENTS, run

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.heavy

PLAN = {
    0: turn(call("call_1", "look", path="greeting.txt"), call("call_2", "look", path="none.txt")),
    2: turn(call("call_3", "look", path="greeting.txt")),
    3: turn(testing.text("One of ", "them.")),
}


@pytest.mark.parametrize("how", ["stream", "whole"])
@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_tool_runner_of_the_node_sdk_continues_without_threads(behind: Behind, how: str, tmp_path: Path) -> None:
    """API-6, F-4: three turns after one refusal; the failed tool call is marked as failed at the server too."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    if not (CLIENTS / "@anthropic-ai" / "sdk").exists():
        pytest.fail("the Node SDK of Messages is not installed; run `make test-clients`")
    (tmp_path / "node_modules").symlink_to(CLIENTS)
    program = shutil.copy(Path(__file__).with_name("anthropic_sdk.mjs"), tmp_path)
    with behind.gateway(PLAN, statuses=(200, 400)) as (gateway, upstream):
        decoded = msgspec.json.decode(run(["node", str(program), gateway.url, how], workplace, tmp_path, {}))
        turns = behind.turns(upstream)
    assert decoded == {"text": "One of them.", "stop": "end_turn", "threads": ["create", None, None, None]}
    assert [[id for id, _ in each.results] for each in turns] == [
        [],
        ["call_1", "call_2"],
        ["call_1", "call_2", "call_3"],
    ]
    first, failed, _ = (text for _, text in turns[-1].results)
    assert first == "hello\n"
    assert "ENOENT" in failed
    assert failed.startswith("[tool error] ") is (behind.dialect != "messages")
