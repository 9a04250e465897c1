"""Writes a response as one whole message: the blocks of a stream, joined (STR-14).

A failed response is raised as an error; the endpoint then answers with `error_from_hub`.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from antiphon.dialects.common.response_errors import raise_unless_ended
from antiphon.dialects.messages.answer_from_hub import AnswerFromHub, is_json_object
from antiphon.dialects.messages.answers import (
    AnswerBlockOut,
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
    SignatureDeltaOut,
    TextDeltaOut,
    ThinkingDeltaOut,
)
from antiphon.dialects.messages.events_from_hub import message_from_hub
from antiphon.protocol.fold import replay
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Write a response as a message. Raises the error of a response that failed or did not end."""
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(request, losses)
    blocks = _Blocks()
    for event in replay(response):
        for piece in answer.feed(event):
            blocks.take(piece)
    end = answer.final_delta(response)
    message = message_from_hub(response, request.model, blocks.done())
    return msgspec.json.encode(replace(message, stop_reason=end.stop_reason, stop_sequence=end.stop_sequence)), losses


class _Blocks:
    """Joins the deltas of blocks."""

    def __init__(self) -> None:
        self._blocks: list[AnswerBlockOut] = []
        self._deltas: list[list[DeltaOut]] = []

    def take(self, piece: BlockEvent) -> None:
        if isinstance(piece, BlockStart):
            self._blocks.append(piece.content_block)
            self._deltas.append([])
        elif isinstance(piece, BlockDelta):
            self._deltas[piece.index].append(piece.delta)

    def done(self) -> list[AnswerBlockOut]:
        return [_whole(block, deltas) for block, deltas in zip(self._blocks, self._deltas, strict=True)]


def _whole(block: AnswerBlockOut, deltas: list[DeltaOut]) -> AnswerBlockOut:
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
            return replace(block, input=_input(arguments))
        case AnswerRedactedThinkingBlock() | Raw():
            return block
        case _ as never:
            assert_never(never)


def _input(arguments: str) -> Any:
    """Arguments as an object. A text that is not one is wrapped, so that no tool reads it as empty arguments."""
    if not arguments:
        return {}
    return Raw(arguments.encode()) if is_json_object(arguments) else {"arguments": arguments}
