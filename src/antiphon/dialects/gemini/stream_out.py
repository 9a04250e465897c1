"""Writes hub events as a gemini client's stream: one frame for each piece, the last with the finish reason and usage.

A failure is an error object in the stream. So is a stream without a terminal event, so that a cut answer never looks
complete. Clients that did not ask for server-sent events get the same objects as one JSON array.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.dialects.common.stream_from_hub import StreamFromHub
from antiphon.dialects.gemini.answer_out import AnswerFromHub, join_candidates, usage_from_hub
from antiphon.dialects.gemini.errors import error_frame_data
from antiphon.dialects.gemini.response_wire import AnswerContentOut, AnswerOut, AnswerPartOut, CandidateOut
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.events import (
    OutputTextDelta,
    StreamEvent,
    TextRun,
)
from antiphon.protocol.fold import replay_response
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

_encode: Final = msgspec.json.Encoder().encode


class EventsFromHub(StreamFromHub):
    """Writes one stream: server-sent events or, with `as_json_array`, one JSON array."""

    def __init__(self, request: Request, *, as_json_array: bool = False) -> None:
        super().__init__()
        self._answer = AnswerFromHub(request, self.losses)
        self._as_json_array = as_json_array
        self._before, self._after = (b"[", b"\n") if as_json_array else (b"data: ", b"\n\n")
        self._answer_template = AnswerOut(candidates=[], model_version=request.model or "", response_id="")
        self._head, self._tail = self._around_text()
        self._is_finished = False

    def feed(self, event: StreamEvent) -> bytes:
        """The frames for an event."""
        # Hot path: plain text.
        if (
            type(event) is OutputTextDelta
            and not event.logprobs
            and not self._as_json_array
            and not self._answer.pending_signature
        ):
            return self._text_frame(event.delta)
        return self._feed_event(event)

    def text_run(self, run: TextRun) -> bytes:
        """The frames of a run of text deltas, equal to those of its single events."""
        if self._as_json_array or self._answer.pending_signature:
            return b"".join(map(self.feed, run.events()))
        return b"".join(map(self._text_frame, run.deltas))

    def finish(self) -> bytes:
        """The end of the stream."""
        if self._is_finished:
            return b""
        self._is_finished = True
        return super().finish() + (b"]" if self._as_json_array else b"")

    def _text_frame(self, text: str) -> bytes:
        """A frame with text only. No signature is pending, so every such frame has the same head and tail."""
        if not text:
            return b""
        return b"%b%b%b" % (
            self._head,
            _encode(text) if text.isascii() else escape_line_ends(_encode(text)),
            self._tail,
        )

    def _begin(self, response: Response) -> bytes:
        self._answer_template = initial_answer(response)
        self._head, self._tail = self._around_text()
        return b""

    def _content(self, event: StreamEvent) -> bytes:
        piece = self._answer.feed(event)
        return self._answer_frame(candidates=[piece]) if piece else b""

    def _end(self, response: Response) -> bytes:
        candidates = [self._answer.final_candidate(response)]
        return self._answer_frame(candidates=candidates, usage_metadata=usage_from_hub(response))

    def _around_text(self) -> tuple[bytes, bytes]:
        """The bytes before and after the text in every text frame."""
        candidate = CandidateOut(content=AnswerContentOut(parts=[AnswerPartOut(text="")]))
        data = escape_line_ends(_encode(msgspec.structs.replace(self._answer_template, candidates=[candidate])))
        head, _, tail = data.partition(b'""')
        return self._before + head, tail + self._after

    def _error_frame(self, error: Error | ErrorPayload | None) -> bytes:
        return self._write_frame(error_frame_data(error))

    def _answer_frame(self, **members: Any) -> bytes:
        return self._write_frame(_encode(msgspec.structs.replace(self._answer_template, **members)))

    def _write_frame(self, data: bytes) -> bytes:
        frame = self._before + escape_line_ends(data) + self._after
        if self._as_json_array:
            self._before = b","
        return frame


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Write a response as one candidate. Raises the error of a response that failed or did not end."""
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(request, losses)
    pieces = [piece for event in replay_response(response) if (piece := answer.feed(event))]
    candidate = join_candidates([*pieces, answer.final_candidate(response)])
    body = msgspec.structs.replace(
        initial_answer(response),
        candidates=[candidate],
        usage_metadata=usage_from_hub(response),
    )
    return msgspec.json.encode(body), losses


def initial_answer(response: Response) -> AnswerOut:
    """The answer's fields that are set when the response starts."""
    return AnswerOut(candidates=[], model_version=response.model, response_id=response.id)
