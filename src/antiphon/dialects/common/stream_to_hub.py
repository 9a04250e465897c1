"""Base class of the readers of upstream streams: returns the written events, and ends the response once.

Each dialect defines how a frame is read and what a stop reason means. Message text does not pass through this module:
the dialects hand it from the decoder directly to the writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Final, Literal, Protocol

from antiphon.dialects.common.call_arguments import arguments_as_object
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.content import SummaryText
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import FunctionCall, Item, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import UNLIMITED, OutputLimitExceeded, OutputLimits
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter
from antiphon.redaction import sanitize_text

#: `unknown`: the server ended the answer for a reason that the dialect does not know.
StreamOutcome = Literal["completed", "incomplete", "unknown", "failed"]


class AnswerSink(Protocol):
    """The content of an answer, as a dialect passes it to the writer."""

    def finish(self, outcome: StreamOutcome) -> None: ...


class StreamToHub(ABC):
    """Reads one answer. A stream without a stop reason is not complete."""

    _answer: AnswerSink

    def __init__(self, initial_response: Response, stamps: Stamps) -> None:
        self.losses = Losses()
        self.error: ApiError | None = None  # the error of a failed response
        self._events: list[StreamEvent] = []
        self._writer = ResponseWriter(initial_response, self._events.append, stamps)
        if initial_response.reasoning is not None and initial_response.reasoning.summary is not None:
            # RSN-4: these servers send their reasoning in one form; a client that asked for a summary reads only that.
            self._writer.reasoning_part = SummaryText
        self._stop_reason = ""  # the server's own value
        self._has_ended = False

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """Ends the stream. A stream with a stop reason is complete, even if `error` is given."""
        if not self._has_ended:
            if self._stop_reason:
                self._end_response()
            else:
                self._fail(
                    error
                    or UpstreamFault(
                        "the upstream closed the stream before the response was complete", code="upstream_disconnected"
                    )
                )
        return self._take_events()

    def limit_output(self, limits: OutputLimits) -> None:
        """Bounds the answer. A frame that exceeds the bounds raises `OutputLimitExceeded`; `end_incomplete` then ends
        the response."""
        self._writer.limits = limits

    def end_incomplete(self, reason: str) -> list[StreamEvent]:
        """Ends the response as incomplete. Nothing more is read."""
        self._has_ended = True
        with suppress(OutputLimitExceeded):  # pending content may exceed the limit too
            self._answer.finish("incomplete")
        self._writer.limits = UNLIMITED
        self._writer.end_incomplete(reason, self._final_usage())
        return self._take_events()

    def response(self, body: bytes) -> tuple[Response, Losses]:
        """Reads an answer that is not streamed (STR-14). Raises the error that it contains, or that it is invalid."""
        self._read_whole(body)
        if self.error is not None:
            raise self.error.without_traceback()
        return self._writer.response, self.losses

    @abstractmethod
    def _read_whole(self, body: bytes) -> None:
        """Reads a whole answer, which is complete even without a stop reason."""

    @abstractmethod
    def _end_response(self) -> None:
        """REQ-3: ends the response by its stop reason. An unknown reason is passed to `_end_for_unknown_reason`."""

    @abstractmethod
    def _final_usage(self) -> Usage | None:
        """REQ-4: the usage, None only if the upstream sends none."""

    def _take_events(self) -> list[StreamEvent]:
        events = self._events.copy()
        self._events.clear()
        return events

    def _end_as(self, incomplete: str | None) -> None:
        """Ends a response that did not fail; `incomplete` is the reason if it is incomplete."""
        self._has_ended = True
        if incomplete is None:
            self._answer.finish("completed")
            self._writer.complete(self._final_usage())
        else:
            self._answer.finish("incomplete")
            self._writer.end_incomplete(incomplete, self._final_usage())

    def _end_for_unknown_reason(self, path: str, reason: str) -> None:
        """REQ-3: ends a response with a stop reason that the dialect does not know. The response is incomplete.

        Only if its output is nothing but whole calls, they are delivered: the client can run them and continue.
        """
        self._has_ended = True
        self._answer.finish("unknown")
        shown = sanitize_text(reason)[:MAX_REASON]
        if _are_whole_calls(self._writer.announced_items):
            self.losses.add(path, f"the reason {shown!r}", "it is unknown; all calls are whole, and they are delivered")
            self._writer.complete(self._final_usage())
        else:
            self._writer.end_incomplete(shown, self._final_usage())

    def _has_whole_content(self) -> bool:
        """Whether there is output, and no call in it is cut."""
        items = self._writer.announced_items
        return bool(items) and all(_is_whole(item) for item in items if isinstance(item, FunctionCall))

    def _fail(self, error: ApiError) -> None:
        self._has_ended = True
        self.error = error.without_traceback()
        self._answer.finish("failed")
        self._writer.fail(error, self._final_usage())


def _are_whole_calls(items: list[Item]) -> bool:
    """Whether the items are whole calls, and reasoning before them. The end of a free-form input cannot be seen."""
    calls = [item for item in items if not isinstance(item, Reasoning)]
    return bool(calls) and all(isinstance(item, FunctionCall) and _is_whole(item) for item in calls)


def _is_whole(call: FunctionCall) -> bool:
    return bool(call.arguments) and arguments_as_object(call.arguments) is not None


def invalid_upstream_data(what: str, data: bytes) -> UpstreamFault:
    """The error for upstream data that its dialect does not allow."""
    shown = sanitize_text(data[:MAX_EXCERPT].decode("utf-8", "replace"))
    return UpstreamFault(f"the upstream sent {what}: {shown}", code="upstream_invalid_response")


MAX_EXCERPT: Final = 80
MAX_REASON: Final = 50
