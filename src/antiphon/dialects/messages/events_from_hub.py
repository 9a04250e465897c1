"""Writes hub events as a Messages client's stream: message start, blocks, stop reason, message stop.

A failure is an error event. So is a stream without a terminal event, so that a cut answer never looks complete. Text
deltas, the most frequent events, are written with byte templates.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon import sse
from antiphon.dialects.common.response_errors import STREAM_CUT_ERROR
from antiphon.dialects.messages.answer_from_hub import AnswerFromHub, OpenTextBlock
from antiphon.dialects.messages.answers import (
    AnswerOut,
    BlockDelta,
    BlockEvent,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    TextDeltaOut,
)
from antiphon.dialects.messages.errors_from_hub import error_event_data
from antiphon.dialects.messages.usage_from_hub import usage_from_hub
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
    """Writes one stream."""

    def __init__(self, request: Request) -> None:
        self.losses = Losses()
        self._model = request.model
        self._answer = AnswerFromHub(request, self.losses)
        self._text: OpenTextBlock | None = None  # the text that `_head` is for
        self._output_index = self._content_index = -1
        self._head = b""
        self._has_sent_end = False  # the end of the message or an error was sent

    def feed(self, event: StreamEvent) -> bytes:
        """The client's stream events for an event."""
        # Hot path: a piece of the text whose block is open.
        if (
            type(event) is OutputTextDelta
            and event.output_index == self._output_index
            and event.content_index == self._content_index
            and not event.logprobs
        ):
            return b"%b%b}}\n\n" % (self._head, _encode(event.delta))
        match event:
            case ResponseCreated():
                return self._begin(event.response)
            case ResponseCompleted() | ResponseIncomplete():
                return self._end(event.response)
            case ErrorEvent():
                return self._error(error_event_data(event.error))
            case ResponseFailed():
                return b"" if self._has_sent_end else self._error(error_event_data(event.response.error))
            case _:
                return self._blocks(event)

    def text_run(self, run: TextRun) -> bytes:
        """The bytes of a run of text deltas, equal to those of its single events."""
        if run.output_index != self._output_index or run.content_index != self._content_index:
            return b"".join(map(self.feed, run.events()))
        between = TAIL + self._head
        return self._head + between.join(map(_encode, run.deltas)) + TAIL

    def finish(self) -> bytes:
        """The error event that ends a cut stream; nothing for a complete stream."""
        return b"" if self._has_sent_end else self._error(error_event_data(STREAM_CUT_ERROR))

    def _begin(self, response: Response) -> bytes:
        message = message_from_hub(response, self._model, [])
        return _frame(MessageStart(message=message)) + _frame(Ping())

    def _blocks(self, event: StreamEvent) -> bytes:
        out = b"".join(map(_frame, self._answer.feed(event)))
        if self._answer.open_text is not self._text:
            self._open_text(self._answer.open_text)
        return out

    def _open_text(self, text: OpenTextBlock | None) -> None:
        self._text = text
        self._output_index = self._content_index = -1
        if text is not None:
            self._output_index, self._content_index = text.output_index, text.content_index
            self._head = _frame(BlockDelta(index=text.block_index, delta=TextDeltaOut(text=""))).removesuffix(
                b'""' + TAIL
            )

    def _end(self, response: Response) -> bytes:
        self._has_sent_end = True
        message_delta = MessageDelta(delta=self._answer.final_delta(response), usage=usage_from_hub(response.usage))
        return _frame(message_delta) + _frame(MessageStop())

    def _error(self, data: bytes) -> bytes:
        self._has_sent_end = True
        return sse.encode_frame("error", data)


def message_from_hub(response: Response, model: Any, content: list[Any]) -> AnswerOut:
    """The message of a response, with the model name that the client used."""
    return AnswerOut(
        id=f"msg_{response.id.removeprefix('resp_')}",
        model=model or response.model,
        content=content,
        usage=usage_from_hub(response.usage),
    )


def _frame(event: BlockEvent | MessageStart | MessageDelta | MessageStop | Ping) -> bytes:
    return sse.encode_frame(str(event.__struct_config__.tag), _encode(event))


TAIL: Final = b"}}\n\n"  # the bytes after the text of a delta
