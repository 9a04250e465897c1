"""What is looked at besides single turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace
from tests.cli.network import FakeNetwork
from tests.probe.probing import probe, target_of
from tests.running import one_upstream, running

from antiphon.config import StoreConfig
from antiphon.probe.extras import state, websocket
from antiphon.probe.finding import Evidence, ProbeFinding
from antiphon.probe.target import ProbeResult, ServerConnection
from antiphon.testing import ChatServer, ReceivedRequest, Reply, ResponsesServer, end, exactly, text, turn, whole
from antiphon.testing.improvise import improvise
from antiphon.testing.responses.server import make_prompt
from antiphon.upstream.http import HttpTransport


def test_a_server_with_state_and_a_websocket_is_found_out(tmp_path: Path) -> None:
    """D-4: the gateway itself is one."""
    with ChatServer() as upstream:
        config = one_upstream(upstream.base_url)
        config = replace(config, store=StoreConfig(url=f"sqlite:///{tmp_path}/a.db"))
        with running(config) as gateway:
            _, found = probe(target_of(f"{gateway.url}/v1", "responses"))
    assert (found["state"].verdict, found["state"].detail) == ("accepted", "the input tokens include the earlier turn")
    assert found["websocket"].verdict == "accepted"
    assert found["stream.order"].verdict == "accepted"
    assert found["error.shape"].detail == "400, an error object with code, message, param, type"


def test_poor_streams_and_odd_errors_are_told() -> None:
    def reply(received: ReceivedRequest) -> Reply:
        if received.json.get("stream"):
            frame = b'event: response.completed\ndata: {"type":"response.completed","response":{"output":[],"status":"completed"}}\n\n'
            return exactly(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + frame, end("fin")
            )
        return improvise(make_prompt(received.json))

    with ResponsesServer(reply, models=["mock-1"]) as server:
        _, found = probe(target_of(server.base_url, "responses"))
    assert found["stream.order"].verdict == "ignored"
    assert "violations, the first: " in found["stream.order"].detail
    assert found["error.model"].detail == "404, an error object with code, message, param, type"


def test_a_server_that_keeps_nothing_is_told() -> None:
    async def asked(*answers: ProbeResult) -> ProbeFinding:
        left = list(answers)

        async def ask(_: object) -> ProbeResult:
            return left.pop(0)

        typed: Callable[[dict[str, object]], Awaitable[ProbeResult]] = ask
        return await state(typed, {"input": "hi"})

    evidence = Evidence(request="POST /responses", body=None, status=200, excerpt="")
    refused = ProbeResult("refused", "400: no", evidence)
    nameless = ProbeResult("accepted", "answered", evidence, body=b"[1]")
    assert asyncio.run(asked(refused)).detail == "no response was stored: 400: no"
    assert asyncio.run(asked(nameless)).verdict == "refused"
    assert asyncio.run(asked(nameless._replace(body=b"odd"))).verdict == "refused"


def test_a_websocket_needs_a_network_that_has_them_and_a_server_that_is_there() -> None:
    async def tried() -> list[ProbeFinding]:
        line = ServerConnection(target_of("http://127.0.0.1:9/v1", "responses"), HttpTransport({}))
        network = HttpTransport({})
        try:
            return [await websocket(line, network), await websocket(line, FakeNetwork())]
        finally:
            await network.close()

    gone, other = asyncio.run(tried())
    assert (gone.verdict, gone.detail) == ("refused", "the upstream cannot be reached")
    assert (other.verdict, other.detail) == ("untried", "this transport has no WebSocket")


def test_errors_in_no_form_that_clients_read_are_told() -> None:
    with ChatServer(lambda _: turn(text("Hello.")), strict=False) as server:
        _, found = probe(target_of(server.base_url, "chat"))
    assert found["error.shape"].verdict == "ignored"
    bad = whole({"oops": 1}, 400)
    with ChatServer(
        lambda received: bad if received.json["messages"] == 7 else turn(text("Hello.")), strict=False
    ) as server:
        _, found = probe(target_of(server.base_url, "chat"))
    assert (found["error.shape"].verdict, found["error.shape"].detail) == (
        "refused",
        "400, in a form that clients cannot read",
    )
