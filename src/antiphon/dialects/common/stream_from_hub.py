"""Base class of the writers of client streams: begins the stream, and ends it once, with the response or an error.

Each dialect defines the frames. A stream that ends without a terminal event ends with an error, so that a cut answer
never looks complete. Text deltas do not pass through this module: the dialects write them with byte templates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from antiphon.dialects.common.response_errors import STREAM_CUT_ERROR
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.events import (
    ErrorEvent,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response


class StreamFromHub(ABC):
    """Writes one stream."""

    def __init__(self) -> None:
        self.losses = Losses()
        self._has_sent_end = False  # the end of the response or an error was sent

    def finish(self) -> bytes:
        """Return the error that ends a cut stream; nothing for a complete stream."""
        return b"" if self._has_sent_end else self._end_with_error(STREAM_CUT_ERROR)

    def _feed_event(self, event: StreamEvent) -> bytes:
        """Return the bytes for any event."""
        match event:
            case ResponseCreated():
                return self._begin(event.response)
            case ResponseCompleted() | ResponseIncomplete():
                self._has_sent_end = True
                return self._end(event.response)
            case ErrorEvent():
                return self._end_with_error(event.error)
            case ResponseFailed():
                return b"" if self._has_sent_end else self._end_with_error(event.response.error)
            case _:
                return self._content(event)

    def _end_with_error(self, error: Error | ErrorPayload | None) -> bytes:
        self._has_sent_end = True
        return self._error_frame(error)

    @abstractmethod
    def _begin(self, response: Response) -> bytes:
        """Return the start of the stream."""

    @abstractmethod
    def _content(self, event: StreamEvent) -> bytes:
        """Return the bytes for an event inside the response."""

    @abstractmethod
    def _end(self, response: Response) -> bytes:
        """Return the end of a response that completed or is incomplete."""

    @abstractmethod
    def _error_frame(self, error: Error | ErrorPayload | None) -> bytes:
        """Return the error of an `error` event or of a failed response."""
