"""Probe steps besides single turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cli.network import FakeAnswer, FakeNetwork, says, stream
from tests.probe.probe_runs import make_target, run_probe
from tests.running import one_upstream, running

from antiphon import sse
from antiphon.config import StoreConfig
from antiphon.probe.extras import check_stored_response, check_stream_order, check_websocket
from antiphon.probe.finding import Evidence, ProbeFinding
from antiphon.probe.target import ProbeResult, ServerConnection
from antiphon.testing import ChatServer, ReceivedRequest, Reply, ResponsesServer, end, exactly, text, turn, whole
from antiphon.testing.improvise import improvise
from antiphon.testing.responses.server import make_prompt
from antiphon.upstream.http import HttpTransport

pytestmark = pytest.mark.io


def test_state_and_websocket_of_a_server_are_detected(tmp_path: Path) -> None:
    """D-4: the gateway itself is such a server."""
    with ChatServer() as upstream:
        config = one_upstream(upstream.base_url)
        config = replace(config, store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"))
        with running(config) as gateway:
            _, findings = run_probe(make_target(f"{gateway.url}/v1", "responses"))
    assert (findings["state"].verdict, findings["state"].detail) == (
        "accepted",
        "the input tokens include the earlier turn",
    )
    assert findings["websocket"].verdict == "accepted"
    assert findings["stream.order"].verdict == "accepted"
    assert findings["error.shape"].detail == "400, an error object with code, message, param, type"


def test_invalid_streams_and_unusual_errors_are_reported() -> None:
    def reply(received: ReceivedRequest) -> Reply:
        if received.json.get("stream"):
            frame = b'event: response.completed\ndata: {"type":"response.completed","response":{"output":[],"status":"completed"}}\n\n'
            return exactly(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + frame, end("fin")
            )
        return improvise(make_prompt(received.json))

    with ResponsesServer(reply, models=["mock-1"]) as server:
        _, findings = run_probe(make_target(server.base_url, "responses"))
    assert findings["stream.order"].verdict == "ignored"
    assert "violations, the first: " in findings["stream.order"].detail
    assert findings["error.model"].detail == "404, an error object with code, message, param, type"


def test_server_without_state_is_reported() -> None:
    async def asked(*answers: ProbeResult) -> ProbeFinding:
        left = list(answers)

        async def ask(_: object) -> ProbeResult:
            return left.pop(0)

        typed: Callable[[dict[str, object]], Awaitable[ProbeResult]] = ask
        return await check_stored_response(typed, {"input": "hi"})

    evidence = Evidence(request="POST /responses", body=None, status=200, excerpt="")
    refused = ProbeResult("refused", "400: no", evidence)
    nameless = ProbeResult("accepted", "answered", evidence, body=b"[1]")
    assert asyncio.run(asked(refused)).detail == "no response was stored: 400: no"
    assert asyncio.run(asked(nameless)).verdict == "refused"
    assert asyncio.run(asked(nameless._replace(body=b"odd"))).verdict == "refused"


def test_websocket_step_reports_missing_server_or_unsupported_transport() -> None:
    async def tried() -> list[ProbeFinding]:
        line = ServerConnection(make_target("http://127.0.0.1:9/v1", "responses"), HttpTransport({}))
        network = HttpTransport({})
        try:
            return [await check_websocket(line, network), await check_websocket(line, FakeNetwork())]
        finally:
            await network.close()

    gone, other = asyncio.run(tried())
    assert (gone.verdict, gone.detail) == ("refused", "the upstream cannot be reached")
    assert (other.verdict, other.detail) == ("untried", "this transport has no WebSocket")


def test_errors_in_an_unreadable_form_are_reported() -> None:
    with ChatServer(lambda _: turn(text("Hello.")), strict=False) as server:
        _, findings = run_probe(make_target(server.base_url, "chat"))
    assert findings["error.shape"].verdict == "ignored"
    bad = whole({"oops": 1}, 400)
    with ChatServer(
        lambda received: bad if received.json["messages"] == 7 else turn(text("Hello.")), strict=False
    ) as server:
        _, findings = run_probe(make_target(server.base_url, "chat"))
    assert (findings["error.shape"].verdict, findings["error.shape"].detail) == (
        "refused",
        "400, in a form that clients cannot read",
    )


def test_event_after_the_end_marker_of_a_stream_is_a_fault() -> None:
    """D-4: the marker `[DONE]` does not end the check of the order."""

    async def check(*frames: bytes) -> ProbeFinding:
        answer = FakeAnswer(*frames, headers={"content-type": "text/event-stream"})
        network = FakeNetwork(responses=answer)
        return await check_stream_order(
            ServerConnection(make_target("http://127.0.0.1:9/v1", "responses"), network), {}
        )

    events = asyncio.run(_body_of(stream(says("Hello."))))
    assert asyncio.run(check(events, sse.DONE_FRAME)).verdict == "accepted"
    assert asyncio.run(check(events, sse.DONE_FRAME, events)).verdict == "ignored"


async def _body_of(answer: FakeAnswer) -> bytes:
    return b"".join([piece async for piece in answer.pieces()])
