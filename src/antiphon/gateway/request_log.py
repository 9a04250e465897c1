"""The log entry of one request. It is filled while the request is served, and `ops.logger` writes it once. It has no
field for content.
"""

from __future__ import annotations

from time import perf_counter
from time import time as unix_time

from msgspec import Struct, field

from antiphon.protocol.response import Response


class RequestLog(Struct, kw_only=True):
    """The log entry of one request. Fields that are None are not written."""

    request_id: str
    method: str
    path: str  # without the query
    status: int | None = None  # None: no response, the client disconnected
    time: float = field(default_factory=unix_time)  # arrival, in seconds since 1970
    started: float = field(default_factory=perf_counter)  # arrival on the monotonic clock, for durations
    duration_ms: float | None = None
    first_event_ms: float | None = None
    owner: str | None = None
    model: str | None = None
    upstream: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0  # of input_tokens
    reasoning_tokens: int = 0  # of output_tokens
    events: int = 0  # events of a complete stream
    losses: int = 0
    error: str | None = None  # the error code sent to the client
    client_disconnected: bool = False
    is_deferred: bool = False  # the turn runs in the background and has its own entry
    traceparent: str = ""  # the client's trace context, for telemetry

    def note_first_event(self) -> None:
        """Sets the time of the first event; later calls do nothing."""
        if self.first_event_ms is None:
            self.first_event_ms = self._elapsed()

    def note_response(self, response: Response, events: int = 0) -> None:
        """Notes the result, and the number of events of a stream."""
        self.response_id = response.id
        self.events = events
        self.error = None if response.error is None else response.error.code
        usage = response.usage
        if usage is not None:
            self.input_tokens = usage.input_tokens
            self.output_tokens = usage.output_tokens
            self.cached_tokens = usage.input_tokens_details.cached_tokens
            self.reasoning_tokens = usage.output_tokens_details.reasoning_tokens

    def note_end(self) -> None:
        """Sets the duration; later calls do nothing."""
        if self.duration_ms is None:
            self.duration_ms = self._elapsed()

    def _elapsed(self) -> float:
        return (perf_counter() - self.started) * 1000
