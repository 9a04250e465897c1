"""WebSockets without a network: a transport that stores what is written, and a clock that the test advances; so splits
and times are exact."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from tests.websocket_client import frame, upgrade
from uvicorn.server import ServerState
from wsproto.frame_protocol import FrameProtocol

from antiphon.config import Config
from antiphon.errors import ClientDisconnected
from antiphon.http.access_policy import AccessPolicy
from antiphon.http.body_budget import BodyBudget
from antiphon.http.connection import HttpProtocol
from antiphon.http.websocket import (
    MAX_FRAMES_PER_STEP,
    MIN_BYTES_PER_SECOND,
    READ_AHEAD,
    WebSocket,
    WebSocketRoutes,
    WebSocketTimeouts,
)

pytestmark = pytest.mark.without_coverage
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
TIMES = WebSocketTimeouts()
PING, PONG = (9, b""), 10


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time stands still until a test advances it."""

    now = 1000.0

    def time(self) -> float:
        return self.now


class Line(asyncio.Transport):
    """Stores what is written. `waiting` is the part that the client has not read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.data = b""
        self.waiting = 0
        self.reads = True
        self.ended: list[str] = []
        self.protocol: Any = None

    def write(self, data: Any) -> None:
        assert not self.ended, "written after the end"
        self.data += data

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def is_closing(self) -> bool:
        return "close" in self.ended or "abort" in self.ended

    def write_eof(self) -> None:
        self.ended.append("eof")

    def close(self) -> None:
        self.ended.append("close")
        if not self.waiting:
            self.loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.ended.append("abort")
        self.loop.call_soon(self.protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default


MAX_MESSAGE = 10_000_000


class Scene:
    """One WebSocket, its transport and its clock."""

    def __init__(self, loop: Clock, times: WebSocketTimeouts) -> None:
        self.loop = loop
        self.line = Line(loop)
        self.heard: list[str] = []
        self.gone = 0
        self.limits = 0
        self.socket: WebSocket = None  # type: ignore[assignment]
        self.state = ServerState()
        self.budget = BodyBudget(MAX_MESSAGE)
        policy = AccessPolicy.from_config(Config(), {})
        app = _App(WebSocketRoutes(policy, {"/ws": self._meet}, MAX_MESSAGE, times, self.budget))
        config = uvicorn.Config(app, http=HttpProtocol, ws="none", lifespan="off", log_config=None, proxy_headers=False)
        self.http = HttpProtocol(config=config, server_state=self.state, app_state={}, _loop=loop)
        self.line.protocol = self.http
        self.http.connection_made(self.line)

    def _meet(self, socket: WebSocket) -> None:
        self.socket = socket
        socket.on_message = lambda text: self.heard.append(text.decode())
        socket.on_closed = self._count_gone
        socket.on_lifetime_exceeded = self._count_limit

    def _count_gone(self) -> None:
        self.gone += 1

    def _count_limit(self) -> None:
        self.limits += 1

    def open(self) -> Scene:
        self.feed(upgrade("/ws", KEY))
        assert self.socket is not None
        return self

    def feed(self, data: bytes) -> None:
        self.line.protocol.data_received(data)

    def said(self) -> list[tuple[int, object]]:
        """The frames since the last call, without the handshake."""
        data, self.line.data = self.line.data, b""
        client = FrameProtocol(client=True, extensions=[])
        client.receive_bytes(data.partition(b"\r\n\r\n")[2] if data.startswith(b"HTTP") else data)
        return [(int(received.opcode), received.payload) for received in client.received_frames()]

    async def after(self, seconds: float) -> None:
        self.loop.now += seconds
        await turns()


class _App:
    def __init__(self, websockets: WebSocketRoutes) -> None:
        self.websockets = websockets

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The application for requests before the upgrade."""
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def played(play: Callable[[Scene], Awaitable[None]], times: WebSocketTimeouts = TIMES) -> Scene:
    """Runs a scene to its end; then no timer and no connection may be left."""
    loop = Clock()

    async def whole() -> Scene:
        scene = Scene(loop, times)
        await play(scene)
        if scene.state.connections:
            scene.line.protocol.connection_lost(None)
        await turns()
        assert scene.gone == (scene.socket is not None)
        assert scene.state.connections == set()
        assert not [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return scene

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(whole())


# Splits

WHOLE = (
    upgrade("/ws", KEY)
    + frame(1, "Grüße, 🎶".encode())
    + frame(9, b"?")
    + frame(1, b"in ", fin=False)
    + frame(0, b"two")
)


def test_handshake_and_messages_are_the_same_for_every_split() -> None:
    def pieces_of(cut: int) -> list[bytes]:
        return [WHOLE[:cut], WHOLE[cut:]]

    bytewise = [WHOLE[at : at + 1] for at in range(len(WHOLE))]
    for pieces in [[WHOLE], bytewise, *map(pieces_of, range(1, len(WHOLE)))]:

        async def play(scene: Scene, pieces: list[bytes] = pieces) -> None:
            for piece in pieces:
                scene.feed(piece)
            assert scene.line.data.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
            assert scene.heard == ["Grüße, 🎶", "in two"]
            assert scene.said() == [(PONG, b"?")]
            assert list(scene.state.connections) == [cast(Any, scene.socket)]

        played(play)


@pytest.mark.parametrize("unread", [None, 0, 1000])
def test_http_protocol_is_released_after_the_upgrade(unread: int | None) -> None:
    """Its timers would close the connection, and it would waste memory; also if a request was answered before."""

    async def play(scene: Scene) -> None:
        if unread is not None:
            scene.line.waiting = unread
            scene.feed(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await turns()
            assert scene.line.data.endswith(b"ok")
            scene.line.data = b""
        scene.open()
        http = weakref.ref(scene.http)
        scene.http = None  # type: ignore[assignment]
        gc.collect()
        assert http() is None
        await scene.after(25)  # longer than the head timeout
        assert not scene.line.ended

    played(play)


# Pings and pongs


def test_silent_client_is_pinged_after_30_s_and_disconnected_after_60_s() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        await scene.after(29.9)
        assert scene.said() == []
        await scene.after(0.2)
        assert scene.said() == [PING]
        await scene.after(29.8)
        assert not scene.line.ended
        await scene.after(0.3)
        assert scene.line.ended == ["abort"]

    played(play)


def test_pong_timeout_may_exceed_the_ping_interval() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        for _ in range(5):
            await scene.after(10)
        assert (scene.said(), scene.line.ended) == ([PING], [])
        await scene.after(1)
        assert scene.line.ended == ["abort"]

    played(play, WebSocketTimeouts(ping_interval=10, pong_timeout=40.5))


@pytest.mark.parametrize("sign", [frame(10), frame(1, b"hello"), b"\x81"], ids=["a pong", "a message", "a byte"])
def test_any_byte_counts_as_a_pong(sign: bytes) -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        for _ in range(3):
            await scene.after(31)
            assert scene.said() == [PING]
            await scene.after(10)
            scene.feed(sign)
            if sign == b"\x81":
                scene.feed(frame(1)[1:])

    assert not played(play).limits


def test_client_that_sends_is_not_pinged() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        for _ in range(20):
            await scene.after(20)
            scene.feed(frame(1, b"hello"))
        assert scene.said() == []

    played(play)


def test_slow_reader_is_not_disconnected_for_an_unread_ping() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.send(b"x" * 1000)
        scene.line.waiting = 1000
        for _ in range(20):
            await scene.after(31)
            scene.line.waiting -= 10
        assert not scene.line.ended
        assert (9, b"") not in scene.said()
        scene.line.waiting = 0
        await scene.after(61)
        assert scene.said() == [PING]

    played(play)


def test_small_unread_data_disconnects_the_client() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.send(b"x" * 1000)
        scene.line.waiting = 1000
        await scene.after(31)
        await scene.after(61)
        assert scene.line.ended == ["abort"]

    played(play)


def test_paused_client_is_pinged_but_not_disconnected() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.pause()
        scene.feed(frame(1, b"x" * MAX_MESSAGE))
        assert not scene.line.reads
        for _ in range(5):
            await scene.after(31)
            assert scene.said() == [PING]
        scene.socket.resume()
        await turns()
        assert scene.line.reads
        assert scene.heard == ["x" * MAX_MESSAGE]

    played(play)


def test_client_that_leaves_with_megabytes_unread_is_noticed() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.pause()
        for _ in range(80):
            scene.feed(frame(1, b"x" * 100_000))
        assert scene.line.reads
        scene.line.protocol.eof_received()
        assert scene.gone == 1
        scene.line.protocol.connection_lost(None)
        assert scene.budget.used_bytes == 0

    played(play)


def test_input_behind_a_turn_is_read_within_the_budget() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        assert scene.budget.try_take(MAX_MESSAGE - 2 * READ_AHEAD)
        scene.socket.pause()
        scene.feed(frame(1, b"x" * READ_AHEAD))
        assert scene.line.reads
        scene.feed(frame(1, b"x" * (2 * READ_AHEAD)))
        assert not scene.line.reads
        scene.socket.resume()
        await turns()
        assert scene.line.reads
        assert scene.budget.used_bytes == MAX_MESSAGE - 2 * READ_AHEAD

    played(play)


# Message timeouts


def test_message_timeout_grows_with_the_size() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.feed(frame(1, b"x" * (20 * MIN_BYTES_PER_SECOND), fin=False))
        await scene.after(79)
        scene.feed(frame(0, b"", fin=False))
        assert not scene.line.ended
        await scene.after(2)
        assert scene.said()[-1] == (8, (1008, "the rest of a message was not received in time"))
        assert scene.line.ended == ["eof"]

    played(play)


def test_message_timeout_restarts_with_each_message() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        data = frame(1, b"hello")
        scene.feed(data[:5])
        for _ in range(5):
            await scene.after(40)
            scene.feed(data[5:] + data[:5])
        assert len(scene.heard) == 5
        ping = frame(9, b"hello")
        scene.feed(data[5:] + ping[:5])
        for _ in range(5):
            await scene.after(40)
            scene.feed(ping[5:] + ping[:5])
        assert not scene.line.ended

    played(play)


def test_message_timeout_does_not_count_paused_time() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        data = frame(1, b"hello")
        scene.feed(data[:5])
        scene.socket.pause()
        await scene.after(100)
        scene.feed(data[5:7])
        scene.socket.resume()
        scene.socket.resume()
        await scene.after(50)
        scene.feed(data[7:])
        assert scene.heard == ["hello"]

    played(play)


def test_pings_do_not_extend_the_message_timeout() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.feed(frame(1, b"x", fin=False))
        for _ in range(7):
            await scene.after(9)
            if not scene.line.ended:
                scene.feed(frame(9, b"?"))
        assert scene.line.ended == ["eof"]

    played(play)


# Slow readers


def test_stalled_client_is_disconnected_after_a_minute() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.send(b"x" * 100_000)
        scene.line.waiting = 100_000
        scene.socket.pause_writing()
        assert scene.socket.is_write_paused
        await scene.after(59)
        assert not scene.line.ended
        await scene.after(2)
        assert scene.line.ended == ["abort"]

    played(play)


def test_client_that_reads_a_little_is_not_disconnected() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.send(b"x" * 100_000)
        scene.line.waiting = 100_000
        scene.socket.pause_writing()
        for _ in range(5):
            scene.socket.send(b"y" * 96)
            scene.line.waiting += 98 - 10
            await scene.after(61)
        assert not scene.line.ended

    played(play)


def test_stall_timeout_restarts_after_progress() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.send(b"x" * 100_000)
        scene.line.waiting = 100_000
        scene.socket.pause_writing()
        await scene.after(59)
        scene.line.waiting = 99_999
        await scene.after(1.5)
        await scene.after(59)
        assert not scene.line.ended
        await scene.after(1.5)
        assert scene.line.ended == ["abort"]

    played(play)


def test_stall_timeout_ends_when_everything_is_read() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.send(b"x" * 100_000)
        scene.line.waiting = 100_000
        scene.socket.pause_writing()
        await scene.after(30)
        scene.line.waiting = 0
        scene.socket.resume_writing()
        assert not scene.socket.is_write_paused
        await scene.after(61)
        assert not scene.line.ended

    played(play)


def test_wait_until_writable_returns_on_reading_and_raises_on_disconnect() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        await scene.socket.wait_until_writable()
        for end in (scene.socket.resume_writing, scene.line.abort):
            scene.socket.pause_writing()
            waits = asyncio.ensure_future(scene.socket.wait_until_writable())
            await turns()
            assert not waits.done()
            end()
            await turns()
            assert waits.done()
            assert isinstance(waits.exception(), ClientDisconnected) == (end == scene.line.abort)
        with pytest.raises(ClientDisconnected):
            await scene.socket.wait_until_writable()

    played(play)


def test_latest_ping_of_a_slow_reader_is_answered_when_it_reads() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.pause_writing()
        scene.feed(frame(9, b"one") + frame(9, b"two"))
        assert scene.said() == []
        scene.socket.resume_writing()
        assert scene.said() == [(PONG, b"two")]
        scene.socket.pause_writing()
        scene.socket.resume_writing()
        assert scene.said() == []

    played(play)


def test_no_pong_is_sent_after_the_close_frame() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.pause_writing()
        scene.feed(frame(9, b"?"))
        scene.socket.close()
        scene.socket.resume_writing()
        scene.socket.pause_writing()
        assert scene.said() == [(8, (1000, ""))]
        scene.socket.resume_writing()

    played(play)


def test_pending_writes_after_the_end_have_a_timeout() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.line.waiting = 100
        scene.socket.pause_writing()
        scene.feed(frame(8))
        assert (scene.gone, scene.line.ended) == (1, ["close"])
        scene.socket.pause_writing()  # no pong is due any more
        await scene.after(6)
        assert scene.line.ended == ["close", "abort"]

    played(play)


# Limited reading


def test_frames_per_turn_are_limited_and_reading_pauses() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.feed(b"".join(frame(1, b"%d" % at) for at in range(MAX_FRAMES_PER_STEP * 2 + 1)))
        assert (len(scene.heard), scene.line.reads) == (MAX_FRAMES_PER_STEP, False)
        scene.feed(frame(1, b"a read that was under way"))
        assert len(scene.heard) == MAX_FRAMES_PER_STEP
        await turns()
        assert (len(scene.heard), scene.line.reads) == (MAX_FRAMES_PER_STEP * 2 + 2, True)
        assert scene.heard[-1] == "a read that was under way"

    played(play)


def test_endpoint_that_pauses_in_a_message_gets_no_other() -> None:
    async def play(scene: Scene) -> None:
        scene.open()

        def pause(text: bytes) -> None:
            scene.heard.append(text.decode())
            scene.socket.pause()

        scene.socket.on_message = pause
        scene.feed(frame(1, b"one") + frame(1, b"two"))
        assert scene.heard == ["one"]
        scene.socket.resume()
        await turns()
        assert scene.heard == ["one", "two"]

    played(play)


def test_endpoint_can_pause_and_resume_during_many_frames() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.feed(frame(1, b"hello") * (MAX_FRAMES_PER_STEP + 1))
        scene.socket.pause()
        await turns()
        assert (len(scene.heard), scene.line.reads) == (MAX_FRAMES_PER_STEP, True)
        scene.feed(frame(1, b"hello") * MAX_FRAMES_PER_STEP)
        scene.socket.resume()
        await turns()
        scene.socket.pause()
        scene.socket.resume()
        scene.socket.pause()
        scene.socket.resume()
        await turns()
        assert len(scene.heard) == MAX_FRAMES_PER_STEP * 2 + 1

    played(play)


def test_disconnect_during_many_frames_ends_processing() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.feed(frame(9) * (MAX_FRAMES_PER_STEP + 5))
        scene.line.protocol.eof_received()
        assert scene.gone == 1
        await turns()
        assert scene.line.reads

    played(play)


# Closing


def test_lifetime_callback_is_called_once_without_closing() -> None:
    """WS-9, the part of the connection."""

    async def play(scene: Scene) -> None:
        scene.open()
        for _ in range(3 * 60):
            await scene.after(20)
            scene.feed(frame(10))
        await scene.after(1)
        assert scene.limits == 1
        assert not scene.line.ended

    played(play)


def test_lifetime_without_callback_closes_the_connection() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.on_lifetime_exceeded = None
        await scene.after(1.1)
        [(opcode, payload)] = scene.said()
        assert (opcode, cast(Any, payload)[0]) == (8, 1001)
        scene.feed(frame(8))
        assert scene.line.ended == ["close"]

    played(play, WebSocketTimeouts(lifetime=1.0))


def test_unanswered_close_frame_times_out_after_5_s() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.close(4000, "bye")
        assert scene.said() == [(8, (4000, "bye"))]
        assert scene.gone == 0  # not from within
        await turns()
        assert scene.gone == 1
        await scene.after(4.9)
        assert not scene.line.ended
        scene.socket.shutdown()
        await scene.after(0.2)
        assert scene.line.ended == ["close"]

    played(play)


def test_close_reads_the_close_frame_behind_unread_messages() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.socket.pause()
        scene.feed(frame(1, b"not read") + frame(8))
        scene.socket.close()
        await turns()
        assert scene.heard == []
        assert scene.line.ended == ["close"]

    played(play)


def test_exception_in_on_closed_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        scene.open()

        def fail() -> None:
            scene.gone += 1
            raise ZeroDivisionError

        scene.socket.on_closed = fail
        scene.line.protocol.eof_received()
        scene.feed(frame(1, b"too late"))

    assert played(play).heard == []
    assert [record.message for record in caplog.records] == ["a WebSocket endpoint failed"]


def test_frames_after_a_close_frame_are_ignored() -> None:
    async def play(scene: Scene) -> None:
        scene.open()
        scene.feed(frame(8) + frame(8) + b"\x00\x00")
        assert scene.said() == [(8, (1005, ""))]
        assert scene.line.ended == ["close"]

    played(play)


def test_closed_connection_is_read_until_eof(caplog: pytest.LogCaptureFixture) -> None:
    """Closing with unread bytes would reset the connection."""

    async def play(scene: Scene) -> None:
        scene.open()

        def fail(text: bytes) -> None:
            scene.socket.pause()
            raise ZeroDivisionError(text)

        scene.socket.on_message = fail
        scene.feed(frame(1, b"hello") + frame(1, b"x" * (READ_AHEAD + 1)))
        assert (scene.line.ended, scene.line.reads) == (["eof"], True)

    played(play)
    assert len(caplog.records) == 1


def test_exception_after_our_close_frame_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def play(scene: Scene) -> None:
        scene.open()

        def fail(text: bytes) -> None:
            scene.socket.close(1000, text.decode())
            raise ZeroDivisionError

        scene.socket.on_message = fail
        scene.feed(frame(1, b"hello"))
        assert scene.said() == [(8, (1000, "hello"))]
        assert scene.line.ended == ["close"]

    played(play)
    assert len(caplog.records) == 1
