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
    return RawReply(steps=_drip_steps(answer, seconds))


def endless(piece: bytes, *, before: bytes = SSE_HEAD, seconds: float = 0.01) -> RawReply:
    """Send the same piece forever, such as a keep-alive comment."""
    return RawReply(steps=_endless_steps(before, piece, seconds))


def gigantic_line(size: int) -> RawReply:
    """Send one stream line of this many bytes, without a line end."""
    return RawReply(steps=_gigantic_line_steps(size))


def redirect(location: str, status: int = 307) -> PlainReply:
    """Redirect to another server. A client must not follow it with its key."""
    return PlainReply(status=status, body=b"", headers={"location": location})


def page(status: int = 200) -> PlainReply:
    """Answer with an HTML page, as a proxy does."""
    return PlainReply(status=status, body=HTML_PAGE, headers={"content-type": "text/html; charset=utf-8"})


def _drip_steps(answer: bytes, seconds: float) -> Iterator[Step]:
    for index in range(len(answer)):
        yield answer[index : index + 1]
        if seconds:
            yield pause(seconds)


def _endless_steps(before: bytes, piece: bytes, seconds: float) -> Iterator[Step]:
    yield before
    while True:
        yield piece
        yield pause(seconds)


def _gigantic_line_steps(size: int) -> Iterator[Step]:
    yield SSE_HEAD + b"data: "
    for start in range(0, size, len(FILLER)):
        yield FILLER[: size - start]


HTML_PAGE: Final = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body><p>data: none</p></body></html>\n"
FILLER: Final = b"x" * (256 * 1024)
