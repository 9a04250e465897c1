"""The client's side of a WebSocket (RFC 6455), pure: the protocol object of websockets, with text messages as its
output.

Import this module when a WebSocket is opened, not before: it imports websockets, and most programs open no WebSocket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import WebSocketURI


class WebSocketProtocol(ClientProtocol):
    """One connection after the request for the upgrade. It answers pings and close frames; `data_to_send` has the
    answers."""

    def __init__(self, max_message: int) -> None:
        super().__init__(NO_ADDRESS, state=State.OPEN, max_size=max_message)
        self._is_text = False  # the incomplete message
        self._payload = bytearray()  # of its frames so far, if it is a text

    def is_valid_response(self, status: int, headers: Iterable[tuple[str, str]]) -> bool:
        """RFC 6455, 4.1: whether the server accepts the upgrade, and selects nothing that was not offered."""
        try:
            self.process_response(Response(status, "", Headers(headers)))
        except InvalidHandshake:
            return False
        return True

    def receive_texts(self, data: bytes) -> list[str]:
        """The text messages that `data` completes. Invalid data makes the protocol send a close frame."""
        self.receive_data(data)
        texts: list[str] = []
        for event in self.events_received():
            frame = cast(Frame, event)
            if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                continue
            try:
                text = self._join_frame(frame)
            except UnicodeDecodeError:
                self.fail(CloseCode.INVALID_DATA, "a text message that is no UTF-8")
                break
            if text is not None:
                texts.append(text)
        return texts

    def recv_frame(self, frame: Frame) -> None:
        """Accepts a close frame inside a fragmented message, as RFC 6455, 5.4, allows. websockets refuses it."""
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None
        super().recv_frame(frame)

    def _join_frame(self, frame: Frame) -> str | None:
        """The message that `frame` ends. Binary messages are ignored, since this API does not use them."""
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if not self._is_text:
            return None
        self._payload += frame.data
        if not frame.fin:
            return None
        payload, self._payload = self._payload, bytearray()
        return payload.decode()


#: `HttpTransport` makes the request, so the protocol object needs no address.
NO_ADDRESS: Final = WebSocketURI(secure=False, host="", port=0, path="", query="")
