"""The stream of a response that is made in the background, from any event on: what is written down, then what comes, until its end,
without a gap and with nothing twice (API-2).

A stream that cannot go on, because its response was deleted or its storage stays away, breaks off without an end: whoever reads it
can come back for the rest, or learns why there is none.
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
from antiphon.http.event_stream import SSE_HEADERS, EventStream
from antiphon.http.exchange import Exchange, losses_header
from antiphon.ops.services import Services
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCreated, ResponseFailed, ResponseQueued, StreamEvent, TerminalEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.store.interface import ResponseRecord, Store

T = TypeVar("T")
POLL_INTERVAL: Final = 5.0  # seconds after which it is looked at all the same
WAITS: Final = 1  # the number of the last event that is told while it waits
ENDS: Final = 2  # the number of the end of one that was never begun
STORAGE_TIMEOUT: Final = 30  # seconds that a stream which has begun waits for its storage to come back


async def stream_background_events(
    services: Services, store: Store, exchange: Exchange, owner: str, id: str, after: int, losses: Losses | None = None
) -> None:
    """Streams every event after the one of a number."""
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
        await _tell(_Source(store, owner, id), exchange, stream, after, writer)
    finally:
        stream.close()
        exchange.unwatch_disconnect()


async def _tell(source: _Source, exchange: Exchange, stream: EventStream, after: int, writer: responses.EventsFromHub) -> None:
    while True:
        moment = source.moment
        events, is_over = await source.after(after, is_patient=stream.has_started)
        out = b"".join(map(writer.feed, events))
        if events:
            exchange.log_entry.note_first_event()
            after = events[-1].sequence_number
            is_over = isinstance(events[-1], TerminalEvent)
        if is_over:
            await stream.end(out + writer.finish())
            return
        if out:
            await stream.write(out)
        await source.changed(moment)


class _Source:
    """What one response says."""

    def __init__(self, store: Store, owner: str, id: str) -> None:
        self._store = store
        self._owner = owner
        self._id = id

    @property
    def moment(self) -> int:
        return self._store.change_counter

    async def changed(self, since: int) -> None:
        await self._store.wait_for_change(self._id, POLL_INTERVAL, since)

    async def after(self, number: int, *, is_patient: bool) -> tuple[list[StreamEvent], bool]:
        """The events after one, and whether there will be no more."""
        said = await self._ask(lambda: self._store.events_after(self._owner, self._id, number), is_patient)
        if said is None:
            raise response_not_found(self._id)
        events = [codec.decode_event(line) for line in said.events]
        is_over = said.status not in UNFINISHED_STATUSES
        if not events and number < (ENDS if is_over else WAITS):
            record = await self._ask(lambda: self._store.get(self._owner, self._id), is_patient)
            events = [event for event in _told_by(record, is_over) if event.sequence_number > number]
        return events, is_over

    async def _ask(self, ask: Callable[[], Awaitable[T]], is_patient: bool) -> T:
        tries = STORAGE_TIMEOUT if is_patient else 1
        while True:
            try:
                return await ask()
            except StorageUnavailable:
                tries -= 1
                if not tries:
                    raise
                await asyncio.sleep(1.0)


def response_not_found(id: str) -> ClientFault:
    return ClientFault(f"no response with the id {id[:100]!r} is kept here", type="not_found", code="not_found", param="id")


def _told_by(record: ResponseRecord | None, is_over: bool) -> list[StreamEvent]:
    """What can be told of a response of which nothing is written down: the very events that whoever makes it will begin with, so
    that who asked for it knows its id while it waits; and, if it was cancelled before anybody did, its end."""
    if record is None or (record.status in UNFINISHED_STATUSES) is is_over:
        return []  # things have changed since, and are looked at once more
    queued = queued_response(record)
    waits: list[StreamEvent] = [
        ResponseCreated(sequence_number=0, response=queued),
        ResponseQueued(sequence_number=WAITS, response=queued),
    ]
    return [*waits, ResponseFailed(sequence_number=ENDS, response=response_from_record(record))] if is_over else waits
