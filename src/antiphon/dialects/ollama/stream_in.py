"""Reads an Ollama server's stream, or its whole answer, as hub events.

Every line is an answer with the next piece of the message; the line with `done` has the reason and the counts. A stream
without it fails as `upstream_disconnected`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon import sse
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.server_turn import StreamOutcome, StreamToHub, invalid_upstream_data
from antiphon.dialects.common.tool_names import OLLAMA_NAMES, SendableCalls, ToolNames
from antiphon.dialects.ollama.errors import error_in_answer
from antiphon.dialects.ollama.response_wire import AnswerCallIn, AnswerMessageIn, Chunk, TokenIn, TopTokenIn
from antiphon.dialects.ollama.wire import OllamaWire
from antiphon.protocol.codec import with_nesting_limit
from antiphon.protocol.content import LogProb, TopLogProb
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import TextPieces
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Response, Usage
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.writer import ResponseWriter

_decode: Final = with_nesting_limit(msgspec.json.Decoder(Chunk).decode)


def response_to_hub(
    body: bytes,
    request: Request,
    initial_response: Response,
    stamps: Stamps,
    wire: OllamaWire = OllamaWire(),  # noqa: B008
) -> tuple[Response, Losses]:
    """Translate a server's response. Raises its error, or `UpstreamFault` if the body is no answer."""
    return EventsToHub(request, initial_response, stamps, wire).response(body)


class EventsToHub(StreamToHub):
    """Reads one stream. A frame is a line."""

    _answer: _Answer

    def __init__(
        self,
        request: Request,
        initial_response: Response,
        stamps: Stamps,
        wire: OllamaWire = OllamaWire(),  # noqa: B008
    ) -> None:
        super().__init__(initial_response, stamps)
        self._answer = _Answer(
            self._writer, self.losses, ToolNames.for_request(request, OLLAMA_NAMES), stamps, wire.maker
        )
        self._usage: Usage | None = None

    def feed(self, frame: sse.Frame) -> list[StreamEvent]:
        """The events for a line."""
        if not self._has_ended:
            self._read(frame.data)
        return self._take_events()

    def _read_whole(self, body: bytes) -> None:
        """A whole answer is one line, which is complete even without `done`."""
        self._read(body)
        if not self._has_ended:
            self._stop_reason = self._stop_reason or "stop"
            self._end_response()

    def _read(self, data: bytes) -> None:
        try:
            chunk = _decode(data)
        except ValueError:  # every msgspec error is a ValueError
            self._fail(invalid_upstream_data("a line that is no answer of Ollama", data))
            return
        if chunk.error is not None:
            self._fail(error_in_answer(chunk.error))
        elif chunk.message is None and chunk.response is None and not chunk.done:
            self._fail(invalid_upstream_data("an answer without a message", data))
        else:
            self._chunk(chunk)

    def _chunk(self, chunk: Chunk) -> None:
        if not self._writer.has_started:
            self._writer.start()
        message = chunk.message or AnswerMessageIn(chunk.response, chunk.thinking, chunk.tool_calls)
        self._answer.add(message, chunk.logprobs)
        if chunk.done:
            self._stop_reason = chunk.done_reason or "stop"
            self._usage = _usage(chunk)

    def _end_response(self) -> None:
        reason = self._stop_reason
        if reason in COMPLETE or reason in INCOMPLETE:
            self._end_as(INCOMPLETE.get(reason))
        else:
            self._end_for_unknown_reason(reason)

    def _final_usage(self) -> Usage | None:
        return self._usage


