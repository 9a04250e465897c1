"""Codex compacts a session through the gateway, over HTTP and over a WebSocket: its trigger gives one compaction, and
it continues from there. With a provider named OpenAI it does so by itself, once a turn has used more tokens than
allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.heavy.test_codex import FREEFORM, WEBSOCKET, call, exec_codex, message_of, places, requests_in
from tests.running import running

from antiphon import config, testing
from antiphon.gateway.compactor import SUMMARY_INSTRUCTIONS
from antiphon.testing import ChatServer, ReceivedRequest, Reply, turn

pytestmark = pytest.mark.heavy

NOTES = "The user wants looked.txt; it was written."


@pytest.mark.parametrize("settings", [[], [WEBSOCKET]], ids=["http", "websocket"])
def test_codex_compacts_during_a_turn_and_continues(settings: list[str], tmp_path: Path) -> None:
    """CMP-1, CMP-3: exactly one compaction item, which is sent back as input and informs the following turns."""
    replies: list[Reply] = [
        turn(call("call_1", "exec_command", {"cmd": "echo looked >> looked.txt"}), testing.usage(50_000, 10)),
        turn(testing.text("Done."), testing.usage(500, 10)),
    ]

    def script(received: ReceivedRequest) -> Reply:
        is_summary = received.json["messages"][0]["content"] == SUMMARY_INSTRUCTIONS
        return turn(testing.text(NOTES), testing.usage(50_000, 20)) if is_summary else replies.pop(0)

    with ChatServer(script, strict_fields=True) as upstream:
        served = config.UpstreamConfig(name="lab", dialect="chat", base_url=upstream.base_url)
        traces = config.TraceConfig(dir=str(tmp_path / "traces"))
        with running(config.Config(upstreams=[served], trace=traces)) as gateway:
            home, workplace = places(tmp_path, gateway.url, *settings)
            written = (home / "config.toml").read_text()
            named = "\n".join(
                'name = "OpenAI"' if line.startswith("name = ") else line for line in written.splitlines()
            )
            (home / "config.toml").write_text(f"model_auto_compact_token_limit = 20000\n{named}\n")
            events = exec_codex(FREEFORM, home, workplace)
            assert {line["status"] for line in gateway.requests(3)} == {200}
        assert upstream.refusals == []
    assert message_of(events) == "Done."
    sent = [request for request in requests_in(tmp_path / "traces") if request.get("generate") is not False]
    triggers = [request for request in sent if request["input"][-1]["type"] == "compaction_trigger"]
    assert len(triggers) == 1
    assert [item["type"] for item in sent[-1]["input"]].count("compaction") == 1
    last = upstream.received[-1].json["messages"]
    assert any(NOTES in str(message["content"]) for message in last)
    assert not any("antiphon1." in str(message) for message in last)
    assert sum("looked" in str(message.get("content")) and message["role"] == "tool" for message in last) <= 1
