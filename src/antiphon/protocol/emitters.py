"""Emitters take the events of a `ResponseWriter` (B-2). An emitter is any callable that takes one event.

This module has four: a collector, a dispatcher to listeners, an SSE encoder, and one that discards events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from antiphon.protocol.codec import encode
from antiphon.protocol.events import TYPE_OF_EVENT, StreamEvent, TerminalEvent, UnknownEvent


class Emitter(Protocol):
    """A callable that takes one event."""

    def __call__(self, event: StreamEvent, /) -> None: ...


class EventCollector:
    """Collects events until they are taken."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []

    def __call__(self, event: StreamEvent, /) -> None:
        self.events.append(event)

    def take(self) -> list[StreamEvent]:
        """Returns the events since the last call."""
        events, self.events = self.events, []
        return events


class CallbackEmitter:
    """Calls every listener with every event, in the order of the listeners."""

    def __init__(self, *listeners: Callable[[StreamEvent], None]) -> None:
        self._listeners = listeners

    def __call__(self, event: StreamEvent, /) -> None:
        for listener in self._listeners:
            listener(event)


class SseEmitter:
    """Passes each event to a sink as SSE bytes (HTTP-3), and `[DONE]` after the terminal event (HTTP-4)."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink

    def __call__(self, event: StreamEvent, /) -> None:
        name = event.kind if isinstance(event, UnknownEvent) else TYPE_OF_EVENT[type(event)]
        self._sink(b"event: %b\ndata: %b\n\n" % (_replace_line_ends(name.encode()), _replace_line_ends(encode(event))))
        if isinstance(event, TerminalEvent):
            self._sink(b"data: [DONE]\n\n")


class NullEmitter:
    """Discards events."""

    def __call__(self, event: StreamEvent, /) -> None:
        pass


def _replace_line_ends(data: bytes) -> bytes:
    """Replaces line ends, which unknown items and names of unknown events may contain."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")
