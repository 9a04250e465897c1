"""Reads a Messages server's stream or whole answer (STR-14) as hub events. `answer_in` translates the blocks.

A stop reason does not end the response: `message_stop` or the end of the connection does. Without a stop reason the
answer is not complete: `message_stop` then fails as `upstream_invalid_response`, the end of the connection as
`upstream_disconnected`. Block text takes a fast path from the decoder to the writer.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import asdict, replace

from antiphon import sse
from antiphon.dialects.common.server_turn import StreamToHub, invalid_upstream_data
from antiphon.dialects.common.service_tiers import tier_to_hub
from antiphon.dialects.common.tool_names import MESSAGES_NAMES, ToolNames
from antiphon.dialects.messages.answer_in import AnswerToHub
from antiphon.dialects.messages.errors import error_in_answer
from antiphon.dialects.messages.lenient_decoding import LenientDecoder
from antiphon.dialects.messages.response_wire import AnswerIn, DeltaIn, EventIn, StopDetailsIn, UsageIn
from antiphon.dialects.messages.wire import CACHE_CREATION_FIELD, STOP_REASON_FIELD, STOP_SEQUENCE_FIELD, MessagesWire
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_json, with_nesting_limit
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage
from antiphon.protocol.stamps import Stamps


class TextDelta(Struct, frozen=True, gc=False):
    type: Literal["text_delta"]
    text: str


class TextEvent(Struct, frozen=True, gc=False):
    """The common event: a piece of a block's text, and nothing else."""

    type: Literal["content_block_delta"]
    index: int
    delta: TextDelta


_decode: Final = with_nesting_limit(msgspec.json.Decoder(EventIn).decode)
_decode_message: Final = with_nesting_limit(msgspec.json.Decoder(AnswerIn).decode)
_decode_text: Final = with_nesting_limit(msgspec.json.Decoder(TextEvent).decode)


