"""What a server answers, as the hub has it: whole answers, and streams however poor, mended on the way.

A stream of the responses dialect keeps the response's own id. Where it is to outlive its connection, its events are counted by the
server's numbers: it goes on without a gap, and what comes twice is passed over.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon import sse
from antiphon.client.server import STAMPS, Server, new_id
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.errors import ApiError
from antiphon.protocol import codec
from antiphon.protocol.events import ResponseCompleted, ResponseFailed, StreamEvent
from antiphon.protocol.items import Item, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import decode_json, with_nesting_limit
from antiphon.protocol.output_limits import UNLIMITED, OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, initial_response
from antiphon.protocol.status import ResponseStatus
from antiphon.upstream.server_dialects import EventsToHub


def events_to_hub(server: Server, request: Request, *, counts: bool = False) -> EventsToHub:
    """The reader of one stream; it counts what may have to go on in another connection."""
    if server.profile.dialect == "responses":
        return NumberedEvents(server, request, counts=counts)
    return server.dialect.events_to_hub(request, _opening(request), STAMPS, server.wire)


def read_response(server: Server, request: Request, body: bytes) -> tuple[Response, Losses]:
    """A whole answer, at whatever point of its life the response is. One that is not whole is mended (STR-14)."""
    begun = _opening(request)
    if server.profile.dialect == "responses":
        try:
            return _sealed(server, codec.decode_response(body)), Losses()
        except ApiError:
            begun = _opening(request, _begun_in(body))
    return server.dialect.response_to_hub(body, request, begun, STAMPS, server.wire)


def raise_failure(server: Server, response: Response) -> None:
    """A server may say in an answer of 200 that it failed."""
    if response.status == ResponseStatus.FAILED:
        told = response.error
        body = {"error": {"code": told.code, "message": told.message} if told else {"message": "the response failed"}}
        raise server.dialect.error_to_hub(0, {}, codec.encode(body))


class NumberedEvents:
    """A stream of the responses dialect, in however many connections it comes."""

    def __init__(self, server: Server, request: Request, *, counts: bool) -> None:
        self.id: str | None = None  # of the response
        self.last: int | None = None  # the server's own number of the newest event, if it is counted
        self._counts = counts
        self._told: int | None = None  # what it was when the connection before this one broke
        self._server = server
        self._request = request
        self._to_hub: EventsToHub | None = None
        self._limits = UNLIMITED

    @property
    def error(self) -> ApiError | None:
        return self._to_hub.error if self._to_hub is not None else None

    @property
    def losses(self) -> Losses:
        return self._to_hub.losses if self._to_hub is not None else Losses()

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        to_hub = self._to_hub or self._begin(frame)
        if self._counts and (number := _number_of(frame.data)) is not None:
            if self._told is not None and number <= self._told:
                return []
            self.last = number
        events = to_hub.feed(frame)
        if events and type(events[-1]) is ResponseFailed:
            return _as_cancelled(events, frame)
        if events and type(events[-1]) is ResponseCompleted:
            events[-1] = _as_timed(events[-1], frame)
        return events

    def go_on(self) -> int | None:
        """Another connection follows: the number behind which it goes on. Up to that, whatever it tells was told."""
        self._told = self.last
        return self.last

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        return (self._to_hub or self._begin(NOTHING)).finish(error)

    def limit_output(self, limits: OutputLimits) -> None:
        self._limits = limits

    def cut_off(self, reason: str) -> list[StreamEvent]:
        assert self._to_hub is not None  # a limit is only exceeded by what was fed
        return self._to_hub.cut_off(reason)

    def _begin(self, frame: sse.Frame) -> EventsToHub:
        """With the response as the server tells of it first: its id is needed to come back to it."""
        begun = _response_in(frame.data)
        opened = _opening(self._request, _begun_in(begun))
        self.id = opened.id
        try:
            told = codec.decode_response(begun)
            opened = replace(
                told,
                status=ResponseStatus.IN_PROGRESS,
                output=[],
                **dict.fromkeys(("completed_at", "incomplete_details", "error", "usage")),
            )
        except ApiError:
            pass  # a poor server's: what was asked for stands in its place
        self._to_hub = self._server.dialect.events_to_hub(self._request, opened, STAMPS, self._server.wire)
        self._to_hub.limit_output(self._limits)
        return self._to_hub


class _Begun(Struct, frozen=True):
    """What a server says of a response."""

    id: str | None = None
    created_at: float | None = None
    completed_at: float | None = None
    model: str | None = None


class _WithResponse(Struct, frozen=True):
    response: Raw = Raw(b"{}")


class _WithNumber(Struct, frozen=True):
    sequence_number: int | None = None


class _WithStatus(Struct, frozen=True):
    status: str | None = None


def _opening(request: Request, begun: _Begun | None = None) -> Response:
    told = begun or _Begun()
    created_at = STAMPS.now() if told.created_at is None else int(told.created_at)
    return initial_response(request, id=told.id or new_id("resp"), created_at=created_at, model=told.model)


def _begun_in(body: bytes | Raw) -> _Begun:
    try:
        return decode_json(body, type=_Begun)
    except UNREADABLE:
        return _Begun()


def _response_in(data: bytes) -> Raw:
    try:
        return decode_json(data, type=_WithResponse).response
    except UNREADABLE:
        return Raw(b"{}")


def _number_of(data: bytes) -> int | None:
    try:
        return _decode_number(data).sequence_number
    except UNREADABLE:
        return None


def _as_cancelled(events: list[StreamEvent], frame: sse.Frame) -> list[StreamEvent]:
    """A response that was cancelled ends with `response.failed`, whose response says `cancelled`. Nothing failed."""
    end = events[-1]
    if type(end) is not ResponseFailed or _status_in(_response_in(frame.data)) != ResponseStatus.CANCELLED:
        return events
    cancelled = replace(end.response, status=ResponseStatus.CANCELLED, error=None)
    before = [event for event in events if event.sequence_number < end.sequence_number - 1]
    return [*before, ResponseFailed(sequence_number=end.sequence_number - 1, response=cancelled)]


def _as_timed(end: ResponseCompleted, frame: sse.Frame) -> ResponseCompleted:
    """When a response was completed, its server knows; only where it does not say so is that when it was heard."""
    told = _begun_in(_response_in(frame.data)).completed_at
    return end if told is None else replace(end, response=replace(end.response, completed_at=int(told)))


def _status_in(response: Raw) -> str | None:
    try:
        return decode_json(response, type=_WithStatus).status
    except UNREADABLE:
        return None


def _sealed(server: Server, response: Response) -> Response:
    """RSN-2: as in a stream, reasoning that goes back to its maker says who that is."""
    output: list[Item] = []
    for item in response.output:
        if isinstance(item, Reasoning) and item.encrypted_content:
            content = {"encrypted_content": item.encrypted_content, "id": item.id}
            item = replace(item, encrypted_content=seal_reasoning(server.wire.maker, content))
        output.append(item)
    return replace(response, output=output)


NOTHING: Final = sse.Frame("", b"{}")
UNREADABLE: Final = msgspec.DecodeError
_decode_number: Final = with_nesting_limit(msgspec.json.Decoder(_WithNumber).decode)
