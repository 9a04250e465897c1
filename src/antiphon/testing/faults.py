"""Scripted server faults that `turn`, `error` and `end` cannot express.

Each function returns a whole reply. Use `end` for faults of the connection inside a turn (FIN, RST, a cut chunk,
silence), `raw` for an error inside a 200, and `exactly` for everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.testing.script import SSE_HEAD, PlainReply, RawReply, Step, pause


def drip(answer: bytes, seconds: float = 0.0) -> RawReply:
    """Send an answer one byte at a time, with a pause after each."""
    return RawReply(steps=_drip(answer, seconds))


def endless(piece: bytes, *, before: bytes = SSE_HEAD, seconds: float = 0.01) -> RawReply:
    """Send the same piece forever, such as a keep-alive comment."""
    return RawReply(steps=_endless(before, piece, seconds))


def gigantic_line(size: int) -> RawReply:
    """Send one stream line of this many bytes, without a line end."""
    return RawReply(steps=_gigantic(size))


def redirect(location: str, status: int = 307) -> PlainReply:
    """Redirect to another server. A client must not follow it with its key."""
    return PlainReply(status=status, body=b"", headers={"location": location})


def page(status: int = 200) -> PlainReply:
    """Answer with an HTML page, as a proxy does."""
    return PlainReply(status=status, body=PAGE, headers={"content-type": "text/html; charset=utf-8"})


def _drip(answer: bytes, seconds: float) -> Iterator[Step]:
    for at in range(len(answer)):
        yield answer[at : at + 1]
        if seconds:
            yield pause(seconds)


def _endless(before: bytes, piece: bytes, seconds: float) -> Iterator[Step]:
    yield before
    while True:
        yield piece
        yield pause(seconds)


def _gigantic(size: int) -> Iterator[Step]:
    yield SSE_HEAD + b"data: "
    for start in range(0, size, len(FILLING)):
        yield FILLING[: size - start]


PAGE: Final = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>data: none</p></body></html>\n"
FILLING: Final = b"x" * (256 * 1024)
