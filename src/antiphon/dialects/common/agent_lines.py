"""What the dialects of command-line agents have in common: an agent's lines as the hub's events.

Lines that are no event, such as what a tool prints by mistake, are losses.
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
    """Lines in, the hub's events out."""

    def __init__(self, opening: Response, stamps: Stamps, wire: ThreadWire) -> None:
        self._events = EventCollector()
        self._thread = ThreadToHub(ResponseWriter(opening, self._events, stamps), wire)

    @property
    def losses(self) -> Losses:
        return self._thread.losses

    @property
    def error(self) -> ApiError | None:
        """What the turn failed with."""
        return self._thread.error

    def feed(self, line: bytes) -> list[StreamEvent]:
        """What one line makes known."""
        event = decode_thread_event(line)
        if event is None:
            self.losses.add("a line", "it was not told", f"it is no event: {line[:60].decode(errors='replace')}")
        else:
            self._thread.feed(event)
        return self._events.take()

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """The lines are over: a turn that has not ended has failed."""
        self._thread.finish(error)
        return self._events.take()
