"""Turns over a WebSocket, against a running gateway (B-9)."""

from __future__ import annotations

import pytest
from tests.client.conversing import asked, async_client_of, breaking, client_of, gateway, run
from tests.running import one_upstream, running
from tests.upstream.scripted import Peer, serving
from tests.upstream.websocket_peer import accept, text

from antiphon import testing
from antiphon.client import AsyncClient
from antiphon.errors import ClientFault, UnsupportedParameter, UpstreamFault
from antiphon.protocol.grammar import find_violations
from antiphon.testing import ChatServer, Gate, ResponsesServer, turn

pytestmark = pytest.mark.io
HELLO = turn(testing.text("Hel", "lo."))


def test_socket_runs_turns_that_continue_each_other() -> None:
    """B-9, WS-5: with nothing stored, the newest response can be continued."""

    async def work(client: AsyncClient) -> None:
        async with client.connect() as socket:
            first = await socket.create("My name is Ada.", store=False)
            async with socket.stream("Who am I?", previous_response_id=first.id, store=False) as stream:
                events = [event async for event in stream]
            assert find_violations(events) == []
            assert (stream.text, stream.error, len(stream.losses)) == ("Ada.", None, 0)
            assert await stream.next_events() == []

    with ChatServer([HELLO, turn(testing.text("Ada."))]) as upstream, running(one_upstream(upstream.base_url)) as lab:
        asked(lab.url, work)
        assert [message["content"] for message in upstream.received[1].json["messages"]] == [
            "My name is Ada.",
            "Hello.",
            "Who am I?",
        ]


def test_socket_raises_a_turn_error_and_stays_usable() -> None:
    """WS-3, WS-10."""
    with (
        gateway([HELLO, testing.error(429, "Slow.", type="rate_limit_error"), HELLO]) as lab,
        client_of(lab.url) as client,
    ):
        with client.connect() as socket:
            assert socket.create("Hi.").output_text == "Hello."
            with pytest.raises(UpstreamFault) as caught:
                socket.create("Hi.")
            assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
            with pytest.raises(ClientFault) as fault:
                socket.create("Hi.", previous_response_id="resp_nobody")
            assert fault.value.code == "previous_response_not_found"
            assert "".join(socket.stream("Hi.").texts()) == "Hello."


def test_socket_stream_failure_has_its_error() -> None:
    with gateway([turn(testing.text("Hel"), testing.end("rst"))]) as lab, client_of(lab.url) as client:
        with client.connect() as socket, socket.stream("Hi.") as stream:
            events = list(stream)
            assert find_violations(events) == []
            assert stream.response.status == "failed"
            assert stream.error is not None


def test_socket_allows_one_turn_at_a_time() -> None:
    """WS-4: and a stream that is closed before its end closes the connection (WS-12)."""
    gate = Gate()
    with gateway([turn(testing.text("Well"), testing.wait(gate))]) as lab, client_of(lab.url) as client:
        with client.connect() as socket:
            never = socket.stream("Not sent.")
            with socket.stream("Hi.") as stream:
                next(iter(stream))
                with pytest.raises(ClientFault, match="in progress"):
                    socket.create("Hi.")
            with pytest.raises(UpstreamFault, match="closed before its end"):
                stream.final()
            with pytest.raises(UpstreamFault, match="WebSocket is closed"):
                socket.create("Hi.")
            never.close()
        gate.open()


@pytest.mark.parametrize("limit", [1500, 450, 200])
def test_socket_raises_disconnected_for_a_broken_connection(limit: int) -> None:
    """In the middle of a turn the response failed; before the first event its state is unknown. A handshake may be cut
    too."""
    with gateway([turn(testing.text(*["word "] * 50))]) as lab, breaking(lab.port, [limit]) as link:
        with pytest.raises(UpstreamFault) as caught, client_of(link.url) as client, client.connect() as socket:
            socket.create("Hi.")
    assert caught.value.code == "upstream_disconnected"


def test_socket_error_event_ends_the_turn() -> None:
    """WS-10: and a message that is not JSON is no event."""
    created = '{"type":"response.created","response":{"id":"resp_1"}}'
    ends = {
        '{"type":"error","status":503,"error":{"code":"server_shutdown","message":"Stopping."}}': "Stopping.",
        "nonsense": "the upstream",
    }

    async def work() -> None:
        for end, words in ends.items():

            async def script(peer: Peer, end: str = end) -> None:
                await accept(peer, text(created) + text(end))
                await peer.gone()

            async with serving(script) as place, async_client_of(f"http://127.0.0.1:{place.port}") as client:
                async with client.connect() as socket:
                    with pytest.raises(UpstreamFault, match=words):
                        await socket.create("Hi.")

    run(work())


def test_socket_connect_raises_for_a_server_without_websockets() -> None:
    """B-9."""
    with ResponsesServer([]) as server, client_of(server.base_url) as client, pytest.raises(ClientFault) as caught:
        client.connect().__enter__()
    assert caught.value.status == 400
    with client_of("http://127.0.0.1:9") as client, pytest.raises(UpstreamFault) as fault:
        client.connect().__enter__()
    assert fault.value.code == "upstream_unavailable"
    assert "the server" in fault.value.message


def test_socket_connect_refuses_other_dialects() -> None:
    with client_of("http://127.0.0.1:9", dialect="chat") as client, pytest.raises(UnsupportedParameter):
        client.connect().__enter__()


def test_unopened_socket_refuses_turns() -> None:
    with client_of("http://127.0.0.1:9") as client:
        socket = client.connect()
        with pytest.raises(ClientFault, match="not open"):
            socket.stream("Hi.")
        socket.__exit__(None, None, None)
