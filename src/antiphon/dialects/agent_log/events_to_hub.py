"""`EventsToHub` translates the output lines of a command-line agent into hub events.

Lines that are not events, such as output that a tool prints by mistake, are losses.
"""

from __future__ import annotations

from antiphon.dialects.agent_log.thread_events import decode_thread_event
from antiphon.dialects.agent_log.thread_to_hub import ThreadToHub, ThreadWire
from antiphon.errors import ApiError
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter


class EventsToHub:
    """Translates the lines of one turn. Events without a hub equivalent become extensions named `<slug>:…`, where the
    slug names the agent."""

    def __init__(self, request: Request, initial_response: Response, stamps: Stamps, wire: ThreadWire) -> None:
        del request  # part of the common signature; unused here
        self._events = EventCollector()
        self._thread = ThreadToHub(ResponseWriter(initial_response, self._events, stamps), wire)

    @property
    def losses(self) -> Losses:
        return self._thread.losses

    @property
    def error(self) -> ApiError | None:
        """The error of a failed turn."""
        return self._thread.error

    def feed(self, line: bytes) -> list[StreamEvent]:
        """The events of one line."""
        event = decode_thread_event(line)
        if event is None:
            self.losses.add("stream", "a line", f"it is not an event: {line[:60].decode(errors='replace')}")
        else:
            self._thread.feed(event)
        return self._events.take()

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """Ends the lines. A turn that has not ended fails."""
        self._thread.finish(error)
        return self._events.take()
