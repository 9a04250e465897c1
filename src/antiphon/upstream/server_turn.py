"""A turn with a server of any dialect, without I/O: the URL of the request, and the decoding of the streamed answer."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from antiphon import sse
from antiphon.dialects.dialect import FRAME_DECODERS, EventsToHub, Framing, ServerDialect, TextRunToHub
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimitExceeded, OutputLimits


def turn_url(dialect: ServerDialect, base_url: str, model: str, *, streams: bool) -> str:
    """The URL for a turn."""
    return url_at((streams and dialect.stream_path) or dialect.turn_path, dialect, base_url, model)


def url_at(path: str, dialect: ServerDialect, base_url: str, model: str) -> str:
    """The URL of a path; `{model}` is replaced with the resource name of the model, which the client chooses."""
    if dialect.model_resource_name is None or "{model}" not in path:
        return base_url + path
    return base_url + path.replace("{model}", quote(dialect.model_resource_name(model), safe="/"))


class StreamReader:
    """Decodes one stream: bytes in, in any cut, hub events out."""

    def __init__(
        self,
        to_hub: EventsToHub,
        limits: OutputLimits = OutputLimits(),  # noqa: B008
        framing: Framing = "sse",
    ) -> None:
        self.was_cut_off = False  # the answer exceeded its limits
        self._frames = FRAME_DECODERS[framing]()
        self._to_hub = to_hub
        to_hub.limit_output(limits)
        self.on_frames: Callable[[list[sse.Frame]], None] | None = None  # gets all frames, before their events
        self._text_run: TextRunToHub | None = getattr(to_hub, "text_run", None)

    @property
    def error(self) -> ApiError | None:
        return self._to_hub.error

    @property
    def losses(self) -> Losses:
        return self._to_hub.losses

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Bytes → events. An event that is too large fails the response."""
        events: list[StreamEvent] = []
        for event in self.feed_runs(data):
            events += event.events() if isinstance(event, TextRun) else [event]
        return events

    def feed_runs(self, data: bytes) -> list[StreamEvent | TextRun]:
        """The same, with consecutive text deltas as one run."""
        try:
            frames = self._frames.feed(data)
        except UpstreamFault as error:
            return [*self._to_hub.finish(error)]
        if self.on_frames is not None:
            self.on_frames(frames)
        events: list[StreamEvent | TextRun] = []
        try:
            if len(frames) == 1:  # the usual case; a run of one costs more than an event
                events += self._to_hub.feed(frames[0])
            else:
                self._feed_frames(frames, events)
        except OutputLimitExceeded as error:
            self.was_cut_off = True
            events += self._to_hub.end_incomplete(error.reason)
        return events

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """The stream has ended, properly or with an error."""
        events: list[StreamEvent] = []
        try:
            frames = self._frames.finish()
            if self.on_frames is not None:
                self.on_frames(frames)
            for frame in frames:
                events += self._to_hub.feed(frame)
            return events + self._to_hub.finish(error)
        except OutputLimitExceeded as limit:
            self.was_cut_off = True
            return events + self._to_hub.end_incomplete(limit.reason)

    def _feed_frames(self, frames: list[sse.Frame], events: list[StreamEvent | TextRun]) -> None:
        index = 0
        while index < len(frames):
            if self._text_run is not None:
                run, index = self._text_run(frames, index)
                if run is not None:
                    events.append(run)
                    continue
            events += self._to_hub.feed(frames[index])
            index += 1
