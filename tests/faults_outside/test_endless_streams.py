"""Upstreams that never stop: the gateway ends the answer at its limit, and `cancel` does not wait for them. Measured
from outside."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.faults_outside.endless_upstream import endless_upstream
from tests.faults_outside.gateway_process import LOAD_FACTOR, GatewayProcess, gateway_process, health_prober
from tests.running import BOUND

from antiphon import sse

pytestmark = pytest.mark.timed

ANSWER_MIB = 64
HEALTH = 1.0  # seconds that `/health` may take while an answer of 64 MiB ends
MEMORY = 450  # MiB allowed beyond the gateway's base
CANCEL = 1.0  # seconds in which `cancel` answers
X = "x" * 1000


def encoded(event: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(event)


FRAMES: dict[str, tuple[bytes, bytes]] = {
    "chat": (b"", encoded({"choices": [{"index": 0, "delta": {"content": X}}]})),
    "responses": (
        encoded(
            {
                "type": "response.created",
                "response": {"id": "r", "object": "response", "status": "in_progress", "output": []},
            }
        ),
        encoded(
            {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": X}
        ),
    ),
    "messages": (
        encoded({"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 1}}}),
        encoded({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": X}}),
    ),
    "ollama": (b"", msgspec.json.encode({"message": {"role": "assistant", "content": X}, "done": False}) + b"\n"),
    "gemini": (b"", encoded({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": X}]}}]})),
}


def last_event(gateway: GatewayProcess) -> dict[str, object]:
    """The terminal event of a stream of which only the newest bytes are kept."""
    decoder, last = sse.Decoder(1 << 30), b""
    body = {"model": "m", "input": "Hi", "stream": True, "store": False}
    with (
        httpx2.Client(timeout=BOUND) as client,
        client.stream("POST", gateway.url + "/v1/responses", json=body) as answer,
    ):
        for piece in answer.iter_bytes():
            for frame in decoder.feed(piece):
                last = frame.data if frame.data != sse.DONE else last
    event: dict[str, object] = msgspec.json.decode(last)
    return event


@pytest.mark.parametrize("dialect", FRAMES)
def test_endless_stream_ends_at_the_bound(dialect: str, tmp_path: Path) -> None:
    with (
        endless_upstream(*FRAMES[dialect]) as url,
        gateway_process(tmp_path, url, dialect=dialect, memory_limit_mib=6144) as gateway,
    ):
        before = gateway.resident_mib()
        gateway.reset_peak()
        with health_prober(gateway) as health:
            began = time.perf_counter()
            event = last_event(gateway)
            took = time.perf_counter() - began
            peak = gateway.peak_resident_mib()
        print(f"{dialect}: {took:.1f} s, /health {health.worst_seconds:.2f} s, memory {before:.0f} → {peak:.0f} MiB")
    assert event["type"] == "response.incomplete"
    response = event["response"]
    assert isinstance(response, dict)
    assert response["incomplete_details"] == {"reason": "max_output_bytes"}
    text = response["output"][0]["content"][0]["text"]
    assert ANSWER_MIB * 1024 * 1024 - 200_000 < len(text) <= ANSWER_MIB * 1024 * 1024
    assert health.failures == 0
    assert health.worst_seconds < LOAD_FACTOR * HEALTH
    assert peak - before < LOAD_FACTOR * MEMORY


def started_in_background(gateway: GatewayProcess) -> str:
    answer = gateway.post({"model": "m", "input": "Hi", "background": True})
    assert answer.status_code == 200, answer.text
    id: str = answer.json()["id"]
    for _ in range(100):
        if gateway.get(f"/v1/responses/{id}").json()["status"] == "in_progress":
            break
        time.sleep(0.05)
    time.sleep(0.5)  # it is running
    return id


@pytest.mark.parametrize("pace", ["flood", "slow", "silent", "no head"])
@pytest.mark.parametrize("dialect", FRAMES)
def test_cancel_answers_within_a_second(dialect: str, pace: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with (
        endless_upstream(*FRAMES[dialect], pace=pace) as url,
        gateway_process(tmp_path, url, dialect=dialect, store=store, memory_limit_mib=6144) as gateway,
    ):
        id = started_in_background(gateway)
        with health_prober(gateway) as health:
            began = time.perf_counter()
            answer = gateway.post({}, f"/v1/responses/{id}/cancel")
            took = time.perf_counter() - began
        print(f"{dialect}, {pace}: cancel {took:.2f} s, /health {health.worst_seconds:.2f} s")
        assert answer.json()["status"] == "cancelled"
        assert took < LOAD_FACTOR * CANCEL
        assert health.failures == 0


def test_endless_background_stream_ends_at_the_bound(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/antiphon.db"
    with (
        endless_upstream(*FRAMES["chat"]) as url,
        gateway_process(tmp_path, url, store=store, server="max_answer_mib = 8", memory_limit_mib=6144) as gateway,
    ):
        before = gateway.resident_mib()
        with health_prober(gateway) as health:
            answer = gateway.post({"model": "m", "input": "Hi", "background": True}).json()
            deadline = time.monotonic() + BOUND
            while (state := gateway.get(f"/v1/responses/{answer['id']}").json())["status"] in ("queued", "in_progress"):
                assert time.monotonic() < deadline, "it never ended"
                time.sleep(0.2)
            peak = gateway.peak_resident_mib()
        print(f"background, 8 MiB: /health {health.worst_seconds:.2f} s, memory {before:.0f} → {peak:.0f} MiB")
        assert state["status"] == "incomplete"
        assert state["incomplete_details"] == {"reason": "max_output_bytes"}
        assert health.failures == 0
        assert health.worst_seconds < LOAD_FACTOR * HEALTH
        assert peak - before < LOAD_FACTOR * MEMORY
