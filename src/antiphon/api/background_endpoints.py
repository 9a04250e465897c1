"""Endpoints for background responses (API-2): creating and cancelling them. Their stream is in `background_stream`."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from antiphon.api.background_stream import stream_background_events
from antiphon.api.stored_responses import find_response, render_response, require_store
from antiphon.errors import ApiError, ClientFault
from antiphon.gateway.history import UNFINISHED_STATUSES
from antiphon.gateway.prepare_turn import PreparedTurn
from antiphon.gateway.queued_turns import QueuedTurn
from antiphon.gateway.recording import without_target
from antiphon.http.asgi import JSON
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.request import Request
from antiphon.protocol.status import ResponseStatus
from antiphon.store.interface import ResponseRecord

CANCEL_TIMEOUT: Final = (
    0.8  # seconds that the runner of a cancelled response has to end it before the client gets its answer
)


async def enqueue_response(services: Services, exchange: Exchange, prepared_turn: PreparedTurn) -> None:
    """Saves the request and answers at once, with the queued response or with its stream."""
    store, recorder, turn = services.store, prepared_turn.recorder, prepared_turn.turn
    assert store is not None  # `prepare_turn` refuses background requests without a store
    assert recorder is not None
    assert services.background is not None  # where there is a store
    owner = exchange.owner
    if not await services.background.reserve_place(services.config.background.waiting):
        message = "the background queue is full: retry later"
        raise ApiError(message, code="overloaded", status=503, retry_after=10)
    queued = replace(turn.initial_response, status=ResponseStatus.QUEUED)
    record, item_ids, _ = recorder.make_record(queued)
    request = prepared_turn.queued_request
    assert request is not None  # a background request
    queued_turns = services.background.queued_turns
    queued_turns.add(QueuedTurn(services, prepared_turn, queued, record.input, exchange.log_entry))
    is_stored = False
    try:
        await store.enqueue(owner, record, item_ids, request.content)
        is_stored = True
    finally:
        if is_stored:
            queued_turns.note_stored(queued.id)
        else:
            queued_turns.discard(queued.id)
    exchange.log_entry.is_deferred = True
    services.background.wake()
    if request.streams:
        await stream_background_events(services, store, exchange, owner, queued.id, -1, turn.losses)
        return
    body = codec.encode(queued) if recorder.answered_by else record.head  # the head is without the target then
    await exchange.respond(200, [JSON, *losses_header(turn.losses)], body)


async def cancel_response(services: Services, exchange: Exchange) -> None:
    """`POST /v1/responses/{id}/cancel`: ends a queued or running response. One that has ended is returned unchanged."""
    store, owner, id = require_store(services), exchange.owner, exchange.path_parameter
    record = await find_response(services, exchange)
    head = await services.workers.call(len(record.head), _cancelled_head, record.head, owner=owner)
    await store.cancel(owner, id, replace(record, status=ResponseStatus.CANCELLED, head=head))
    assert services.background is not None  # where there is a store
    services.background.cancel(id)
    ended_record = await _wait_for_end(services, exchange)
    exchange.log_entry.response_id = id
    await exchange.respond(200, [JSON], await render_response(services, exchange, ended_record, Request()))


def _cancelled_head(head: bytes) -> bytes:
    response = without_target(codec.decode_response(head))
    if not response.background:
        raise ClientFault("only a response with `background: true` can be cancelled", param="id")
    return codec.encode(replace(response, status=ResponseStatus.CANCELLED, output=[]))


async def _wait_for_end(services: Services, exchange: Exchange) -> ResponseRecord:
    """Waits until the runner has ended the response, and returns it. After `CANCEL_TIMEOUT` it is returned as
    cancelled: the cancellation is stored, and the runner writes its last events later."""
    store = require_store(services)
    deadline = asyncio.get_running_loop().time() + CANCEL_TIMEOUT
    while True:
        change_counter = store.change_counter
        record = await find_response(services, exchange)
        seconds_left = deadline - asyncio.get_running_loop().time()
        if record.status not in UNFINISHED_STATUSES:
            return record
        if seconds_left <= 0:
            return replace(record, status=ResponseStatus.CANCELLED)
        await store.wait_for_change(record.id, seconds_left, change_counter)
