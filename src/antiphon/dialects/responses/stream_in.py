"""`EventsToHub` reads the event stream of a server of this API, in the current or the older spelling (API-6).

It decodes events and dispatches them by type. `answer_in` applies them to the items of the response. A response that is
not streamed is normalized like its stream (STR-14).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.surrogates import SurrogateJoiner
from antiphon.dialects.responses.answer_in import EventPlace, ResponseNormalizer
from antiphon.dialects.responses.errors import decode_error, error_in_answer
from antiphon.dialects.responses.item_tracker import (
    TEXT_KINDS_IN_MESSAGE,
    TEXT_KINDS_IN_REASONING,
    ItemKind,
    TextKind,
    UpstreamItem,
    UpstreamPart,
)
from antiphon.dialects.responses.response_wire import (
    ABSENT_JSON,
    DECODE_ERRORS,
    PlainEvent,
    ServerError,
    ServerEvent,
    ServerPart,
    ServerResponse,
    decode_struct,
    require_valid_json,
    text_or_json,
)
from antiphon.dialects.responses.server_form import as_summary_event, decode_members
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import check_nesting, with_nesting_limit
from antiphon.protocol.events import (
    REASONING_TEXT_EVENTS,
    TYPE_OF_EVENT,
    ContentPartAdded,
    ContentPartDone,
    DeltaEvent,
    ReasoningDelta,
    ReasoningDone,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ResponseStatus

_decode_plain: Final = with_nesting_limit(msgspec.json.Decoder(PlainEvent).decode)
_decode: Final = with_nesting_limit(msgspec.json.Decoder(ServerEvent).decode)
DeltaPlace = tuple[str | None, str | None, int | None, int | None]


class EventsToHub:
    """Translates SSE frames into hub events."""

    def __init__(
        self,
        request: Request,
        initial_response: Response,
        stamps: Stamps,
        wire: ResponsesWire = ResponsesWire(),  # noqa: B008
    ) -> None:
        self._normalizer = ResponseNormalizer(request, initial_response, stamps, wire)
        self._wire = wire
        self._events = self._normalizer.events
        writer = self._normalizer.writer
        self._write_functions: dict[TextKind, Callable[..., None]] = {
            "text": writer.add_text,
            "reasoning": writer.add_reasoning,
            "summary": writer.add_summary,
        }
        self._surrogates = SurrogateJoiner()
        self._split_deltas: dict[
            tuple[str, ...], bytes
        ] = {}  # last delta per channel that may end in half a surrogate pair
        # Where the last text deltas were written, and how. Cleared by any other event.
        self._text_targets: dict[DeltaPlace, tuple[Callable[..., None], int, UpstreamPart]] = {}
        self._error: ApiError | None = None
        self._has_done_mark = False
        # The members of server events whose hub events are still to come.
        self._forms: dict[EventPlace, dict[str, Raw]] = {}
        self._last_response: Raw = ABSENT_JSON  # in the terminal event

    @property
    def losses(self) -> Losses:
        return self._normalizer.losses

    @property
    def error(self) -> ApiError | None:
        """The error that the response failed with."""
        return self._normalizer.error

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        """Return the events of one frame. Frames after the end are ignored (STR-7)."""
        try:
            event = _decode_plain(frame.data)
        except DECODE_ERRORS:
            return self._feed_with_unknown_members(frame)
        target = self._text_targets.get((event.type, event.item_id, event.output_index, event.content_index))
        if target is not None and event.delta and not event.logprobs:  # the hot path of every stream
            write, key, part = target
            write(key, event.delta, part_key=part.key)
            if event.obfuscation is not None:
                self._events[-1] = replace(self._events[-1], obfuscation=event.obfuscation)
            return self._take_events()
        return self._feed_decoded(event, frame)

    def _feed_with_unknown_members(self, frame: sse.Frame) -> list[StreamEvent]:
        try:
            event = _decode(frame.data)
            require_valid_json(frame.data)  # unknown members are decoded later
        except (*DECODE_ERRORS, UpstreamFault):
            return self._feed_unusual(frame)
        return self._feed_valid(event, frame)

    def _feed_decoded(self, event: ServerEvent, frame: sse.Frame) -> list[StreamEvent]:
        if event.type not in DELTA_TYPES:
            try:
                require_valid_json(frame.data)
            except UpstreamFault:
                return self._feed_unusual(frame)
        return self._feed_valid(event, frame)

    def finish(self, error: ApiError | None = None) -> list[StreamEvent]:
        """End the response when the stream ends: completed if all items are finished, else failed."""
        normalizer = self._normalizer
        if normalizer.writer.has_ended:
            return []
        self._flush_surrogates("")
        self._text_targets.clear()
        if self._error or error:
            normalizer.fail(self._error or error or _disconnected_error())
        elif normalizer.has_only_finished_items and (self._has_done_mark or self._wire.end == "items"):
            normalizer.complete()
        else:
            normalizer.fail(_disconnected_error())
        return self._take_events()

    def limit_output(self, limits: OutputLimits) -> None:
        """Limit the output. A frame above the limits raises `OutputLimitExceeded`; `end_incomplete` then ends the
        response."""
        self._normalizer.writer.limits = limits

    def end_incomplete(self, reason: str) -> list[StreamEvent]:
        """End the response as incomplete. Later frames are ignored."""
        self._text_targets.clear()
        self._normalizer.end_incomplete(reason)
        return self._take_events()

    def _take_events(self) -> list[StreamEvent]:
        events = self._events[:]
        self._events.clear()
        return events

    def _feed_unusual(self, frame: sse.Frame) -> list[StreamEvent]:
        """Read a frame that the typed decode refuses: `[DONE]`, wrong types, lone surrogates or invalid JSON."""
        if frame.data.strip() == sse.DONE:
            self._has_done_mark = True
        elif not self._normalizer.writer.has_ended:
            try:
                data = require_valid_json(self._join_surrogates(frame.data))
                return self._feed_valid(decode_struct(data, ServerEvent), sse.Frame(frame.event, data))
            except UpstreamFault as error:
                self._text_targets.clear()
                self._normalizer.fail(self._error or error)
        return self._take_events()

    def _feed_valid(self, event: ServerEvent, frame: sse.Frame) -> list[StreamEvent]:
        """Dispatch an event whose frame is valid JSON."""
        if self._normalizer.writer.has_ended:
            return []
        if event.type is None:
            event = replace(event, type=frame.event)
        if self._split_deltas and not (event.type or "").endswith(".delta"):
            self._flush_surrogates(event.type or "")
        if event.type not in TEXT_KIND_OF_DELTA:
            self._text_targets.clear()
        self._normalizer.item_of_event = None
        self._dispatch(event.type or "", event, frame)
        return self._in_server_form(event, frame)

    def _in_server_form(self, event: ServerEvent, frame: sse.Frame) -> list[StreamEvent]:
        """Take the new events, in the form of the server's events. A hub event may come later than the server's."""
        item = self._normalizer.item_of_event
        kind = HUB_EVENTS.get(event.type or "")
        place: EventPlace | None = None
        members = decode_members(frame.data) if kind is not None else None
        if kind is not None:
            index = event.content_index if event.summary_index is None else event.summary_index
            if item is not None and item.content_is_summary and kind in SUMMARY_EVENT_OF:
                kind, members = SUMMARY_EVENT_OF[kind], members and as_summary_event(members)
            place = kind, item.key if item is not None else None, index
        if place is not None and members is not None:
            self._forms[place] = members
        events = [
            self._normalizer.in_server_form(each, self._forms, self._last_response) for each in self._take_events()
        ]
        if place is not None and kind in DELTA_CLASSES:
            self._forms.pop(place, None)
        return events

    def _join_surrogates(self, data: bytes) -> bytes:
        """Join a surrogate pair that is split over two deltas. A half without its other half is replaced."""
        try:
            check_nesting(data)
            members = json.loads(data)
        except ValueError:
            return data
        channel: tuple[str, ...] | None = None
        if (
            isinstance(members, dict)
            and isinstance(members.get("delta"), str)
            and str(members.get("type")) in DELTA_TYPES
        ):
            channel = tuple(str(members.get(name)) for name in ("type", "item_id", "output_index", "content_index"))
            members["delta"] = self._surrogates.join(channel, members["delta"])
        rest = SurrogateJoiner()
        joined_data = rest.join(None, json.dumps(members, ensure_ascii=False)).encode()
        if channel is not None:
            self._split_deltas[channel] = joined_data
        self._report_surrogate_loss(self._surrogates.lost_count + rest.lost_count)
        return joined_data

    def _flush_surrogates(self, kind: str) -> None:
        """Write the replacement of lone surrogates, unless a `.done` event brings the whole text."""
        split, self._split_deltas = self._split_deltas, {}
        for channel, data in split.items():
            rest = self._surrogates.flush(channel)
            if rest and not kind.endswith(".done"):
                event = replace(decode_struct(data, ServerEvent), delta=rest)
                self._dispatch(event.type or "", event, sse.Frame("", data))
        self._report_surrogate_loss(self._surrogates.lost_count)

    def _report_surrogate_loss(self, count: int) -> None:
        if count:
            self.losses.add("stream", "unpaired surrogates", "they are replaced by U+FFFD")

    def _dispatch(self, kind: str, event: ServerEvent, frame: sse.Frame) -> None:
        if self._error is not None and kind != "response.failed":
            self._normalizer.fail(self._error)
        elif kind in HANDLERS:
            HANDLERS[kind](self, event)
        elif kind in TEXT_KIND_OF_DELTA:
            self._on_text_delta(TEXT_KIND_OF_DELTA[kind], event)
        elif kind in TEXT_KIND_OF_DONE:
            self._on_text_done(TEXT_KIND_OF_DONE[kind], event)
        elif kind in IGNORED_EVENTS:
            return
        elif kind in REASONING_PARTS and self._is_part_of_summary(event):
            REASONING_PARTS[kind](self, event)
        elif kind:
            self._forward_event(kind, event, frame)
        elif decode_error(event.error) is not None:
            self._on_error(event)
        else:
            self.losses.add("stream", "an event without a type", "it cannot be translated")

    # The response

    def _on_created(self, event: ServerEvent) -> None:
        self._normalizer.on_created(_response_in(event), event.response)

    def _on_in_progress(self, event: ServerEvent) -> None:
        self._normalizer.on_in_progress(_response_in(event), event.response)

    def _on_queued(self, event: ServerEvent) -> None:
        self._normalizer.on_queued(event.response)

    def _end_response(self, status: str, event: ServerEvent) -> None:
        response = _response_in(event)
        self._last_response = event.response
        # The response in `response.completed` may have another status.
        response_status = response.status if status == "completed" and response.status in END_STATUSES else None
        self._normalizer.on_response_ended(response, response_status or status, self._error)

    def _on_completed(self, event: ServerEvent) -> None:
        self._end_response("completed", event)

    def _on_incomplete(self, event: ServerEvent) -> None:
        self._end_response("incomplete", event)

    def _on_failed(self, event: ServerEvent) -> None:
        self._end_response("failed", event)

    def _on_error(self, event: ServerEvent) -> None:
        """STR-8: keep the error. A `response.failed` with more details should follow; if not, the response fails."""
        server_error = decode_error(event.error)
        if server_error is None:  # the older spelling (API-6)
            server_error = ServerError(code=event.code, message=event.message, param=event.param)
        self._error = error_in_answer(server_error)

    # Items

    def _on_item_added(self, event: ServerEvent) -> None:
        self._normalizer.on_item_added(event.item, event.output_index)

    def _on_item_done(self, event: ServerEvent) -> None:
        self._normalizer.on_item_done(event.item, event.output_index)

    def _on_part_added(self, event: ServerEvent) -> None:
        part = decode_struct(event.part, ServerPart)
        text_kind = self._text_kind_of(part, event)
        if text_kind is not None:
            self._apply_to_part(text_kind, event, self._normalizer.content.on_part_added)

    def _on_part_done(self, event: ServerEvent) -> None:
        part = decode_struct(event.part, ServerPart)
        text_kind = self._text_kind_of(part, event)
        if text_kind is not None:
            self._apply_to_part(text_kind, event, self._normalizer.content.on_part_done, part)

    def _text_kind_of(self, part: ServerPart, event: ServerEvent) -> TextKind | None:
        if event.type in SUMMARY_PARTS:
            return "summary"
        text_kind = TEXT_KIND_OF_PART.get(part.type)
        if text_kind is not None:
            return text_kind
        item = self._normalizer.tracker.find_of_any_kind(event.item_id, event.output_index)
        is_reasoning = item is not None and item.kind == "reasoning"
        text_kind = (TEXT_KINDS_IN_REASONING if is_reasoning else TEXT_KINDS_IN_MESSAGE).get(part.type)
        if text_kind is None:
            self.losses.add("output", f"a part of type {part.type!r}", "Open Responses has no equivalent")
        return text_kind

    def _apply_to_part(
        self, text_kind: TextKind, event: ServerEvent, action: Callable[..., None], *arguments: Any
    ) -> UpstreamItem | None:
        item = self._normalizer.item_for_delta(ITEM_KIND_OF_TEXT[text_kind], event.item_id, event.output_index)
        if item is not None:
            index = event.summary_index if text_kind == "summary" else event.content_index
            self._normalizer.run_when_announced(item, action, text_kind, index, *arguments)
        return item

    # Text

    def _on_text_delta(self, text_kind: TextKind, event: ServerEvent) -> None:
        item = self._apply_to_part(
            text_kind, event, self._normalizer.content.on_delta, event.delta or "", event.logprobs
        )
        if text_kind in ("text", "reasoning") and item is not None and item.announced_to_client:
            part = item.part_at(text_kind, event.content_index)
            if not part.is_closed:
                target_key = (event.type, event.item_id, event.output_index, event.content_index)
                written_kind: TextKind = "summary" if item.content_is_summary else text_kind
                self._text_targets[target_key] = self._write_functions[written_kind], item.key, part

    def _on_text_done(self, text_kind: TextKind, event: ServerEvent) -> None:
        server_part = ServerPart(text=event.text, refusal=event.refusal, logprobs=event.logprobs)
        self._apply_to_part(text_kind, event, self._normalizer.content.on_text_done, server_part)

    def _on_annotation(self, event: ServerEvent) -> None:
        item = self._normalizer.item_for_delta("message", event.item_id, event.output_index)
        if item is not None:
            self._normalizer.run_when_announced(
                item, self._normalizer.content.on_annotation, event.content_index, event.annotation
            )

    # Calls

    def _on_arguments_delta(self, event: ServerEvent) -> None:
        self._apply_to_call("call", event, self._normalizer.content.on_arguments_delta, event.delta or "")

    def _on_arguments_done(self, event: ServerEvent) -> None:
        self._apply_to_call("call", event, self._normalizer.content.on_arguments_done, text_or_json(event.arguments))

    def _on_input_delta(self, event: ServerEvent) -> None:
        self._apply_to_call("custom", event, self._normalizer.content.on_arguments_delta, event.delta or "")

    def _on_input_done(self, event: ServerEvent) -> None:
        self._apply_to_call("custom", event, self._normalizer.content.on_arguments_done, text_or_json(event.input))

    def _apply_to_call(self, kind: ItemKind, event: ServerEvent, action: Callable[..., None], text: str | None) -> None:
        item = self._normalizer.item_for_delta(kind, event.item_id, event.output_index)
        if item is not None:
            self._normalizer.run_when_announced(item, action, text)
            self._normalizer.on_call_name(item, event.name)

    # Everything else

    def _is_part_of_summary(self, event: ServerEvent) -> bool:
        """RSN-4: whether an event about a part of open reasoning is about the summary that the client gets."""
        item = self._normalizer.tracker.find_of_any_kind(event.item_id, event.output_index)
        return item is not None and self._normalizer.content.gives_content_as_summary(item)

    def _forward_event(self, kind: str, event: ServerEvent, frame: sse.Frame) -> None:
        """ITEM-5: forward events of unknown type, such as the progress of hosted tools."""
        try:
            members: dict[str, Any] = msgspec.json.decode(frame.data, type=dict[str, Raw])
        except msgspec.ValidationError:
            self.losses.add("stream", f"an event of type {kind!r}", "its data is not an object")
            return
        self._normalizer.on_unknown_event(kind, members, event.item_id, event.output_index)


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: ResponsesWire = ResponsesWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Translate a server's response. Raises its error, or `UpstreamFault` if the body is no response object."""
    server_response = decode_struct(require_valid_json(body), ServerResponse)
    if server_response.output is None and server_response.status is None:
        error = decode_error(server_response.error)
        if error is not None:
            raise error_in_answer(error)
        raise UpstreamFault("the answer of the upstream is not a response object", code="upstream_invalid_response")
    normalizer = ResponseNormalizer(request, initial_response, stamps, wire)
    normalizer.on_response_ended(server_response, server_response.status or ResponseStatus.COMPLETED)
    return normalizer.form.whole_response(normalizer.writer.response, Raw(body)), normalizer.losses


