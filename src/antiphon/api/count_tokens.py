"""`POST /v1/responses/input_tokens` (API-3) and its equivalents in other dialects: counts the input tokens of a turn.

The turn is prepared like any other, with its history, so that the count is for what would be sent. If the upstream
cannot count or does not answer, the count is estimated and marked as an estimate.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from antiphon.api.request_options import requested_strictness
from antiphon.dialects.common.server_turn import url_at
from antiphon.dialects.common.token_estimate import estimate_request
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError
from antiphon.gateway.client_body import ClientBody
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import TurnPreparer, prepare_turn
from antiphon.gateway.upstreams import Target
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.upstream.body import read_partial_body


class InputTokens(Struct, frozen=True, kw_only=True):
    """The number of input tokens of a request."""

    object: str = "response.input_tokens"
    input_tokens: int
    estimated: (
        Annotated[bool, Meta(description="The count is an estimate, because the upstream cannot count.")] | UnsetType
    ) = field(default=UNSET, name="antiphon:estimated")


async def count_tokens(services: Services, exchange: Exchange) -> None:
    """Counts the tokens of a request."""
    with services.admission.admit(exchange.owner):
        await count_body_tokens(services, exchange, await exchange.read_body(services.max_body))


async def count_body_tokens(services: Services, exchange: Exchange, content: bytes) -> None:
    """Counts the tokens of a body that was read already."""
    body = ClientBody(content=content, form="count", dialect=exchange.dialect.name, path=exchange.scope["path"])
    history_source = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    preparer = TurnPreparer(
        services,
        body,
        lambda _: history_source,
        exchange.log_entry,
        exchange.trace,
        strict=requested_strictness(exchange.scope),
    )
    prepared_turn = await prepare_turn(preparer)
    exchange.log_entry.response_id = None  # counting creates no response
    prepared = prepared_turn.turn.prepared
    target = prepared_turn.turn.target
    count = await _count_upstream(services, exchange, target, prepared.body)
    headers = losses_header(prepared.losses)
    if count is None:
        dialect = target.upstream.profile.dialect
        estimate = await services.workers.call(len(prepared.body), _estimate_body, dialect, prepared.body)
        tokens = InputTokens(input_tokens=estimate, estimated=True)
        headers.append((b"antiphon-estimated", b"true"))
    else:
        tokens = InputTokens(input_tokens=count)
    field_name = exchange.dialect.count_field
    answer = {field_name: tokens.input_tokens} if field_name else tokens
    await exchange.respond(200, [JSON, *headers], msgspec.json.encode(answer))


def _estimate_body(dialect: ServerDialectName, body: bytes) -> int:
    return estimate_request(CLIENT_DIALECTS[dialect].request_to_hub(body)[0])


async def _count_upstream(services: Services, exchange: Exchange, target: Target, request_body: bytes) -> int | None:
    """The count of the upstream; None if it cannot count or fails."""
    if not target.upstream.profile.wire.counts_tokens:
        return None
    exchange.watch_disconnect()
    try:
        return await _request_count(services, exchange, target, request_body)
    except (ApiError, msgspec.DecodeError):
        return None
    finally:
        exchange.unwatch_disconnect()


async def _request_count(services: Services, exchange: Exchange, target: Target, request_body: bytes) -> int | None:
    upstream = target.upstream
    dialect = upstream.server_dialect
    url = url_at(dialect.count_path, dialect, upstream.base_url, target.model)
    body = request_body
    if dialect.count_request is not None:
        body = await services.workers.call(len(body), dialect.count_request, body, target.model)
    trace = exchange.trace
    if trace is not None:
        trace.record_upstream_request("POST", url, upstream.headers, body)
    answer = await services.transport.send("POST", url, upstream.headers, body, upstream.timeouts)
    if trace is not None:
        trace.record_upstream_head(answer.status, answer.headers)
    received, fault = await read_partial_body(answer, MAX_ANSWER_BYTES)
    if trace is not None:
        trace.record_upstream_piece(received)
    if fault is not None or answer.status != 200:
        return None
    decoded = msgspec.json.decode(received, type=_CountAnswer)
    return decoded.input_tokens if decoded.input_tokens is not None else decoded.total_tokens


class _CountAnswer(Struct):
    input_tokens: Annotated[int, Meta(ge=0)] | None = None
    total_tokens: Annotated[int, Meta(ge=0)] | None = field(default=None, name="totalTokens")


MAX_ANSWER_BYTES: Final = 64 * 1024
