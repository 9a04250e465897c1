"""Sends HTTP requests to one server, with retries, and reads the answers.

An answer that cannot be used (an error status, HTML, a compressed body) is raised as an error of `antiphon.errors`.
"""

from __future__ import annotations

from typing import Final

from antiphon.client.retries import Retries
from antiphon.client.server import Server, as_server_fault, error_from_answer
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.losses import Losses
from antiphon.upstream.body import read_body
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import UpstreamResponse

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
MAX_ERROR_BYTES: Final = 256 * 1024


class RequestSender:
    """Sends requests to one server."""

    def __init__(self, server: Server, transport: HttpTransport, retries: Retries) -> None:
        self.server = server
        self.transport = transport
        self.retries = retries

    async def send(self, method: str, url: str, body: bytes = b"") -> UpstreamResponse:
        """Sends a request, with retries. The body of the answer is not read yet."""
        attempt = 0
        while True:
            try:
                return await self._send_once(method, url, body)
            except ApiError as error:
                if not await self.retries.wait(attempt, error):
                    raise
                attempt += 1

    async def send_and_read(self, method: str, url: str, body: bytes = b"") -> bytes:
        return await read_answer_body(await self.send(method, url, body), MAX_BODY_BYTES)

    async def _send_once(self, method: str, url: str, body: bytes) -> UpstreamResponse:
        try:
            answer = await self.transport.send(method, url, self.server.headers, body, self.server.timeouts)
        except UpstreamFault as fault:
            raise as_server_fault(fault) from None
        is_compressed = answer.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
        if answer.status != 200:
            raise error_from_answer(
                self.server, answer.status, answer.headers, b"" if is_compressed else await _error_body(answer)
            )
        content_type = answer.headers.get("content-type", "").lower()
        if is_compressed or content_type.startswith("text/html"):
            answer.abort()
            description = (
                "a compressed answer, which was not requested" if is_compressed else "an HTML page instead of an answer"
            )
            raise UpstreamFault(f"the server sent {description}", code="upstream_invalid_response")
        return answer


async def read_answer_body(answer: UpstreamResponse, limit: int) -> bytes:
    """Reads the whole body, up to `limit` bytes."""
    try:
        return await read_body(answer, limit)
    except UpstreamFault as fault:
        raise as_server_fault(fault) from None


def is_stream(answer: UpstreamResponse) -> bool:
    return answer.headers.get("content-type", "").lower().startswith("text/event-stream")


def is_json(answer: UpstreamResponse) -> bool:
    return answer.headers.get("content-type", "").lower().startswith("application/json")


def losses_in_headers(answer: UpstreamResponse) -> Losses:
    """F-4: the losses that a gateway names in its headers."""
    losses = Losses()
    for path in filter(None, answer.headers.get("antiphon-losses", "").partition("; ")[2].split(", ")):
        losses.add(path, "lost in the gateway", "see the trace of the gateway")
    return losses


async def _error_body(answer: UpstreamResponse) -> bytes:
    try:
        return await read_answer_body(answer, MAX_ERROR_BYTES)
    except UpstreamFault:
        answer.abort()
        return b""  # the error is made from the status alone
