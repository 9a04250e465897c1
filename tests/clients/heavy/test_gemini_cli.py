"""Gemini CLI does a task through the gateway, over a server of each dialect: its router requests a score as JSON, by a
schema with types in capitals, then it reads two files, of which one does not exist, writes one, and answers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pytest
from tests.clients.blocks import block
from tests.clients.heavy.behind import SERVERS, Behind, call
from tests.clients.heavy.npm_programs import installed, run

from antiphon import testing
from antiphon.testing import turn

pytestmark = pytest.mark.heavy

LAST_WORDS = "The greeting is friendlier now."
SCORE = {"complexity_reasoning": "one file", "complexity_score": 10}


@pytest.mark.parametrize("routed", [True, False], ids=["routed", "one-model"])
@pytest.mark.parametrize("behind", SERVERS, ids=lambda behind: behind.profile)
def test_gemini_cli_completes_a_tool_loop(behind: Behind, routed: bool, tmp_path: Path) -> None:
    """API-6, F-4, REQ-1: the router's schema is accepted by every strict server; a failed tool call is marked as
    failed."""
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    (workplace / "greeting.txt").write_text("hello\n")
    settings = tmp_path / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(block("selectedType"))
    plan = {
        0: turn(
            call("call_1", "read_file", file_path="greeting.txt"), call("call_2", "read_file", file_path="none.txt")
        ),
        2: turn(call("call_3", "write_file", file_path="why.txt", content="Friendlier.\n")),
        3: turn(testing.text(LAST_WORDS[:12], LAST_WORDS[12:])),
    }
    with behind.gateway(plan, aside=json.dumps(SCORE)) as (gateway, upstream):
        *exports, asked = block("GOOGLE_GEMINI_BASE_URL").replace("http://127.0.0.1:8080", gateway.url).splitlines()
        environ = dict(line.removeprefix("export ").split("=", 1) for line in exports)
        _, *documented = shlex.split(asked.replace(" -m mock-1", "") if routed else asked)
        output = run([str(installed("gemini")), *documented, *OPTIONS], workplace, tmp_path, environ)
        turns = behind.turns(upstream)
        asides = [received.json for received in upstream.received if not behind.read(received.json).tools]
    assert msgspec.json.decode(output)["response"] == LAST_WORDS
    assert (workplace / "why.txt").read_text() == "Friendlier.\n"
    assert [len(each.results) for each in turns] == [0, 2, 3]
    read, failed, _ = (text for _, text in turns[-1].results)
    assert "hello" in read
    assert "not found" in failed
    assert failed.startswith("[tool error] ") is (behind.dialect != "messages")
    assert any("complexity_score" in json.dumps(body) for body in asides) is routed


# The commands are written above, so no permission is needed.
OPTIONS = ("--skip-trust", "--approval-mode", "yolo", "--output-format", "json")
