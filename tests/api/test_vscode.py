"""The endpoints of editors, over sockets: a running gateway before strict servers, called as the extension calls it."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.dialects.vscode.reading import ASSISTANT, CALL, RESULT, SYSTEM, USER, data, lines_in, message
from tests.running import one_upstream, read_all, running

from antiphon import testing
from antiphon.config import KeyConfig, TraceConfig, UpstreamConfig
from antiphon.gateway.replay import replay_trace
from antiphon.testing import ChatServer, Gate, MessagesServer, turn
from antiphon.trace.reader import read_trace

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
CHAT, COUNT, MODELS = "/v1/vscode/chat", "/v1/vscode/count_tokens", "/v1/vscode/models"
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
CALLING = turn(
    testing.text("Looking."), testing.tool_call("call_1", "look", '{"path":', '"a.py"}'), testing.usage(5, 2)
)
TOOL = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
ASKED: dict[str, Any] = {"model": "mock-1", "messages": [message(USER, "Say hello.")]}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "vscode.md"
KEY = "alice-key-that-nobody-may-see-0123456789"


def test_chat_stream_is_lines_of_parts_with_a_final_status() -> None:
    """A-8, C-4."""
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(ASKED, CHAT)
        assert upstream.refusals == []
        [line] = gateway.requests(1)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    *parts, end = lines_in(answer.content)
    assert "".join(part["value"] for part in parts) == "Hello."
    assert (end["type"], end["status"], end["usage"]["inputTokens"]) == ("done", "completed", 5)
    assert (line["path"], line["model"], line["input_tokens"]) == (CHAT, "mock-1", 5)


def test_conversation_with_system_prompt_tools_and_results_reaches_a_strict_server() -> None:
    """A-1 … A-7, C-1: in one body, as an editor's agent sends it."""
    asked = {
        "model": "mock-1",
        "messages": [
            message(SYSTEM, "You are an expert."),
            {**message(USER, "What is in a.py?", data(b"note", "text/plain")), "name": "ann"},
            message(ASSISTANT, "Looking.", CALL),
            message(USER, RESULT),
        ],
        "options": {"tools": [TOOL], "toolMode": 2, "modelOptions": {"temperature": 0}},
    }
    with ChatServer([CALLING]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(asked, CHAT)
        assert upstream.refusals == []
        sent = upstream.received[0].json
    assert [entry["role"] for entry in sent["messages"]] == ["system", "user", "assistant", "tool"]
    assert sent["messages"][0]["content"] == "You are an expert."
    assert sent["messages"][2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"path":"a.py"}'}
    assert (sent["tool_choice"], sent["temperature"]) == ("required", 0)
    text, call, _ = lines_in(answer.content)
    assert text == {"type": "text", "value": "Looking."}
    assert call == {"type": "tool_call", "callId": "call_1", "name": "look", "input": {"path": "a.py"}}
    assert answer.headers["antiphon-losses"] == "1; messages[1].name"


def test_thinking_is_sealed_and_returned_to_its_server() -> None:
    """A-8, RSN-2."""
    thought = turn(testing.reasoning("Hm."), testing.text("So."), testing.usage(5, 2))
    with (
        MessagesServer([thought, HELLO]) as upstream,
        running(one_upstream(upstream.base_url, dialect="messages")) as gateway,
    ):
        options = {"modelOptions": {"reasoning": {"effort": "low"}}}
        *parts, _ = lines_in(gateway.post({**ASKED, "options": options}, CHAT).content)
        assert [part["type"] for part in parts if part["value"]] == ["thinking", "text"]
        history = [*ASKED["messages"], {"role": ASSISTANT, "content": parts}, message(USER, "And?")]
        assert gateway.post({"model": "mock-1", "messages": history, "options": options}, CHAT).status_code == 200
        assert upstream.refusals == []
        back = upstream.received[1].json["messages"][1]["content"]
    assert (back[0]["type"], back[0]["thinking"], back[1]["text"]) == ("thinking", "Hm.", "So.")


def test_plain_answer_has_the_same_parts_as_the_stream() -> None:
    """A-8, STR-14."""
    with ChatServer([CALLING]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post({**ASKED, "stream": False, "options": {"tools": [TOOL]}}, CHAT).json()
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]
    assert answer["end"]["status"] == "completed"


def test_keepalive_is_a_blank_line() -> None:
    """HTTP-7."""
    gate = Gate()
    with ChatServer([turn(testing.wait(gate), testing.text("Hello."))]) as upstream:
        with running(one_upstream(upstream.base_url), first_byte_timeout=0.01, keepalive_interval=0.01) as gateway:
            body = msgspec.json.encode(ASKED)
            head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
            with gateway.connect() as connection:
                connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                written = connection.recv(65536)
                while b"\r\n\n\r\n" not in written:
                    written += connection.recv(65536)
                gate.open()
                written += read_all(connection)
    assert b"Hello." in written
    assert b": waiting" not in written


def test_failure_during_the_stream_is_the_last_line() -> None:
    """STR-8."""
    with (
        ChatServer([turn(testing.text("Hel"), testing.end("mid-chunk"))]) as upstream,
        running(one_upstream(upstream.base_url)) as gateway,
    ):
        *_, last = lines_in(gateway.post(ASKED, CHAT).content)
    assert last["type"] == "error"
    assert last["error"]["code"].startswith("upstream_")


@pytest.mark.parametrize(
    ("asked", "status", "name"),
    [
        ({**ASKED, "model": "other"}, 404, "NotFound"),
        ({"model": "mock-1", "messages": []}, 400, None),
    ],
)
def test_refusals_have_the_error_names_of_the_editor(asked: Any, status: int, name: str | None) -> None:
    """ERR-1: at both endpoints."""
    with ChatServer() as upstream:
        config = one_upstream(upstream.base_url)
        config = replace(config, upstreams=[replace(config.upstreams[0], models=["mock-1"])])
        with running(config) as gateway:
            for path in (CHAT, COUNT):
                answer = gateway.post(asked, path)
                assert (answer.status_code, answer.json()["error"].get("name")) == (status, name)


def test_vscode_endpoints_require_a_key() -> None:
    """HTTP-6."""
    with ChatServer([HELLO]) as upstream:
        config = replace(one_upstream(upstream.base_url), keys=[KeyConfig(name="alice", env="ALICE")])
        with running(config, environ={"ALICE": KEY}) as gateway:
            refused = gateway.get(MODELS)
            assert (refused.status_code, refused.json()["error"]["name"]) == (401, "NoPermissions")
            assert gateway.post(ASKED, CHAT, authorization=f"Bearer {KEY}").status_code == 200


def test_strict_mode_refuses_lossy_messages() -> None:
    """F-4, REQ-6."""
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        named = {**ASKED, "messages": [{**message(USER, "hi"), "name": "ann"}]}
        answer = gateway.post(named, CHAT, antiphon_losses="strict")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "lossy_translation")


