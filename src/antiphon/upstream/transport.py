"""The seam to the network: what the gateway needs of it, and no more. Tests pass a fake in.

`send` returns with the head of the answer; the body comes as pieces, in the order and the sizes in which it arrived. Every way an
exchange can go wrong is an `UpstreamFault`, raised by `send` or out of `pieces`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from antiphon.config import Timeouts


class Answer(Protocol):
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


class Transport(Protocol):
    """A network."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts) -> Answer:
        """Sends a request and waits for the head of the answer. Cancelling it aborts the exchange."""
        ...

    async def close(self) -> None: ...
