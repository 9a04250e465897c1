"""A WebSocket client that echoes every message, on the frame layer of `antiphon.upstream`."""

from __future__ import annotations

from unittest.mock import patch

from tests.upstream.scripted import network
from websockets.frames import Frame
from websockets.protocol import State

from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.upstream import websocket_protocol
from antiphon.upstream.websocket import open_websocket


class EchoProtocol(websocket_protocol.WebSocketProtocol):
    """Echoes binary messages too. The product ignores them, since no server sends any."""

    def __init__(self, max_message: int) -> None:
        super().__init__(max_message)
        self._binary = bytearray()

    def _join_frame(self, frame: Frame) -> str | None:
        text = super()._join_frame(frame)
        if not self._is_text:
            self._binary += frame.data
            if frame.fin and self.state is State.OPEN:
                self.send_binary(self._binary)
                self._binary = bytearray()
        return text


async def receive_messages(url: str, *, is_echo: bool) -> list[str]:
    """The text messages until the server closes the connection."""
    messages: list[str] = []
    async with network() as transport:
        with patch.object(websocket_protocol, "WebSocketProtocol", EchoProtocol):
            socket = await open_websocket(transport, url, {}, Timeouts())
        try:
            while True:
                messages.append(await socket.receive())
                if is_echo:
                    socket.send(messages[-1])
        except UpstreamFault:
            return messages