class _Answer:
    """Writes the pieces of the message as hub items: reasoning, text and calls, in their order."""

    def __init__(self, writer: ResponseWriter, losses: Losses, names: ToolNames, stamps: Stamps, maker: str) -> None:
        self._writer = writer
        self._maker = maker
        self._losses = losses
        self._calls = SendableCalls("message.tool_calls", names, losses, stamps.new_id)
        self._items = 0
        self._message: int | None = None
        self._reasoning: int | None = None
        self._thinking = TextPieces()

    def add(self, message: AnswerMessageIn, tokens: list[TokenIn] | None) -> None:
        if message.thinking:
            self._add_thinking(message.thinking)
        logprobs = list(map(_logprob, tokens or ()))
        if message.content:
            self._add_text(message.content, logprobs)
        elif logprobs:
            why = "Open Responses has no equivalent"
            self._losses.add("logprobs", "the log probabilities of tokens outside the text", why)
        for call in message.tool_calls or ():
            self._add_call(call)
        if message.images:
            self._losses.add("message.images", "images of the model", "Open Responses has no equivalent")

    def finish(self, outcome: StreamOutcome) -> None:
        """End the answer. Complete items are closed here; the others are closed with the response."""
        if outcome == "completed":
            self._close_items()
        else:
            self._seal_reasoning()

    def _add_thinking(self, text: str) -> None:
        if self._reasoning is None:
            self._close_items()
            self._reasoning = self._next_key()
            self._thinking = TextPieces()
        self._writer.add_reasoning(self._reasoning, text)
        self._thinking.append(text)

    def _add_text(self, text: str, logprobs: list[LogProb]) -> None:
        if self._message is None:
            self._close_items()
            self._message = self._next_key()
        self._writer.add_text(self._message, text, logprobs=logprobs or None)

    def _add_call(self, call: AnswerCallIn) -> None:
        self._close_items()
        if call.function is None or not call.function.name:
            self._losses.add("message.tool_calls", "a call without a name")
            return
        called = self._calls.tool(call.function.name)
        name, call_id, key = called.name, self._calls.id(call.id or ""), self._next_key()
        given = call.function.arguments
        arguments = given if isinstance(given, str) else msgspec.json.encode(given or {}).decode()
        if called.kind == "custom":
            freeform_input = FreeformInput()
            self._writer.open_custom_call(key, name=name, call_id=call_id, namespace=called.namespace)
            self._writer.add_custom_input(key, freeform_input.feed(arguments) + freeform_input.finish())
            if freeform_input.left_over:
                what = f"{freeform_input.left_over[:80]!r}"
                self._losses.add("message.tool_calls.function.arguments", what, "a custom tool accepts one string")
        else:
            self._writer.open_call(key, name=name, call_id=call_id, namespace=called.namespace)
            self._writer.add_arguments(key, arguments)
        self._writer.close_item(key)

    def _seal_reasoning(self) -> None:
        """RSN-3: the envelope names the server that gets the reasoning back."""
        if self._reasoning is not None:
            sealed = seal_reasoning(self._maker, {"thinking": "".join(self._thinking)})
            self._writer.set_encrypted_content(self._reasoning, sealed)

    def _close_items(self) -> None:
        self._seal_reasoning()
        for key in (self._reasoning, self._message):
            if key is not None:
                self._writer.close_item(key)
        self._reasoning = self._message = None

    def _next_key(self) -> int:
        self._items += 1
        return self._items


def _usage(chunk: Chunk) -> Usage | None:
    """REQ-4: the counts, None if the server sent none. A cached prompt is not counted by some versions."""
    if chunk.prompt_eval_count is None and chunk.eval_count is None:
        return None
    read, written = chunk.prompt_eval_count or 0, chunk.eval_count or 0
    return Usage(
        input_tokens=read,
        output_tokens=written,
        total_tokens=read + written,
        input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=None),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
    )


def _logprob(token: TokenIn) -> LogProb:
    return LogProb(
        token=token.token,
        logprob=token.logprob,
        bytes=_bytes(token),
        top_logprobs=[
            TopLogProb(token=top.token, logprob=top.logprob, bytes=_bytes(top)) for top in token.top_logprobs or ()
        ],
    )


def _bytes(token: TopTokenIn) -> list[int]:
    return token.bytes if token.bytes is not None else list(token.token.encode("utf-8", "replace"))


COMPLETE: Final = ("stop", "load", "unload")
INCOMPLETE: Final[dict[str, str]] = {"length": "max_output_tokens"}
