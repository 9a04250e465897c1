"""Writes hub events as a chat stream, or a response as one chat completion.

A stream is the role, a chunk per piece, the finish reason, and usage if it was requested. A failure is an error object
in the stream, and so is a stream that ends without a terminal event. A complete response joins the pieces of the stream
(STR-14). The error of a failed response is raised; the endpoint then uses `error_from_hub`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from antiphon import sse
from antiphon.dialects.chat.answer_content import completion_id, wants_usage
from antiphon.dialects.chat.answer_out import AnswerFromHub, join_pieces, usage_from_hub
from antiphon.dialects.chat.errors import error_frame_data
from antiphon.dialects.chat.response_wire import ChoiceOut, CompletionOut, MessagePiece
from antiphon.dialects.common.event_ordering import EventSequencer
from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.dialects.common.service_tiers import UNDECIDED
from antiphon.dialects.common.stream_from_hub import StreamFromHub
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.events import (
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    StreamEvent,
)
from antiphon.protocol.fold import replay_response
from antiphon.protocol.items import CustomToolCall, FunctionCall
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response

_encode: Final = msgspec.json.Encoder().encode


class EventsFromHub(StreamFromHub):
    """Writes one stream."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._answer = AnswerFromHub(request, self.losses)
        self._wants_usage = wants_usage(request)
        self._chunk = CompletionOut(
            id="", object="chat.completion.chunk", created=0, model=request.model or "", choices=[]
        )
        self._head, self._tail = self._around_delta()
        self._is_finished = False
        self._call_indexes: set[int | None] = set()  # by output index
        self._call_sequencer = EventSequencer(
            lambda event: getattr(event, "output_index", None), (ItemAdded,), (ItemDone,)
        )

    def feed(self, event: StreamEvent) -> bytes:
        """Return the chunks for an event."""
        if type(event) is OutputTextDelta and not event.logprobs:  # the hot path
            return b'%b{"content":%b}%b' % (self._head, _encode(event.delta), self._tail)
        return self._feed_event(event)

    def finish(self) -> bytes:
        """Return the end of the stream."""
        if self._is_finished:
            return b""
        self._is_finished = True
        return super().finish() + sse.DONE_FRAME

    def _content(self, event: StreamEvent) -> bytes:
        choices = [self._answer.feed(ordered) for ordered in self._ordered_events(event)]
        return b"".join([self._frame(choices=[choice]) for choice in choices if choice])

    def _ordered_events(self, event: StreamEvent) -> list[StreamEvent]:
        """Return the events to send now. Interleaved calls are sent one by one, because clients expect that."""
        index = getattr(event, "output_index", None)
        if type(event) is ItemAdded and type(event.item) in CALL_TYPES:
            self._call_indexes.add(index)
        return self._call_sequencer.feed(event) if index in self._call_indexes else [event]

    def _begin(self, response: Response) -> bytes:
        self._chunk = msgspec.structs.replace(
            self._chunk, id=completion_id(response), created=response.created_at, model=response.model
        )
        self._head, self._tail = self._around_delta()
        return self._frame(choices=[ChoiceOut(delta=MessagePiece(role="assistant", content=""))])

    def _end(self, response: Response) -> bytes:
        rest, frames = self._answer.flush(), b""
        if rest.annotations:  # before the last chunk, of which some clients read only the finish reason
            frames = self._frame(choices=[ChoiceOut(delta=MessagePiece(annotations=rest.annotations))])
            rest = msgspec.structs.replace(rest, annotations=UNSET)
        last = ChoiceOut(delta=rest, finish_reason=self._answer.finish_reason(response))
        frames += self._frame(choices=[last], service_tier=_tier(response))
        if self._wants_usage and response.usage:
            frames += self._frame(choices=[], usage=usage_from_hub(response.usage))
        return frames

    def _around_delta(self) -> tuple[bytes, bytes]:
        """Return the bytes of a chunk before and after its delta."""
        head, _, tail = self._frame(choices=[ChoiceOut(delta=MessagePiece())]).rpartition(b"{}")
        return head, tail

    def _error_frame(self, error: Error | ErrorPayload | None) -> bytes:
        return sse.encode_data(error_frame_data(error))

    def _frame(self, **members: Any) -> bytes:
        return sse.encode_data(_encode(msgspec.structs.replace(self._chunk, **members)))


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Encode a response as one chat completion (E-3). Raises the error of a failed or unfinished response."""
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(request, losses)
    pieces = [piece for event in replay_response(response) if (piece := answer.feed(event))]
    choice = join_pieces([*pieces, ChoiceOut(delta=answer.flush())])
    assert choice.delta
    has_other_content = choice.delta.refusal or choice.delta.tool_calls
    message = msgspec.structs.replace(
        choice.delta,
        role="assistant",
        content=choice.delta.content or (None if has_other_content else ""),
        refusal=choice.delta.refusal or None,
    )
    final_choice = msgspec.structs.replace(
        choice, delta=UNSET, message=message, finish_reason=answer.finish_reason(response)
    )
    completion = CompletionOut(
        id=completion_id(response),
        object="chat.completion",
        created=response.created_at,
        model=response.model,
        choices=[final_choice],
        service_tier=_tier(response),
        usage=usage_from_hub(response.usage) if response.usage else UNSET,
    )
    return msgspec.json.encode(completion), losses


def _tier(response: Response) -> str | UnsetType:
    """The tier that served the response; absent if the server did not name it."""
    tier = response.service_tier
    return UNSET if tier is None or tier == UNDECIDED else tier


CALL_TYPES: Final = (FunctionCall, CustomToolCall)
