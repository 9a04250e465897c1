"""`POST /v1/responses/input_tokens`: the upstream's own count if it has one, otherwise an estimate that is marked as
such."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from msgspec.structs import replace
from tests.gateway.scripted import JSON, ScriptedAnswer, ScriptedTransport
from tests.running import BOUND, Running, one_upstream, running, until

from antiphon.config import Config, KeyConfig, StoreConfig, TraceConfig
from antiphon.dialects.common.token_estimate import estimate_text
from antiphon.errors import ApiError, UpstreamFault
from antiphon.testing import ChatServer

pytestmark = pytest.mark.io
PATH = "/v1/responses/input_tokens"
ASKED = {"model": "m", "input": "Hello there, how are you today?", "instructions": "Be brief."}
COUNTED = b'{"object":"response.input_tokens","input_tokens":23}'


def counting(dialect: str = "chat") -> Config:
    """A config with an upstream that counts."""
    return one_upstream("http://lab/v1", dialect=dialect, profile={"chat": "local", "responses": "openai"}[dialect])


def asked_with(
    answer: ScriptedAnswer | ApiError, body: Mapping[str, Any], dialect: str = "chat"
) -> tuple[httpx2.Response, Any]:
    """The gateway's answer, and the request it sent upstream."""
    transport = ScriptedTransport(answer)
    with running(counting(dialect), transport=transport) as gateway:
        response = gateway.post(body, PATH)
    [asked] = transport.asked
    return response, asked


def whole(body: bytes, status: int = 200) -> ScriptedAnswer:
    return ScriptedAnswer([body], JSON, status)


# An upstream that counts


def test_upstream_count_is_returned() -> None:
    """API-3."""
    response, asked = asked_with(whole(COUNTED), ASKED)
    assert (response.status_code, response.content) == (200, COUNTED)
    assert "antiphon-estimated" not in response.headers
    assert (asked.method, asked.url) == ("POST", "http://lab/v1/chat/completions/input_tokens")
    assert [message["role"] for message in msgspec.json.decode(asked.body)["messages"]] == ["system", "user"]


def test_responses_upstream_receives_only_prompt_fields() -> None:
    """API-3."""
    more = {
        "temperature": 0.5,
        "stream": True,
        "metadata": {"a": "b"},
        "max_output_tokens": 100,
        "reasoning": {"effort": "low"},
    }
    response, asked = asked_with(whole(COUNTED), {**ASKED, **more}, "responses")
    assert response.json()["input_tokens"] == 23
    assert asked.url == "http://lab/v1/responses/input_tokens"
    assert set(msgspec.json.decode(asked.body)) == {"model", "input", "instructions", "reasoning"}


@pytest.mark.parametrize(
    "answer",
    [
        whole(b'{"error":{"message":"no such path"}}', 404),
        whole(b'{"error":{"message":"busy"}}', 503),
        whole(b"<html>"),
        whole(b'{"input_tokens":-1}'),
        whole(b'{"input_tokens":"many"}'),
        whole(b"[" + b" " * 70_000 + b"]"),
        ScriptedAnswer([b'{"input', UpstreamFault("gone", code="upstream_disconnected")], JSON),
        UpstreamFault("refused", code="upstream_unavailable"),
    ],
    ids=["no path", "busy", "no JSON", "negative", "no number", "endless", "cut", "refused"],
)
def test_estimate_is_returned_when_upstream_cannot_count(answer: ScriptedAnswer | ApiError) -> None:
    """API-3."""
    response, _ = asked_with(answer, ASKED)
    assert response.status_code == 200
    assert response.json()["antiphon:estimated"] is True
    assert response.headers["antiphon-estimated"] == "true"


