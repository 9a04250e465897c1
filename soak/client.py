"""A client of the soak test on plain asyncio streams. It can send slowly, read slowly and disconnect at any time."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

NO_LINGER: Final = struct.pack("ii", 1, 0)
Disconnect = Literal["never", "before the answer", "during the answer"]


class Answer(Struct, frozen=True):
    """The answer of the gateway. The status is 0 if the connection was closed without an answer."""

    status: int
    body: bytes


class SoakRequest(Struct, frozen=True, kw_only=True):
    """One request, and the check of its answer."""

    kind: str
    head: bytes
    body: bytes
    is_expected: Callable[[Answer], bool]
    is_slow: bool = False  # sends the body in pieces and reads the answer in small pieces
    disconnect: Disconnect = "never"
    resets: bool = False  # disconnects with RST instead of FIN


class Client:
    """A client with at most one connection, which it reuses while the gateway keeps it open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, request: SoakRequest) -> Answer | None:
        """Sends a request and returns the answer, or None if the client disconnected before its end."""
        reader, writer = await self._connect()
        await _write_request(writer, request)
        if request.disconnect != "never":
            if request.disconnect == "during the answer":
                await reader.read(300)
            self.disconnect(resets=request.resets)
            return None
        answer, is_reusable = await _read_answer(reader, is_slow=request.is_slow)
        if not is_reusable:
            self.disconnect()
        return answer

    def disconnect(self, *, resets: bool = False) -> None:
        if self._writer is not None:
            if resets:
                self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self._writer.close()
        self._reader = self._writer = None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None or self._reader.at_eof():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self._reader, self._writer


async def _write_request(writer: asyncio.StreamWriter, request: SoakRequest) -> None:
    if not request.is_slow:
        writer.write(request.head + request.body)
        return
    body, third = request.body, len(request.body) // 3
    for piece in (request.head, body[:third], body[third : 2 * third], body[2 * third :]):
        writer.write(piece)
        await asyncio.sleep(0.02)


async def _read_answer(reader: asyncio.StreamReader, *, is_slow: bool) -> tuple[Answer, bool]:
    """Returns the answer, and whether the connection can be used again."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except asyncio.IncompleteReadError:
        return Answer(0, b""), False
    if b"transfer-encoding: chunked" in head:
        body = await _read_chunks(reader, is_slow)
    else:
        body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return Answer(int(head.split(b" ", 2)[1]), body), b"connection: close" not in head


async def _read_chunks(reader: asyncio.StreamReader, is_slow: bool) -> bytes:
    pieces: list[bytes] = []
    while size := int(await reader.readline(), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
        if is_slow and len(pieces) % 8 == 0:
            await asyncio.sleep(0.02)
    await reader.readline()
    return b"".join(pieces)
