"""`POST /v1/responses/input_tokens` (API-3): how long a turn would be, without asking for it.

The turn is made ready as any other is, with all that it continues, so that what is counted is what would be sent. An upstream that
counts is asked; where none does, or it does not answer, there is an estimate, and the answer says that it is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from antiphon.dialects import chat, responses
from antiphon.errors import ApiError
from antiphon.gateway.history import Archive
from antiphon.gateway.token_estimate import estimate
from antiphon.gateway.turn import Prepared
from antiphon.profiles import Dialect
from antiphon.protocol import codec
from antiphon.protocol.items import CompactionTrigger
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.server.asgi import JSON
from antiphon.server.body import ClientLeft, check_head, read_body
from antiphon.server.exchange import Exchange, losses_header, shutdown
from antiphon.server.services import Services
from antiphon.server.turns import begin


class InputTokens(Struct, frozen=True, kw_only=True):
    """How many tokens a request has before anything is answered."""

    object: str = "response.input_tokens"
    input_tokens: int
    estimated: Annotated[bool, Meta(description="The upstream does not count: this is about so many.")] | UnsetType = field(
        default=UNSET, name="antiphon:estimated"
    )


async def count_tokens(services: Services, exchange: Exchange) -> None:
    """A request from body to number."""
    check_head(exchange.scope, services.max_body)
    body = await read_body(exchange.receive, services.max_body)
    if exchange.trace is not None:
        exchange.trace.client_request("POST", exchange.scope["path"], exchange.scope["headers"], body)
    request, losses = responses.request_to_hub(body)
    owner = exchange.line.owner
    assert owner is not None  # the route is not public
    archive = Archive(owner=owner, store=services.store)
    begun = await begin(services, _to_be_counted(request), losses, archive, exchange.line, exchange.trace)
    exchange.line.response_id = None  # there will be none
    prepared = begun.turn.prepared
    count = await _asked(services, exchange, prepared)
    headers = losses_header(prepared.losses)
    if count is None:
        request, _ = DIALECTS[prepared.target.upstream.profile.dialect](prepared.body)
        told = InputTokens(input_tokens=estimate(request), estimated=True)
        headers.append((b"antiphon-estimated", b"true"))
    else:
        told = InputTokens(input_tokens=count)
    await exchange.answer(200, [JSON, *headers], msgspec.json.encode(told))


def _to_be_counted(request: Request) -> Request:
    """The turn without all that would make it more than a question: nothing is kept, compacted or run."""
    items = request.input
    if isinstance(items, list):
        items = [item for item in items if not isinstance(item, CompactionTrigger)]
    return replace(
        request, input=items, store=False, stream=UNSET, stream_options=UNSET, background=UNSET, context_management=UNSET
    )


async def _asked(services: Services, exchange: Exchange, prepared: Prepared) -> int | None:
    """The upstream's own count; None if it has none to give."""
    if not prepared.target.upstream.profile.wire.counts_tokens:
        return None
    exchange.watch()
    try:
        return await _ask(services, exchange, prepared)
    except (ApiError, msgspec.DecodeError):
        return None
    except asyncio.CancelledError:
        exchange.come_back()
        raise (ClientLeft() if exchange.left else shutdown()) from None
    finally:
        exchange.unwatch()


async def _ask(services: Services, exchange: Exchange, prepared: Prepared) -> int | None:
    upstream = prepared.target.upstream
    url = f"{upstream.base_url}{upstream.speech.path}/input_tokens"
    body = _countable(prepared.body) if upstream.profile.dialect == "responses" else prepared.body
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
    return msgspec.json.decode(told, type=_Counted).input_tokens if answer.status == 200 else None


def _countable(body: bytes) -> bytes:
    """What the counting endpoint of this API takes: it knows only fields that make a prompt longer."""
    members = msgspec.json.decode(body, type=dict[str, Raw])
    return codec.encode({name: value for name, value in members.items() if name in COUNTED})


class _Counted(Struct):
    input_tokens: Annotated[int, Meta(ge=0)]


MAX_ANSWER: Final = 64 * 1024
COUNTED: Final = frozenset(
    {"model", "input", "instructions", "parallel_tool_calls", "reasoning", "text", "tool_choice", "tools", "truncation"}
)
DIALECTS: Final[dict[Dialect, Callable[[bytes], tuple[Request, Losses]]]] = {
    "chat": chat.request_to_hub,
    "responses": responses.request_to_hub,
}
