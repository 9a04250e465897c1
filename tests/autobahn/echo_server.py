"""A WebSocket server that echoes every message, on the frame layer of `antiphon.http`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from websockets.frames import Frame

from antiphon.config import Config
from antiphon.http.access_policy import AccessPolicy
from antiphon.http.connection import HttpProtocol
from antiphon.http.websocket import WebSocket, WebSocketRoutes
from antiphon.http.websocket_protocol import FrameReader, ReceivedFrame, text_frame

MAX_MESSAGE = 16 * 1024 * 1024


class BinaryReader(FrameReader):
    """Keeps the payload of binary messages. The product discards it, since no endpoint reads it."""

    def __init__(self, max_message: int) -> None:
        super().__init__(max_message)
        self.payload = bytearray()

    def _join_frame(self, frame: Frame) -> ReceivedFrame:
        if not self.is_in_message:
            self.payload = bytearray()
        self.payload += frame.data
        return super()._join_frame(frame)


class App:
    """An application with a WebSocket at `/` and nothing else."""

    def __init__(self) -> None:
        self.websockets = WebSocketRoutes(AccessPolicy.from_config(Config(), {}), {"/": echo}, MAX_MESSAGE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError("only WebSockets are served")


def echo(opened: WebSocket) -> None:
    reader = opened._reader = BinaryReader(MAX_MESSAGE)
    opened.on_message = opened.send
    opened.on_binary = lambda: opened._write(b"\x82" + text_frame(bytes(reader.payload))[1:])


@asynccontextmanager
async def serve_echo() -> AsyncIterator[int]:
    """Serves on a free port of this machine, and gives the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            App(), http=HttpProtocol, ws="none", lifespan="off", log_config=None, proxy_headers=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving
