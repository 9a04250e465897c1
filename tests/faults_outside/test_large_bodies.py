"""Bodies of almost 64 MiB in every dialect: the gateway serves other requests while one is taken or refused. Measured
from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober

from antiphon import testing
from antiphon.testing import ChatServer, turn

pytestmark = pytest.mark.timed

HEALTH = 0.1  # seconds that `/health` may take
TEXT = "x" * 9_000_000  # the longest text of an item is ten million characters
TEXTS = 7
PARTS = 1_000_000
SHORT = turn(testing.text("Hello."), testing.usage(5, 2))


def responses(content: Any) -> dict[str, Any]:
    return {"model": "mock-1", "input": [{"type": "message", "role": "user", "content": content}]}


def chat(content: Any) -> dict[str, Any]:
    return {"model": "mock-1", "messages": [{"role": "user", "content": content}]}


def messages(content: Any) -> dict[str, Any]:
    return {**chat(content), "max_tokens": 100}


def gemini(content: Any) -> dict[str, Any]:
    parts = [{"text": content}] if isinstance(content, str) else content
    return {"contents": [{"role": "user", "parts": parts}]}


def text_parts(kind: str | None, count: int, text: str) -> list[dict[str, Any]]:
    return [{"text": text} if kind is None else {"type": kind, "text": text}] * count


PATHS = {
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/mock-1:generateContent",
    "ollama": "/api/chat",
}
#: Content of about 64 MiB for each dialect: few large texts, and very many small ones.
BODIES: dict[str, dict[str, Any]] = {
    "responses": {
        "large": responses(text_parts("input_text", TEXTS, TEXT)),
        "many": responses(text_parts("input_text", PARTS, "word")),
    },
    "chat": {"large": chat(text_parts("text", TEXTS, TEXT)), "many": chat(text_parts("text", PARTS, "word"))},
    "messages": {
        "large": messages(text_parts("text", TEXTS, TEXT)),
        "many": messages(text_parts("text", PARTS, "word")),
    },
    "gemini": {"large": gemini(text_parts(None, TEXTS, TEXT)), "many": gemini(text_parts(None, PARTS, "word"))},
    "ollama": {
        "large": {**chat(""), "messages": [{"role": "user", "content": TEXT}] * TEXTS, "stream": False},
        "many": {**chat(""), "messages": [{"role": "user", "content": "word" * 1000}] * 9999, "stream": False},
    },
}


@contextmanager
def measured(gateway: GatewayProcess, wanted: float = HEALTH) -> Iterator[None]:
    before = gateway.resident_mib()
    with health_prober(gateway) as health:
        yield
        peak = gateway.peak_resident_mib()
    print(f"/health at most {health.worst_seconds * 1000:.0f} ms, memory {before:.0f} → {peak:.0f} MiB")
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * wanted


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with (
        ChatServer(lambda _: SHORT) as upstream,
        gateway_process(tmp_path, upstream.base_url, store=store) as running,
    ):
        yield running


@pytest.mark.parametrize("shape", ["large", "many"])
@pytest.mark.parametrize("dialect", list(PATHS))
def test_large_body_does_not_block_the_gateway(gateway: GatewayProcess, dialect: str, shape: str) -> None:
    body = msgspec.json.encode(BODIES[dialect][shape])
    with measured(gateway):
        answer = gateway.post(body, PATHS[dialect])
    print(dialect, shape, len(body) >> 20, "MiB:", answer.status_code, answer.text[:200])
    assert answer.status_code == 200, answer.text[:500]


LARGE_ITEMS = responses(TEXT)["input"] * TEXTS
MANY_PARTS = responses(text_parts("input_text", PARTS, "word"))["input"]
ITEMS = {"large": LARGE_ITEMS, "many": MANY_PARTS}


@pytest.mark.parametrize("shape", ITEMS)
def test_large_conversation_does_not_block_the_gateway(gateway: GatewayProcess, shape: str) -> None:
    """Created, extended, listed, and continued by a turn."""
    body = msgspec.json.encode({"items": ITEMS[shape]})
    with measured(gateway):
        id = gateway.post(body, "/v1/conversations").json()["id"]
    with measured(gateway):
        page = gateway.get(f"/v1/conversations/{id}/items")
    assert len(page.content) > 30 << 20
    id = gateway.post(b"{}", "/v1/conversations").json()["id"]
    with measured(gateway):
        assert gateway.post(body, f"/v1/conversations/{id}/items").status_code == 200
    with measured(gateway):
        answer = gateway.post({"model": "mock-1", "conversation": id, "input": "Go on."})
    assert answer.status_code == 200, answer.text[:500]


@pytest.mark.parametrize("shape", ITEMS)
def test_large_input_that_was_stored_is_listed_without_blocking(gateway: GatewayProcess, shape: str) -> None:
    id = gateway.post(msgspec.json.encode({"model": "mock-1", "input": ITEMS[shape]})).json()["id"]
    with measured(gateway):
        assert len(gateway.get(f"/v1/responses/{id}/input_items").content) > 30 << 20


@pytest.mark.parametrize("stream", [True, False])
def test_echo_of_large_instructions_does_not_block_the_gateway(gateway: GatewayProcess, stream: bool) -> None:
    body = msgspec.json.encode({"model": "mock-1", "input": "Hi", "instructions": TEXT, "stream": stream})
    with measured(gateway):
        answer = gateway.post(body)
    assert answer.status_code == 200, answer.text[:500]
    assert answer.text.count(TEXT[:1_000_000]) >= 9


@pytest.mark.parametrize("shape", ITEMS)
def test_estimate_of_a_large_body_does_not_block_the_gateway(gateway: GatewayProcess, shape: str) -> None:
    body = msgspec.json.encode({"model": "mock-1", "input": ITEMS[shape]})
    with measured(gateway):
        answer = gateway.post(body, "/v1/responses/input_tokens")
    assert answer.json()["input_tokens"] > 1_000_000
