"""The outcome of an answer: whether it succeeded and is complete, and its error for people."""

from __future__ import annotations

from typing import assert_never

from antiphon.cli.terminal import one_line
from antiphon.protocol.events import (
    ErrorEvent,
    RefusalDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TerminalEvent,
)
from antiphon.protocol.response import Response, Usage


class ResponseOutcome:
    """Collects the events of an answer and derives its outcome."""

    def __init__(self) -> None:
        self._error: str | None = None
        self._has_refused = False
        self._terminal_event: TerminalEvent | None = None

    def add_event(self, event: StreamEvent) -> None:
        match event:
            case RefusalDelta():
                self._has_refused = True
            case ErrorEvent(error=error):
                self._error = describe_error(error.type, error.code, error.message, error.param)
            case ResponseCompleted() | ResponseFailed() | ResponseIncomplete():
                self._terminal_event = event
            case _:
                pass

    @property
    def usage(self) -> Usage | None:
        return self._terminal_event.response.usage if self._terminal_event else None

    def failure_message(self) -> str | None:
        """Return why the answer failed or is incomplete; None if it is complete."""
        match self._terminal_event:
            case None:
                return self._error or "the answer is incomplete: the stream ended without a terminal event"
            case ResponseFailed(response=response):
                # STR-8: the error event has more details than the failed response.
                return self._error or _describe_failure(response)
            case ResponseIncomplete(response=response):
                reason = response.incomplete_details.reason if response.incomplete_details else "no reason was given"
                return f"the answer is incomplete: {one_line(reason)}"
            case ResponseCompleted():
                return "the model refused" if self._has_refused else None
            case _ as never:
                assert_never(never)


def describe_error(type: str | None, code: str | None, message: str, param: str | None = None) -> str:
    """Format an error so that scripts can parse it: `type/code: message`, and the field that it concerns."""
    name = "/".join(one_line(part) for part in (type, code) if part)
    return f"{name}: {one_line(message)}" + (f" (at {one_line(param)})" if param else "")


def _describe_failure(response: Response) -> str:
    if response.error is None:
        return "the answer failed; no reason was given"
    return describe_error(None, response.error.code, response.error.message)
