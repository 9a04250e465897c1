"""The seam to the network: what the gateway needs of it, and no more. Tests pass a fake in.

`send` returns with the head of the answer; the body comes as pieces, in the order and the sizes in which it arrived. Every way an
exchange can go wrong is an `UpstreamFault`, raised by `send`, out of `pieces` or by `flow`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from antiphon.config import Timeouts

# Takes a piece of a body, and says whether it wants the next one as well.
Sink = Callable[[bytes], bool]
# Gives a body to a sink: true at the end of it, false if the sink wants no more for now. It may be called again, and goes on there.
Flow = Callable[[Sink], Awaitable[bool]]


class UpstreamResponse(Protocol):
    """An upstream's answer: the head at once, the body as it comes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are lower-cased; a header that came twice is joined with a comma."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The body, once. An end that is not a proper one raises; so does a limit of time that is reached."""
        ...

    def abort(self) -> None:
        """Ends the exchange at once if it is still going on. Harmless at any time, and any number of times."""
        ...


def flow_of(answer: UpstreamResponse) -> Flow:
    """The flow of any answer."""
    flow: Flow | None = getattr(answer, "flow", None)
    return flow or flow_of_pieces(answer.pieces())


def flow_of_pieces(pieces: AsyncIterator[bytes]) -> Flow:
    """The same for pieces that a task has to wait for."""

    async def flow(sink: Sink) -> bool:
        async for piece in pieces:
            if not sink(piece):
                return False
        return True

    return flow


class Transport(Protocol):
    """A network."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> UpstreamResponse:
        """Sends a request and waits for the head of the answer. Cancelling it aborts the exchange."""
        ...

    async def close(self) -> None: ...