def test_model_list_has_the_fields_of_the_editor() -> None:
    """A-8."""
    with ChatServer(models=["mock-1"]) as upstream:
        big = UpstreamConfig(
            name="big",
            dialect="chat",
            base_url=upstream.base_url,
            models=["mock-large-2026-01-31"],
            context={"mock-large-*": 200_000},
        )
        blind = UpstreamConfig(
            name="blind",
            dialect="responses",
            base_url=upstream.base_url,
            models=["mock-*"],
            profile="vercel-ai-gateway-2026-01",
        )
        with running(replace(one_upstream(upstream.base_url), upstreams=[big, blind])) as gateway:
            listed = gateway.get(MODELS).json()["models"]
    assert listed[0] == {
        "id": "mock-large-2026-01-31",
        "name": "mock-large-2026-01-31",
        "family": "mock-large",
        "version": "2026-01-31",
        "tooltip": "mock-large-2026-01-31: model mock-large-2026-01-31 of upstream big",
        "detail": "big",
        "maxInputTokens": 183_616,
        "maxOutputTokens": 16_384,
        "capabilities": {"imageInput": True, "toolCalling": True},
    }
    assert (listed[1]["id"], listed[1]["family"], listed[1]["version"]) == ("mock-1", "mock-1", "latest")
    assert listed[1]["maxInputTokens"] + listed[1]["maxOutputTokens"] >= 8192


@pytest.mark.parametrize(
    "text",
    [
        "How long is this?",
        message(USER, "How long is this?"),
        message(ASSISTANT, CALL),
        message(USER, RESULT),
        message(SYSTEM, "You are an expert."),
    ],
)
def test_count_of_one_text_or_message_is_estimated_without_an_upstream_call(text: Any) -> None:
    """An editor counts every message alone, a result without its call too."""
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post({"model": "mock-1", "text": text}, COUNT)
        assert upstream.received == []
    assert 3 <= answer.json()["count"] <= 20
    assert answer.headers["antiphon-estimated"] == "true"


def test_count_of_a_conversation_uses_the_upstream_count() -> None:
    """API-3."""
    with (
        MessagesServer() as upstream,
        running(one_upstream(upstream.base_url, dialect="messages", profile="anthropic")) as gateway,
    ):
        answer = gateway.post({**ASKED, "options": {"tools": [TOOL]}}, COUNT)
        assert upstream.refusals == []
        [asked] = upstream.received
    assert asked.path == "/v1/messages/count_tokens"
    assert answer.json()["count"] > 1
    assert "antiphon-estimated" not in answer.headers


def test_count_refuses_invalid_bodies() -> None:
    """ERR-3."""
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        assert (
            gateway.post({"model": "mock-1", "text": {"role": 1}}, COUNT).json()["error"]["param"]
            == "messages[0].content"
        )
        assert gateway.post(b"{", COUNT).json()["error"]["code"] == "invalid_json"
        bad = message(USER, {"mimeType": "image/png", "data": base64.b64encode(b"x").decode()[:-1]})
        assert gateway.post({"model": "mock-1", "text": bad}, COUNT).status_code == 400


@pytest.mark.parametrize("stream", [True, False])
def test_replayed_trace_has_no_differences(stream: bool, tmp_path: Path) -> None:
    with ChatServer([CALLING]) as upstream:
        config = replace(one_upstream(upstream.base_url), trace=TraceConfig(dir=str(tmp_path)))
        with running(config) as gateway:
            gateway.post({**ASKED, "stream": stream, "options": {"tools": [TOOL]}}, CHAT)
            gateway.requests(1)
    assert replay_trace(read_trace(tmp_path, "last")).differences == []


def test_documented_example_is_answered_with_the_documented_lines() -> None:
    """A-8."""
    page = PAGE.read_text(encoding="utf-8")
    [asked] = re.findall(r"-d '(.*?)'", page, flags=re.DOTALL)
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        lines = lines_in(gateway.post(asked.encode(), CHAT).content)
        assert upstream.received[0].json["messages"][0] == {"role": "system", "content": "You are terse."}
    documented = {match[0]: re.findall(r'"(\w+)"', match[1]) for match in re.findall(r'`{"type": "(\w+)"(.*?)}`', page)}
    for line in lines:
        assert line.keys() - {"type"} <= set(documented[line["type"]])
