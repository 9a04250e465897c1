"""Upstream bytes → client bytes in one synchronous step: frames, hub events, policy, client frames. Pure.

A pipe joins the reader of the upstream's stream (`StreamReader`) and the writer for the client. At the end it has the
response as sent to the client, the losses and the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeGuard, get_args

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.relay import Relay
from antiphon.dialects.common.server_turn import StreamReader
from antiphon.dialects.dialect import EventsFromHub, SplitEvent, TextRunFromHub
from antiphon.errors import ApiError
from antiphon.protocol.errors import Error, error_payload
from antiphon.protocol.events import (
    DONE_TEXT_FIELDS,
    RESPONSE_EVENTS,
    DeltaEvent,
    ErrorEvent,
    ItemAdded,
    RefusalDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TerminalEvent,
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.grammar import Grammar, Violation
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.policy import Policy
from antiphon.protocol.response import Response
from antiphon.protocol.status import ResponseStatus

LOSSES_EVENT: Final = "antiphon:losses"


class Pipe:
    """One stream, from an upstream to a client."""

    def __init__(
        self,
        reader: StreamReader,
        policy: Policy,
        from_hub: EventsFromHub,
        losses: Losses,
        *,
        reports_losses: bool = False,
        loss_comment: Callable[[Losses], bytes] | None = None,
        on_violation: Callable[[Violation], None] | None = None,
        holds_terminal_event: bool = False,
        separator: bytes = b"",
        relay: Relay | None = None,
    ) -> None:
        self.response: Response | None = None  # from the terminal event
        self.has_content = False  # text, reasoning, a call, or a proper end
        self.is_refusal = False  # the first content is a refusal
        self.event_count = 0  # events for the client, set at the terminal event
        self.recorded_response: Response | None = None  # the same with items that were withheld from the client
        self._reader = reader
        self._policy = policy
        self._from_hub = from_hub
        self._event_losses = losses
        self._reports_losses = reports_losses
        self._loss_comment = loss_comment  # encodes losses for clients that ignore comments
        self._head_losses: Losses | None = None  # the losses in the head of the stream; None before it is sent
        self._holds_terminal_event = holds_terminal_event
        self._relay = relay  # for a client of the upstream's dialect
        if relay is not None:
            reader.on_frames = relay.add_frames
        self._separator = separator  # put between events for a client that reads them one by one
        self._pending_end: TerminalEvent | None = None
        #: Events, and the rest of a large one: encoded pieces.
        self._backlog: list[StreamEvent | TextRun | bytes | memoryview] = []
        self._rest: list[bytes | memoryview] = []  # of the event that is written
        self._pending_error = b""  # an error that is written with the end, which a comment precedes
        self._number_shift = 0
        self._on_violation = on_violation
        self._grammar = Grammar(judges_foreign_items=False) if on_violation else None
        self._text_run: TextRunFromHub | None = getattr(from_hub, "text_run", None) if on_violation is None else None
        self._split_event: SplitEvent | None = getattr(from_hub, "split_event", None)

    @property
    def has_ended(self) -> bool:
        """Whether the terminal event was read. It is written too, unless it is held back."""
        return self.response is not None

    @property
    def is_holding_end(self) -> bool:
        """Whether the terminal event is held back until the response is stored (`release`) or not (`fail`)."""
        return self._pending_end is not None

    def release(self) -> bytes:
        """Writes the terminal event that was held back."""
        out: list[bytes] = []
        end, self._pending_end = self._pending_end, None
        if end is not None:
            self._write_end(end, out)
        self._backlog += self._take_rest()
        return self.join(out)

    def fail(self, error: ApiError) -> bytes:
        """Writes a failure in place of the terminal event that was held back (STR-8)."""
        assert self._pending_end is not None
        number, response = self._pending_end.sequence_number, self._pending_end.response
        has_failed = replace(
            response,
            status=ResponseStatus.FAILED,
            completed_at=None,
            incomplete_details=None,
            error=Error(code=error.code, message=error.message),
        )
        out: list[bytes] = []
        event = ErrorEvent(sequence_number=number, error=error_payload(error))
        self._check_grammar(event)
        translation = self._deliver(event, self._from_hub.feed(event))
        self._write_error(translation, out)
        self._pending_end, self.response = None, has_failed
        self._write_end(ResponseFailed(sequence_number=number + 1, response=has_failed), out)
        self._backlog += self._take_rest()
        return self.join(out)

    @property
    def is_cut_off(self) -> bool:
        """Whether the answer exceeded its limits. The upstream may still be sending; its end is not awaited."""
        return self._reader.was_cut_off

    @property
    def error(self) -> ApiError | None:
        """The error that the upstream's stream failed with."""
        return self._reader.error

    @property
    def losses(self) -> Losses:
        """All losses so far, of the request and of the response. Frames that pass as they came lose nothing."""
        parts = [self._event_losses, self._policy.losses]
        if self._relay is None or not self._relay.is_active:
            parts += [self._reader.losses, self._from_hub.losses]
        return Losses.merge(parts)

    def report_no_losses_in_head(self) -> None:
        """The head of the stream was sent while another target could still answer: all losses come later."""
        self._head_losses = Losses()

    def losses_for_head(self) -> Losses:
        """The losses so far, which the head of the stream reports. Later ones are in a comment before the end."""
        self._head_losses = self.losses
        return self._head_losses

    @property
    def has_backlog(self) -> bool:
        """Whether there is more to write, because the output of one call is limited (`write_backlog`)."""
        return bool(self._backlog)

    def feed(self, data: bytes) -> bytes:
        """Upstream bytes → client bytes."""
        return self.write_events(self._reader.feed_runs(data))

    def finish(self, error: ApiError | None = None) -> bytes:
        """The upstream's stream is over: writes the rest of the client's stream."""
        return self.write_events(self._reader.finish(error))

    def write_events(self, events: Sequence[StreamEvent | TextRun]) -> bytes:
        """Hub events → client bytes. The events may also come from a response that was not streamed. The last events of
        a large answer repeat its text, so the output is limited: the rest is the backlog. If they are made in this
        step, all of them are the backlog, because joining the text takes as long as encoding it."""
        if not self.has_content:
            self._look_for_content(events)
        self._backlog += events
        if len(events) > 1:
            for event in events:
                if type(event) in DONE_TEXT_TYPES and _has_large_text(event):
                    return b""
        return self.write_backlog()

    def write_backlog(self) -> bytes:
        """Writes the backlog, up to the limit."""
        events, self._backlog = self._backlog, []
        out: list[bytes] = []
        size = 0
        entry: Any  # `cast` is a call
        for number, entry in enumerate(events):
            if type(entry) not in UNUSUAL_ENTRIES:
                self._write(entry, out)
            elif type(entry) is TextRun:
                self._write_run(entry, out)
            else:
                self._write_piece(entry, out)
            size += len(out[-1]) if out else 0
            if size > MAX_OUTPUT_BYTES or self._rest:
                # A large piece is not joined with others, which would copy it.
                large_pieces = [out.pop()] if out and len(out[-1]) > MAX_OUTPUT_BYTES and any(out[:-1]) else []
                self._backlog = [*large_pieces, *self._take_rest(), *events[number + 1 :]]
                break
        if self._relay is not None and not self._backlog:
            out.append(self._relay.flush())
        return self.join(out)

    def _write_run(self, run: TextRun, out: list[bytes]) -> None:
        if self._text_run is not None and self._policy.passes_plain_deltas:  # nearly always
            out.append(self._deliver(run, self._text_run(run)))
        else:
            for event in run.events():
                self._write(event, out)

    def _write_piece(self, piece: bytes | memoryview, out: list[bytes]) -> None:
        """Writes a piece of a large event that is encoded already."""
        if type(piece) is bytes:
            out.append(piece)
        else:
            out.append(bytes(piece[:MAX_OUTPUT_BYTES]))
            self._rest = [piece[MAX_OUTPUT_BYTES:]] if len(piece) > MAX_OUTPUT_BYTES else []

    def _take_rest(self) -> list[bytes | memoryview]:
        rest, self._rest = self._rest, []
        return rest

    def _look_for_content(self, events: Iterable[StreamEvent | TextRun]) -> None:
        first_content = next(filter(is_content, events), None)
        if first_content is not None:
            self.has_content, self.is_refusal = True, _is_refusal(first_content)

    def _write(self, event: StreamEvent, out: list[bytes]) -> None:
        for client_event in self._policy.feed(event):
            self._write_event(client_event, out)
        if self.response is not None and _is_end(event):
            self.recorded_response = replace(
                self.response, output=self._policy.without_withheld_items(event.response).output
            )

    def _write_event(self, event: StreamEvent, out: list[bytes]) -> None:
        if type(event) in SPECIAL_EVENTS or self._number_shift:
            self._write_special_event(event, out)
            return
        if self._grammar is not None:
            self._check_grammar(event)
        translation = self._from_hub.feed(event)
        out.append(translation if self._relay is None else self._relay.deliver(event, translation))

    def _write_special_event(self, event: StreamEvent, out: list[bytes]) -> None:
        if self._reports_losses and not self._number_shift and (_is_end(event) or type(event) is ErrorEvent):
            self._insert_losses(event.sequence_number, out)
        if self._number_shift:
            event = replace(event, sequence_number=event.sequence_number + self._number_shift)
        if not _is_end(event):
            if self._grammar is not None:
                self._check_grammar(event)
            if self._split_event is not None and type(event) in RESPONSE_EVENTS:
                self._rest = self._split_event(event) or []
                if self._rest:
                    return
            translation = self._deliver(event, self._from_hub.feed(event))
            if type(event) is ErrorEvent:
                self._write_error(translation, out)
            else:
                out.append(translation)
            return
        self.response, self.event_count = event.response, event.sequence_number + 1
        if self._holds_terminal_event and not isinstance(event, ResponseFailed):
            self._pending_end = event
        else:
            self._write_end(event, out)

    def _write_error(self, translation: bytes, out: list[bytes]) -> None:
        """Writes an error. It waits for the end if there will be a comment: in some dialects the error is the end."""
        if len(self._late_losses()):
            self._pending_error = translation
        else:
            out.append(translation)

    def _write_end(self, event: TerminalEvent, out: list[bytes]) -> None:
        self._check_grammar(event)
        if self._split_event is not None and self._write_large_end(event, self._split_event, out):
            return
        translation = self._deliver(event, self._from_hub.feed(event) + self._from_hub.finish())
        translation, self._pending_error = self._pending_error + translation, b""
        comment = self._take_loss_comment()  # the translation of the end may lose something too
        out.append(sse.insert_before_end(translation, comment) if comment and translation else comment + translation)

    def _write_large_end(self, event: TerminalEvent, split_event: SplitEvent, out: list[bytes]) -> bool:
        """Writes a terminal event with large settings, without a copy; False if it has none."""
        pieces = split_event(event)
        if pieces is None:
            return False
        out.append(self._pending_error + self._take_loss_comment())
        self._pending_error = b""
        self._rest = [*pieces, self._from_hub.finish()]
        return True

    def _deliver(self, event: StreamEvent | TextRun, translation: bytes) -> bytes:
        return translation if self._relay is None else self._relay.deliver(event, translation)

    def join(self, pieces: Sequence[bytes]) -> bytes:
        """Joins pieces of the client's stream. A single piece is not copied: it may be large."""
        if len(pieces) > 1:
            pieces = [piece for piece in pieces if piece]
        return pieces[0] if len(pieces) == 1 else self._separator.join(pieces)

    def _insert_losses(self, number: int, out: list[bytes]) -> None:
        """F-4: the losses as an event before the end, for clients that opted in. It has a sequence number like any
        other event (STR-5)."""
        losses = list(self.losses)
        if losses:
            self._number_shift = 1
            encoded_event = Raw(
                msgspec.json.encode({"type": LOSSES_EVENT, "sequence_number": number, "losses": losses})
            )
            event = UnknownEvent(kind=LOSSES_EVENT, raw=encoded_event, sequence_number=number)
            self._check_grammar(event)
            out.append(self._from_hub.feed(event))

    def _take_loss_comment(self) -> bytes:
        """F-4: a comment with the losses that came after the head of the stream; empty if there are none."""
        late_losses = self._late_losses()
        if self._loss_comment is None or not len(late_losses):
            return b""
        self._head_losses = self.losses
        return self._loss_comment(late_losses)

    def _late_losses(self) -> Losses:
        late_losses = Losses()
        if self._loss_comment is not None and self._head_losses is not None:
            reported = set(self._head_losses)
            for loss in self.losses:
                if loss not in reported:
                    late_losses.add(loss.path, loss.what, loss.why)
        return late_losses

    def _check_grammar(self, event: StreamEvent) -> None:
        if self._grammar is not None and self._on_violation is not None:
            for violation in self._grammar.feed(event):
                self._on_violation(violation)


