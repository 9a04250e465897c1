"""A client that behaves badly on purpose: plain sockets on asyncio, so that it can do to the byte what it wants."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Final

from msgspec import Struct

NO_LINGER: Final = struct.pack("ii", 1, 0)


class Answer(Struct, frozen=True):
    """What came; a status of 0 is a connection that was closed without a word."""

    status: int
    body: bytes


class Ask(Struct, frozen=True, kw_only=True):
    """One request, and what is right for an answer to it."""

    kind: str
    head: bytes
    body: bytes
    is_right: Callable[[Answer], bool] = lambda _: True
    slowly: bool = False  # the body comes in pieces, the answer is read in small ones
    leaves: str = ""  # "": never; "at once", "in the middle": before the answer is whole
    resets: bool = False  # how it leaves


class Client:
    """One connection at a time, kept as long as the gateway keeps it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, ask: Ask) -> Answer | None:
        """The answer; None for a client that did not wait for it."""
        reader, writer = await self._connected()
        await _send(writer, ask)
        if ask.leaves:
            if ask.leaves == "in the middle":
                await reader.read(300)
            self.leave(resets=ask.resets)
            return None
        answer, keeps = await _read(reader, slowly=ask.slowly)
        if not keeps:
            self.leave()
        return answer

    def leave(self, *, resets: bool = False) -> None:
        if self._writer is not None:
            if resets:
                self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self._writer.close()
        self._reader = self._writer = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None or self._reader.at_eof():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self._reader, self._writer


async def _send(writer: asyncio.StreamWriter, ask: Ask) -> None:
    if not ask.slowly:
        writer.write(ask.head + ask.body)
        return
    third = len(ask.body) // 3
    for piece in (ask.head, ask.body[:third], ask.body[third : 2 * third], ask.body[2 * third :]):
        writer.write(piece)
        await asyncio.sleep(0.02)


async def _read(reader: asyncio.StreamReader, *, slowly: bool) -> tuple[Answer, bool]:
    """An answer, and whether the connection may be used again."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except asyncio.IncompleteReadError:
        return Answer(0, b""), False
    if b"transfer-encoding: chunked" in head:
        body = await _chunks(reader, slowly)
    else:
        body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return Answer(int(head.split(b" ", 2)[1]), body), b"connection: close" not in head


async def _chunks(reader: asyncio.StreamReader, slowly: bool) -> bytes:
    pieces: list[bytes] = []
    while size := int(await reader.readline(), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
        if slowly and len(pieces) % 8 == 0:
            await asyncio.sleep(0.02)
    await reader.readline()
    return b"".join(pieces)