def without_settings(body: bytes) -> bytes:
    """A server's response without the tools and instructions that it repeats. A body that is no valid object stays."""
    members = _valid_members(body)
    return body if members is None else msgspec.json.encode(_without_large_members(members))


def frames_without_settings(stream: bytes) -> bytes:
    """The same for whole frames of a stream, whose events have a response."""
    decoder = sse.Decoder()
    try:
        frames = [*decoder.feed(stream), *decoder.finish()]
    except UpstreamFault:
        return stream  # it is refused where it is read
    return b"".join(sse.encode(sse.Frame(frame.event, _without_settings_of_response(frame.data))) for frame in frames)


def _without_settings_of_response(data: bytes) -> bytes:
    members = _valid_members(data)
    response = None if members is None or "response" not in members else decode_members(members["response"])
    if members is None or response is None:
        return data
    return msgspec.json.encode({**members, "response": _without_large_members(response)})


def _valid_members(data: bytes) -> dict[str, Raw] | None:
    try:
        return decode_members(require_valid_json(data))
    except UpstreamFault:
        return None


def _without_large_members(response: dict[str, Raw]) -> dict[str, Raw]:
    return {name: raw for name, raw in response.items() if name not in LARGE_MEMBERS}


def _response_in(event: ServerEvent) -> ServerResponse:
    return decode_struct(event.response, ServerResponse)


