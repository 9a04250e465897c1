"""Streams a background response from any event on: stored events, then new ones until the end, without gaps or repeats
(API-2).

If the response is deleted or the storage stays unavailable, the stream stops without a terminal event. The client can
request the rest later, or gets the reason then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from antiphon.api.request_options import requested_style
from antiphon.dialects import responses
from antiphon.errors import ClientFault, StorageUnavailable
from antiphon.gateway.answer_settings import read_queued_response
from antiphon.gateway.event_lines import StoredEventReader
from antiphon.gateway.history import UNFINISHED_STATUSES
from antiphon.gateway.worker_pool import WorkerPool
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
MAX_WRITE: Final = 1024 * 1024  # bytes; a single event may be larger
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
        await _stream_events(_EventSource(services.workers, store, owner, id), exchange, stream, last_number, writer)
    finally:
        stream.close()
        exchange.unwatch_disconnect()


async def _stream_events(
    source: _EventSource, exchange: Exchange, stream: EventStream, last_number: int, writer: responses.EventsFromHub
) -> None:
    while True:
        change_counter = source.change_counter
        page = await source.read_after(last_number, retries=stream.has_started)
        has_ended, output = page.has_ended, b""
        while page.events:
            last_event, pieces = _write_some(page.events, writer)
            last_number, has_ended = last_event.sequence_number, isinstance(last_event, TerminalEvent)
            exchange.log_entry.note_first_event()
            *first_pieces, last_piece = pieces
            for piece in first_pieces:
                await stream.write(bytes(piece))
                await asyncio.sleep(0)  # others are served between the pieces of a large event
            output = bytes(last_piece)
            if not has_ended:
                await stream.write(output)
        if has_ended:
            await stream.end(output + writer.finish())
            return
        if not page.has_more:
            await source.wait_for_change(change_counter)


def _write_some(
    events: deque[bytes | StreamEvent], writer: responses.EventsFromHub
) -> tuple[StreamEvent, list[bytes | memoryview]]:
    """Takes events and writes them, until that is enough for one write. Returns the last one, and what was written; an
    event with large settings is written alone, in pieces."""
    written: list[bytes] = []
    size = 0
    while True:
        event = events.popleft()
        event = codec.decode_event(event) if isinstance(event, bytes) else event
        pieces = writer.split_event(event)
        if pieces is not None:
            return event, [b"".join(written), *_cut(pieces)]
        written.append(writer.feed(event))
        size += len(written[-1])
        is_next_large = bool(events) and isinstance(events[0], bytes) and len(events[0]) > MAX_WRITE
        if not events or size > MAX_WRITE or is_next_large or isinstance(event, TerminalEvent):
            return event, [b"".join(written)]


def _cut(pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """The pieces, none of which is larger than `MAX_WRITE`. Nothing is copied."""
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), MAX_WRITE):
            yield view[start : start + MAX_WRITE]


class _Page(NamedTuple):
    """Some events after another, most of the stored ones as JSON."""

    events: deque[bytes | StreamEvent]
    has_ended: bool  # the response has ended; there may be more events
    has_more: bool


class _EventSource:
    """Reads the events of one response."""

    def __init__(self, workers: WorkerPool, store: Store, owner: str, id: str) -> None:
        self._workers = workers
        self._store = store
        self._owner = owner
        self._id = id
        self._reader = StoredEventReader(store, owner, id, workers)

    @property
    def change_counter(self) -> int:
        return self._store.change_counter

    async def wait_for_change(self, since: int) -> None:
        await self._store.wait_for_change(self._id, POLL_INTERVAL, since)

    async def read_after(self, number: int, *, retries: bool) -> _Page:
        """Returns the next events after a number."""
        stored = await self._retry(lambda: self._reader.read_after(number), retries)
        if stored is None:
            raise response_not_found(self._id)
        events: deque[bytes | StreamEvent] = deque(stored.events())
        has_ended = stored.status not in UNFINISHED_STATUSES
        if not events and number < (CANCELLED_EVENT if has_ended else LAST_QUEUED_EVENT):
            record = await self._retry(lambda: self._store.get(self._owner, self._id), retries)
            synthetic_events = await _synthetic_events(self._workers, record, has_ended)
            events.extend(event for event in synthetic_events if event.sequence_number > number)
        return _Page(events, has_ended, stored.has_more)

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


async def _synthetic_events(workers: WorkerPool, record: ResponseRecord | None, has_ended: bool) -> list[StreamEvent]:
    """The events of a response without stored events: the same events that its runner will start with, so that the
    client gets its id while it is queued. If it was cancelled before it started, the terminal event too."""
    if record is None or (record.status in UNFINISHED_STATUSES) is has_ended:
        return []  # the status has changed since: query again
    queued = await read_queued_response(workers, record.head)
    events: list[StreamEvent] = [
        ResponseCreated(sequence_number=0, response=queued),
        ResponseQueued(sequence_number=LAST_QUEUED_EVENT, response=queued),
    ]
    if has_ended:
        cancelled = replace(queued, status=record.status)
        events.append(ResponseFailed(sequence_number=CANCELLED_EVENT, response=cancelled))
    return events
