"""The interface of a case to the server: send requests, inspect exchanges, report findings.

Equal requests of different cases are sent once, because model time is expensive. Keys are removed from findings.
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
from antiphon.upstream.body import BodyTooLarge, read_partial_body
from antiphon.upstream.transport import Transport

Body = Mapping[str, Any]
KeyChoice = Literal["right", "wrong", "none"]


class CheckTarget(Struct, frozen=True, kw_only=True):
    """The checked server: its base URL (up to the version), the model, the key and the timeouts."""

    base_url: str
    model: str = ""
    key: str | None = None
    timeouts: Timeouts = Timeouts()


class NoAnswer(Exception):
    """The server did not answer a request; the message has the reason."""

    def __init__(self, reason: str, sent: str) -> None:
        super().__init__(reason)
        self.sent = sent


class CheckedServer:
    """Sends requests to one server and keeps its answers."""

    def __init__(self, target: CheckTarget, transport: Transport) -> None:
        self.target = target
        self._transport = transport
        self._exchanges: dict[tuple[str, ...], asyncio.Task[CheckExchange]] = {}

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str | None = "application/json",
        key: KeyChoice = "right",
    ) -> CheckExchange:
        """Return the answer to this request; send it only if no equal request was sent before."""
        request = (method, path, body.hex(), content_type or "", key)
        if request not in self._exchanges:
            self._exchanges[request] = asyncio.create_task(
                self._send(method, path, body, self._headers(content_type, key))
            )
        return await self._exchanges[request]

    def _headers(self, content_type: str | None, key: KeyChoice) -> dict[str, str]:
        headers = {"user-agent": f"antiphon-check/{__version__}", "accept": "application/json, text/event-stream"}
        if content_type is not None:
            headers["content-type"] = content_type
        if self.target.key is not None and key != "none":
            headers["authorization"] = f"Bearer {self.target.key if key == 'right' else WRONG_KEY}"
        return headers

    async def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> CheckExchange:
        request_summary = f"{method} {path} {excerpt(body)}".rstrip()
        url = self.target.base_url + path
        try:
            answer = await self._transport.send(method, url, headers, body, self.target.timeouts)
        except UpstreamFault as fault:
            raise NoAnswer(describe_fault(fault), request_summary) from None
        received, body_fault = await read_partial_body(answer, MAX_BODY_BYTES)
        incomplete_reason = "" if body_fault is None else describe_fault(body_fault)
        return CheckExchange(request_summary, answer.status, answer.headers, received, incomplete_reason)


class CaseSession:
    """One case's view of the server. `row` is the main requirement of the case."""

    def __init__(self, server: CheckedServer, row: str) -> None:
        self.findings: list[CheckFinding] = []
        self.has_key = server.target.key is not None
        self.row = row
        self._server = server
        self._model = server.target.model
        self._key = server.target.key
        self._reported: set[tuple[str, str]] = set()

    # Requests

    async def post(self, body: Body, *, key: KeyChoice = "right") -> CheckExchange:
        """Send a turn, to the checked model unless the body names another."""
        return await self._server.exchange(
            "POST", "/responses", msgspec.json.encode({"model": self._model, **body}), key=key
        )

    async def post_raw(self, body: bytes, content_type: str | None = "application/json") -> CheckExchange:
        return await self._server.exchange("POST", "/responses", body, content_type)

    async def get(self, path: str) -> CheckExchange:
        return await self._server.exchange("GET", path, content_type=None)

    async def get_response(self, body: Body, *, may_refuse: str = "") -> tuple[Response, CheckExchange]:
        """Send a turn without streaming and require a response. If the server may refuse, a refusal skips the case."""
        exchange = await self.post(body)
        self.skip_refusal(exchange, may_refuse)
        self.require(
            exchange.status == 200,
            f"the answer has the status {exchange.status}; expected 200 and a response",
            exchange,
        )
        response = exchange.response
        if response is None or exchange.incomplete_reason:
            self.report("the body cannot be read as a response object", exchange)
            raise StopCase
        return response, exchange

    async def get_stream(self, body: Body, *, may_refuse: str = "") -> CheckExchange:
        """Send a turn with streaming and require a stream. If the server may refuse, a refusal skips the case."""
        exchange = await self.post({**body, "stream": True})
        self.skip_refusal(exchange, may_refuse)
        actual = f"{exchange.status} {exchange.content_type}".strip()
        self.require(exchange.is_stream, f"the answer is {actual}; expected 200 text/event-stream", exchange)
        return exchange

    async def expect_refusal(
        self,
        body: Body | bytes,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        content: str = "",
    ) -> ErrorPayload:
        """Send a request that the server must refuse with this status, and an error with this path and code."""
        exchange = await (
            self.post_raw(body, content or "application/json") if isinstance(body, bytes) else self.post(body)
        )
        self.require(
            exchange.status == status,
            f"the answer has the status {exchange.status}; expected {status} and an error"
            + (f" about {param}" if param else ""),
            exchange,
        )
        return self.expect_error(exchange, param=param, code=code)

    def expect_error(
        self, exchange: CheckExchange, *, param: str | None = None, code: str | None = None
    ) -> ErrorPayload:
        """Return the error of an answer, and check its path and code. Another case checks the shape of errors."""
        error = exchange.error
        if error is None:
            self.report(
                'the body is not a structured error; expected {"error": {"type", "code", "message", "param"}}', exchange
            )
            raise StopCase
        if param is not None and not _starts_with_path(error.param, param):
            actual = format_value(exchange.error_field("param"))
            self.report(f"error.param is {actual}; expected {param!r}, the path of the invalid field", exchange)
        if code is not None and error.code != code:
            self.report(f"error.code is {format_value(exchange.error_field('code'))}; expected {code!r}", exchange)
        return error

    # Findings

    def report(
        self, message: str, exchange: CheckExchange | None = None, *, row: str = "", sent: str = "", received: str = ""
    ) -> None:
        """Add a finding; equal findings are added once."""
        key = (row or self.row, message)
        if key not in self._reported:
            self._reported.add(key)
            sent = sent or (exchange.request_summary if exchange else "")
            received = received or (exchange.answer_summary if exchange else "")
            self.findings.append(
                CheckFinding(
                    row=key[0], message=self._clean(message), sent=self._clean(sent), received=self._clean(received)
                )
            )

    def require(self, condition: bool, message: str, exchange: CheckExchange | None = None, *, row: str = "") -> None:
        """Report a finding and end the case unless the condition holds."""
        if not condition:
            self.report(message, exchange, row=row)
            raise StopCase

    def report_flaws(self, flaws: Iterable[Flaw], exchange: CheckExchange) -> None:
        for flaw in flaws:
            self.report(flaw.message, exchange, row=flaw.row, received=flaw.received)

    def skip_refusal(self, exchange: CheckExchange, feature: str) -> None:
        """Skip the case if the server refuses `what` with a well-formed 400."""
        if feature and exchange.status == 400 and exchange.error is not None and not exchange.error_flaws:
            raise SkipCase(f"the server refuses {feature}: {excerpt(exchange.error.message, 120)}")

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


def describe_fault(fault: UpstreamFault) -> str:
    """Describe a transport fault in terms of the server; the transport's own message says upstream."""
    if isinstance(fault, BodyTooLarge):
        return f"the answer has more than {MAX_BODY_BYTES} bytes"
    return FAULT_DESCRIPTIONS.get(fault.code, "the server's answer is not HTTP")


def _starts_with_path(param: str | None, expected_path: str) -> bool:
    """Whether a path is the wanted path, or begins with it."""
    return param is not None and param.startswith(expected_path)


WRONG_KEY: Final = "wrong-key-that-nobody-has"
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
FAULT_DESCRIPTIONS: Final = {
    "upstream_unavailable": "the server cannot be reached",
    "upstream_timeout": "the server did not answer in time",
    "upstream_disconnected": "the server closed the connection before the end of its answer",
}