class _Silent(ScriptedTransport):
    """Never answers; records when it was called and when it was released."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.left = threading.Event(), threading.Event()

    async def send(self, *asked: object) -> ScriptedAnswer:
        del asked
        self.reached.set()
        try:
            await asyncio.sleep(BOUND)
        finally:
            self.left.set()
        raise AssertionError


def test_client_disconnect_cancels_the_upstream_count() -> None:
    transport = _Silent()
    with running(counting(), transport=transport) as gateway:
        body = msgspec.json.encode(ASKED)
        with gateway.connect() as connection:
            head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert transport.reached.wait(BOUND)
        assert transport.left.wait(BOUND)
        assert gateway.requests(1)[0]["client_left"] is True


def test_count_during_shutdown_is_503() -> None:
    transport = _Silent()
    config = counting()
    answers: list[httpx2.Response] = []
    with running(replace(config, server=replace(config.server, grace=0.0)), transport=transport) as gateway:
        client = threading.Thread(target=lambda: answers.append(gateway.post(ASKED, PATH)))
        client.start()
        assert transport.reached.wait(BOUND)
    client.join(BOUND)
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "server_shutdown")


def test_count_request_is_traced(tmp_path: Path) -> None:
    config = replace(counting(), trace=TraceConfig(dir=str(tmp_path)))
    with running(config, transport=ScriptedTransport(whole(COUNTED))) as gateway:
        assert gateway.post(ASKED, PATH).status_code == 200
        until(lambda: bool(list(tmp_path.rglob("*.jsonl"))))
    [file] = tmp_path.rglob("*.jsonl")
    text = file.read_text()
    assert "chat/completions/input_tokens" in text
    assert "Hello there" in text


# An upstream that does not count


def estimated(gateway: Running, body: Mapping[str, Any]) -> int:
    answer = gateway.post(body, PATH)
    assert answer.status_code == 200, answer.text
    response = answer.json()
    assert (response["object"], response["antiphon:estimated"]) == ("response.input_tokens", True)
    tokens: int = response["input_tokens"]
    return tokens


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_estimate_grows_with_input_without_an_upstream_call(dialect: str) -> None:
    """API-3: counts without running the model."""
    with running(one_upstream("http://lab/v1", dialect=dialect), transport=ScriptedTransport()) as gateway:
        little = estimated(gateway, ASKED)
        assert estimate_text(ASKED["input"]) < little < 30
        text = "A word after a word after a word. " * 100
        much = estimated(gateway, {**ASKED, "input": text})
        assert estimate_text(text) < much < estimate_text(text) + 30
        tool = {
            "type": "function",
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
        assert estimated(gateway, {**ASKED, "tools": [tool]}) > little + 8
        assert estimated(gateway, {**ASKED, "stream": True, "background": True, "store": True}) == little
        trigger = [{"role": "user", "content": ASKED["input"]}, {"type": "compaction_trigger"}]
        managed = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
        assert estimated(gateway, {**ASKED, **managed, "input": trigger}) == little


def test_estimate_includes_the_previous_response(tmp_path: Path) -> None:
    """API-3."""
    with ChatServer() as chat:
        config = replace(one_upstream(chat.base_url), store=StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db"))
        config = replace(config, keys=[KeyConfig(name="alice", env="ALICE"), KeyConfig(name="bob", env="BOB")])
        with running(config, environ={"ALICE": "key-of-alice", "BOB": "key-of-bob"}) as gateway:
            alice, bob = {"authorization": "Bearer key-of-alice"}, {"authorization": "Bearer key-of-bob"}
            long = gateway.post({**ASKED, "input": "A word after a word. " * 100}, **alice).json()
            body = {**ASKED, "previous_response_id": long["id"]}
            response = gateway.post(body, PATH, **alice).json()
            assert response["input_tokens"] > 500
            refused = gateway.post(body, PATH, **bob)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "previous_response_not_found")
            line = gateway.requests(3)[1]
            assert (line["path"], line["model"], "response_id" in line) == (PATH, "m", False)
            assert len(chat.received) == 1


def test_count_reports_losses_like_a_turn() -> None:
    with running(one_upstream("http://lab/v1"), transport=ScriptedTransport()) as gateway:
        answer = gateway.post({**ASKED, "tools": [{"type": "web_search"}]}, PATH)
    assert "tools[0]" in answer.headers["antiphon-losses"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"{}", 400, "missing_field"),
        (b'{"model":"m","input":7}', 400, "invalid_value"),
        (b'{"model":"m","previous_response_id":"resp_1"}', 400, "previous_response_not_found"),
    ],
)
def test_count_refuses_the_bodies_that_a_turn_refuses(body: bytes, status: int, code: str) -> None:
    with running(one_upstream("http://lab/v1"), transport=ScriptedTransport()) as gateway:
        answer = gateway.post(body, PATH)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert gateway.post(body, PATH, content_type="text/plain").status_code == 415


def test_count_is_parsed_by_the_openai_sdk() -> None:
    """API-3, API-6."""
    with running(one_upstream("http://lab/v1"), transport=ScriptedTransport()) as gateway:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
            counted = client.responses.input_tokens.count(model="m", input="Hello there, how are you today?")
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens > 8