def is_content(event: StreamEvent | TextRun) -> bool:
    """Whether an event carries output of the model: text, reasoning, a call, or a proper end. Opening events, empty
    items, the ends of items and failures do not."""
    if type(event) is ItemAdded:
        return not isinstance(event.item, Message | Reasoning)
    if type(event) in DELTA_EVENT_TYPES:
        return bool(event.delta)  # type: ignore[union-attr]
    return type(event) in CONTENT_EVENT_TYPES


def _is_refusal(event: StreamEvent | TextRun) -> bool:
    return isinstance(event, RefusalDelta) or (
        isinstance(event, ResponseIncomplete)
        and not event.response.output
        and event.response.incomplete_details is not None
        and event.response.incomplete_details.reason in REFUSAL_REASONS
    )


def _has_large_text(event: StreamEvent | TextRun) -> bool:
    return len(getattr(event, DONE_TEXT_FIELDS[type(event)])) > MAX_OUTPUT_BYTES


def _is_end(event: StreamEvent) -> TypeGuard[TerminalEvent]:
    return type(event) in TERMINAL_EVENT_TYPES  # six times as fast as `isinstance` when the answer is no


MAX_OUTPUT_BYTES: Final = 1024 * 1024  # of one call; a single event may be larger
DONE_TEXT_TYPES: Final[frozenset[type]] = frozenset(DONE_TEXT_FIELDS)
UNUSUAL_ENTRIES: Final[frozenset[type]] = frozenset({TextRun, bytes, memoryview})  # of the backlog: all but events
#: Events with a response, which may be large, and errors, which may have to wait.
SPECIAL_EVENTS: Final[frozenset[type]] = RESPONSE_EVENTS | {ErrorEvent}
REFUSAL_REASONS: Final = frozenset({"content_filter", "refusal"})
CONTENT_EVENT_TYPES: Final[frozenset[type]] = frozenset({TextRun, ResponseCompleted, ResponseIncomplete})
DELTA_EVENT_TYPES: Final[frozenset[type]] = frozenset(get_args(DeltaEvent))
TERMINAL_EVENT_TYPES: Final[frozenset[type]] = frozenset({ResponseCompleted, ResponseFailed, ResponseIncomplete})
