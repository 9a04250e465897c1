"""The WebSocket handshake (RFC 6455, 4.2): checks the request and makes the response. Pure."""

from __future__ import annotations

import re
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from websockets.utils import accept_key

from antiphon.errors import ClientFault
from antiphon.http.asgi import Headers, Scope, header_values


class BadHandshake(ClientFault):
    """An invalid upgrade request; `headers` tell the client what is supported."""

    def __init__(self, message: str, *, is_wrong_version: bool = False) -> None:
        code, status = ("upgrade_required", 426) if is_wrong_version else (None, None)
        super().__init__(f"WebSocket handshake: {message}", code=code, status=status)
        upgrade: Headers = [(b"upgrade", b"websocket"), (b"connection", b"close, upgrade")]
        self.headers: Headers = [
            (b"sec-websocket-version", b"13"),
            *(upgrade if is_wrong_version else [(b"connection", b"close")]),
        ]


def check_handshake(scope: Scope) -> None:
    """Refuses requests that are not a version 13 handshake."""
    if scope["method"] != "GET" or scope["http_version"] != "1.1":
        raise BadHandshake("expected GET and HTTP/1.1")
    if header_values(scope, b"transfer-encoding") or any(
        length.strip(b"0") for length in header_values(scope, b"content-length")
    ):
        raise BadHandshake("expected no body")
    tokens = [token.strip().lower() for value in header_values(scope, b"upgrade") for token in value.split(b",")]
    if b"websocket" not in tokens:
        raise BadHandshake("upgrade: expected `websocket`")
    if header_values(scope, b"sec-websocket-version") != [b"13"]:
        raise BadHandshake("sec-websocket-version: expected 13", is_wrong_version=True)
    match header_values(scope, b"sec-websocket-key"):
        case [key] if KEY_PATTERN.fullmatch(key):
            pass
        case _:
            raise BadHandshake("sec-websocket-key: expected 16 bytes in base64, once")


def handshake_response(scope: Scope, headers: Headers) -> bytes:
    """The response to a valid handshake. It selects no extension and no subprotocol."""
    [key] = header_values(scope, b"sec-websocket-key")
    lines = [
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", accept_key(key.decode()).encode()),
        *headers,
    ]
    return STATUS_LINE[101] + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n"


KEY_PATTERN: Final = re.compile(rb"[A-Za-z0-9+/]{22}==")
