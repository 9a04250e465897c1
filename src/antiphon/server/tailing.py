"""The stream of a response that is made in the background, from any event on: what is written down, then what comes, until its end,
without a gap and with nothing twice (API-2).

A stream that cannot go on, because its response was deleted or its storage stays away, breaks off without an end: whoever reads it
can come back for the rest, or learns why there is none.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from antiphon.dialects import responses
from antiphon.errors import ClientFault, StorageUnavailable
from antiphon.gateway.history import UNDER_WAY
from antiphon.gateway.keeping import response_of
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCreated, ResponseFailed, ResponseInProgress, StreamEvent, TerminalEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.status import ResponseStatus
from antiphon.server.client_style import style_for
from antiphon.server.exchange import Exchange, losses_header
from antiphon.server.services import Services
from antiphon.server.stream import SSE, EventStream
from antiphon.store.interface import Record, Store
from antiphon.store.work import Said

LOOK: Final = 5.0  # seconds after which it is looked at all the same
PATIENCE: Final = 30  # seconds that a stream which has begun waits for its storage to come back


async def tail(
    services: Services, store: Store, exchange: Exchange, owner: str, id: str, after: int, losses: Losses | None = None
) -> None:
    """Streams every event after the one of a number."""
    headers = [*SSE, *losses_header(losses)] if losses is not None else SSE
    stream = EventStream(exchange.send, lambda: headers, first=services.patience, silence=services.silence)
    exchange.watch()
    try:
        await _tell(_Source(store, owner, id), exchange, stream, after)
    finally:
        stream.close()
        exchange.unwatch()


async def _tell(source: _Source, exchange: Exchange, stream: EventStream, after: int) -> None:
    writer = responses.EventsFromHub(Request(), style=style_for(exchange.scope))
    while True:
        moment = source.moment
        events, is_over = await source.after(after, is_patient=stream.started)
        out = b"".join(map(writer.feed, events))
        if events:
            exchange.line.note_first_event()
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
        return self._store.moment

    async def changed(self, since: int) -> None:
        await self._store.changed(self._id, LOOK, since)

    async def after(self, number: int, *, is_patient: bool) -> tuple[list[StreamEvent], bool]:
        """The events after one, and whether there will be no more."""
        said = await self._said(number, is_patient)
        if said is None:
            raise not_found(self._id)
        events = [codec.decode_event(line) for line in said.events]
        is_over = said.status not in UNDER_WAY
        if is_over and not events and number < 0:
            record = await self._store.get(self._owner, self._id)
            events = [] if record is None else _of_one_that_never_began(record)
        return events, is_over

    async def _said(self, number: int, is_patient: bool) -> Said | None:
        tries = PATIENCE if is_patient else 1
        while True:
            try:
                return await self._store.said(self._owner, self._id, number)
            except StorageUnavailable:
                tries -= 1
                if not tries:
                    raise
                await asyncio.sleep(1.0)


def not_found(id: str) -> ClientFault:
    return ClientFault(f"no response with the id {id[:100]!r} is kept here", type="not_found", code="not_found", param="id")


def _of_one_that_never_began(record: Record) -> list[StreamEvent]:
    """It was cancelled while it waited: nobody wrote down anything of it, and it has an end all the same."""
    ended = response_of(record)
    begun = replace(ended, status=ResponseStatus.IN_PROGRESS)
    return [
        ResponseCreated(sequence_number=0, response=begun),
        ResponseInProgress(sequence_number=1, response=begun),
        ResponseFailed(sequence_number=2, response=ended),
    ]
