"""Translates the output lines of a command-line agent to the hub's events. Shared by the dialects of such agents.

Lines that are not events, such as output that a tool prints by mistake, are losses.
"""

from __future__ import annotations

from antiphon.dialects.common.thread_events import decode_thread_event
from antiphon.dialects.common.thread_to_hub import ThreadToHub, ThreadWire
from antiphon.errors import ApiError
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter


class AgentLinesToHub:
    """Takes lines and returns the hub's events."""

    def __init__(self, opening: Response, stamps: Stamps, wire: ThreadWire) -> None:
        self._events = EventCollector()
        self._thread = ThreadToHub(ResponseWriter(opening, self._events, stamps), wire)

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
