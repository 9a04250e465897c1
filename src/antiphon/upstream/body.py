"""Reads the body of an upstream's response, up to a limit. All code that needs a whole body reads it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from antiphon.errors import AnswerTooLarge, UpstreamFault
from antiphon.upstream.transport import Flow, UpstreamResponse, flow_of


class BodyTooLarge(AnswerTooLarge):
    """The body has more bytes than the limit."""


class PartialBody(NamedTuple):
    """The received bytes of a body, and why it is incomplete; None if it is complete."""

    data: bytes
    fault: UpstreamFault | None


async def read_body(answer: UpstreamResponse, limit: int, flow: Flow | None = None) -> bytes:
    """Reads the whole body. A body that is larger than `limit` or incomplete is a fault, and the exchange is aborted. A
    fault in the body of a successful answer says that the model was paid.

    `flow` is the flow of the body if the caller observes its pieces, as a trace does.
    """
    take_body: Callable[[], bytes | None] | None = getattr(answer, "take_body", None) if flow is None else None
    body = take_body() if take_body is not None else None  # most bodies arrive together with the head
    if body is None:
        pieces: list[bytes] = []
        try:
            await _collect(answer, limit, flow, pieces)
        except UpstreamFault as fault:
            # Some servers send white space while the model works.
            fault.was_paid = answer.status == 200 and any(piece.strip() for piece in pieces)
            raise
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(body) > limit:
        answer.abort()
        too_large = BodyTooLarge(_TOO_LARGE.format(limit))
        too_large.was_paid = answer.status == 200
        raise too_large
    return body


async def read_partial_body(answer: UpstreamResponse, limit: int) -> PartialBody:
    """Reads a body as far as possible. Of a body that is larger than `limit`, somewhat more than `limit` is read."""
    pieces: list[bytes] = []
    fault: UpstreamFault | None = None
    try:
        await _collect(answer, limit, None, pieces)
    except UpstreamFault as error:
        fault = error.without_traceback()
    body = b"".join(pieces)
    if fault is None and len(body) > limit:
        answer.abort()
        fault = BodyTooLarge(_TOO_LARGE.format(limit))
    return PartialBody(body, fault)


async def _collect(answer: UpstreamResponse, limit: int, flow: Flow | None, pieces: list[bytes]) -> None:
    """Adds the pieces of a body to `pieces`; stops soon after `limit`."""
    remaining_bytes = limit

    def take_piece(piece: bytes) -> bool:
        nonlocal remaining_bytes
        pieces.append(piece)
        remaining_bytes -= len(piece)
        return remaining_bytes >= 0

    try:
        await (flow or flow_of(answer))(take_piece)
    except BaseException:
        answer.abort()
        raise


_TOO_LARGE: Final = "the upstream's answer is too large: expected at most {} bytes"
