"""The client with which commands call a running gateway: its URL, its key, and errors for people.

It uses the transport of upstreams (`antiphon.upstream.transport`); tests pass a fake.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.cli.terminal import one_line
from antiphon.config import Timeouts
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_as, decode_event, encode
from antiphon.protocol.errors import ErrorBody, ErrorPayload
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request
from antiphon.sse import DONE, Decoder, Frame
from antiphon.upstream.http import HttpTransport
from antiphon.upstream.transport import Transport, UpstreamResponse

DEFAULT_URL: Final = "http://127.0.0.1:8080"


class ListedModel(Struct, frozen=True):
    id: str
    owned_by: str = ""


class _Models(Struct, frozen=True):
    data: list[ListedModel]


class ReceivedEvent(NamedTuple):
    """An event of an answer, and its bytes."""

    raw: bytes
    event: StreamEvent


class GatewayClient:
    """Calls one gateway. Every fault raises `CommandFailed` with the URL and what to do."""

    def __init__(self, url: str, key: str | None, transport: Transport) -> None:
        self.url = url
        self._transport = transport
        self._headers = {"user-agent": f"antiphon/{__version__}"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    async def models_body(self) -> bytes:
        """Return the body of `GET /v1/models`."""
        answer = await self._send("GET", "/models", {"accept": "application/json"}, b"")
        return await self._whole(answer)

    async def models(self) -> list[ListedModel]:
        return self.read_models(await self.models_body())

    def read_models(self, body: bytes) -> list[ListedModel]:
        try:
            return decode_json(body, type=_Models).data
        except msgspec.DecodeError:
            raise CommandFailed(
                f"the server at {self.url} is not an Antiphon gateway: expected a list of models, got something else"
            ) from None

    async def start_response(self, request: Request) -> UpstreamResponse:
        """Send a request and return the head of a streamed answer. Any other answer raises `CommandFailed`."""
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        answer = await self._send("POST", "/responses", headers, encode(request))
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.abort()
            raise CommandFailed(
                f"the server at {self.url} is not an Antiphon gateway: expected a stream of events, got something else"
            )
        return answer

    async def events(self, answer: UpstreamResponse) -> AsyncGenerator[ReceivedEvent, None]:
        """Yield the events of an answer."""
        decoder = Decoder()
        with self._faults_as_failures():
            async for piece in answer.pieces():
                for frame in decoder.feed(piece):
                    if frame.data == DONE:
                        return
                    yield self._decode_frame(frame)
            for frame in decoder.finish():
                if frame.data != DONE:
                    yield self._decode_frame(frame)

    def _decode_frame(self, frame: Frame) -> ReceivedEvent:
        try:
            return ReceivedEvent(frame.data, decode_event(frame.data))
        except ApiError as error:
            raise CommandFailed(f"cannot decode the answer of {self.url}: {one_line(error.message)}") from None

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> UpstreamResponse:
        with self._faults_as_failures():
            answer = await self._transport.send(
                method, f"{self.url}/v1{path}", {**self._headers, **headers}, body, TIMEOUTS
            )
        if answer.status != 200:
            raise self._refusal(answer, await self._whole(answer))
        return answer

    async def _whole(self, answer: UpstreamResponse) -> bytes:
        body = bytearray()
        with self._faults_as_failures():
            async for piece in answer.pieces():
                body += piece
                if len(body) > MAX_BODY:
                    answer.abort()
                    raise CommandFailed(
                        f"the server at {self.url} is not an Antiphon gateway: its answer is larger than "
                        f"{MAX_BODY} bytes"
                    )
        return bytes(body)

    def _refusal(self, answer: UpstreamResponse, body: bytes) -> CommandFailed:
        try:
            error: ErrorPayload = decode_as(body, ErrorBody).error
        except ApiError:
            return CommandFailed(
                f"the server at {self.url} is not an Antiphon gateway: it sent status {answer.status} "
                "without a valid error"
            )
        return CommandFailed(
            describe_error(error.type, error.code, error.message, error.param)
            + _retry_line(answer)
            + request_id_line(answer)
        )

    @contextmanager
    def _faults_as_failures(self) -> Iterator[None]:
        try:
            yield
        except UpstreamFault as fault:
            # The transport's own message says upstream; for the user it is the gateway.
            message = FAULTS.get(fault.code, "the gateway at {url} sent an invalid HTTP response")
            raise CommandFailed(message.format(url=self.url)) from None


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add the option of every command that calls a gateway."""
    parser.add_argument(
        "--url", metavar="U", help=f"the URL of the gateway (default: $ANTIPHON_URL, else {DEFAULT_URL})"
    )


