"""Bad days of a server, ready to be scripted: what `turn`, `error` and `end` cannot say by themselves.

Each gives a whole reply. What a connection does in the middle of an otherwise good turn (FIN, RST, a cut chunk, silence) is `end`,
an error inside a 200 is `raw`, and anything else is spelled out with `exactly`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from antiphon.testing.script import SSE_HEAD, PlainReply, RawReply, Step, pause


def drip(answer: bytes, seconds: float = 0.0) -> RawReply:
    """An answer, one byte at a time, with a pause after each."""
    return RawReply(steps=_drip(answer, seconds))


def endless(piece: bytes, *, before: bytes = SSE_HEAD, seconds: float = 0.01) -> RawReply:
    """The same piece for ever, such as a comment that keeps a connection alive and says nothing."""
    return RawReply(steps=_endless(before, piece, seconds))


def gigantic_line(size: int) -> RawReply:
    """A line of a stream that has this many bytes, and no end."""
    return RawReply(steps=_gigantic(size))


def redirect(location: str, status: int = 307) -> PlainReply:
    """The way to another server, which nobody should take with somebody's key in hand."""
    return PlainReply(status=status, body=b"", headers={"location": location})


def page(status: int = 200) -> PlainReply:
    """What a proxy in between has to say, in HTML."""
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
