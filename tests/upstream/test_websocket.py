"""A WebSocket to a server: the upgrade, messages, closing, and servers that do not support it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.upstream.conftest import Run
from tests.upstream.scripted import Peer, TurnableClock, network, pass_time, serving, until
from tests.upstream.websocket_peer import accept, text

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.upstream import websocket
from antiphon.upstream.websocket import UpgradeRefused, WebSocket, open_websocket

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


def meet(
    run: Run, script: Callable[[Peer], Any], work: Callable[[WebSocket], Any], timeouts: Timeouts | None = None
) -> None:
    async def whole() -> None:
        async with serving(script) as place, network() as transport:
            socket = await open_websocket(transport, place.url, {"x-key": "k"}, timeouts or Timeouts())
            await work(socket)
            socket.close()

    run(whole())


def test_websocket_joins_fragments_and_answers_pings(run: Run) -> None:
    """RFC 6455, 5.4 and 5.5.2."""
    frames: list[bytes] = []

    async def script(peer: Peer) -> None:
        request = await accept(peer, text("at once"))
        assert request.startswith(b"GET /v1/x HTTP/1.1\r\n")
        assert b"x-key: k\r\n" in request
        await peer.say(text("he", fin=False) + b"\x89\x01p" + text("llo", opcode=0) + text("", opcode=2) + b"\x8a\x00")
        frames.append(await peer._reader.readexactly(2 + 4 + 1))
        await peer.say(text("é" * 100))
        await peer.gone()

    async def work(socket: WebSocket) -> None:
        assert [await socket.receive() for _ in range(3)] == ["at once", "hello", "é" * 100]
        assert socket.is_open

    meet(run, script, work)
    assert frames[0][:2] == b"\x8a\x81"


def test_websocket_sends_masked_whole_frames(run: Run) -> None:
    got: list[bytes] = []

    async def script(peer: Peer) -> None:
        await accept(peer)
        head = await peer._reader.readexactly(6)
        assert head[:2] == b"\x81\x85"
        got.append(bytes(byte ^ head[2 + at % 4] for at, byte in enumerate(await peer._reader.readexactly(5))))
        await peer.say(text("ok"))
        await peer.gone()

    async def work(socket: WebSocket) -> None:
        socket.send("hello")
        assert await socket.receive() == "ok"

    meet(run, script, work)
    assert got == [b"hello"]


@pytest.mark.parametrize(
    ("bytes_of_end", "code", "words"),
    [
        (b"\x88\x05\x03\xe9bye", "upstream_disconnected", "code 1001: bye"),
        (b"\x88\x02\x03\xe8", "upstream_disconnected", "code 1000"),
        (b"\x88\x00", "upstream_disconnected", "code 1005$"),
        (b"\xff\xff", "upstream_invalid_response", "invalid WebSocket data"),
        (b"\x81\x01\xff", "upstream_invalid_response", "invalid WebSocket data"),
        (b"", "upstream_disconnected", "without a close frame"),
    ],
)
def test_websocket_raises_the_end_after_earlier_messages(run: Run, bytes_of_end: bytes, code: str, words: str) -> None:
    async def script(peer: Peer) -> None:
        await accept(peer, text("last") + bytes_of_end)
        if not bytes_of_end:
            peer.shut()
        await peer.gone()

    async def work(socket: WebSocket) -> None:
        assert await socket.receive() == "last"
        for _ in range(2):
            with pytest.raises(UpstreamFault, match=words) as caught:
                await socket.receive()
            assert caught.value.code == code
        assert not socket.is_open
        with pytest.raises(UpstreamFault):
            socket.send("anybody?")

    meet(run, script, work)


def test_slow_websocket_reader_pauses_the_socket(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_BUFFERED_BYTES", 10)

    async def script(peer: Peer) -> None:
        await accept(peer, text("0123456789") + text("abc"))
        await peer.say(text("behind"))
        await peer.gone()

    async def work(socket: WebSocket) -> None:
        await until(lambda: socket._is_paused)
        assert [await socket.receive() for _ in range(3)] == ["0123456789", "abc", "behind"]
        assert not socket._is_paused

    meet(run, script, work)


def test_oversized_websocket_message_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MAX_MESSAGE_BYTES", 10)

    async def script(peer: Peer) -> None:
        await accept(peer, text("0123456", fin=False) + text("789x", opcode=0))
        await peer.gone()

    async def work(socket: WebSocket) -> None:
        with pytest.raises(UpstreamFault, match="more than 10"):
            await socket.receive()

    meet(run, script, work)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x88\x05\x03\xe9bye", 1001),
        (b"\x01\x01x" + b"\x88\x05\x03\xe9bye", 1001),
        (b"\x81\x82mask", 1002),
        (b"\x81\x01\xff", 1007),
        (b"\x01\x01\xc3\x80\x01x", 1007),
        (b"\x81\x7f" + (2**40).to_bytes(8), 1009),
    ],
    ids=[
        "close frame",
        "close frame inside a message",
        "masked frame",
        "no UTF-8",
        "no UTF-8 over two frames",
        "too large",
    ],
)
def test_close_frame_names_the_reason(run: Run, sent: bytes, code: int) -> None:
    """RFC 6455, 5.5.1 and 7.1.7. The head of a frame that is too large is enough."""
    payloads: list[bytes] = []

    async def script(peer: Peer) -> None:
        await accept(peer, sent)
        head = await peer._reader.readexactly(6)
        assert (head[0], head[1] & 0x80) == (0x88, 0x80)
        masked = await peer._reader.readexactly(head[1] & 0x7F)
        payloads.append(bytes(byte ^ head[2 + at % 4] for at, byte in enumerate(masked)))
        await peer.gone()

    async def work(socket: WebSocket) -> None:
        with pytest.raises(UpstreamFault):
            await socket.receive()

    meet(run, script, work)
    assert payloads[0][:2] == code.to_bytes(2)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 2\r\n\r\nno", 426),
        (b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\n\r\nno", 404),  # until the connection ends
        (b"HTTP/1.0 404 Not Found\r\ncontent-length: 2\r\n\r\nno", 404),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 9\r\n\r\nno", 403),  # cut off
    ],
)
def test_refused_upgrade_raises_with_status_and_body(run: Run, answer: bytes, status: int) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        peer.shut()
        await peer.gone()

    async def whole() -> None:
        async with serving(script) as place, network() as transport:
            with pytest.raises(UpgradeRefused) as caught:
                await open_websocket(transport, place.url, {}, Timeouts())
            assert (caught.value.status, caught.value.body) == (status, b"no")

    run(whole())


@pytest.mark.parametrize(
    "header",
    ["upgrade: h2c", "sec-websocket-extensions: permessage-deflate", "sec-websocket-protocol: chat"],
)
def test_response_that_selects_something_not_offered_is_a_fault(run: Run, header: str) -> None:
    """RFC 6455, 4.1."""

    async def script(peer: Peer) -> None:
        await accept(peer, headers=header.encode() + b"\r\n")
        await peer.gone()

    async def whole() -> None:
        async with serving(script) as place, network() as transport:
            with pytest.raises(UpstreamFault, match="not valid"):
                await open_websocket(transport, place.url, {}, Timeouts())

    run(whole())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: wrong\r\n\r\n",
        b"what?\r\n\r\n",
        b"",
    ],
)
def test_invalid_upgrade_response_is_a_fault(run: Run, answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.say(answer)
        peer.shut()
        await peer.gone()

    async def whole() -> None:
        async with serving(script) as place, network() as transport:
            with pytest.raises(UpstreamFault) as caught:
                await open_websocket(transport, place.url, {}, Timeouts())
            assert caught.value.code in ("upstream_invalid_response", "upstream_disconnected")

    run(whole())


def test_upgrade_header_with_a_line_break_is_refused(run: Run) -> None:
    async def whole() -> None:
        async with network() as transport:
            with pytest.raises(UpstreamFault, match="line break"):
                await open_websocket(transport, "http://127.0.0.1:9/x", {"x": "a\r\nb: c"}, Timeouts())
        with pytest.raises(UpstreamFault, match="closed"):
            await open_websocket(transport, "http://127.0.0.1:9/x", {}, Timeouts())

    run(whole())


def test_silent_websocket_server_times_out() -> None:
    async def mute(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async def hello(peer: Peer) -> None:
        await accept(peer)
        await peer.gone()

    async def whole() -> None:
        limits = Timeouts(first_byte=50, idle=50)
        async with serving(mute) as place, network() as transport:
            opening = asyncio.ensure_future(open_websocket(transport, place.url, {}, limits))
            await until(lambda: place.connections == 1)
            await pass_time(51)
            with pytest.raises(UpstreamFault, match="sent nothing for 50 s"):
                await opening
        async with serving(hello) as place, network() as transport:
            socket = await open_websocket(transport, place.url, {}, limits)
            waiting = asyncio.ensure_future(socket.receive())
            await asyncio.sleep(0)
            await pass_time(51)
            with pytest.raises(UpstreamFault, match="sent nothing for 50 s"):
                await waiting

    with asyncio.Runner(loop_factory=TurnableClock) as runner:
        runner.run(whole())
