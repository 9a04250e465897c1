"""Reads request bodies: JSON, complete, and within the size limit (HTTP-1)."""

from __future__ import annotations

from antiphon.errors import ClientDisconnected, ClientFault
from antiphon.http.asgi import Receive, Scope, first_header, header_values


def check_body_headers(scope: Scope, limit: int) -> None:
    """Refuses a body by its headers, before any of it is read."""
    if header_values(scope, b"content-encoding"):
        raise _unsupported("content-encoding: request bodies must not be encoded; send plain JSON")
    media_type = first_header(scope, b"content-type")
    if media_type != b"application/json":  # the usual form
        _check_media_type(media_type)
    length = first_header(scope, b"content-length")
    if length.isdigit() and int(length[:20]) > limit:
        raise _too_large(limit)


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body, of any number of pieces."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):  # the usual case: one piece
        return _check_size(bytes(message.get("body", b"")), limit)
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnected


def _check_media_type(value: bytes) -> None:
    media_type, _, parameters = value.partition(b";")
    if media_type.strip().lower() != b"application/json":
        shown_type = media_type.strip().decode("latin-1")[:100] or "nothing"
        raise _unsupported(f"content-type: expected 'application/json', got {shown_type!r}")
    charset = parameters.strip().lower().removeprefix(b"charset=").strip(b'"')
    if parameters.strip().lower().startswith(b"charset=") and charset not in (b"utf-8", b"utf8", b"us-ascii"):
        raise _unsupported("content-type: unsupported charset; expected UTF-8")


def _check_size(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> ClientFault:
    return ClientFault(f"the body is too large: expected at most {limit} bytes", code="request_too_large", status=413)


def _unsupported(message: str) -> ClientFault:
    return ClientFault(message, code="unsupported_media_type", status=415)
