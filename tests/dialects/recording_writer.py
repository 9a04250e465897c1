"""A writer that collects its events, for tests of the streams that clients get."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from tests.generate.events import counting_stamps

from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter

Stream = TypeVar("Stream")


class RecordingWriter(ResponseWriter, Generic[Stream]):
    """Writes the response to a request of the client. Each dialect has its request and its kind of stream."""

    default_request: ClassVar[Request]

    def __init__(self, request: Request | None = None) -> None:
        self.collector = EventCollector()
        initial_response = make_initial_response(request or self.default_request, id="resp_1", created_at=7)
        super().__init__(initial_response, self.collector, counting_stamps())

    def client_stream(self, request: Request | None = None) -> Stream:
        """The stream of a client that sent `request`."""
        return self.encode_stream(self.collector.events, request or self.default_request)

    @staticmethod
    @abstractmethod
    def encode_stream(events: Sequence[StreamEvent], request: Request) -> Stream: ...