def _disconnected_error() -> UpstreamFault:
    return UpstreamFault("the upstream's stream ended without a terminal event", code="upstream_disconnected")


HUB_EVENTS: Final[dict[str, type]] = {name: kind for kind, name in TYPE_OF_EVENT.items()} | {
    name: kind
    for name, hub_name in REASONING_TEXT_EVENTS.items()
    for kind, kind_name in TYPE_OF_EVENT.items()
    if kind_name == hub_name
}
LARGE_MEMBERS: Final = frozenset({"tools", "instructions"})
DELTA_CLASSES: Final = frozenset(DeltaEvent.__args__)
#: The events of open reasoning that a client gets as its summary (RSN-4).
SUMMARY_EVENT_OF: Final[dict[type, type]] = {
    ContentPartAdded: SummaryPartAdded,
    ReasoningDelta: SummaryTextDelta,
    ReasoningDone: SummaryTextDone,
    ContentPartDone: SummaryPartDone,
}
IGNORED_EVENTS: Final = frozenset({"ping", "keepalive"})  # keep-alive events without content
END_STATUSES: Final = frozenset({"incomplete", "failed", "cancelled"})
ITEM_KIND_OF_TEXT: Final[dict[TextKind, ItemKind]] = {
    "text": "message",
    "refusal": "message",
    "reasoning": "reasoning",
    "summary": "reasoning",
}
TEXT_KIND_OF_PART: Final[dict[str | None, TextKind]] = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
}
SUMMARY_PARTS: Final = frozenset({"response.reasoning_summary_part.added", "response.reasoning_summary_part.done"})
# The second name of each pair is the older spelling (API-6).
TEXT_KIND_OF_DELTA: Final[dict[str, TextKind]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_summary.delta": "summary",
}
DELTA_TYPES: Final = frozenset(
    {*TEXT_KIND_OF_DELTA, "response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
)
TEXT_KIND_OF_DONE: Final[dict[str, TextKind]] = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning.done": "reasoning",
    "response.reasoning_text.done": "reasoning",
    "response.reasoning_summary_text.done": "summary",
    "response.reasoning_summary.done": "summary",
}
HANDLERS: Final[dict[str, Callable[[EventsToHub, ServerEvent], None]]] = {
    "response.created": EventsToHub._on_created,
    "response.in_progress": EventsToHub._on_in_progress,
    "response.queued": EventsToHub._on_queued,
    "response.completed": EventsToHub._on_completed,
    "response.done": EventsToHub._on_completed,
    "response.incomplete": EventsToHub._on_incomplete,
    "response.failed": EventsToHub._on_failed,
    "response.cancelled": EventsToHub._on_failed,
    "error": EventsToHub._on_error,
    "response.error": EventsToHub._on_error,
    "response.output_item.added": EventsToHub._on_item_added,
    "response.output_item.done": EventsToHub._on_item_done,
    "response.content_part.added": EventsToHub._on_part_added,
    "response.content_part.done": EventsToHub._on_part_done,
    "response.reasoning_summary_part.added": EventsToHub._on_part_added,
    "response.reasoning_summary_part.done": EventsToHub._on_part_done,
    "response.output_text.annotation.added": EventsToHub._on_annotation,
    "response.output_text_annotation.added": EventsToHub._on_annotation,
    "response.function_call_arguments.delta": EventsToHub._on_arguments_delta,
    "response.function_call_arguments.done": EventsToHub._on_arguments_done,
    "response.custom_tool_call_input.delta": EventsToHub._on_input_delta,
    "response.custom_tool_call_input.done": EventsToHub._on_input_done,
}
#: Some servers name the events of the parts of open reasoning so.
REASONING_PARTS: Final[dict[str, Callable[[EventsToHub, ServerEvent], None]]] = {
    "response.reasoning_part.added": EventsToHub._on_part_added,
    "response.reasoning_part.done": EventsToHub._on_part_done,
}
