"""Where events go (B-2): an emitter is anything that can be called with one event, and what `ResponseWriter` is given.

Four are here: one collects, one tells listeners, one makes SSE bytes, one forgets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from antiphon.protocol.codec import encode
from antiphon.protocol.events import TYPE_OF_EVENT, StreamEvent, TerminalEvent, UnknownEvent


class Emitter(Protocol):
    def __call__(self, event: StreamEvent, /) -> None: ...


class EventCollector:
    """Keeps events until they are taken."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []

    def __call__(self, event: StreamEvent, /) -> None:
        self.events.append(event)

    def take(self) -> list[StreamEvent]:
        """What came since the last time."""
        taken, self.events = self.events, []
        return taken


class CallbackEmitter:
    """Tells every listener of every event, in the order in which they were given."""

    def __init__(self, *listeners: Callable[[StreamEvent], None]) -> None:
        self._listeners = listeners

    def __call__(self, event: StreamEvent, /) -> None:
        for listener in self._listeners:
            listener(event)


class SseEmitter:
    """Hands each event to a sink as ready SSE bytes (HTTP-3), and `[DONE]` after the terminal one (HTTP-4)."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink

    def __call__(self, event: StreamEvent, /) -> None:
        name = event.kind if isinstance(event, UnknownEvent) else TYPE_OF_EVENT[type(event)]
        self._sink(b"event: %b\ndata: %b\n\n" % (_one_line(name.encode()), _one_line(encode(event))))
        if isinstance(event, TerminalEvent):
            self._sink(b"data: [DONE]\n\n")


class NullEmitter:
    """Forgets them."""

    def __call__(self, event: StreamEvent, /) -> None:
        pass


def _one_line(data: bytes) -> bytes:
    """The bytes of unknown items keep their white space, and an unknown event's name is an upstream's: neither may end the line."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ")
