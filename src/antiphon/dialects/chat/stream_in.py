"""Translates a chat server's stream or complete response into hub events. `answer_in` translates the messages inside.

The response ends with `[DONE]` or the end of the bytes, not with the finish reason, because usage may follow it.
Without a finish reason the response fails: `[DONE]` as `upstream_invalid_response`, the end of the bytes as
`upstream_disconnected`. Text deltas go directly from the decoder to the writer. A complete response is read as one
delta (STR-14), except one that is a single text: it needs no events, and a test checks that both ways agree.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.chat.answer_in import AnswerToHub
from antiphon.dialects.chat.errors import error_in_answer
from antiphon.dialects.chat.forced_tools import ForcedTools
from antiphon.dialects.chat.lenient_decoding import decode_leniently
from antiphon.dialects.chat.response_wire import ChatUsage, Choice, Chunk, Delta, TextChunk
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.server_turn import StreamToHub, invalid_upstream_data
from antiphon.dialects.common.tool_names import PLAIN_NAMES, ToolNames
from antiphon.errors import UpstreamFault
from antiphon.protocol.codec import with_nesting_limit
from antiphon.protocol.content import OutputText
from antiphon.protocol.events import StreamEvent, TextRun
from antiphon.protocol.items import Message
from antiphon.protocol.losses import Losses
from antiphon.protocol.nesting import MIN_TOO_DEEP_LENGTH
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus, ResponseStatus

_decode: Final = with_nesting_limit(msgspec.json.Decoder(Chunk).decode)
_decode_text: Final = with_nesting_limit(msgspec.json.Decoder(TextChunk).decode)
_decode_texts: Final = msgspec.json.Decoder(TextChunk).decode_lines
MIN_BATCH_FRAMES: Final = 8  # from this number of frames on, they are decoded together
MAX_TRAILING_FRAMES: Final = 4  # frames after the text: finish reason, usage, `[DONE]`


class EventsToHub(StreamToHub):
    """Translates one stream."""

    _answer: AnswerToHub

    def __init__(
        self,
        request: Request,
        initial_response: Response,
        stamps: Stamps,
        wire: ChatWire = ChatWire(),  # noqa: B008
    ) -> None:
        super().__init__(initial_response, stamps)
        names = ToolNames.for_request(request, PLAIN_NAMES.limited(wire.max_name_length))
        forces_by_schema = wire.forced_tools == "schema"
        forced_tools = ForcedTools.from_request(request, names, wire, Losses()) if forces_by_schema else None
        call_reader = forced_tools.call_reader() if forced_tools else None
        self._answer = AnswerToHub(self._writer, self.losses, names, stamps.new_id, wire, call_reader)
        self._usage: ChatUsage | None = None
        self._service_tier: str | None = None
        self._misses = 0
        self._is_whole = False
        self._non_text_frame: sse.Frame | None = None  # a frame that `text_run` could not read as text

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        """Return the events of one frame."""
        if self._has_ended:
            return []
        key = self._answer.open_text_key
        if key is not None and frame is not self._non_text_frame and self._expects_text():
            # The hot path: a frame with only a piece of the open text goes directly to the writer.
            try:
                text = _decode_text(frame.data).choices[0].delta.content
            except ValueError:
                self._misses += 1  # after MAX_MISSES the text-only decode is not tried again
            else:
                self._writer.add_text(key, text)
                return self._take_events()
        try:
            chunk = _decode(frame.data)
        except ValueError:  # all decode errors of msgspec are ValueErrors
            self._read_unusual_frame(frame)
        else:
            self._read_chunk(chunk, frame)
        return self._take_events()

    def text_run(self, frames: list[sse.Frame], index: int) -> tuple[TextRun | None, int]:
        """Return the text frames from `at` on as one run, and the position of the first other frame."""
        key = self._answer.open_text_key
        if key is None or self._has_ended or not self._expects_text() or frames[index] is self._non_text_frame:
            return None, index
        texts = _texts_in(frames, index)
        if not texts:
            self._misses += 1
        end = index + len(texts)
        self._non_text_frame = frames[end] if end < len(frames) else None
        deltas = list(filter(None, texts))
        run = self._writer.add_text_run(key, deltas) if deltas else None
        return (run, end) if run is not None else (None, index)

    def _expects_text(self) -> bool:
        """Whether the next frame is probably a piece of text: not after the stop reason, nor after many others."""
        return not self._stop_reason and self._misses < MAX_MISSES

    def _read_whole(self, body: bytes) -> None:
        """Read a response that is not streamed: its message is one delta."""
        self._is_whole = True
        try:
            chunk: Chunk | None = _decode(body)
        except ValueError:
            chunk = decode_leniently(body, self.losses)
            self._answer.join_surrogates()
        if chunk is not None:
            self._read_chunk(chunk, sse.Frame("", body))
        if self._has_ended:
            return
        if chunk is None or not any(chunk.choices or ()):
            self._fail(invalid_upstream_data("an answer that is not a chat completion", body))
        else:
            self._stop_reason = self._stop_reason or "stop"
            self._end_response()

    def _read_unusual_frame(self, frame: sse.Frame) -> None:
        """Read a frame that the typed decode refused: `[DONE]`, white space, a chunk with errors, or invalid data."""
        data = frame.data.strip()
        if data == sse.DONE:
            self._read_done_marker()
            return
        if not data:
            return
        chunk = decode_leniently(data, self.losses)
        if chunk is None and frame.event == "error":
            self._fail(error_in_answer(data.decode("utf-8", "replace")))
            return
        if chunk is None:
            self._fail(invalid_upstream_data("an event that is not a chat chunk", data))
            return
        self._answer.join_surrogates()
        self._read_chunk(chunk, frame)

    def _read_done_marker(self) -> None:
        if not self._stop_reason and self._has_whole_content():
            self._stop_reason = "stop"  # some servers send null or "" to the end
        if self._stop_reason:
            self._end_response()
        else:
            self._fail(
                UpstreamFault("the upstream ended its stream without a finish reason", code="upstream_invalid_response")
            )

    def _read_chunk(self, chunk: Chunk, frame: sse.Frame) -> None:
        self._usage = chunk.usage or self._usage
        error = chunk.error
        if chunk.choices is None and chunk.usage is None:
            error = error or _error_without_wrapper(frame)
        if error:
            self._fail(error_in_answer(error))
            return
        if chunk.service_tier and chunk.service_tier != self._service_tier:
            self._service_tier = chunk.service_tier
            self._writer.update_response(service_tier=chunk.service_tier)
        if not self._writer.has_started:
            self._writer.start()
        for index, choice in enumerate(chunk.choices or ()):
            if choice is not None:
                self._read_choice(choice, index if choice.index is None else choice.index)

    def _read_choice(self, choice: Choice, index: int) -> None:
        if index != 0:
            self.losses.add(f"choices[{index}]", "an additional answer", "a response has one answer")
            return
        # Some servers send both. Without streaming the delta is empty; in a stream the message repeats all text so far.
        if choice.message is not None and (self._is_whole or choice.delta is None):
            self._answer.add_message(choice.message, choice.logprobs)
        elif choice.delta is not None:
            self._answer.add_delta(choice.delta, choice.logprobs)
        self._usage = choice.usage or self._usage
        self._stop_reason = choice.finish_reason or self._stop_reason

    def _end_response(self) -> None:
        reason = self._stop_reason
        if reason in FAILURE_CODES:
            self._fail(
                UpstreamFault(
                    f"the upstream ended the response with the finish reason {reason!r}", code=FAILURE_CODES[reason]
                )
            )
        elif reason in COMPLETE_REASONS or reason in INCOMPLETE_REASONS:
            self._end_as(INCOMPLETE_REASONS.get(reason))
        else:
            self._end_for_unknown_reason(reason)

    def _final_usage(self) -> Usage | None:
        return usage_to_hub(self._usage)


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: ChatWire = ChatWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Translate a server's response. Raises its error, or `UpstreamFault` if the body is no chat completion."""
    plain = text_response_to_hub(body, initial_response, stamps, wire)
    return (plain, Losses()) if plain is not None else response_by_events(body, request, initial_response, stamps, wire)


