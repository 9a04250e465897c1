"""One exchange with a server over HTTP: sent, sent again if that may help, and read whole or piece by piece.

An answer that is no answer (a refusal, a page of HTML, something compressed) is an error of `antiphon.errors`.
"""

from __future__ import annotations

from typing import Final

from antiphon.client.retries import Retries
from antiphon.client.server import Server, as_server_fault, error_from_answer
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.losses import Losses
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import UpstreamResponse

MAX_BODY: Final = 64 * 1024 * 1024
MAX_ERROR: Final = 256 * 1024


class RequestSender:
    """The way to one server."""

    def __init__(self, server: Server, network: HttpTransport, retries: Retries) -> None:
        self.server = server
        self.network = network
        self.retries = retries

    async def send(self, method: str, url: str, body: bytes = b"") -> UpstreamResponse:
        """The answer, if it is one; its body is still to come."""
        attempt = 0
        while True:
            try:
                return await self._ask_once(method, url, body)
            except ApiError as error:
                if not await self.retries.wait(attempt, error):
                    raise
                attempt += 1

    async def send_and_read(self, method: str, url: str, body: bytes = b"") -> bytes:
        return await read_body(await self.send(method, url, body), MAX_BODY)

    async def _ask_once(self, method: str, url: str, body: bytes) -> UpstreamResponse:
        try:
            answer = await self.network.send(method, url, self.server.headers, body, self.server.timeouts)
        except UpstreamFault as fault:
            raise as_server_fault(fault) from None
        packed = answer.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
        if answer.status != 200:
            raise error_from_answer(self.server, answer.status, answer.headers, b"" if packed else await _words_of(answer))
        kind = answer.headers.get("content-type", "").lower()
        if packed or kind.startswith("text/html"):
            answer.abort()
            what = "a compressed answer, which it was not asked for" if packed else "a page of HTML instead of an answer"
            raise UpstreamFault(f"the server sent {what}", code="upstream_invalid_response")
        return answer


async def read_body(answer: UpstreamResponse, limit: int) -> bytes:
    """The whole of it."""
    body = bytearray()
    try:
        async for piece in answer.pieces():
            body += piece
            if len(body) > limit:
                answer.abort()
                raise UpstreamFault(f"the server's answer is longer than {limit} bytes", code="upstream_invalid_response")
    except UpstreamFault as fault:
        raise as_server_fault(fault) from None
    return bytes(body)


def is_stream(answer: UpstreamResponse) -> bool:
    return answer.headers.get("content-type", "").lower().startswith("text/event-stream")


def is_json(answer: UpstreamResponse) -> bool:
    return answer.headers.get("content-type", "").lower().startswith("application/json")


def losses_in_headers(answer: UpstreamResponse) -> Losses:
    """F-4: what a gateway says that the server behind it could not be told."""
    losses = Losses()
    for path in filter(None, answer.headers.get("antiphon-losses", "").partition("; ")[2].split(", ")):
        losses.add(path, "was lost behind the gateway", "its trace says how")
    return losses


async def _words_of(answer: UpstreamResponse) -> bytes:
    try:
        return await read_body(answer, MAX_ERROR)
    except UpstreamFault:
        answer.abort()
        return b""  # the status alone says enough
