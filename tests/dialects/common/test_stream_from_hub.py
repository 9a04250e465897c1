"""The start and the end of a client's stream, the same in every dialect."""

from __future__ import annotations

from antiphon.dialects.common.stream_from_hub import StreamFromHub
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.events import (
    ErrorEvent,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamEvent,
)
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response

RESPONSE = make_initial_response(Request(input="hi"), id="resp_1", created_at=0)
CREATED = ResponseCreated(sequence_number=0, response=RESPONSE)
IN_PROGRESS = ResponseInProgress(sequence_number=1, response=RESPONSE)
ERROR = ErrorEvent(sequence_number=2, error=ErrorPayload(type="server_error", code="x", message="m", param=None))
FAILED = ResponseFailed(sequence_number=3, response=RESPONSE)


class NamedFrames(StreamFromHub):
    """Writes one word for each frame."""

    def feed(self, event: StreamEvent) -> bytes:
        return self._feed_event(event)

    def _begin(self, _response: Response) -> bytes:
        return b"begin "

    def _content(self, _event: StreamEvent) -> bytes:
        return b"content "

    def _end(self, _response: Response) -> bytes:
        return b"end "

    def _error_frame(self, error: Error | ErrorPayload | None) -> bytes:
        return b"error(%b) " % (error.code or "" if error else "").encode()


def written(*events: StreamEvent) -> bytes:
    stream = NamedFrames()
    return b"".join([*map(stream.feed, events), stream.finish()])


def test_complete_stream_has_one_end() -> None:
    for end in (ResponseCompleted, ResponseIncomplete):
        last = end(sequence_number=2, response=RESPONSE)
        assert written(CREATED, IN_PROGRESS, last) == b"begin content end "


def test_error_event_and_failed_response_are_one_error() -> None:
    assert written(CREATED, ERROR, FAILED) == b"begin error(x) "
    assert written(CREATED, FAILED) == b"begin error() "


def test_stream_without_a_terminal_event_ends_with_an_error() -> None:
    assert written(CREATED) == b"begin error(upstream_disconnected) "
