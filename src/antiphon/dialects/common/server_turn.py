"""A turn with a server of any dialect, without I/O: the URL and the body of the request, and the reading of the answer.

Each dialect defines how a frame is read and what a stop reason means. Message text does not pass through `StreamToHub`:
the dialects hand it from the decoder directly to the writer.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, Protocol

from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.call_arguments import are_whole_calls, is_whole_call
from antiphon.dialects.common.client_calls import CallConverter, ConvertedEvents
from antiphon.dialects.common.client_tools import ClientTools
from antiphon.dialects.dialect import FRAME_DECODERS, EventsToHub, Framing, ServerDialect, TextRunToHub
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.content import SummaryText
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import UNLIMITED, OutputLimitExceeded, OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter
from antiphon.redaction import sanitize_text

#: `unknown`: the server ended the answer for a reason that the dialect does not know.
StreamOutcome = Literal["completed", "incomplete", "unknown", "failed"]


def make_server(package: Any, **facts: Any) -> ServerDialect:
    """The server half of a dialect package. The names are the same in every package; a test checks this."""

    def tools_to_convert(request: Request, wire: Any) -> ClientTools | None:
        if getattr(wire, "has_client_tools", False) or (not request.tools and type(request.input) is not list):
            return None
        return ClientTools.of_request(request)

    def request_from_hub(request: Request, wire: Any) -> tuple[bytes, Losses]:
        tools = tools_to_convert(request, wire)
        body: tuple[bytes, Losses] = package.request_from_hub(tools.as_functions(request) if tools else request, wire)
        return body

    def events_to_hub(request: Request, initial_response: Response, stamps: Stamps, wire: Any) -> EventsToHub:
        tools = tools_to_convert(request, wire)
        if tools is None:
            reader: EventsToHub = package.EventsToHub(request, initial_response, stamps, wire)
            return reader
        reader = package.EventsToHub(tools.as_functions(request), initial_response, stamps, wire)
        return ConvertedEvents(reader, tools, stamps)

    def response_to_hub(
        body: bytes, request: Request, initial_response: Response, stamps: Stamps, wire: Any
    ) -> tuple[Response, Losses]:
        tools = tools_to_convert(request, wire)
        converted_request = tools.as_functions(request) if tools else request
        response, losses = package.response_to_hub(body, converted_request, initial_response, stamps, wire)
        if tools is not None:
            output = CallConverter(tools, stamps, losses).convert_output(response.output)
            response = replace(response, output=output)
        return response, losses

    return ServerDialect(
        request_from_hub=request_from_hub,
        events_to_hub=events_to_hub,
        response_to_hub=response_to_hub,
        error_to_hub=package.error_to_hub,
        **facts,
    )


def turn_url(dialect: ServerDialect, base_url: str, model: str, *, streams: bool) -> str:
    """The URL for a turn."""
    return url_at((streams and dialect.stream_path) or dialect.turn_path, dialect, base_url, model)


def url_at(path: str, dialect: ServerDialect, base_url: str, model: str) -> str:
    """The URL of a path; `{model}` is replaced with the resource name of the model, which the client chooses."""
    if dialect.model_resource_name is None or "{model}" not in path:
        return base_url + path
    name = dialect.model_resource_name(model).encode()
    return base_url + path.replace("{model}", ESCAPED_BYTES.sub(lambda byte: b"%%%02X" % ord(byte[0]), name).decode())


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


class AnswerSink(Protocol):
    """The content of an answer, as a dialect passes it to the writer."""

    def finish(self, outcome: StreamOutcome) -> None: ...


class StreamToHub(ABC):
    """Reads one answer. A stream without a stop reason is not complete."""

    _answer: AnswerSink

    def __init__(self, initial_response: Response, stamps: Stamps) -> None:
        self.losses = Losses()
        self.error: ApiError | None = None  # the error of a failed response
        self._events: list[StreamEvent] = []
        self._writer = ResponseWriter(initial_response, self._events.append, stamps)
        if initial_response.reasoning is not None and initial_response.reasoning.summary is not None:
            # RSN-4: these servers send their reasoning in one form; a client that asked for a summary reads only that.
            self._writer.reasoning_part = SummaryText
        self._stop_reason = ""  # the server's own value
        self._has_ended = False

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """Ends the stream. A stream with a stop reason is complete, even if `error` is given."""
        if not self._has_ended:
            if self._stop_reason:
                self._end_response()
            else:
                self._fail(
                    error
                    or UpstreamFault(
                        "the upstream closed the stream before the response was complete", code="upstream_disconnected"
                    )
                )
        return self._take_events()

    def limit_output(self, limits: OutputLimits) -> None:
        """Bounds the answer. A frame that exceeds the bounds raises `OutputLimitExceeded`; `end_incomplete` then ends
        the response."""
        self._writer.limits = limits

    def end_incomplete(self, reason: str) -> list[StreamEvent]:
        """Ends the response as incomplete. Nothing more is read."""
        self._has_ended = True
        with suppress(OutputLimitExceeded):  # pending content may exceed the limit too
            self._answer.finish("incomplete")
        self._writer.limits = UNLIMITED
        self._writer.end_incomplete(reason, self._final_usage())
        return self._take_events()

    def response(self, body: bytes) -> tuple[Response, Losses]:
        """Reads an answer that is not streamed (STR-14). Raises the error that it contains, or that it is invalid."""
        self._read_whole(body)
        if self.error is not None:
            raise with_billed_tokens(self.error, self._writer.response)
        return self._writer.response, self.losses

    @abstractmethod
    def _read_whole(self, body: bytes) -> None:
        """Reads a whole answer, which is complete even without a stop reason."""

    @abstractmethod
    def _end_response(self) -> None:
        """REQ-3: ends the response by its stop reason. An unknown reason is passed to `_end_for_unknown_reason`."""

    @abstractmethod
    def _final_usage(self) -> Usage | None:
        """REQ-4: the usage, None only if the upstream sends none."""

    def _take_events(self) -> list[StreamEvent]:
        events = self._events.copy()
        self._events.clear()
        return events

    def _end_as(self, incomplete: str | None) -> None:
        """Ends a response that did not fail; `incomplete` is the reason if it is incomplete."""
        self._has_ended = True
        if incomplete is None:
            self._answer.finish("completed")
            self._writer.complete(self._final_usage())
        else:
            self._answer.finish("incomplete")
            self._writer.end_incomplete(incomplete, self._final_usage())

    def _end_for_unknown_reason(self, reason: str) -> None:
        """REQ-3: ends a response with a stop reason that the dialect does not know. The response is incomplete.

        If its output is nothing but whole calls, they are complete: the client can run them and continue.
        """
        self._has_ended = True
        self._answer.finish("unknown")
        if are_whole_calls(self._writer.announced_items):
            for key in self._writer.open_keys:
                self._writer.close_item(key)
        self._writer.end_incomplete(sanitize_text(reason)[:MAX_REASON], self._final_usage())

    def _has_whole_content(self) -> bool:
        """Whether there is output, and no call in it is cut."""
        items = self._writer.announced_items
        return bool(items) and all(is_whole_call(item) for item in items if isinstance(item, FunctionCall))

    def _fail(self, error: ApiError) -> None:
        self._has_ended = True
        self.error = error.without_traceback()
        self._answer.finish("failed")
        self._writer.fail(error, self._final_usage())


def with_billed_tokens(error: ApiError, response: Response) -> ApiError:
    """The error of a failed response, with the tokens that its server reported."""
    error, usage = error.without_traceback(), response.usage
    if usage is not None:
        error.billed_tokens = usage.input_tokens, usage.output_tokens
    error.was_paid = bool(response.output) or any(error.billed_tokens or ())
    return error


def invalid_upstream_data(what: str, data: bytes) -> UpstreamFault:
    """The error for upstream data that its dialect does not allow."""
    shown = sanitize_text(data[:MAX_EXCERPT].decode("utf-8", "replace"))
    return UpstreamFault(f"the upstream sent {what}: {shown}", code="upstream_invalid_response")


#: Bytes that are escaped in the path of a URL (RFC 3986, section 2.3).
ESCAPED_BYTES: Final = re.compile(rb"[^A-Za-z0-9_.~/-]")
MAX_EXCERPT: Final = 80
MAX_REASON: Final = 50
