"""`POST /v1/responses/input_tokens` (API-3) and its equivalents in other dialects: counts the input tokens of a turn.

The turn is prepared like any other, with its history, so that the count is for what would be sent. If the upstream
cannot count or does not answer, the count is estimated and marked as an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from antiphon.api.request_options import requested_strictness
from antiphon.errors import ApiError
from antiphon.gateway.client_dialect import CLIENT_DIALECTS, ClientDialectName, request_at_path
from antiphon.gateway.history import HistorySource
from antiphon.gateway.prepare_turn import prepare_turn
from antiphon.gateway.routes import Target
from antiphon.gateway.token_estimate import estimate_request
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.profiles import Dialect
from antiphon.protocol import codec
from antiphon.protocol.items import CompactionTrigger
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request
from antiphon.upstream.server_dialects import model_resource_name


class InputTokens(Struct, frozen=True, kw_only=True):
    """The number of input tokens of a request."""

    object: str = "response.input_tokens"
    input_tokens: int
    estimated: (
        Annotated[bool, Meta(description="The count is an estimate, because the upstream cannot count.")] | UnsetType
    ) = field(default=UNSET, name="antiphon:estimated")


async def count_tokens(services: Services, exchange: Exchange) -> None:
    """Counts the tokens of a request."""
    await count_body_tokens(services, exchange, await exchange.read_body(services.max_body))


async def count_body_tokens(services: Services, exchange: Exchange, body: bytes) -> None:
    """Counts the tokens of a body that was read already."""
    strict = requested_strictness(exchange.scope)
    if exchange.dialect.name == "gemini":
        body = _unwrap(body)
    request, losses = request_at_path(exchange.scope["path"], exchange.dialect, body)
    archive = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    prepared_turn = await prepare_turn(
        services, _without_side_effects(request), losses, archive, exchange.log_entry, exchange.trace, strict=strict
    )
    exchange.log_entry.response_id = None  # counting creates no response
    prepared = prepared_turn.turn.prepared
    target = prepared_turn.turn.target
    count = await _count_upstream(services, exchange, target, prepared.body)
    headers = losses_header(prepared.losses)
    if count is None:
        request, _ = CLIENT_DIALECTS[target.upstream.profile.dialect].request_to_hub(prepared.body)
        tokens = InputTokens(input_tokens=estimate_request(request), estimated=True)
        headers.append((b"antiphon-estimated", b"true"))
    else:
        tokens = InputTokens(input_tokens=count)
    await exchange.respond(200, [JSON, *headers], msgspec.json.encode(_body_for(exchange.dialect.name, tokens)))


def _unwrap(body: bytes) -> bytes:
    """Removes the `generateContentRequest` object around a turn, if there is one."""
    try:
        members = decode_json(body, type=dict[str, Raw])
        inner = decode_json(members.get("generateContentRequest", b""), type=dict[str, Raw])
    except ValueError:
        return body
    return codec.encode({name: value for name, value in inner.items() if name != "model"})


def _body_for(dialect: ClientDialectName, count: InputTokens) -> Any:
    """The answer in the format of a client dialect."""
    match dialect:
        case "messages":
            return {"input_tokens": count.input_tokens}
        case "gemini":
            return {"totalTokens": count.input_tokens}
        case "vscode":
            return {"count": count.input_tokens}
        case _:
            return count


def _without_side_effects(request: Request) -> Request:
    """The request without side effects: nothing is stored, compacted or run in the background."""
    items = request.input
    if isinstance(items, list):
        items = [item for item in items if not isinstance(item, CompactionTrigger)]
    return replace(
        request,
        input=items,
        store=False,
        stream=UNSET,
        stream_options=UNSET,
        background=UNSET,
        context_management=UNSET,
    )


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
    counting = COUNTING[upstream.profile.dialect]
    url = upstream.server_dialect.url_at(counting.path, upstream.base_url, target.model)
    body = counting.body(request_body, target.model)
    trace = exchange.trace
    if trace is not None:
        trace.record_upstream_request("POST", url, upstream.headers, body)
    answer = await services.transport.send("POST", url, upstream.headers, body, upstream.timeouts)
    if trace is not None:
        trace.record_upstream_head(answer.status, answer.headers)
    body_bytes = bytearray()
    async for piece in answer.pieces():
        if trace is not None:
            trace.record_upstream_piece(piece)
        body_bytes += piece
        if len(body_bytes) > MAX_ANSWER:
            answer.abort()
            return None
    if answer.status != 200:
        return None
    decoded = msgspec.json.decode(body_bytes, type=_CountAnswer)
    return decoded.input_tokens if decoded.input_tokens is not None else decoded.total_tokens


class _Counting(Struct, frozen=True):
    """The counting endpoint of a dialect: its path, and how its body is built."""

    path: str
    body: Callable[[bytes, str], bytes]


class _CountAnswer(Struct):
    input_tokens: Annotated[int, Meta(ge=0)] | None = None
    total_tokens: Annotated[int, Meta(ge=0)] | None = field(default=None, name="totalTokens")


def _unchanged(body: bytes, model: str) -> bytes:
    del model
    return body


def _only_fields(*names: str) -> Callable[[bytes, str], bytes]:
    """Keeps only these fields: the counting endpoint accepts only fields that are part of the prompt."""

    def select_fields(body: bytes, model: str) -> bytes:
        del model
        members = msgspec.json.decode(body, type=dict[str, Raw])
        return codec.encode({name: value for name, value in members.items() if name in names})

    return select_fields


def _wrap(body: bytes, model: str) -> bytes:
    """Puts the request into `generateContentRequest`: otherwise the endpoint counts the contents only."""
    members: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Raw])
    return codec.encode({"generateContentRequest": {"model": model_resource_name(model), **members}})


MAX_ANSWER: Final = 64 * 1024
COUNTING: Final[dict[Dialect, _Counting]] = {
    "chat": _Counting("/chat/completions/input_tokens", _unchanged),
    "responses": _Counting(
        "/responses/input_tokens",
        _only_fields(
            "model",
            "input",
            "instructions",
            "parallel_tool_calls",
            "reasoning",
            "text",
            "tool_choice",
            "tools",
            "truncation",
        ),
    ),
    "messages": _Counting(
        "/messages/count_tokens",
        _only_fields(
            *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format"),
            *("cache_control", "context_management", "mcp_servers"),
        ),
    ),
    "gemini": _Counting("/{model}:countTokens", _wrap),
}
