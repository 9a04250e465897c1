"""What the readers of servers' streams have in common: what was told is handed out, and the response ends once.

How a frame is read, and which words mean which end, is each dialect's own affair. The text of a message goes past this module: the
dialects hand it from the decoder straight to the writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Literal, Protocol

from antiphon.dialects.common.upstream_errors import sanitize
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import UNLIMITED, OutputLimitExceeded, OutputLimits
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter

StreamOutcome = Literal["completed", "incomplete", "failed"]


class AnswerSink(Protocol):
    """What an answer holds, as a dialect tells it to the writer."""

    def finish(self, outcome: StreamOutcome) -> None: ...


class StreamToHub(ABC):
    """Reads one answer. Without a reason for its end no stream counts as whole."""

    _answer: AnswerSink

    def __init__(self, opening: Response, stamps: Stamps) -> None:
        self.losses = Losses()
        self.error: ApiError | None = None  # what the response failed with
        self._events: list[StreamEvent] = []
        self._writer = ResponseWriter(opening, self._events.append, stamps)
        self._stop_reason = ""  # why the server stopped, in its own word
        self._has_ended = False

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """The bytes are over. What had a reason to end is complete, whatever ended them."""
        if not self._has_ended:
            if self._stop_reason:
                self._end_response()
            else:
                self._fail(
                    error
                    or UpstreamFault("the upstream's stream broke off before its end", code="upstream_disconnected")
                )
        return self._take_events()

    def limit_output(self, limits: OutputLimits) -> None:
        """Bounds the answer. A frame that exceeds the bounds raises `OutputLimitExceeded`; `cut_off` then ends the response."""
        self._writer.limits = limits

    def cut_off(self, reason: str) -> list[StreamEvent]:
        """Ends the response as incomplete. Nothing more is read."""
        self._has_ended = True
        with suppress(OutputLimitExceeded):  # what was held back does not fit any more
            self._answer.finish("incomplete")
        self._writer.limits = UNLIMITED
        self._writer.incomplete(reason, self._final_usage())
        return self._take_events()

    def response(self, body: bytes) -> tuple[Response, Losses]:
        """An answer that does not stream (STR-14). Raises what it says instead of one, or that it is none."""
        self._read_whole(body)
        if self.error is not None:
            raise self.error.without_traceback()
        return self._writer.response, self.losses

    @abstractmethod
    def _read_whole(self, body: bytes) -> None:
        """Reads a whole answer to its end; it is whole though it give no reason for it."""

    @abstractmethod
    def _end_response(self) -> None:
        """REQ-3: the reason says how the response ends; one that nobody knows is an end like any other."""

    @abstractmethod
    def _final_usage(self) -> Usage | None:
        """REQ-4: null only where the upstream has none."""

    def _take_events(self) -> list[StreamEvent]:
        events = self._events.copy()
        self._events.clear()
        return events

    def _end_as(self, incomplete: str | None) -> None:
        """A response that ended by itself; `incomplete` says why it did too early, if so."""
        self._has_ended = True
        if incomplete is None:
            self._answer.finish("completed")
            self._writer.complete(self._final_usage())
        else:
            self._answer.finish("incomplete")
            self._writer.incomplete(incomplete, self._final_usage())

    def _fail(self, error: ApiError) -> None:
        self._has_ended = True
        self.error = error.without_traceback()
        self._answer.finish("failed")
        self._writer.fail(error, self._final_usage())


def invalid_upstream_data(what: str, data: bytes) -> UpstreamFault:
    """The fault of a server that sent what no server of its dialect sends."""
    shown = sanitize(data[:MAX_EXCERPT].decode("utf-8", "replace"))
    return UpstreamFault(f"the upstream sent {what}: {shown}", code="upstream_invalid_response")


MAX_EXCERPT: Final = 80
