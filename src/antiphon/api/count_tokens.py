"""`POST /v1/responses/input_tokens` (API-3), and what other APIs call it: how long a turn would be, without asking for it.

The turn is made ready as any other is, with all that it continues, so that what is counted is what would be sent. An upstream that
counts is asked; where none does, or it does not answer, there is an estimate, and the answer says that it is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from antiphon.api.request_options import requested_strictness
from antiphon.errors import ApiError
from antiphon.gateway.client_dialect import CLIENT_DIALECTS, ClientDialectName, request_at_path
from antiphon.gateway.history import HistorySource
from antiphon.gateway.preparation import PreparedRequest
from antiphon.gateway.token_estimate import estimate_request
from antiphon.gateway.turn_lifecycle import prepare_turn, shutdown_error
from antiphon.http.asgi import JSON
from antiphon.http.body import ClientDisconnected
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.profiles import Dialect
from antiphon.protocol import codec
from antiphon.protocol.items import CompactionTrigger
from antiphon.protocol.nesting import decode_json
from antiphon.protocol.request import Request
from antiphon.upstream.server_dialects import model_resource_name


class InputTokens(Struct, frozen=True, kw_only=True):
    """How many tokens a request has before anything is answered."""

    object: str = "response.input_tokens"
    input_tokens: int
    estimated: Annotated[bool, Meta(description="The upstream does not count: this is about so many.")] | UnsetType = field(
        default=UNSET, name="antiphon:estimated"
    )


async def count_tokens(services: Services, exchange: Exchange) -> None:
    """A request from body to number."""
    await count_body_tokens(services, exchange, await exchange.read_body(services.max_body))


async def count_body_tokens(services: Services, exchange: Exchange, body: bytes) -> None:
    """A body that was read, to number."""
    strict = requested_strictness(exchange.scope)
    if exchange.dialect.name == "gemini":
        body = _unwrapped(body)
    request, losses = request_at_path(exchange.scope["path"], exchange.dialect, body)
    archive = HistorySource(owner=exchange.owner, store=services.store, limit=services.max_body)
    prepared_turn = await prepare_turn(
        services, _to_be_counted(request), losses, archive, exchange.log_entry, exchange.trace, strict=strict
    )
    exchange.log_entry.response_id = None  # there will be none
    prepared = prepared_turn.turn.prepared
    count = await _asked(services, exchange, prepared)
    headers = losses_header(prepared.losses)
    if count is None:
        request, _ = CLIENT_DIALECTS[prepared.target.upstream.profile.dialect].request_to_hub(prepared.body)
        told = InputTokens(input_tokens=estimate_request(request), estimated=True)
        headers.append((b"antiphon-estimated", b"true"))
    else:
        told = InputTokens(input_tokens=count)
    await exchange.respond(200, [JSON, *headers], msgspec.json.encode(_told(exchange.dialect.name, told)))


def _unwrapped(body: bytes) -> bytes:
    """The turn itself, if it comes inside another object, under the name that the path has too."""
    try:
        members = decode_json(body, type=dict[str, Raw])
        inner = decode_json(members.get("generateContentRequest", b""), type=dict[str, Raw])
    except ValueError:
        return body
    return codec.encode({name: value for name, value in inner.items() if name != "model"})


def _told(dialect: ClientDialectName, count: InputTokens) -> Any:
    """The count, as clients of a dialect read it."""
    match dialect:
        case "messages":
            return {"input_tokens": count.input_tokens}
        case "gemini":
            return {"totalTokens": count.input_tokens}
        case "vscode":
            return {"count": count.input_tokens}
        case _:
            return count


def _to_be_counted(request: Request) -> Request:
    """The turn without all that would make it more than a question: nothing is kept, compacted or run."""
    items = request.input
    if isinstance(items, list):
        items = [item for item in items if not isinstance(item, CompactionTrigger)]
    return replace(
        request, input=items, store=False, stream=UNSET, stream_options=UNSET, background=UNSET, context_management=UNSET
    )


async def _asked(services: Services, exchange: Exchange, prepared: PreparedRequest) -> int | None:
    """The upstream's own count; None if it has none to give."""
    if not prepared.target.upstream.profile.wire.counts_tokens:
        return None
    exchange.watch_disconnect()
    try:
        return await _ask(services, exchange, prepared)
    except (ApiError, msgspec.DecodeError):
        return None
    except asyncio.CancelledError:
        exchange.uncancel_current_task()
        raise (ClientDisconnected() if exchange.is_disconnected else shutdown_error()) from None
    finally:
        exchange.unwatch_disconnect()


async def _ask(services: Services, exchange: Exchange, prepared: PreparedRequest) -> int | None:
    upstream = prepared.target.upstream
    asks = COUNTING[upstream.profile.dialect]
    url = upstream.server_dialect.url_at(asks.path, upstream.base_url, prepared.target.model)
    body = asks.body(prepared.body, prepared.target.model)
    trace = exchange.trace
    if trace is not None:
        trace.upstream_request("POST", url, upstream.headers, body)
    answer = await services.transport.send("POST", url, upstream.headers, body, upstream.timeouts)
    if trace is not None:
        trace.upstream_head(answer.status, answer.headers)
    told = bytearray()
    async for piece in answer.pieces():
        if trace is not None:
            trace.upstream_piece(piece)
        told += piece
        if len(told) > MAX_ANSWER:
            answer.abort()
            return None
    if answer.status != 200:
        return None
    counted = msgspec.json.decode(told, type=_Counted)
    return counted.input_tokens if counted.input_tokens is not None else counted.total_tokens


class _Counting(Struct, frozen=True):
    """How servers of a dialect are asked to count: where, and what they take there."""

    path: str
    body: Callable[[bytes, str], bytes]


class _Counted(Struct):
    input_tokens: Annotated[int, Meta(ge=0)] | None = None
    total_tokens: Annotated[int, Meta(ge=0)] | None = field(default=None, name="totalTokens")


def _as_it_is(body: bytes, model: str) -> bytes:
    del model
    return body


def _only(*names: str) -> Callable[[bytes, str], bytes]:
    """Of a body only these: the endpoint knows only fields that make a prompt longer."""

    def countable(body: bytes, model: str) -> bytes:
        del model
        members = msgspec.json.decode(body, type=dict[str, Raw])
        return codec.encode({name: value for name, value in members.items() if name in names})

    return countable


def _wrapped(body: bytes, model: str) -> bytes:
    """The whole of a request, for an endpoint that counts bare contents otherwise."""
    members: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Raw])
    return codec.encode({"generateContentRequest": {"model": model_resource_name(model), **members}})


MAX_ANSWER: Final = 64 * 1024
COUNTING: Final[dict[Dialect, _Counting]] = {
    "chat": _Counting("/chat/completions/input_tokens", _as_it_is),
    "responses": _Counting(
        "/responses/input_tokens",
        _only("model", "input", "instructions", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools", "truncation"),
    ),
    "messages": _Counting(
        "/messages/count_tokens",
        _only(
            *("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format"),
            *("cache_control", "context_management", "mcp_servers"),
        ),
    ),
    "gemini": _Counting("/{model}:countTokens", _wrapped),
}
