"""Shortens large answers of a server that repeats the settings of the request, in a worker process.

The client gets its own settings, and decoding the repetition would block the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from antiphon.dialects.dialect import ServerDialect
from antiphon.errors import UpstreamFault
from antiphon.gateway.worker_pool import LARGE_INPUT, WorkerPool


class AnswerShortener:
    """Shortens the answers of a server."""

    def __init__(self, dialect: ServerDialect, workers: WorkerPool) -> None:
        self._dialect = dialect
        self._workers = workers

    async def shorten_body(self, body: bytes) -> bytes:
        """A whole answer."""
        shorten = self._dialect.without_settings
        if shorten is None or len(body) <= LARGE_INPUT:
            return body
        return await self._workers.call(len(body), shorten, body)

    async def shorten_pieces(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of a stream, cut between frames. Nobody waits longer: a frame is read when it is complete."""
        frame: list[bytes] = []  # an incomplete one
        tail = b""  # its last bytes
        fault: UpstreamFault | None = None
        try:
            async for piece in pieces:
                end = _end_of_frames(tail, piece)
                if end:
                    yield await self._shorten_frames(b"".join((*frame, piece[:end])))
                    frame.clear()
                if end < len(piece):
                    frame.append(piece[end:])
                tail = (piece[end:] if end else tail + piece)[-MAX_END:]
        except UpstreamFault as error:
            fault = error.without_traceback()
        if frame:
            yield b"".join(frame)  # the last frame of a stream may be whole without its end
        if fault is not None:
            raise fault

    async def _shorten_frames(self, frames: bytes) -> bytes:
        shorten = self._dialect.frames_without_settings
        if shorten is None or len(frames) <= LARGE_INPUT:
            return frames
        return await self._workers.call(len(frames), shorten, frames)


def _end_of_frames(before: bytes, piece: bytes) -> int:
    """Where the last whole frame in a piece ends; 0 if none does. `before` is the end of the piece before."""
    data = before + piece
    ends = (at + len(end) for end in FRAME_ENDS if (at := data.rfind(end)) >= 0)
    return max(0, max(ends, default=0) - len(before))


FRAME_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
MAX_END: Final = 3  # bytes of the end of a frame that may be in the piece before
