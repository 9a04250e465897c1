"""An upstream's stream as hub events: bytes in, in any cut, events out. Pure; which dialect it is, the reader is told."""

from __future__ import annotations

from antiphon import sse
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
from antiphon.upstream.speech import EventsToHub, TextRunToHub


class Reader:
    """An upstream's stream as hub events."""

    def __init__(self, to_hub: EventsToHub) -> None:
        self._frames = sse.Decoder()
        self._to_hub = to_hub
        self._text_run: TextRunToHub | None = getattr(to_hub, "text_run", None)

    @property
    def error(self) -> ApiError | None:
        return self._to_hub.error

    @property
    def losses(self) -> Losses:
        return self._to_hub.losses

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that these bytes bring. An event beyond all measure fails the response."""
        events: list[StreamEvent] = []
        for told in self.feed_runs(data):
            events += told.events() if isinstance(told, TextRun) else [told]
        return events

    def feed_runs(self, data: bytes) -> list[StreamEvent | TextRun]:
        """The same, deltas in a row as one."""
        try:
            frames = self._frames.feed(data)
        except UpstreamFault as error:
            return [*self._to_hub.finish(error)]
        if len(frames) == 1:  # as in a stream at a model's own pace: a run of one is dearer than an event
            return [*self._to_hub.feed(frames[0])]
        told: list[StreamEvent | TextRun] = []
        at = 0
        while at < len(frames):
            if self._text_run is not None:
                run, at = self._text_run(frames, at)
                if run is not None:
                    told.append(run)
                    continue
            told += self._to_hub.feed(frames[at])
            at += 1
        return told

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """The bytes are over, properly or with an error."""
        events = [event for frame in self._frames.finish() for event in self._to_hub.feed(frame)]
        return events + self._to_hub.finish(error)
