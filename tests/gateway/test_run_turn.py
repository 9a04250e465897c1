"""`gateway/run_turn`: every kind of turn takes the same steps in the same order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import Running, one_upstream, running, until
from tests.websocket_client import open_websocket

import antiphon.gateway
from antiphon import testing
from antiphon.config import Config, StoreConfig, UpstreamConfig
from antiphon.testing import ChatServer, OllamaServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]

GATEWAY = str(Path(antiphon.gateway.__file__).parent)
#: route → resolve history → plan → prepare → run → record
STEPS = ["direct", "_resolve_history", "_plan_context", "prepare_request", "run_turn", "record_turn"]
BODY = {"model": "m", "input": "Hi."}
Body = dict[str, Any]


def stream_over_http(gateway: Running, body: Body) -> None:
    assert b"response.completed" in gateway.post({**body, "stream": True}).content


def run_over_websocket(gateway: Running, body: Body) -> None:
    with open_websocket(gateway.port, "/v1/responses") as client:
        client.send({"type": "response.create", **body})
        until(lambda: client.receive_json()["type"] == "response.completed")


def run_in_background(gateway: Running, body: Body) -> None:
    id = gateway.post({**body, "background": True}).json()["id"]
    until(lambda: gateway.get(f"/v1/responses/{id}").json()["status"] == "completed")


@pytest.mark.parametrize("run", [stream_over_http, run_over_websocket, run_in_background])
def test_turn_takes_all_steps_in_order(run: Callable[[Running, Body], None], tmp_path: Path) -> None:
    """A turn that continues a history and is shortened takes all of them; others leave out what they do not need."""
    with ChatServer() as server, recorded_steps() as steps:
        config = replace(one_upstream(server.base_url), store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"))
        with running(config) as gateway:
            first_id = gateway.post(BODY).json()["id"]
            until(lambda: gateway.get(f"/v1/responses/{first_id}").status_code == 200)
            steps.clear()
            run(gateway, {**BODY, "previous_response_id": first_id, "truncation": "auto"})
    assert [*dict.fromkeys(steps)] == STEPS


@contextmanager
def recorded_steps() -> Iterator[list[str]]:
    """The names of the steps in the order of their calls, in all threads that are started inside the block."""
    steps: list[str] = []

    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name in STEPS and code.co_filename.startswith(GATEWAY):
            steps.append(code.co_name)

    threading.setprofile(record)
    try:
        yield steps
    finally:
        threading.setprofile(None)


def test_answer_that_is_complete_before_its_connection_fails_is_delivered() -> None:
    """A Gemini client gets nothing before the first content or the end."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n"
    line = b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n'
    with OllamaServer([testing.exactly(head, line, testing.end("rst"))], strict=False) as server:
        config = Config(
            upstreams=[UpstreamConfig(name="lab", dialect="ollama", base_url=server.base_url, models=["m"])]
        )
        with running(config) as gateway:
            body = {"contents": [{"parts": [{"text": "Hi."}]}]}
            answer = gateway.post(body, "/v1beta/models/m:streamGenerateContent?alt=sse")
    assert (answer.status_code, answer.content.count(b'"finishReason":"STOP"')) == (200, 1)
