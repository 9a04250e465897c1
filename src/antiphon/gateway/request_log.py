"""The log entry of one request: filled while it is served, written once by `ops.logger`. It has no field for content."""

from __future__ import annotations

from time import perf_counter
from time import time as unix_time

from msgspec import Struct, field

from antiphon.protocol.response import Response


class RequestLog(Struct, kw_only=True):
    """What the log says of one request: filled while it is served, written once. What stays None is not written."""

    request_id: str
    method: str
    path: str  # without the query
    status: int | None = None  # None: nothing was answered, the client had left
    time: float = field(default_factory=unix_time)  # when the request came, in seconds since 1970
    started: float = field(default_factory=perf_counter)  # the same, on the clock that durations are taken from
    duration_ms: float | None = None
    first_event_ms: float | None = None
    owner: str | None = None
    model: str | None = None
    upstream: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0  # of those in
    reasoning_tokens: int = 0  # of those out
    events: int = 0  # of a stream that came to its end
    losses: int = 0
    error: str | None = None  # the code of the error that the client was told
    client_disconnected: bool = False
    is_deferred: bool = False  # the turn will be made in the background, and has a line of its own there
    traceparent: str = ""  # the client's own trace, for who tells of turns elsewhere

    def note_first_event(self) -> None:
        """The first event goes out; later ones change nothing."""
        if self.first_event_ms is None:
            self.first_event_ms = self._elapsed()

    def note_response(self, response: Response, events: int = 0) -> None:
        """What came of it, and in how many events if it was a stream."""
        self.events = events
        if response.error is not None:
            self.error = response.error.code
        usage = response.usage
        if usage is not None:
            self.input_tokens = usage.input_tokens
            self.output_tokens = usage.output_tokens
            self.cached_tokens = usage.input_tokens_details.cached_tokens
            self.reasoning_tokens = usage.output_tokens_details.reasoning_tokens

    def note_end(self) -> None:
        """The request is over; what happens to its line afterwards takes no time of it."""
        if self.duration_ms is None:
            self.duration_ms = self._elapsed()

    def _elapsed(self) -> float:
        return (perf_counter() - self.started) * 1000
