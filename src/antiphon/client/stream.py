"""A streamed response: typed events, and a snapshot of the response after each of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self

from antiphon.client.event_sources import EventSource
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import OutputTextDelta, ResponseCompleted, ResponseFailed, ResponseIncomplete, StreamEvent
from antiphon.protocol.fold import ResponseFold
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus

OnLosses = Callable[[Losses], None]


class ResponseStream:
    """One stream. `async with` sends the request; leaving it early closes the connection. It can be read once.

    The last event is always a terminal event. If the connection broke, it is `response.failed`, and `error` has the
    reason.

    Example:
        async with client.stream("Tell me a story.") as stream:
            async for event in stream:
                print(event.sequence_number, type(event).__name__)
        print(stream.response.status, len(stream.text))
    """

    def __init__(self, source: EventSource, after: int | None = None, on_losses: OnLosses | None = None) -> None:
        self._source = source
        self._on_losses = on_losses
        self._after_number = -1 if after is None else after
        self._fold = ResponseFold()
        self._unfolded: list[StreamEvent] = []
        self._final: Response | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncGenerator[StreamEvent, None]:
        while events := await self.next_events():
            for event in events:
                yield event

    async def texts(self) -> AsyncIterator[str]:
        """Yields the pieces of the output text. Raises if the response failed.

        Example:
            async for piece in client.stream("Hello.").texts():
                print(piece, end="")
        """
        async with aclosing(self.__aiter__()) as events:
            async for event in events:
                if type(event) is OutputTextDelta:
                    yield event.delta
        self.raise_failure()

    async def next_events(self) -> list[StreamEvent]:
        """Returns the next events, as many as arrived together; empty at the end.

        Example:
            stream = client.stream("Hello.")
            while events := await stream.next_events():
                print(len(events))
        """
        await self._open()
        while self._final is None:
            events = await self._source.next_events()
            if not events:
                break
            self._unfolded += events
            last_event = events[-1]
            if type(last_event) in TERMINAL_EVENTS:
                self._final = last_event.response  # type: ignore[union-attr]
                self._unfolded.clear()
                self._source.end()
                self._report_losses()
            if events[0].sequence_number <= self._after_number:
                events = [event for event in events if event.sequence_number > self._after_number]
            if events:
                return events
        return []

    async def final(self) -> Response:
        """Reads to the end and returns the final response. Raises if the response failed.

        Example:
            response = await client.stream("Hello.").final()
            print(response.output_text)
        """
        while await self.next_events():
            pass
        self.raise_failure()
        return self.response

    def close(self) -> None:
        """Closes the connection. May be called at any time; `async with` does this too.

        Example:
            stream = client.stream("Hello.")
            stream.close()
        """
        self._source.close()
        self._report_losses()

    @property
    def response(self) -> Response:
        """The response so far, unfinished items included. It is computed on access."""
        if self._final is not None:
            return self._final
        unfolded, self._unfolded = self._unfolded, []
        for event in unfolded:
            self._fold.feed(event)
        return self._fold.response

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return self.response.output_text

    @property
    def error(self) -> ApiError | None:
        """The error of a failed response, else None."""
        return None if self._was_cancelled else self._source.error

    @property
    def request_id(self) -> str | None:
        """The id that the server gave to the request. With it the request can be found in the log of the server."""
        return self._source.request_id

    @property
    def losses(self) -> Losses:
        """What could not be translated, in the request or in the answer (F-4)."""
        return self._source.losses

    def raise_failure(self) -> None:
        """Raises the error of a failed response, or an error if the stream was not read to its end.

        Example:
            stream = client.stream("Hello.")
            async for event in stream:
                print(type(event).__name__)
            stream.raise_failure()
        """
        if self._was_cancelled:
            return
        if self._source.error is not None:
            raise self._source.error.without_traceback()
        if self._final is None:
            raise UpstreamFault("the stream was closed before its end", code="upstream_disconnected")

    @property
    def _was_cancelled(self) -> bool:
        return self._final is not None and self._final.status == ResponseStatus.CANCELLED

    async def _open(self) -> None:
        if not self._is_open:
            await self._source.open()
            self._is_open = True

    def _report_losses(self) -> None:
        on_losses, self._on_losses = self._on_losses, None
        if on_losses is not None and len(self.losses):
            on_losses(self.losses)


TERMINAL_EVENTS: Final[frozenset[type]] = frozenset({ResponseCompleted, ResponseFailed, ResponseIncomplete})