def response_by_events(
    body: bytes, request: Request, initial_response: Response, stamps: Stamps, wire: ChatWire
) -> tuple[Response, Losses]:
    """Translate any response, with the code of the stream."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)


def text_response_to_hub(body: bytes, initial_response: Response, stamps: Stamps, wire: ChatWire) -> Response | None:
    """Return the response, or None if it is not one complete text message."""
    try:
        answer = _decode(body)
    except ValueError:
        return None
    if answer.error or not answer.choices or len(answer.choices) != 1 or wire.forced_tools == "schema":
        return None
    choice = answer.choices[0]
    if choice is None or choice.index or choice.delta is not None or choice.finish_reason != "stop" or choice.logprobs:
        return None
    text = _only_text(choice.message, wire)
    if text is None:
        return None
    item = Message(
        id=stamps.new_id("msg"),
        status=ItemStatus.COMPLETED,
        role="assistant",
        content=[OutputText(text=text, annotations=[], logprobs=[])],
    )
    return replace(
        initial_response,
        status=ResponseStatus.COMPLETED,
        completed_at=stamps.now(),
        output=[item],
        usage=usage_to_hub(choice.usage or answer.usage),
        service_tier=answer.service_tier or initial_response.service_tier,
    )


def usage_to_hub(usage: ChatUsage | None) -> Usage | None:
    """REQ-4: translate the usage. None only if the server sent none."""
    if usage is None or (
        usage.prompt_tokens is None and usage.completion_tokens is None and usage.total_tokens is None
    ):
        return None
    input_tokens, output_tokens = usage.prompt_tokens or 0, usage.completion_tokens or 0
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    reasoning_tokens = (completion and completion.reasoning_tokens) or 0
    if reasoning_tokens and usage.total_tokens == input_tokens + output_tokens + reasoning_tokens:
        output_tokens += reasoning_tokens  # xAI counts reasoning beside `completion_tokens`
    cached = (prompt and prompt.cached_tokens) or usage.prompt_cache_hit_tokens or usage.cached_tokens
    written = prompt.cache_write_tokens if prompt else None
    written = usage.cache_creation_input_tokens if written is None else written
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens if usage.total_tokens is None else usage.total_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=cached or 0, cache_write_tokens=written),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens),
    )


def _error_without_wrapper(frame: sse.Frame) -> Any:
    """Return an error that is not under `error`: a bare error object, or the data of an event named `error`."""
    try:
        value = json.loads(
            frame.data.decode("utf-8", "replace")
        )  # untyped, because the typed decode may have refused it
    except ValueError:  # a number with thousands of digits in an ignored field
        value = {"message": "an error that cannot be decoded"}
    is_error = frame.event == "error" or value.get("object") == "error" or "detail" in value
    return value if is_error else None


def _texts_in(frames: list[sse.Frame], index: int) -> list[str]:
    """Return the texts of the frames from `at` on, up to the first frame that is not only text."""
    if len(frames) - index >= MIN_BATCH_FRAMES:
        # Usually all frames are text, except a few at the end.
        end = len(frames)
        while end > len(frames) - MAX_TRAILING_FRAMES and _text_in(frames[end - 1]) is None:
            end -= 1
        lines = [frame.data for frame in frames[index:end]]
        try:
            # Frames that are long enough to exceed the nesting limit are decoded one by one.
            chunks = _decode_texts(b"\n".join(lines)) if max(map(len, lines), default=0) < MIN_TOO_DEEP_LENGTH else []
            if len(chunks) == end - index:
                return [chunk.choices[0].delta.content for chunk in chunks]
        except ValueError:
            pass  # at least one frame is not text
    texts: list[str] = []
    for frame in frames[index:]:
        text = _text_in(frame)
        if text is None:
            break
        texts.append(text)
    return texts


def _text_in(frame: sse.Frame) -> str | None:
    if frame.data == sse.DONE:  # nearly every stream ends with it, and an exception takes longer
        return None
    try:
        return _decode_text(frame.data).choices[0].delta.content
    except ValueError:
        return None


def _only_text(message: Delta | None, wire: ChatWire) -> str | None:
    """Return the text of a message that has only text and no reasoning tags."""
    if message is None or type(message.content) is not str or wire.think_tags == "implied":
        return None
    if (
        message.tool_calls
        or message.function_call
        or message.refusal
        or message.annotations
        or message.audio
        or message.images
    ):
        return None
    if message.reasoning_content or message.reasoning or message.reasoning_details:
        return None
    text = message.content
    return text if text and "<" not in text and not text.isspace() else None


MAX_MISSES: Final = 8
#: The finish reasons of complete answers. docs/dialects.md names the servers that send them.
COMPLETE_REASONS: Final = frozenset(
    {
        *("stop", "tool_calls", "function_call"),  # the specification
        "eos",  # hosted open models
        *("eos_token", "stop_sequence"),  # inference servers of open models
        *("end_turn", "tool_use"),  # words of Messages, which some gateways pass on
    }
)
INCOMPLETE_REASONS: Final[dict[str, str]] = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
}
FAILURE_CODES: Final[dict[str, str]] = {
    "error": "upstream_error",
    "abort": "upstream_error",
    "insufficient_system_resource": "overloaded",
}
