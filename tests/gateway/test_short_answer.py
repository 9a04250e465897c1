"""`gateway/short_answer`: answers without the settings that they repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import UpstreamFault
from antiphon.gateway.short_answer import AnswerShortener
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool

SMALL = b'event: a\ndata: {"type":"a"}\n\n'
RESPONSE = {"id": "resp_1", "tools": [], "instructions": "x" * LARGE_INPUT, "output": []}
BODY = msgspec.json.encode(RESPONSE)
LARGE = b'event: b\ndata: {"type":"b","response":%b,"n":1}\n\n' % BODY
SHORT = b'event: b\ndata: {"type":"b","response":{"id":"resp_1","output":[]},"n":1}\n\n'


def run(use: Callable[[AnswerShortener], Awaitable[None]], dialect: ServerDialectName = "responses") -> None:
    async def work() -> None:
        workers = WorkerPool(1)
        try:
            await use(AnswerShortener(SERVER_DIALECTS[dialect], workers))
        finally:
            await workers.close()

    asyncio.run(work())


async def pieces_of(*pieces: bytes, fault: UpstreamFault | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if fault is not None:
        raise fault


@pytest.mark.io
@pytest.mark.parametrize("size", [1000, 100_000, 10_000_000])
def test_large_frames_are_shortened_and_others_stay(size: int) -> None:
    stream = SMALL + LARGE + SMALL + LARGE + b"data: [DONE]\n\n"

    async def use(shortener: AnswerShortener) -> None:
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        short = [piece async for piece in shortener.shorten_pieces(pieces_of(*pieces))]
        assert b"".join(short) == SMALL + SHORT + SMALL + SHORT + b"data: [DONE]\n\n"

    run(use)


@pytest.mark.io
def test_large_body_is_shortened() -> None:
    async def use(shortener: AnswerShortener) -> None:
        assert await shortener.shorten_body(BODY) == b'{"id":"resp_1","output":[]}'
        assert await shortener.shorten_body(b'{"tools":[]}') == b'{"tools":[]}'

    run(use)


def test_answer_of_another_dialect_stays() -> None:
    async def use(shortener: AnswerShortener) -> None:
        assert await shortener.shorten_body(BODY) == BODY
        assert [piece async for piece in shortener.shorten_pieces(pieces_of(LARGE))] == [LARGE]

    run(use, "chat")


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_pieces_are_cut_between_frames(end: bytes) -> None:
    """However they arrive, each frame is passed on when it is complete."""
    frame = b"data: 1" + end
    stream = frame * 3

    async def use(shortener: AnswerShortener) -> None:
        single_bytes = [stream[at : at + 1] for at in range(len(stream))]
        assert [piece async for piece in shortener.shorten_pieces(pieces_of(*single_bytes))] == [frame] * 3
        assert [piece async for piece in shortener.shorten_pieces(pieces_of(stream, b"data"))] == [stream, b"data"]

    run(use)


def test_last_frame_without_its_end_is_passed_on_before_the_fault() -> None:
    async def use(shortener: AnswerShortener) -> None:
        fault = UpstreamFault("reset", code="upstream_disconnected")
        pieces = shortener.shorten_pieces(pieces_of(SMALL, b"data: [DONE]", fault=fault))
        assert [await anext(pieces), await anext(pieces)] == [SMALL, b"data: [DONE]"]
        with pytest.raises(UpstreamFault, match="reset"):
            await anext(pieces)

    run(use)
