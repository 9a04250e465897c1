"""Streams a background response from any event on: stored events, then new ones until the end, without gaps or repeats
(API-2).

If the response is deleted or the storage stays unavailable, the stream stops without a terminal event. The client can
request the rest later, or gets the reason then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from antiphon.api.request_options import requested_style
from antiphon.dialects import responses
from antiphon.errors import ClientFault, StorageUnavailable
from antiphon.gateway.history import UNFINISHED_STATUSES
from antiphon.gateway.recording import queued_response, response_from_record
from antiphon.http.exchange import SSE_HEADERS, EventStream, Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCreated, ResponseFailed, ResponseQueued, StreamEvent, TerminalEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.store.interface import ResponseRecord, Store

T = TypeVar("T")
POLL_INTERVAL: Final = 5.0  # seconds between two queries without a notification
LAST_QUEUED_EVENT: Final = 1  # the number of the last event of a queued response
CANCELLED_EVENT: Final = 2  # the number of the terminal event of a response that was cancelled before it started
STORAGE_TIMEOUT: Final = 30  # seconds that a started stream waits for unavailable storage


async def stream_background_events(
    services: Services,
    store: Store,
    exchange: Exchange,
    owner: str,
    id: str,
    last_number: int,
    losses: Losses | None = None,
) -> None:
    """Streams all events whose number is greater than `last_number`."""
    style = requested_style(exchange.scope, exchange.key_style, services.config.server.style)
    writer = responses.EventsFromHub(Request(), style=style)
    headers = [*SSE_HEADERS, *losses_header(losses)] if losses is not None else SSE_HEADERS
    stream = EventStream(
        exchange.send,
        lambda: headers,
        first_byte_timeout=services.first_byte_timeout,
        keepalive_interval=services.keepalive_interval,
    )
    exchange.watch_disconnect()
    try:
        await _stream_events(_EventSource(store, owner, id), exchange, stream, last_number, writer)
    finally:
        stream.close()
        exchange.unwatch_disconnect()


async def _stream_events(
    source: _EventSource, exchange: Exchange, stream: EventStream, last_number: int, writer: responses.EventsFromHub
) -> None:
    while True:
        change_counter = source.change_counter
        events, has_ended = await source.events_after(last_number, retries=stream.has_started)
        output = b"".join(map(writer.feed, events))
        if events:
            exchange.log_entry.note_first_event()
            last_number = events[-1].sequence_number
            has_ended = isinstance(events[-1], TerminalEvent)
        if has_ended:
            await stream.end(output + writer.finish())
            return
        if output:
            await stream.write(output)
        await source.wait_for_change(change_counter)


class _EventSource:
    """Reads the events of one response."""

    def __init__(self, store: Store, owner: str, id: str) -> None:
        self._store = store
        self._owner = owner
        self._id = id

    @property
    def change_counter(self) -> int:
        return self._store.change_counter

    async def wait_for_change(self, since: int) -> None:
        await self._store.wait_for_change(self._id, POLL_INTERVAL, since)

    async def events_after(self, number: int, *, retries: bool) -> tuple[list[StreamEvent], bool]:
        """Returns the events after a number, and whether the response has ended."""
        stored = await self._retry(lambda: self._store.events_after(self._owner, self._id, number), retries)
        if stored is None:
            raise response_not_found(self._id)
        events = [codec.decode_event(line) for line in stored.events]
        has_ended = stored.status not in UNFINISHED_STATUSES
        if not events and number < (CANCELLED_EVENT if has_ended else LAST_QUEUED_EVENT):
            record = await self._retry(lambda: self._store.get(self._owner, self._id), retries)
            events = [event for event in _synthetic_events(record, has_ended) if event.sequence_number > number]
        return events, has_ended

    async def _retry(self, query: Callable[[], Awaitable[T]], retries: bool) -> T:
        tries = STORAGE_TIMEOUT if retries else 1
        while True:
            try:
                return await query()
            except StorageUnavailable:
                tries -= 1
                if not tries:
                    raise
                await asyncio.sleep(1.0)


def response_not_found(id: str) -> ClientFault:
    return ClientFault(
        f"no response with the id {id[:100]!r} is stored here", type="not_found", code="not_found", param="id"
    )


def _synthetic_events(record: ResponseRecord | None, has_ended: bool) -> list[StreamEvent]:
    """The events of a response without stored events: the same events that its runner will start with, so that the
    client gets its id while it is queued. If it was cancelled before it started, the terminal event too."""
    if record is None or (record.status in UNFINISHED_STATUSES) is has_ended:
        return []  # the status has changed since: query again
    queued = queued_response(record.head)
    events: list[StreamEvent] = [
        ResponseCreated(sequence_number=0, response=queued),
        ResponseQueued(sequence_number=LAST_QUEUED_EVENT, response=queued),
    ]
    if has_ended:
        events.append(ResponseFailed(sequence_number=CANCELLED_EVENT, response=response_from_record(record)))
    return events
