"""Writes hub events as a stream for an editor: one line of JSON for each response part, and a last line (C-4).

A failure is an error line. A stream that ends without a terminal event ends with an error line, too.
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
        del request  # tools keep the editor's names, so nothing of the request is needed
        self.losses = Losses()
        self._answer = AnswerFromHub(self.losses)
        self._has_sent_end = False  # the last line was sent

    def feed(self, event: StreamEvent) -> bytes:
        """Return the lines for an event."""
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
        """Return the bytes of a run of deltas."""
        return b"".join(map(_text, run.deltas))

    def finish(self) -> bytes:
        """Return an error line if the response did not end."""
        return b"" if self._has_sent_end else self._error(error_of_response(STREAM_CUT_ERROR))

    def _error(self, error: ApiError) -> bytes:
        self._has_sent_end = True
        return encode_line(ErrorLine(error=error_out(error)))


def _text(text: str) -> bytes:
    if not text:
        return b""
    return b"%b%b%b" % (HEAD, _encode(text) if text.isascii() else escape_line_ends(_encode(text)), TAIL)


HEAD, _, TAIL = encode_line(TextPart(value="")).partition(b'""')
