"""Writes hub events for an Ollama client: a line for each piece, and a last line with the reason and the counts.

A whole answer joins the pieces (STR-14). Calls are sent whole when they are done. A failure is an error line. A stream
that ends without a terminal event ends with an error line, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.answer_losses import AnswerLosses
from antiphon.dialects.common.envelope import has_more_than_text
from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.dialects.common.message_separator import MessageSeparator
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.reasoning_texts import TEXT_PART, reasoning_texts
from antiphon.dialects.common.response_errors import (
    STREAM_CUT_ERROR,
    error_of_event,
    error_of_response,
    raise_unless_ended,
)
from antiphon.dialects.common.timestamps import rfc3339
from antiphon.dialects.common.tool_names import OLLAMA_NAMES, ToolKind, ToolNames
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.ollama.errors import error_line
from antiphon.dialects.ollama.response_wire import (
    AnswerCallOut,
    AnswerFunctionOut,
    AnswerMessageOut,
    LineOut,
    TokenOut,
    TopTokenOut,
)
from antiphon.dialects.ollama.wire import GENERATE
from antiphon.errors import ApiError
from antiphon.protocol.base import Shape
from antiphon.protocol.codec import JSON_WHITESPACE, decode_json
from antiphon.protocol.content import Content, InputText, LogProb, OutputText, Refusal, Text
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ErrorEvent,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    StreamEvent,
    SummaryPartAdded,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.fold import replay_response
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response
from antiphon.protocol.status import ItemStatus

_encode: Final = msgspec.json.Encoder().encode


class EventsFromHub:
    """Writes one stream."""

    def __init__(self, request: Request) -> None:
        self.losses = Losses()
        self._answer = _Answer(request, self.losses)
        self._has_sent_end = False

    def feed(self, event: StreamEvent) -> bytes:
        """The lines for an event."""
        match event:
            case ResponseCompleted() | ResponseIncomplete():
                self._has_sent_end = True
                return _line(self._answer.last_line(event.response))
            case ErrorEvent():
                return self._error(error_of_event(event.error))
            case ResponseFailed():
                return b"" if self._has_sent_end else self._error(error_of_response(event.response.error))
            case _:
                return b"".join(_line(self._answer.line(piece)) for piece in self._answer.feed(event))

    def finish(self) -> bytes:
        """An error line if the response did not end."""
        return b"" if self._has_sent_end else self._error(error_of_response(STREAM_CUT_ERROR))

    def _error(self, error: ApiError) -> bytes:
        self._has_sent_end = True
        return escape_line_ends(error_line(error)) + b"\n"


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Encode a response as one answer. Raises the error of a failed or unfinished response."""
    raise_unless_ended(response)
    losses = Losses()
    answer = _Answer(request, losses)
    pieces = [piece for event in replay_response(response) for piece in answer.feed(event)]
    return _encode(answer.last_line(response, _joined(pieces))), losses


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the message."""

    text: str = ""
    thinking: str = ""
    calls: tuple[AnswerCallOut, ...] = ()
    logprobs: tuple[TokenOut, ...] = ()


class _Answer:
    """Translates one response."""

    def __init__(self, request: Request, losses: Losses) -> None:
        self._losses = losses
        self._names = ToolNames.for_request(request, OLLAMA_NAMES)
        self._is_generated = GENERATE in (request.extra or {})
        self._template = LineOut(model=request.model or "", created_at=rfc3339(0))
        self._streamed: set[int] = set()  # output indexes of items whose content was streamed
        self._last_thought: tuple[str, Hashable] = ("", None)  # item id and part
        self._separator = MessageSeparator()
        self._calls = 0
        self._has_lost_seal = False

    def feed(self, event: StreamEvent) -> list[_Piece]:
        """The pieces for an event."""
        match event:
            case ResponseCreated():
                self._begin(event.response)
            case OutputTextDelta():
                return _text(event.delta, event.logprobs)
            case RefusalDelta():
                return _text(event.delta)
            case ReasoningDelta():
                return self._thinking(event.delta, event.item_id, TEXT_PART)
            case SummaryTextDelta():
                return self._thinking(event.delta, event.item_id, event.summary_index)
            case ContentPartAdded():
                self._streamed.add(event.output_index)
                return _text(self._separator.before_part(event.output_index, event.part))
            case SummaryPartAdded():
                self._streamed.add(event.output_index)
            case ContentPartDone():
                self._report_annotations(event.part, event.output_index)
            case ItemDone() if event.item is not None:
                return self._end(event.output_index, event.item)
            case UnknownEvent():
                self._lose("events", f"an event of type {event.kind!r}")
        return []

    def line(self, piece: _Piece) -> LineOut:
        """The line for a piece."""
        calls: Any = list(piece.calls) or UNSET
        thinking = piece.thinking or UNSET
        logprobs: Any = list(piece.logprobs) or UNSET
        if self._is_generated:
            members: dict[str, Any] = {"response": piece.text, "thinking": thinking, "tool_calls": calls}
        else:
            members = {"message": AnswerMessageOut(content=piece.text, thinking=thinking, tool_calls=calls)}
        return replace(self._template, logprobs=logprobs, **members)

    def last_line(self, response: Response, piece: _Piece | None = None) -> LineOut:
        """The line with the reason and the counts; the line of a whole answer has everything."""
        self._begin(response)
        report_unknown_fields(response, "response", self._losses)
        usage = response.usage
        return replace(
            self.line(piece or _Piece()),
            done=True,
            done_reason=self._done_reason(response),
            prompt_eval_count=usage.input_tokens if usage else UNSET,
            eval_count=usage.output_tokens if usage else UNSET,
        )

    def _begin(self, response: Response) -> None:
        self._template = LineOut(model=response.model, created_at=rfc3339(response.created_at))

    def _done_reason(self, response: Response) -> str:
        """REQ-3: an incomplete answer never looks complete, unless it is nothing but whole calls."""
        return AnswerLosses(self._losses).incomplete_reason(response, DONE_REASONS, "length") or "stop"

    # Items

    def _end(self, at: int, item: Item) -> list[_Piece]:
        """End an item. Its content is sent now if it was not streamed."""
        if isinstance(item, Shape):
            report_unknown_fields(item, f"output[{at}]", self._losses)
        match item:
            case FunctionCall() | CustomToolCall():
                return self._call(at, item)
            case Message():
                if item.phase:
                    self._lose(f"output[{at}].phase", "the phase of a message")
                if at in self._streamed:
                    return []
                return [piece for part in item.content for piece in self._whole_part(at, part)]
            case Reasoning():
                self._report_seal(item)
                if at in self._streamed:
                    return []
                thoughts = reasoning_texts(at, item, self._report_part)
                return [piece for text, part in thoughts for piece in self._thinking(text, item.id, part)]
            case _:
                self._lose(f"output[{at}]", f"an item of type {type_of(item)!r}")
                return []

    def _report_seal(self, item: Reasoning) -> None:
        """Report that the client does not get the seals of an answer, once."""
        if item.encrypted_content and not self._has_lost_seal and has_more_than_text(item.encrypted_content):
            self._has_lost_seal = True
            self._lose("encrypted_content", "encrypted reasoning")

    def _call(self, at: int, call: FunctionCall | CustomToolCall) -> list[_Piece]:
        arguments = self._arguments(at, call)
        if arguments is None:
            self._losses.add(f"output[{at}]", f"the call of {call.name!r}", "it is truncated")
            return []
        kind: ToolKind = "function" if isinstance(call, FunctionCall) else "custom"
        name = self._names.client_name((kind, call.name, call.namespace or None))
        function = AnswerFunctionOut(index=self._calls, name=name, arguments=arguments)
        self._calls += 1
        return [_Piece(calls=(AnswerCallOut(id=call.call_id, function=function),))]

    def _arguments(self, at: int, call: FunctionCall | CustomToolCall) -> Raw | None:
        """The arguments as an object; None if the call was cut."""
        was_cut = call.status == ItemStatus.INCOMPLETE
        if isinstance(call, CustomToolCall):
            return None if was_cut else Raw(freeform_tools.wrap_input(call.input).encode())
        text = call.arguments.strip(JSON_WHITESPACE) or ("" if was_cut else "{}")
        try:
            decode_json(text, type=dict[str, Raw])
        except ValueError:
            if was_cut:
                return None
            why = "they are wrapped in one"
            self._losses.add(f"output[{at}].arguments", "arguments that are not a JSON object", why)
            return Raw(_encode({"arguments": call.arguments}))
        return Raw(text.encode())

    def _whole_part(self, at: int, part: Content) -> list[_Piece]:
        if isinstance(part, Shape):
            report_unknown_fields(part, f"output[{at}].content", self._losses)
        self._report_annotations(part, at)
        match part:
            case OutputText(text=text, logprobs=logprobs):
                return _text(self._separator.before_part(at, part) + text, logprobs)
            case Text(text=text) | InputText(text=text) | Refusal(refusal=text):
                return _text(text)
            case _:
                self._report_part(at, part)
                return []

    def _thinking(self, text: str, id: str, part: Hashable) -> list[_Piece]:
        """A piece of thinking. Each part of a summary is a paragraph."""
        if not text:
            return []
        last, self._last_thought = self._last_thought, (id, part)
        gap = "\n\n" if last[0] == id and last[1] != part else ""
        return [_Piece(thinking=gap + text)]

    # Losses

    def _report_annotations(self, part: Content, at: int) -> None:
        if isinstance(part, OutputText) and part.annotations:
            self._lose(f"output[{at}].annotations", "citations")

    def _report_part(self, at: int, part: Content) -> None:
        self._lose(f"output[{at}].content", f"a part of type {type_of(part)!r}")

    def _lose(self, path: str, what: str) -> None:
        self._losses.add(path, what, "the API has no equivalent")


def _line(line: LineOut) -> bytes:
    return escape_line_ends(_encode(line)) + b"\n"


def _text(text: str, logprobs: list[LogProb] | UnsetType = UNSET) -> list[_Piece]:
    tokens = tuple(map(_token, logprobs or ()))
    return [_Piece(text=text, logprobs=tokens)] if text or tokens else []


def _token(logprob: LogProb) -> TokenOut:
    tops = [TopTokenOut(token=top.token, logprob=top.logprob, bytes=top.bytes) for top in logprob.top_logprobs]
    return TokenOut(token=logprob.token, logprob=logprob.logprob, bytes=logprob.bytes, top_logprobs=tops)


def _joined(pieces: list[_Piece]) -> _Piece:
    return _Piece(
        text="".join(piece.text for piece in pieces),
        thinking="".join(piece.thinking for piece in pieces),
        calls=tuple(call for piece in pieces for call in piece.calls),
        logprobs=tuple(token for piece in pieces for token in piece.logprobs),
    )


DONE_REASONS: Final[dict[str, str]] = {
    "max_output_tokens": "length",
    "max_output_bytes": "length",
    "max_output_items": "length",
}
