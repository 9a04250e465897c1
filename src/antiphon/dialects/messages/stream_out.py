"""Writes hub events as a Messages client's stream, or a response as one whole message (STR-14).

A stream is message start, blocks, stop reason, message stop. A failure is an error event. So is a stream without a
terminal event, so that a cut answer never looks complete. Text deltas, the most frequent events, are written with byte
templates. A whole message joins the blocks of the stream; the error of a failed response is raised, and the endpoint
then answers with `error_from_hub`.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon import sse
from antiphon.dialects.common.call_arguments import arguments_as_object, wrap_arguments
from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.dialects.common.stream_from_hub import StreamFromHub
from antiphon.dialects.common.token_estimate import FEW_SAMPLES, estimate_request
from antiphon.dialects.messages.answer_out import AnswerFromHub, OpenTextBlock, usage_from_hub
from antiphon.dialects.messages.errors import error_frame_data
from antiphon.dialects.messages.response_wire import (
    AnswerBlockOut,
    AnswerOut,
    AnswerRedactedThinkingBlock,
    AnswerTextBlock,
    AnswerThinkingBlock,
    AnswerToolUseBlock,
    BlockDelta,
    BlockEvent,
    BlockStart,
    CitationsDeltaOut,
    DeltaOut,
    InputJsonDeltaOut,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    SignatureDeltaOut,
    TextDeltaOut,
    ThinkingDeltaOut,
)
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
    """Writes one stream."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request
        self._model = request.model
        self._answer = AnswerFromHub(request, self.losses)
        self._open_text_block: OpenTextBlock | None = None  # the text that `_head` is for
        self._output_index = self._content_index = -1
        self._head = b""

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
        return self._feed_event(event)

    def text_run(self, run: TextRun) -> bytes:
        """The bytes of a run of text deltas, equal to those of its single events."""
        if run.output_index != self._output_index or run.content_index != self._content_index:
            return b"".join(map(self.feed, run.events()))
        separator = DELTA_TAIL + self._head
        return self._head + separator.join(map(_encode, run.deltas)) + DELTA_TAIL

    def _begin(self, response: Response) -> bytes:
        message = message_from_hub(response, self._model, [])
        # Clients show the count before the answer ends; `message_delta` corrects it.
        tokens = estimate_request(self._request, FEW_SAMPLES)
        message = replace(message, usage=replace(message.usage, input_tokens=tokens))
        return _frame(MessageStart(message=message)) + _frame(Ping())

    def _content(self, event: StreamEvent) -> bytes:
        out = b"".join(map(_frame, self._answer.feed(event)))
        if self._answer.open_text is not self._open_text_block:
            self._use_open_text(self._answer.open_text)
        return out

    def _use_open_text(self, text: OpenTextBlock | None) -> None:
        self._open_text_block = text
        self._output_index = self._content_index = -1
        if text is not None:
            self._output_index, self._content_index = text.output_index, text.content_index
            self._head = _frame(BlockDelta(index=text.block_index, delta=TextDeltaOut(text=""))).removesuffix(
                b'""' + DELTA_TAIL
            )

    def _end(self, response: Response) -> bytes:
        message_delta = MessageDelta(delta=self._answer.final_delta(response), usage=usage_from_hub(response))
        return _frame(message_delta) + _frame(MessageStop())

    def _error_frame(self, error: Error | ErrorPayload | None) -> bytes:
        return sse.encode_frame("error", error_frame_data(error))


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Write a response as a message. Raises the error of a response that failed or did not end."""
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(request, losses)
    blocks = _BlockJoiner()
    for event in replay_response(response):
        for piece in answer.feed(event):
            blocks.add_event(piece)
    end = answer.final_delta(response)
    message = message_from_hub(response, request.model, blocks.joined_blocks())
    return msgspec.json.encode(replace(message, stop_reason=end.stop_reason, stop_sequence=end.stop_sequence)), losses


def message_from_hub(response: Response, model: Any, content: list[Any]) -> AnswerOut:
    """The message of a response, with the model name that the client used."""
    return AnswerOut(
        id=f"msg_{response.id.removeprefix('resp_')}",
        model=model or response.model,
        content=content,
        usage=usage_from_hub(response),
    )


def _frame(event: BlockEvent | MessageStart | MessageDelta | MessageStop | Ping) -> bytes:
    return sse.encode_frame(str(event.__struct_config__.tag), _encode(event))


class _BlockJoiner:
    """Joins the deltas of blocks."""

    def __init__(self) -> None:
        self._blocks: list[AnswerBlockOut] = []
        self._deltas: list[list[DeltaOut]] = []

    def add_event(self, piece: BlockEvent) -> None:
        if isinstance(piece, BlockStart):
            self._blocks.append(piece.content_block)
            self._deltas.append([])
        elif isinstance(piece, BlockDelta):
            self._deltas[piece.index].append(piece.delta)

    def joined_blocks(self) -> list[AnswerBlockOut]:
        return [_whole_block(block, deltas) for block, deltas in zip(self._blocks, self._deltas, strict=True)]


def _whole_block(block: AnswerBlockOut, deltas: list[DeltaOut]) -> AnswerBlockOut:
    match block:
        case AnswerTextBlock():
            citations: list[Any] = [delta.citation for delta in deltas if isinstance(delta, CitationsDeltaOut)]
            text = "".join(delta.text for delta in deltas if isinstance(delta, TextDeltaOut))
            return AnswerTextBlock(text=text, citations=citations or UNSET)
        case AnswerThinkingBlock():
            thinking = "".join(delta.thinking for delta in deltas if isinstance(delta, ThinkingDeltaOut))
            signature = "".join(delta.signature for delta in deltas if isinstance(delta, SignatureDeltaOut))
            return AnswerThinkingBlock(thinking=thinking, signature=signature)
        case AnswerToolUseBlock():
            arguments = "".join(delta.partial_json for delta in deltas if isinstance(delta, InputJsonDeltaOut))
            return replace(block, input=arguments_as_object(arguments) or wrap_arguments(arguments))
        case AnswerRedactedThinkingBlock() | Raw():
            return block
        case _ as never:
            assert_never(never)


DELTA_TAIL: Final = b"}}\n\n"  # the bytes after the text of a delta
