"""Hub events → an editor's stream: a line of JSON for each response part, and a last one that says how it ended (C-4).

A failure is an error line, and so is a stream that ends without a terminal event: what was cut never looks whole.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.dialects.common.response_errors import STREAM_CUT_ERROR, error_of_event, error_of_response
from antiphon.dialects.vscode.answer_from_hub import AnswerFromHub
from antiphon.dialects.vscode.errors_from_hub import error_out
from antiphon.dialects.vscode.response_lines import ErrorLine, TextPart, encode_line
from antiphon.errors import ApiError
from antiphon.protocol.events import (
    ErrorEvent,
    OutputTextDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    TextRun,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

_encode: Final = msgspec.json.Encoder().encode


class EventsFromHub:
    """Writes one stream."""

    def __init__(self, request: Request) -> None:
        del request  # the editor knows its tools by the names it gave them
        self.losses = Losses()
        self._answer = AnswerFromHub(self.losses)
        self._has_sent_end = False  # whether the end was told

    def feed(self, event: StreamEvent) -> bytes:
        """The lines that an event makes."""
        if type(event) is OutputTextDelta and not event.logprobs:  # the hot path
            return _text(event.delta)
        match event:
            case ResponseCompleted() | ResponseIncomplete():
                self._has_sent_end = True
                return encode_line(self._answer.done_line(event.response))
            case ErrorEvent():
                return self._error(error_of_event(event.error))
            case ResponseFailed():
                return b"" if self._has_sent_end else self._error(error_of_response(event.response.error))
            case _:
                return b"".join(map(encode_line, self._answer.feed(event)))

    def text_run(self, run: TextRun) -> bytes:
        """The bytes of a run of deltas: those of its events, one after the other."""
        return b"".join(map(_text, run.deltas))

    def finish(self) -> bytes:
        """What a stream that was cut ends with; one that came to its end has no more to say."""
        return b"" if self._has_sent_end else self._error(error_of_response(STREAM_CUT_ERROR))

    def _error(self, error: ApiError) -> bytes:
        self._has_sent_end = True
        return encode_line(ErrorLine(error=error_out(error)))


def _text(text: str) -> bytes:
    if not text:
        return b""
    return b"%b%b%b" % (HEAD, _encode(text) if text.isascii() else escape_line_ends(_encode(text)), TAIL)


HEAD, _, TAIL = encode_line(TextPart(value="")).partition(b'""')