class EventsToHub(StreamToHub):
    """Reads one stream."""

    _answer: AnswerToHub

    def __init__(
        self,
        request: Request,
        initial_response: Response,
        stamps: Stamps,
        wire: MessagesWire = MessagesWire(),  # noqa: B008
    ) -> None:
        super().__init__(initial_response, stamps)
        names = ToolNames.for_request(request, MESSAGES_NAMES.limited(wire.max_name_length))
        self._answer = AnswerToHub(self._writer, self.losses, names, stamps.new_id, wire)
        self._extra: dict[str, Raw] = dict(initial_response.extra or {})
        self._lenient_decoder: LenientDecoder | None = None
        self._usage = UsageIn()
        self._service_tier: str | None = None
        self._stop_details: StopDetailsIn | None = None

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        """The events for a frame."""
        if self._has_ended:
            return []
        answer = self._answer
        key = answer.open_text_key
        if key is not None and self._lenient_decoder is None:
            # Hot path: a frame with only a piece of an open text goes directly to the writer.
            try:
                event = _decode_text(frame.data)
            except ValueError:
                pass
            else:
                if event.index == answer.open_text_index:
                    text = event.delta.text
                    answer.fast_path_length += len(text)
                    self._writer.add_text(key, text)
                    return self._take_events()
        self._read_frame(frame)
        return self._take_events()

    def text_run(self, frames: list[sse.Frame], at: int) -> tuple[TextRun | None, int]:
        """The frames from `at` on that only continue an open text, as one run, with the index of the next frame."""
        answer = self._answer
        key, index = answer.open_text_key, answer.open_text_index
        if key is None or self._has_ended or self._lenient_decoder is not None:
            return None, at
        texts: list[str] = []
        begin, end = at, len(frames)
        while at < end:
            try:
                event = _decode_text(frames[at].data)
            except ValueError:
                break  # `feed` reads it
            if event.index != index:
                break
            if event.delta.text:
                texts.append(event.delta.text)
            at += 1
        if not texts:
            return None, begin
        answer.fast_path_length += sum(map(len, texts))
        return self._writer.add_text_run(key, texts), at

    def _read_whole(self, body: bytes) -> None:
        try:
            body.decode()  # blocks are decoded later and may hide invalid UTF-8
            message: AnswerIn | None = _decode_message(body)
        except ValueError:
            message = LenientDecoder(self.losses).decode(body, AnswerIn)
        if message is not None and message.error:
            self._fail(error_in_answer(message.error))
        elif message is None or message.content is None:
            self._fail(invalid_upstream_data("an answer that is not a message", body))
        else:
            self._read_message(message)
            self._stop_reason = self._stop_reason or "end_turn"
            self._end_response()

    def _read_frame(self, frame: sse.Frame) -> None:
        """Read a frame outside the hot path: an event, the end marker, white space, or data for the lenient decoder."""
        data = frame.data.strip()
        if data == sse.DONE:
            self._read_done_marker()
            return
        if not data:
            return
        event = self._read_event(data)
        if event is not None:
            self._apply_event(event, frame)
        elif frame.event == "error":
            self._fail(error_in_answer(_decode_bare_error(frame)))
        else:
            self._fail(invalid_upstream_data("an event that is not a Messages event", data))

    def _read_event(self, data: bytes) -> EventIn | None:
        if self._lenient_decoder is None:
            try:
                data.decode()  # the block is decoded later and may hide invalid UTF-8
                return _decode(data)
            except ValueError:
                self._lenient_decoder = LenientDecoder(self.losses)
        return self._lenient_decoder.decode(data, EventIn)

    def _apply_event(self, event: EventIn, frame: sse.Frame) -> None:
        kind = event.type or frame.event
        if event.error or kind == "error":
            self._fail(error_in_answer(event.error or _decode_bare_error(frame)))
            return
        if not self._writer.has_started:
            self._writer.start()
        match kind:
            case "content_block_delta":
                self._read_delta(event, frame)
            case "content_block_start":
                if event.content_block:
                    self._flush(event.index)
                    self._answer.start_block(event.index, event.content_block)
            case "content_block_stop":
                self._flush(event.index)
                self._answer.stop_block(event.index)
            case "message_start":
                self._read_message(event.message or AnswerIn())
            case "message_delta":
                self._add_usage(event.usage)
                self._read_stop(event.delta or DeltaIn())
            case "message_stop":
                self._read_done_marker()
            case "ping":
                pass
            case _:
                self.losses.add("stream", f"an event of type {kind[:50]!r}", "Open Responses has no equivalent")

    def _read_message(self, message: AnswerIn) -> None:
        """Read a message, whole or at its start. The blocks of a second start continue the same answer."""
        self._add_usage(message.usage)
        for index, block in enumerate(message.content or ()):
            self._answer.start_block(index, block)
            self._answer.stop_block(index)
        self._read_stop(
            DeltaIn(
                stop_reason=message.stop_reason, stop_sequence=message.stop_sequence, stop_details=message.stop_details
            )
        )

    def _read_delta(self, event: EventIn, frame: sse.Frame) -> None:
        delta = event.delta or DeltaIn()
        if delta.type is None or delta.type in DELTA_TYPES:
            self._answer.add_delta(event.index, delta)
        else:
            self._answer.add_unknown_delta(event.index, delta.type, frame.data)

    def _flush(self, index: int) -> None:
        rest = self._lenient_decoder.flush(index) if self._lenient_decoder is not None else None
        if rest is not None:
            self._answer.add_delta(index, rest)

    def _add_usage(self, usage: UsageIn | None) -> None:
        if usage is None:
            return
        self._usage = _merge_usage(self._usage, usage)
        if usage.service_tier and usage.service_tier != self._service_tier:
            self._service_tier = usage.service_tier
            self._writer.update_response(service_tier=tier_to_hub(usage.service_tier))

    def _read_stop(self, delta: DeltaIn) -> None:
        self._stop_reason = delta.stop_reason or self._stop_reason
        self._stop_details = delta.stop_details or self._stop_details
        if delta.stop_sequence is not None:
            self._set_extra_field(STOP_SEQUENCE_FIELD, delta.stop_sequence)

    def _set_extra_field(self, name: str, value: str) -> None:
        """Set a field in the response's `extra`."""
        self._extra[name] = Raw(msgspec.json.encode(value))
        self._writer.update_response(extra=self._extra)

    def _read_done_marker(self) -> None:
        if self._stop_reason:
            self._end_response()
        else:
            self._fail(
                UpstreamFault("the upstream ended its stream without a stop reason", code="upstream_invalid_response")
            )

    def _end_response(self) -> None:
        reason = self._stop_reason
        self._flush_all()
        if reason not in STATUS_STOP_REASONS:
            self._set_extra_field(STOP_REASON_FIELD, reason)
        if reason == "refusal" and self._stop_details is not None and self._stop_details.explanation:
            self._answer.add_refusal(self._stop_details.explanation)
        if reason in STATUS_STOP_REASONS or reason in INCOMPLETE_REASONS:
            self._end_as(INCOMPLETE_REASONS.get(reason))
        else:
            self._end_for_unknown_reason(reason)

    def _fail(self, error: ApiError) -> None:
        self._flush_all()
        super()._fail(error)

    def _final_usage(self) -> Usage | None:
        return usage_to_hub(self._usage)

    def _flush_all(self) -> None:
        for index in self._answer.open_indices:
            self._flush(index)


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: MessagesWire = MessagesWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Read a server's whole answer. Raises the error that the server sent, or that the body is not an answer."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)


def usage_to_hub(usage: UsageIn) -> Usage | None:
    """REQ-4: null only if the upstream sent no usage. The hub's input count includes tokens read from and written to
    the cache.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens
    if written is None and usage.cache_creation:
        written = sum(count for count in usage.cache_creation.values() if isinstance(count, int))
    input_tokens, output_tokens = (usage.input_tokens or 0) + cached + (written or 0), usage.output_tokens or 0
    thoughts = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else None
    extra = {CACHE_CREATION_FIELD: Raw(msgspec.json.encode(usage.cache_creation))} if usage.cache_creation else UNSET
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=cached, cache_write_tokens=written, extra=extra),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=thoughts or 0),
    )


def _merge_usage(previous: UsageIn, current: UsageIn) -> UsageIn:
    """Merge counts: the later count wins, also if it is 0. Servers may omit counts later."""
    counts = asdict(current)
    return replace(previous, **{name: count for name, count in counts.items() if count is not None})


def _decode_bare_error(frame: sse.Frame) -> Any:
    """An error that is not under `error`: an object, or its text."""
    try:
        return decode_json(frame.data)
    except ValueError:
        return {"message": frame.data.decode("utf-8", "replace")}


DELTA_TYPES: Final = frozenset(
    {"text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"}
)
#: Stop reasons that the response's status and output already express.
STATUS_STOP_REASONS: Final = frozenset({"end_turn", "tool_use", "stop_sequence", "max_tokens", "refusal"})
INCOMPLETE_REASONS: Final[dict[str, str]] = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
    # The server wants another request with its output so far.
    "pause_turn": "pause_turn",
    "compaction": "compaction",
}
