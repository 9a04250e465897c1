"""Sends a request that is no turn, for embeddings or a text completion, to the targets of its model until one answers.

Targets, keys, retries and health are those of turns (`routing`). Only what is sent and how its answer is read differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from msgspec import Struct

from antiphon.dialects.common.server_turn import url_at
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.request_scope import RequestScope
from antiphon.gateway.routing.attempts import Attempt
from antiphon.gateway.routing.wishes import RoutingWishes, apply_wishes
from antiphon.gateway.run_turn import run_attempts
from antiphon.gateway.turn import (
    ERROR_BODY_SECONDS,
    MAX_ERROR_BYTES,
    check_content,
    error_of_answer,
    is_compressed,
    with_upstream_name,
)
from antiphon.gateway.turn_data import refuse_losses
from antiphon.gateway.upstreams import Target
from antiphon.protocol.losses import Losses
from antiphon.upstream.body import read_body, read_partial_body
from antiphon.upstream.transport import UpstreamResponse

T = TypeVar("T")


class OutgoingRequest(Struct, kw_only=True):
    """What one target is sent: one body, or several one after the other."""

    path: str
    body: bytes
    losses: Losses
    streams: bool = False
    more_bodies: Sequence[bytes] = ()


MakeRequest = Callable[[Target], Awaitable[OutgoingRequest]]  # raises if the target cannot be asked
ReadAnswer = Callable[[Target, UpstreamResponse], Awaitable[T]]


class RoutedRequest:
    """One request of a client, and its attempts."""

    is_held_back = False  # an answer begins when its target has been found

    def __init__(
        self,
        services: GatewayContext,
        scope: RequestScope,
        model: str | None,
        wishes: RoutingWishes | None,
        *,
        strict: bool | None = None,
    ) -> None:
        """`strict` refuses words about routing that have no effect; None means the setting of each upstream."""
        self._services = services
        self._scope = scope
        self._strict = True if wishes is not None and wishes.requires_parameters else strict
        model = services.router.choose_model(model, wishes)
        scope.log_entry.model = model
        route = services.router.find(model)
        self.losses = Losses()
        if wishes is not None:
            route, wish_losses = apply_wishes(route, wishes, services.router.find_served)
            for loss in wish_losses:
                self.losses.add(loss.path, loss.what, loss.why)
        self.model = route.name
        self.attempts = services.router.begin_turn(route)
        scope.log_entry.attempts = self.attempts.records
        self._answer: UpstreamResponse | None = None
        self._telemetry_headers: dict[str, str] | None = None  # None: the span has not begun
        self._request: OutgoingRequest  # of the current attempt
        self._received_bytes = 0  # in the current attempt

    async def run(self, make_request: MakeRequest, read_answer: ReadAnswer[T]) -> T:
        """Asks target after target. Returns what `read_answer` makes of the first answer without a fault."""
        ask, prepare = partial(self._ask, read_answer), partial(self._make_possible, make_request)
        return await run_attempts(self._services, self._scope, self.attempts, ask, prepare)

    def abort(self) -> None:
        """Aborts the exchange with the upstream, if it is still open."""
        if self._answer is not None:
            self._answer.abort()

    async def read_body(self, answer: UpstreamResponse) -> bytes:
        """Reads the whole answer. All answers of an attempt have one limit together."""
        body = await read_body(answer, self._services.output_limits.max_bytes - self._received_bytes)
        self._received_bytes += len(body)
        if self._scope.trace is not None:
            self._scope.trace.record_upstream_piece(body)
        return body

    async def read_more_bodies(self) -> AsyncIterator[bytes]:
        """Sends the other bodies of the current request, each after the answer to the one before, and reads the
        answers."""
        for body in self._request.more_bodies:
            yield await self.read_body(await self._send(body))

    async def _make_possible(self, make_request: MakeRequest) -> None:
        """Makes the request for the current target, or for the next one that can be asked."""
        first_error: ApiError | None = None
        while True:
            target = self.attempts.current.target.target
            try:
                self._refuse_wish_losses(target)
                request = await make_request(target)
            except ClientFault as error:
                failure = error.without_traceback()
            else:
                self._note_request(target, request)
                self._request, self._received_bytes = request, 0
                return
            first_error = first_error or failure
            if self.attempts.skip(self._services.router.clock()) is None:
                has_failed = bool(self.attempts.records)  # another target was asked, and its error is the client's
                raise self.attempts.final_error() if has_failed else first_error.without_traceback()

    def _refuse_wish_losses(self, target: Target) -> None:
        if target.upstream.config.losses == "strict" if self._strict is None else self._strict:
            refuse_losses(list(self.losses))

    def _note_request(self, target: Target, request: OutgoingRequest) -> None:
        upstream, scope = target.upstream, self._scope
        request.losses.extend(self.losses)
        scope.log_entry.upstream = upstream.name
        scope.log_entry.losses = len(request.losses)
        if scope.trace is not None:
            config = upstream.config
            scope.trace.record_route(upstream.name, config.dialect, target.model, config.profile_name, request.streams)
            scope.trace.record_losses(request.losses)

    async def _ask(self, read_answer: ReadAnswer[T], attempt: Attempt) -> T:
        try:
            answer = await self._send(self._request.body)
            try:
                result = await read_answer(attempt.target.target, answer)
            except UpstreamFault as fault:
                fault.was_paid = fault.was_paid or fault.code == "upstream_invalid_response"
                raise
        except ApiError:
            self.abort()
            raise
        self.attempts.note_first_content(self._services.router.clock())
        return result

    async def _send(self, body: bytes) -> UpstreamResponse:
        """Sends a body to the current target. An answer with an error is raised."""
        attempt = self.attempts.current
        target, trace = attempt.target.target, self._scope.trace
        upstream = target.upstream
        url = url_at(self._request.path, upstream.server_dialect, upstream.base_url, target.model)
        headers = {**upstream.headers_with_key(attempt.key), **self._start_span()}
        if trace is not None:
            trace.record_upstream_request("POST", url, headers, body)
        transport = self._services.transport
        try:
            answer = self._answer = await transport.send("POST", url, headers, body, upstream.timeouts)
        except UpstreamFault as fault:
            fault.message = with_upstream_name(fault.message, upstream.name)
            raise
        if trace is not None:
            trace.record_upstream_head(answer.status, answer.headers)
        if answer.status != 200:
            raise await self._read_error(target, answer)
        check_content(answer)
        return answer

    def _start_span(self) -> dict[str, str]:
        """Starts the span of the request, once. Returns the headers with which an upstream can join the trace."""
        if self._telemetry_headers is None:
            telemetry = self._services.telemetry
            self._telemetry_headers = {} if telemetry is None else telemetry.start_turn(self._scope.log_entry)
        return self._telemetry_headers

    async def _read_error(self, target: Target, answer: UpstreamResponse) -> ApiError:
        body = b""
        with suppress(TimeoutError):  # the status is enough
            async with asyncio.timeout(ERROR_BODY_SECONDS):
                body, _ = await read_partial_body(answer, MAX_ERROR_BYTES)
        if self._scope.trace is not None:
            self._scope.trace.record_upstream_piece(body)
        body = b"" if is_compressed(answer) else target.upstream.redact_key(body)
        return error_of_answer(target.upstream, answer, body)
