"""Reads a gemini server's stream or whole answer (STR-14) as hub events. `answer_in` translates the candidates.

Every frame is an answer with the next parts of the one candidate; a whole answer is read as one frame. The API has no
end marker: the stream ends with the connection. A stream without a finish reason fails as `upstream_disconnected`.
Message text takes a fast path from the decoder to the writer.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon import sse
from antiphon.dialects.common.server_turn import StreamToHub, invalid_upstream_data
from antiphon.dialects.common.tool_names import GEMINI_NAMES, ToolNames
from antiphon.dialects.gemini.answer_in import AnswerToHub
from antiphon.dialects.gemini.errors import error_in_answer
from antiphon.dialects.gemini.response_wire import Chunk, PromptFeedbackIn, TextChunk, UsageIn
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol.codec import with_nesting_limit
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.redaction import sanitize_text

_decode: Final = with_nesting_limit(msgspec.json.Decoder(Chunk).decode)
_decode_array: Final = with_nesting_limit(msgspec.json.Decoder(list[Chunk]).decode)
_decode_text: Final = with_nesting_limit(msgspec.json.Decoder(TextChunk).decode)


class EventsToHub(StreamToHub):
    """Reads one stream."""

    _answer: AnswerToHub

    def __init__(
        self,
        request: Request,
        initial_response: Response,
        stamps: Stamps,
        wire: GeminiWire = GeminiWire(),  # noqa: B008
    ) -> None:
        super().__init__(initial_response, stamps)
        names = ToolNames.for_request(request, GEMINI_NAMES.limited(wire.max_name_length))
        self._answer = AnswerToHub(self._writer, self.losses, names, stamps.new_id, wire.maker)
        self._usage: UsageIn | None = None
        self._finish_message = ""
        self._misses = 0

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        """The events for a frame."""
        if self._has_ended:
            return []
        key = self._answer.open_text_key
        if key is not None and self._misses < MAX_MISSES:
            # Hot path: a frame with only a piece of an open text goes directly to the writer.
            try:
                chunk = _decode_text(frame.data)
            except ValueError:
                self._misses += 1  # after MAX_MISSES this decoder is no longer tried
            else:
                text = chunk.candidates[0].content.parts[0].text
                self._usage = chunk.usage_metadata or self._usage
                self._writer.add_text(key, text)
                return self._take_events()
        self._read_data(frame.data)
        return self._take_events()

    def text_run(self, frames: list[sse.Frame], index: int) -> tuple[TextRun | None, int]:
        """The frames from `at` on that only continue an open text, as one run, with the index of the next frame."""
        key = self._answer.open_text_key
        if key is None or self._has_ended or self._misses >= MAX_MISSES:
            return None, index
        texts: list[str] = []
        begin, end, usage = index, len(frames), None
        while index < end:
            try:
                chunk = _decode_text(frames[index].data)
            except ValueError:
                break  # `feed` reads it
            text = chunk.candidates[0].content.parts[0].text
            usage = chunk.usage_metadata or usage
            if text:
                texts.append(text)
            index += 1
        run = self._writer.add_text_run(key, texts) if texts else None
        if run is None:
            return None, begin
        self._usage = usage or self._usage
        return run, index

    def _read_whole(self, body: bytes) -> None:
        """A whole answer is one frame."""
        chunk = self._read_data(body)
        if self._has_ended:
            return
        if not self._stop_reason and (chunk is None or not any(chunk.candidates or ())):
            self._fail(invalid_upstream_data("an answer without a candidate", body))
        else:
            self._stop_reason = self._stop_reason or "STOP"
            self._end_response()

    def _read_data(self, data: bytes) -> Chunk | None:
        try:
            chunk = _decode(data)
        except ValueError:  # every msgspec error is a ValueError
            return self._read_undecodable(data.strip())
        self._read_chunk(chunk)
        return chunk

    def _read_undecodable(self, data: bytes) -> Chunk | None:
        """Data that the typed decoder refused: white space, the end marker of other dialects, the array that a server
        sends instead of events, or invalid data. Returns the last chunk of an array.
        """
        if not data or data == sse.DONE:
            return None
        chunks = _read_array(data)
        if not chunks:
            self._fail(invalid_upstream_data("a frame that is not generated content", data))
            return None
        for chunk in chunks:
            if not self._has_ended:
                self._read_chunk(chunk)
        return chunks[-1]

    def _read_chunk(self, chunk: Chunk) -> None:
        self._usage = chunk.usage_metadata or self._usage
        if chunk.error:
            self._fail(error_in_answer(chunk.error))
            return
        if not self._writer.has_started:
            self._writer.start()
        if chunk.prompt_feedback is not None:
            self._read_feedback(chunk.prompt_feedback)
        for at, candidate in enumerate(chunk.candidates or ()):
            if candidate is None:
                continue
            if candidate.index or (candidate.index is None and at):
                self.losses.add(
                    f"candidates[{candidate.index or at}]", "an additional answer", "a response has one answer"
                )
                continue
            self._answer.add_candidate(candidate)
            self._stop_reason = _reason_word(candidate.finish_reason) or self._stop_reason
            self._finish_message = candidate.finish_message or self._finish_message

    def _read_feedback(self, feedback: PromptFeedbackIn) -> None:
        """REQ-3: a blocked prompt ends the answer like a content filter."""
        if feedback.block_reason:
            self._stop_reason = "SAFETY"
            self._finish_message = (
                f"the prompt was blocked: {feedback.block_reason} {feedback.block_reason_message or ''}".rstrip()
            )

    def _end_response(self) -> None:
        reason, finish_message = self._stop_reason, sanitize_text(self._finish_message)
        tier = TIER_OF_TRAFFIC.get(self._usage.traffic_type if self._usage is not None else None)
        if tier is not None:
            self._writer.update_response(service_tier=tier)
        if finish_message and reason != "STOP":  # beside a normal end it only describes the calls
            self.losses.add("finishMessage", finish_message, "Open Responses has no equivalent")
        if reason == "STOP" or reason in INCOMPLETE_REASONS:
            self._end_as(INCOMPLETE_REASONS.get(reason))
        else:
            self._end_for_unknown_reason(reason.lower())

    def _final_usage(self) -> Usage | None:
        return usage_to_hub(self._usage)


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: GeminiWire = GeminiWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Read a server's whole answer. Raises the error that the server sent, or that the body is not an answer."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)


def usage_to_hub(usage: UsageIn | None) -> Usage | None:
    """REQ-4: the hub's output count includes thoughts, the API's does not. Both input counts include cached tokens."""
    if usage is None:
        return None
    input_tokens = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    thoughts = usage.thoughts_token_count or 0
    output_tokens = (usage.candidates_token_count or 0) + thoughts
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=usage.total_token_count or input_tokens + output_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=usage.cached_content_token_count or 0, cache_write_tokens=None
        ),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=thoughts),
    )


def _read_array(data: bytes) -> list[Chunk]:
    """The chunks in an array; none if `data` is not an array of chunks."""
    try:
        return _decode_array(data)
    except ValueError:
        return []


def _reason_word(reason: str | int | None) -> str:
    """The word of a finish reason. Some servers send the number in the enum."""
    if isinstance(reason, int):
        return FINISH_REASON_NUMBERS[reason] if 0 <= reason < len(FINISH_REASON_NUMBERS) else "OTHER"
    return reason or ""


MAX_MISSES: Final = 8
#: The words by their number. The enums of Google's two APIs differ in the higher numbers, which become `OTHER`.
FINISH_REASON_NUMBERS: Final = ("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
#: REQ-3: the hub's reason of an incomplete response. `STOP` is a complete one. Reasons without an entry (`OTHER`,
#: `NO_IMAGE`, `FINISH_REASON_UNSPECIFIED`) are treated as unknown ones.
INCOMPLETE_REASONS: Final[dict[str, str]] = {
    "MAX_TOKENS": "max_output_tokens",
    "CONTINUATION": "max_output_tokens",  # of one request; another request may continue the answer
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "LANGUAGE": "content_filter",  # a language that the model must not write
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "IMAGE_OTHER": "content_filter",
    # The model's call or text was unreadable or unwanted. The output before it is still an answer.
    "MALFORMED_FUNCTION_CALL": "malformed_function_call",
    "UNEXPECTED_TOOL_CALL": "unexpected_tool_call",
    "TOO_MANY_TOOL_CALLS": "too_many_tool_calls",
    "MALFORMED_RESPONSE": "malformed_response",
}
#: The service tiers of an answer.
TIER_OF_TRAFFIC: Final[dict[str | int | None, str]] = {
    "ON_DEMAND": "default",
    1: "default",
    "ON_DEMAND_PRIORITY": "priority",
    "ON_DEMAND_FLEX": "flex",
}
