"""Servers that say exactly what a test wants, byte for byte, and a clock that a test can turn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

from antiphon.config import Timeouts
from antiphon.upstream.connection import Connection
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.http_response import HttpResponse

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.number = number  # counts connections, from 1
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """One whole request: head and body."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        return head + await self._reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def say_raw(self, data: bytes) -> None:
        """Bytes past TLS."""
        os.write(self._writer.get_extra_info("socket").fileno(), data)

    def shut(self) -> None:
        """FIN; inside TLS announced as it should be."""
        self._writer.close()

    def abort(self) -> None:
        """The end, inside TLS unannounced."""
        self._writer.transport.abort()

    def reset(self) -> None:
        """RST."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Waits until the client has hung up."""
        with contextlib.suppress(OSError):  # TLS may be broken as well
            while await self._reader.read(65536):
                pass


Script = Callable[[Peer], Awaitable[None]]


class Serving:
    """A running server: where it is, and the connections it saw."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/v1/x"
        self.connections = 0


@contextlib.asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Serving]:
    """Runs `script` on every connection; what goes wrong in it goes wrong in the test."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def play(peer: Peer) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the client left
            await script(peer)

    def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place.connections += 1
        writers.append(writer)
        tasks.append(asyncio.create_task(play(Peer(reader, writer, place.connections))))

    server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=tls)
    place = Serving(server.sockets[0].getsockname()[1])
    try:
        yield place
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        for task in tasks:
            if not task.done():
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: all(writer.transport.is_closing() for writer in writers))
        await asyncio.sleep(0)
    for result in results:
        if isinstance(result, Exception):
            raise result


@contextlib.asynccontextmanager
async def network(environ: dict[str, str] | None = None) -> AsyncIterator[HttpTransport]:
    """A transport that is closed afterwards, and has left nothing behind."""
    transport = HttpTransport(environ or {})
    try:
        yield transport
    finally:
        await transport.close()
        assert transport.open_connections == 0


async def post(
    transport: HttpTransport, url: str, body: bytes = b"{}", timeouts: Timeouts | None = None
) -> HttpResponse:
    return await transport.send("POST", url, {"content-type": "application/json"}, body, timeouts or Timeouts())


async def whole(answer: HttpResponse) -> bytes:
    return b"".join([piece async for piece in answer.pieces()])


class Wire(asyncio.Transport):
    """A socket of no machine: the test says what comes out of it, and looks at what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.written = bytearray()
        self.paused = False
        self.lost: list[Connection] = []
        self.given_back: list[Connection] = []
        self.connection = Connection(memoryview(bytearray(64)), self.lost.append)
        self.connection.connection_made(self)

    def answer(self, timeouts: Timeouts | None = None) -> HttpResponse:
        begun = asyncio.get_running_loop().time()
        return HttpResponse(
            self.connection, self.given_back.append, timeouts or Timeouts(), begun, asyncio.get_running_loop()
        )

    def deliver(self, data: bytes) -> None:
        for at in range(0, len(data), 64):
            part = data[at : at + 64]
            self.connection.get_buffer(-1)[: len(part)] = part
            self.connection.buffer_updated(len(part))

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0


async def until(condition: Callable[[], bool]) -> None:
    """Polls, for a few seconds at most."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.003)
    raise AssertionError("what was waited for did not happen")


class TurnableClock(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can put forward, or stop."""

    ahead = 0.0
    stands_at: float | None = None

    def time(self) -> float:
        return super().time() + self.ahead if self.stands_at is None else self.stands_at


async def pass_time(seconds: float) -> None:
    """Puts the clock forward, and lets everything happen that is due then."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TurnableClock)
    loop.ahead += seconds
    for _ in range(10):
        await asyncio.sleep(0)


def with_turned_clock(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Runs work in an event loop with such a clock."""
    with asyncio.Runner(loop_factory=TurnableClock) as runner:
        runner.run(work())
