"""How a case talks to the server: it asks, looks at the exchange, and says what it finds.

Equal requests are sent once, whoever asks: a dozen cases look at the same few answers, and a model's time is dear. Keys are in no
finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from antiphon import __version__
from antiphon.check.exchange import CheckExchange
from antiphon.check.findings import CheckFinding, Flaw, SkipCase, StopCase, excerpt, format_value
from antiphon.config import Timeouts
from antiphon.errors import UpstreamFault
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.response import Response
from antiphon.upstream.transport import Transport

Body = Mapping[str, Any]
KeyChoice = Literal["right", "wrong", "none"]


class CheckTarget(Struct, frozen=True, kw_only=True):
    """The server that is judged: where it is (up to the version), the model to ask, and how long an answer may take."""

    base_url: str
    model: str = ""
    key: str | None = None
    timeouts: Timeouts = Timeouts()


class NoAnswer(Exception):
    """The server did not answer a request; the message says how."""

    def __init__(self, how: str, sent: str) -> None:
        super().__init__(how)
        self.sent = sent


class CheckedServer:
    """The way to one server, and what it has answered so far."""

    def __init__(self, target: CheckTarget, transport: Transport) -> None:
        self.target = target
        self._transport = transport
        self._asked: dict[tuple[str, ...], asyncio.Task[CheckExchange]] = {}

    async def exchange(
        self, method: str, path: str, body: bytes = b"", content_type: str | None = "application/json", key: KeyChoice = "right"
    ) -> CheckExchange:
        """The answer to this request, which is sent if nobody has asked it before."""
        name = (method, path, body.hex(), content_type or "", key)
        if name not in self._asked:
            self._asked[name] = asyncio.create_task(self._send(method, path, body, self._headers(content_type, key)))
        return await self._asked[name]

    def _headers(self, content_type: str | None, key: KeyChoice) -> dict[str, str]:
        headers = {"user-agent": f"antiphon-check/{__version__}", "accept": "application/json, text/event-stream"}
        if content_type is not None:
            headers["content-type"] = content_type
        if self.target.key is not None and key != "none":
            headers["authorization"] = f"Bearer {self.target.key if key == 'right' else WRONG_KEY}"
        return headers

    async def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> CheckExchange:
        sent = f"{method} {path} {excerpt(body)}".rstrip()
        url = self.target.base_url + path
        try:
            answer = await self._transport.send(method, url, headers, body, self.target.timeouts)
        except UpstreamFault as fault:
            raise NoAnswer(describe_fault(fault), sent) from None
        pieces: list[bytes] = []
        length = 0
        broken = ""
        try:
            async for piece in answer.pieces():
                pieces.append(piece)
                length += len(piece)
                if length > MAX_BODY:
                    answer.abort()
                    broken = f"more than {MAX_BODY} bytes came"
                    break
        except UpstreamFault as fault:
            broken = describe_fault(fault)
        return CheckExchange(sent, answer.status, answer.headers, b"".join(pieces), broken)


class CaseSession:
    """One case's view of the server. `row` is the requirement that the case is about first of all."""

    def __init__(self, network: CheckedServer, row: str) -> None:
        self.findings: list[CheckFinding] = []
        self.has_key = network.target.key is not None
        self.row = row
        self._network = network
        self._model = network.target.model
        self._key = network.target.key
        self._told: set[tuple[str, str]] = set()

    # Asking

    async def post(self, body: Body, *, key: KeyChoice = "right") -> CheckExchange:
        """A turn, for the model that is judged unless the body names another."""
        return await self._network.exchange("POST", "/responses", msgspec.json.encode({"model": self._model, **body}), key=key)

    async def post_raw(self, body: bytes, content_type: str | None = "application/json") -> CheckExchange:
        return await self._network.exchange("POST", "/responses", body, content_type)

    async def get(self, path: str) -> CheckExchange:
        return await self._network.exchange("GET", path, content_type=None)

    async def get_response(self, body: Body, *, may_refuse: str = "") -> tuple[Response, CheckExchange]:
        """A turn in one piece, which must be answered with a response; where the server may refuse, that is a skip."""
        exchange = await self.post(body)
        self.skip_refusal(exchange, may_refuse)
        self.require(exchange.status == 200, f"the answer has the status {exchange.status}; wanted 200 and a response", exchange)
        response = exchange.response
        if response is None or exchange.broken:
            self.report("the body cannot be read as a response object", exchange)
            raise StopCase
        return response, exchange

    async def get_stream(self, body: Body, *, may_refuse: str = "") -> CheckExchange:
        """The same as a stream."""
        exchange = await self.post({**body, "stream": True})
        self.skip_refusal(exchange, may_refuse)
        came = f"{exchange.status} {exchange.content_type}".strip()
        self.require(exchange.is_stream, f"the answer is {came}; wanted 200 text/event-stream", exchange)
        return exchange

    async def expect_refusal(
        self, body: Body | bytes, *, status: int = 400, param: str | None = None, code: str | None = None, content: str = ""
    ) -> ErrorPayload:
        """A request that must not be served: with this status, an error that names the place, and this code."""
        exchange = await (self.post_raw(body, content or "application/json") if isinstance(body, bytes) else self.post(body))
        self.require(
            exchange.status == status,
            f"the answer has the status {exchange.status}; wanted {status} and an error" + (f" about {param}" if param else ""),
            exchange,
        )
        return self.expect_error(exchange, param=param, code=code)

    def expect_error(self, exchange: CheckExchange, *, param: str | None = None, code: str | None = None) -> ErrorPayload:
        """The error in an answer. What its shape lacks is told by the case about that shape; what is asked for here, here."""
        error = exchange.error
        if error is None:
            self.report('the body is no structured error; wanted {"error": {"type", "code", "message", "param"}}', exchange)
            raise StopCase
        if param is not None and not _leads_to(error.param, param):
            told = format_value(exchange.error_field("param"))
            self.report(f"error.param is {told}; wanted {param!r}, the path of what is wrong", exchange)
        if code is not None and error.code != code:
            self.report(f"error.code is {format_value(exchange.error_field('code'))}; wanted {code!r}", exchange)
        return error

    # Saying

    def report(self, message: str, exchange: CheckExchange | None = None, *, row: str = "", sent: str = "", came: str = "") -> None:
        """A thing that is wrong, told once."""
        found = (row or self.row, message)
        if found not in self._told:
            self._told.add(found)
            sent = sent or (exchange.request_summary if exchange else "")
            came = came or (exchange.answer_summary if exchange else "")
            self.findings.append(
                CheckFinding(row=found[0], message=self._clean(message), sent=self._clean(sent), came=self._clean(came))
            )

    def require(self, holds: bool, message: str, exchange: CheckExchange | None = None, *, row: str = "") -> None:
        """Something without which the case cannot go on."""
        if not holds:
            self.report(message, exchange, row=row)
            raise StopCase

    def report_flaws(self, flaws: Iterable[Flaw], exchange: CheckExchange) -> None:
        for flaw in flaws:
            self.report(flaw.message, exchange, row=flaw.row, came=flaw.came)

    def skip_refusal(self, exchange: CheckExchange, what: str) -> None:
        """Skips the case if the server says that it cannot do `what`: a proper 400 is an honest answer."""
        if what and exchange.status == 400 and exchange.error is not None and not exchange.error_flaws:
            raise SkipCase(f"the server refuses {what}: {excerpt(exchange.error.message, 120)}")

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


def describe_fault(fault: UpstreamFault) -> str:
    """To the transport every server is an upstream; to the reader of a finding it is the server."""
    return FAULTS.get(fault.code, "the server sends what is no HTTP")


def _leads_to(param: str | None, wanted: str) -> bool:
    """Whether a path names the wanted place, or one inside it."""
    return param is not None and param.startswith(wanted)


WRONG_KEY: Final = "wrong-key-that-nobody-has"
MAX_BODY: Final = 64 * 1024 * 1024
FAULTS: Final = {
    "upstream_unavailable": "the server cannot be reached",
    "upstream_timeout": "the server did not answer in time",
    "upstream_disconnected": "the server broke off before its answer was whole",
}