def call_gateway(
    call: Callable[[GatewayClient], Coroutine[None, None, None]],
    url: str | None,
    environ: Mapping[str, str],
    transport: Transport | None = None,
) -> None:
    """Run `call` with a client of the gateway, over the real network unless a transport is given."""
    where, key = gateway_url(url, environ), gateway_key(environ)
    network = transport or HttpTransport(environ)

    async def run() -> None:
        try:
            await call(GatewayClient(where, key, network))
        finally:
            await network.close()

    asyncio.run(run())


def gateway_url(given: str | None, environ: Mapping[str, str]) -> str:
    """Return the gateway's URL without `/v1`: the given one, `$ANTIPHON_URL`, or the default of `antiphon serve`."""
    written = (given or environ.get("ANTIPHON_URL") or DEFAULT_URL).strip()
    url = written if "://" in written else f"http://{written}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if "@" in written:
        # The address is not shown: it may contain a password.
        raise InvalidUsage(
            "the URL of a gateway must not contain a user name or a password; set the key in $ANTIPHON_API_KEY"
        )
    if not usable or parts.query or parts.fragment or not VISIBLE.fullmatch(url):
        raise InvalidUsage(f"invalid gateway URL {one_line(written)!r}: expected a URL such as {DEFAULT_URL}")
    return url.rstrip("/").removesuffix("/v1")


def gateway_key(environ: Mapping[str, str]) -> str | None:
    """Return the key in `$ANTIPHON_API_KEY`; None if it is not set."""
    key = environ.get("ANTIPHON_API_KEY", "").strip()
    if not key.isascii() or not key.isprintable():
        raise InvalidUsage("$ANTIPHON_API_KEY contains characters that a header cannot carry; expected printable ASCII")
    return key or None


def describe_error(type: str | None, code: str | None, message: str, param: str | None = None) -> str:
    """Format an error so that scripts can parse it: `type/code: message`, and the field that it concerns."""
    name = "/".join(one_line(part) for part in (type, code) if part)
    return f"{name}: {one_line(message)}" + (f" (at {one_line(param)})" if param else "")


def request_id_line(answer: UpstreamResponse) -> str:
    """Return a line with the request id for the gateway's log (HTTP-8); empty if the answer has none."""
    id = one_line(answer.headers.get("x-request-id", ""))
    return f"\nrequest id {id}" if id else ""


def _retry_line(answer: UpstreamResponse) -> str:
    seconds = answer.headers.get("retry-after", "")
    return f"\nretry after {seconds} s" if seconds.isdecimal() else ""


# The gateway enforces and reports its own limits; these only end requests that would hang forever.
TIMEOUTS: Final = Timeouts(connect=10.0, first_byte=900.0, idle=900.0, total=7200.0)
VISIBLE: Final = re.compile(r"[!-~]+")
MAX_BODY: Final = 16 * 1024 * 1024
FAULTS: Final = {
    "upstream_unavailable": "no gateway answers at {url}; start one with `antiphon serve`",
    "upstream_timeout": "the gateway at {url} did not answer in time",
    "upstream_disconnected": "the gateway at {url} closed the connection before the end of its answer",
}
