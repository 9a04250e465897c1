"""The interface to the network, as small as the gateway needs it. Tests pass a fake.

`send` returns with the response head; the body follows in pieces, in the order and sizes in which they were received.
Every failure is an `UpstreamFault`, raised by `send`, `pieces` or `flow`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from antiphon.config import Timeouts

# Takes a piece of a body; returns whether it wants more.
Sink = Callable[[bytes], bool]
# Passes a body to a sink: True at its end, False if the sink wants no more for now. A second call continues there.
Flow = Callable[[Sink], Awaitable[bool]]


class UpstreamResponse(Protocol):
    """An upstream's response: the head at once, the body in pieces."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are lower-cased; repeated headers are joined with commas."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, once. Raises for an improper end and for a timeout."""
        ...

    def abort(self) -> None:
        """Ends an open exchange at once. Can be called at any time and repeatedly."""
        ...


def flow_of(answer: UpstreamResponse) -> Flow:
    """The flow of a response."""
    flow: Flow | None = getattr(answer, "flow", None)
    return flow or flow_of_pieces(answer.pieces())


def flow_of_pieces(pieces: AsyncIterator[bytes]) -> Flow:
    """The flow of an iterator of pieces."""

    async def flow(sink: Sink) -> bool:
        async for piece in pieces:
            if not sink(piece):
                return False
        return True

    return flow


class Transport(Protocol):
    """Sends requests to upstreams."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> UpstreamResponse:
        """Sends a request and waits for the response head. Cancelling aborts the exchange."""
        ...

    async def close(self) -> None: ...
