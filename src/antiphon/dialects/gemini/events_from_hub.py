"""Hub events → a gemini client's stream: a frame for each piece, the last with the finish reason and usage. No word ends it.

A failure is an error object in the stream, and so is a stream that ends without a terminal event: what was cut never looks whole.
Clients that did not ask for server-sent events get the same objects as the members of one JSON array.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.dialects.common.response_errors import STREAM_CUT_ERROR
from antiphon.dialects.gemini.answer_from_hub import AnswerFromHub, usage_from_hub
from antiphon.dialects.gemini.answers import AnswerContentOut, AnswerOut, AnswerPartOut, CandidateOut
from antiphon.dialects.gemini.errors_from_hub import error_frame_data
from antiphon.protocol.events import (
    ErrorEvent,
    OutputTextDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TextRun,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

_encode: Final = msgspec.json.Encoder().encode


class EventsFromHub:
    """Writes one stream; `as_json_array` writes it as one JSON array instead."""

    def __init__(self, request: Request, *, as_json_array: bool = False) -> None:
        self.losses = Losses()
        self._answer = AnswerFromHub(request, self.losses)
        self._array = as_json_array
        self._before, self._after = (b"[", b"\n") if as_json_array else (b"data: ", b"\n\n")
        self._answer_template = AnswerOut(candidates=[], model_version=request.model or "", response_id="")
        self._head, self._tail = self._around_text()
        self._has_sent_end = False  # whether the end was told: a finish reason, or an error
        self._is_finished = False

    def feed(self, event: StreamEvent) -> bytes:
        """The frames that an event makes."""
        # The hot path.
        if (
            type(event) is OutputTextDelta
            and not event.logprobs
            and not self._array
            and not self._answer.pending_signature
        ):
            return self._text(event.delta)
        match event:
            case ResponseCreated():
                self._begin(event.response)
                return b""
            case ResponseCompleted() | ResponseIncomplete():
                return self._end(event.response)
            case ErrorEvent():
                return self._error(error_frame_data(event.error))
            case ResponseFailed():
                return b"" if self._has_sent_end else self._error(error_frame_data(event.response.error))
            case _:
                piece = self._answer.feed(event)
                return self._answer_frame(candidates=[piece]) if piece else b""

    def text_run(self, run: TextRun) -> bytes:
        """The bytes of a run of deltas: those of its events, one after the other."""
        if self._array or self._answer.pending_signature:
            return b"".join(map(self.feed, run.events()))
        return b"".join(map(self._text, run.deltas))

    def finish(self) -> bytes:
        """What the stream ends with."""
        if self._is_finished:
            return b""
        self._is_finished = True
        return (b"" if self._has_sent_end else self._error(error_frame_data(STREAM_CUT_ERROR))) + (
            b"]" if self._array else b""
        )

    def _text(self, text: str) -> bytes:
        """A frame of text alone: no signature waits for it, and every frame begins alike."""
        if not text:
            return b""
        return b"%b%b%b" % (
            self._head,
            _encode(text) if text.isascii() else escape_line_ends(_encode(text)),
            self._tail,
        )

    def _begin(self, response: Response) -> None:
        self._answer_template = initial_answer(response)
        self._head, self._tail = self._around_text()

    def _end(self, response: Response) -> bytes:
        self._has_sent_end = True
        usage = {"usage_metadata": usage_from_hub(response.usage)} if response.usage else {}
        return self._answer_frame(candidates=[self._answer.final_candidate(response)], **usage)

    def _around_text(self) -> tuple[bytes, bytes]:
        """What stands in every frame before and behind its text."""
        candidate = CandidateOut(content=AnswerContentOut(parts=[AnswerPartOut(text="")]))
        data = escape_line_ends(_encode(msgspec.structs.replace(self._answer_template, candidates=[candidate])))
        head, _, tail = data.partition(b'""')
        return self._before + head, tail + self._after

    def _error(self, data: bytes) -> bytes:
        self._has_sent_end = True
        return self._write_frame(data)

    def _answer_frame(self, **members: Any) -> bytes:
        return self._write_frame(_encode(msgspec.structs.replace(self._answer_template, **members)))

    def _write_frame(self, data: bytes) -> bytes:
        written = self._before + escape_line_ends(data) + self._after
        if self._array:
            self._before = b","
        return written


def initial_answer(response: Response) -> AnswerOut:
    """An answer as far as it is known when the response begins."""
    return AnswerOut(candidates=[], model_version=response.model, response_id=response.id)
