"""Decodes a server's answers, whole or streamed, into hub types. Incomplete answers are normalized.

A stream of the responses dialect keeps the id of the server's response. If the stream may continue on another
connection, the server's sequence numbers are tracked, so that no event is missed and repeated events are skipped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from antiphon import sse
from antiphon.client.server import Server
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.dialect import EventsToHub
from antiphon.errors import ApiError
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_json, with_nesting_limit
from antiphon.protocol.events import ResponseCompleted, ResponseFailed, StreamEvent
from antiphon.protocol.items import Item, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import UNLIMITED, OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.status import ResponseStatus
from antiphon.system_stamps import SYSTEM_STAMPS


def events_to_hub(server: Server, request: Request, *, tracks_numbers: bool = False) -> EventsToHub:
    """Returns the decoder of one stream. `tracks_numbers`: sequence numbers are tracked, for a stream that may
    continue on another connection."""
    if server.dialect.is_hub:
        return NumberedEvents(server, request, tracks_numbers=tracks_numbers)
    return server.dialect.events_to_hub(request, _make_initial_response(request), SYSTEM_STAMPS, server.wire)


def read_response(server: Server, request: Request, body: bytes) -> tuple[Response, Losses]:
    """Decodes a whole response, whatever its status. Missing fields are filled in (STR-14)."""
    initial_response = _make_initial_response(request)
    if server.dialect.is_hub:
        try:
            return _seal_reasoning(server, codec.decode_response(body)), Losses()
        except ApiError:
            initial_response = _make_initial_response(request, _decode_metadata(body))
    return server.dialect.response_to_hub(body, request, initial_response, SYSTEM_STAMPS, server.wire)


def raise_failure(server: Server, response: Response) -> None:
    """Raises the error of a failed response. A server may send one with HTTP status 200."""
    if response.status == ResponseStatus.FAILED:
        error = response.error
        body = {
            "error": {"code": error.code, "message": error.message} if error else {"message": "the response failed"}
        }
        raise server.dialect.error_to_hub(0, {}, codec.encode(body))


class NumberedEvents:
    """Decodes one stream of the responses dialect, which may span several connections."""

    def __init__(self, server: Server, request: Request, *, tracks_numbers: bool) -> None:
        self.id: str | None = None  # of the response
        self.last_number: int | None = None  # the server's sequence number of the newest event, if `tracks_numbers`
        self._tracks_numbers = tracks_numbers
        self._skip_through: int | None = None  # `last` when the previous connection broke
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
        to_hub = self._to_hub or self._create_decoder(frame)
        if self._tracks_numbers and (number := _sequence_number(frame.data)) is not None:
            if self._skip_through is not None and number <= self._skip_through:
                return []
            self.last_number = number
        events = to_hub.feed(frame)
        if events and type(events[-1]) is ResponseFailed:
            return _without_cancellation_error(events, frame)
        if events and type(events[-1]) is ResponseCompleted:
            events[-1] = _with_completion_time(events[-1], frame)
        return events

    def mark_reconnect(self) -> int | None:
        """Prepares for another connection: events up to the returned number were delivered and will be skipped."""
        self._skip_through = self.last_number
        return self.last_number

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        return (self._to_hub or self._create_decoder(EMPTY_FRAME)).finish(error)

    def limit_output(self, limits: OutputLimits) -> None:
        self._limits = limits

    def end_incomplete(self, reason: str) -> list[StreamEvent]:
        assert self._to_hub is not None  # a limit can only be exceeded after `feed`
        return self._to_hub.end_incomplete(reason)

    def _create_decoder(self, frame: sse.Frame) -> EventsToHub:
        """Starts from the response in the server's first event: reconnecting needs its id."""
        first_response = _response_in(frame.data)
        initial_state = _make_initial_response(self._request, _decode_metadata(first_response))
        self.id = initial_state.id
        with suppress(ApiError):  # the response is incomplete: keep the one built from the request
            initial_state = replace(
                codec.decode_response(first_response),
                status=ResponseStatus.IN_PROGRESS,
                output=[],
                **dict.fromkeys(("completed_at", "incomplete_details", "error", "usage")),
            )
        self._to_hub = self._server.dialect.events_to_hub(
            self._request, initial_state, SYSTEM_STAMPS, self._server.wire
        )
        self._to_hub.limit_output(self._limits)
        return self._to_hub


class _ResponseMetadata(Struct, frozen=True):
    """The fields of a server's response that the client keeps."""

    id: str | None = None
    created_at: float | None = None
    completed_at: float | None = None
    model: str | None = None


_NO_METADATA: Final = _ResponseMetadata()


class _WithResponse(Struct, frozen=True):
    response: Raw = Raw(b"{}")


class _WithNumber(Struct, frozen=True):
    sequence_number: int | None = None


class _WithStatus(Struct, frozen=True):
    status: str | None = None


def _make_initial_response(request: Request, metadata: _ResponseMetadata = _NO_METADATA) -> Response:
    created_at = SYSTEM_STAMPS.now() if metadata.created_at is None else int(metadata.created_at)
    return make_initial_response(
        request, id=metadata.id or SYSTEM_STAMPS.new_id("resp"), created_at=created_at, model=metadata.model
    )


def _decode_metadata(body: bytes | Raw) -> _ResponseMetadata:
    try:
        return decode_json(body, type=_ResponseMetadata)
    except DECODE_ERROR:
        return _NO_METADATA


def _response_in(data: bytes) -> Raw:
    try:
        return decode_json(data, type=_WithResponse).response
    except DECODE_ERROR:
        return Raw(b"{}")


def _sequence_number(data: bytes) -> int | None:
    try:
        return _decode_number(data).sequence_number
    except DECODE_ERROR:
        return None


def _without_cancellation_error(events: list[StreamEvent], frame: sse.Frame) -> list[StreamEvent]:
    """Removes the error: a cancelled response ends with `response.failed`, but its status is `cancelled`."""
    terminal_event = events[-1]
    if type(terminal_event) is not ResponseFailed or _status_in(_response_in(frame.data)) != ResponseStatus.CANCELLED:
        return events
    cancelled = replace(terminal_event.response, status=ResponseStatus.CANCELLED, error=None)
    earlier_events = [event for event in events if event.sequence_number < terminal_event.sequence_number - 1]
    return [*earlier_events, ResponseFailed(sequence_number=terminal_event.sequence_number - 1, response=cancelled)]


def _with_completion_time(terminal_event: ResponseCompleted, frame: sse.Frame) -> ResponseCompleted:
    """Uses the server's `completed_at` if it sent one. Otherwise the time of receipt stays."""
    completed_at = _decode_metadata(_response_in(frame.data)).completed_at
    if completed_at is None:
        return terminal_event
    return replace(terminal_event, response=replace(terminal_event.response, completed_at=int(completed_at)))


def _status_in(response: Raw) -> str | None:
    try:
        return decode_json(response, type=_WithStatus).status
    except DECODE_ERROR:
        return None


def _seal_reasoning(server: Server, response: Response) -> Response:
    """RSN-2: marks encrypted reasoning with the server that made it, as streams do."""
    output: list[Item] = []
    for item in response.output:
        if isinstance(item, Reasoning) and item.encrypted_content:
            content = {"encrypted_content": item.encrypted_content, "id": item.id}
            item = replace(item, encrypted_content=seal_reasoning(server.wire.maker, content))
        output.append(item)
    return replace(response, output=output)


EMPTY_FRAME: Final = sse.Frame("", b"{}")
DECODE_ERROR: Final = msgspec.DecodeError
_decode_number: Final = with_nesting_limit(msgspec.json.Decoder(_WithNumber).decode)
