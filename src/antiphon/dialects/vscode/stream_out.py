"""Writes hub events as a stream for an editor: one line of JSON for each response part, and a last line (A-8, C-4).

Text and thinking are streamed, calls are not. Images and files become data parts. A truncated call is not delivered,
because the editor would run it. Output that the editor cannot hold is reported as a loss. A failure is an error line. A
stream that ends without a terminal event ends with an error line, too. A response that is not streamed joins the parts
of the stream (STR-14); the error of a failed response is raised, and the endpoint then uses `error_from_hub`.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from antiphon.dialects.common.answer_losses import AnswerLosses
from antiphon.dialects.common.call_arguments import arguments_as_object, wrap_arguments
from antiphon.dialects.common.json_lines import escape_line_ends
from antiphon.dialects.common.message_separator import MessageSeparator
from antiphon.dialects.common.reasoning_texts import TEXT_PART, reasoning_texts
from antiphon.dialects.common.response_errors import (
    error_in_stream,
    raise_unless_ended,
)
from antiphon.dialects.common.stream_from_hub import StreamFromHub
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.vscode.errors import error_out
from antiphon.dialects.vscode.wire import (
    DataPart,
    DoneLine,
    ErrorLine,
    ResponseOut,
    ResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UsageOut,
    encode_line,
)
from antiphon.protocol.content import (
    Content,
    InputFile,
    InputImage,
    InputText,
    OutputText,
    Refusal,
    Text,
)
from antiphon.protocol.errors import Error, ErrorPayload
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ItemDone,
    OutputTextDelta,
    ReasoningDelta,
    RefusalDelta,
    StreamEvent,
    SummaryPartAdded,
    SummaryTextDelta,
    TextRun,
    UnknownEvent,
)
from antiphon.protocol.fold import replay_response
from antiphon.protocol.items import FunctionCall, ImageGenerationCall, Item, Message, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, Usage
from antiphon.protocol.status import ItemStatus

_encode: Final = msgspec.json.Encoder().encode


class EventsFromHub(StreamFromHub):
    """Writes one stream."""

    def __init__(self, request: Request) -> None:
        del request  # tools keep the editor's names, so nothing of the request is needed
        super().__init__()
        self._answer = AnswerFromHub(self.losses)

    def feed(self, event: StreamEvent) -> bytes:
        """Return the lines for an event."""
        if type(event) is OutputTextDelta and not event.logprobs:  # the hot path
            return _text_line(event.delta)
        return self._feed_event(event)

    def text_run(self, run: TextRun) -> bytes:
        """Return the bytes of a run of deltas."""
        return b"".join(map(_text_line, run.deltas))

    def _begin(self, response: Response) -> bytes:
        del response  # an editor's stream starts with the first part
        return b""

    def _content(self, event: StreamEvent) -> bytes:
        return b"".join(map(encode_line, self._answer.feed(event)))

    def _end(self, response: Response) -> bytes:
        return encode_line(self._answer.done_line(response))

    def _error_frame(self, error: Error | ErrorPayload | None) -> bytes:
        return encode_line(ErrorLine(error=error_out(error_in_stream(error))))


def response_from_hub(response: Response, request: Request) -> tuple[bytes, Losses]:
    """Encode a response as parts. Raises the error of a failed or unfinished response."""
    del request  # tools keep the editor's names, so nothing of the request is needed
    raise_unless_ended(response)
    losses = Losses()
    answer = AnswerFromHub(losses)
    parts = [part for event in replay_response(response) for part in answer.feed(event)]
    return msgspec.json.encode(ResponseOut(parts=join_parts(parts), end=answer.done_line(response))), losses


class AnswerFromHub:
    """Translates one response for one editor."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._answer_losses = AnswerLosses(losses)
        self._streamed_indexes: set[int] = set()  # output indexes of items whose content was streamed
        self._last_thought: tuple[str, Hashable] = ("", None)  # item id and part
        self._separator = MessageSeparator()

    def feed(self, event: StreamEvent) -> list[ResponsePart]:
        """Return the parts for an event."""
        match event:
            case OutputTextDelta():
                if event.logprobs:
                    self._report_loss(f"output[{event.output_index}].logprobs", "log probabilities")
                return _text_parts(event.delta)
            case RefusalDelta():
                return _text_parts(event.delta)
            case ReasoningDelta():
                return self._thinking_parts(event.delta, event.item_id, TEXT_PART)
            case SummaryTextDelta():
                return self._thinking_parts(event.delta, event.item_id, event.summary_index)
            case ContentPartAdded():
                self._streamed_indexes.add(event.output_index)
                return _text_parts(self._separator.before_part(event.output_index, event.part))
            case SummaryPartAdded():
                self._streamed_indexes.add(event.output_index)
            case ContentPartDone():
                self._report_annotations(event.part, event.output_index)
            case ItemDone() if event.item is not None:
                return self._end(event.output_index, event.item)
            case UnknownEvent():
                self._answer_losses.report_event(event)
        return []

    def done_line(self, response: Response) -> DoneLine:
        """REQ-3: return the line that ends the response."""
        report_unknown_fields(response, "response", self._losses)
        details = response.incomplete_details
        return DoneLine(
            response_id=response.id,
            model=response.model,
            status=response.status,
            reason=details.reason if details else UNSET,
            usage=_usage_from_hub(response.usage) if response.usage else UNSET,
        )

    # Items

    def _end(self, index: int, item: Item) -> list[ResponsePart]:
        """End an item. Its content is sent now if it was not streamed."""
        self._answer_losses.report_item_fields(index, item)
        match item:
            case FunctionCall():
                return self._call_parts(index, item)
            case Message():
                return (
                    []
                    if index in self._streamed_indexes
                    else [part for content in item.content for part in self._parts_of_content(index, content)]
                )
            case Reasoning():
                return [
                    *([] if index in self._streamed_indexes else self._whole_reasoning(index, item)),
                    *_signature_parts(item),
                ]
            case ImageGenerationCall(result=str() as image):
                return [DataPart(mime_type="image/png", data=image)]
            case _:
                self._answer_losses.report_item(index, item)
                return []

    def _call_parts(self, index: int, call: FunctionCall) -> list[ResponsePart]:
        was_cut = call.status == ItemStatus.INCOMPLETE
        arguments = arguments_as_object(call.arguments) if call.arguments.strip() or not was_cut else None
        if arguments is None and was_cut:
            self._losses.add(f"output[{index}]", f"the call of {call.name!r}", "it is truncated")
            return []
        if arguments is None:
            self._losses.add(
                f"output[{index}].arguments", "arguments that are not a JSON object", "they are wrapped in one"
            )
            arguments = wrap_arguments(call.arguments)
        return [ToolCallPart(call_id=call.call_id, name=call.name, input=arguments)]

    def _parts_of_content(self, index: int, part: Content) -> list[ResponsePart]:
        self._answer_losses.report_part_fields(index, part)
        self._report_annotations(part, index)
        match part:
            case OutputText(text=text) | Text(text=text) | InputText(text=text) | Refusal(refusal=text):
                return _text_parts(self._separator.before_part(index, part) + text)
            case InputImage(image_url=str() as url) | InputFile(file_data=str() as url) if data := DATA_URL.fullmatch(
                url
            ):
                return [DataPart(mime_type=data[1], data=data[2])]
            case _:
                self._answer_losses.report_part(index, part)
                return []

    def _whole_reasoning(self, index: int, item: Reasoning) -> list[ResponsePart]:
        thoughts = reasoning_texts(index, item, self._answer_losses.report_part)
        return [thinking for text, part in thoughts for thinking in self._thinking_parts(text, item.id, part)]

    def _thinking_parts(self, text: str, id: str, part: Hashable) -> list[ResponsePart]:
        """Return a thinking part. Each summary part is a paragraph."""
        if not text:
            return []
        last, self._last_thought = self._last_thought, (id, part)
        gap = "\n\n" if last[0] == id and last[1] != part else ""
        return [ThinkingPart(value=gap + text, id=id)]

    # Losses

    def _report_annotations(self, part: Content, index: int) -> None:
        if isinstance(part, OutputText) and part.annotations:
            self._report_loss(f"output[{index}].annotations", "citations")

    def _report_loss(self, path: str, what: str) -> None:
        self._losses.add(path, what, "the API has no equivalent")


def join_parts(parts: list[ResponsePart]) -> list[ResponsePart]:
    """Join the parts of a response that is not streamed: adjacent text, and thinking of one item (STR-14)."""
    joined: list[ResponsePart] = []
    for part in parts:
        last: Any = joined[-1] if joined else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            joined[-1] = TextPart(value=last.value + part.value)
        elif isinstance(part, ThinkingPart) and isinstance(last, ThinkingPart) and last.id == part.id:
            joined[-1] = ThinkingPart(value=last.value + part.value, id=part.id, metadata=part.metadata)
        else:
            joined.append(part)
    return joined


def _text_line(text: str) -> bytes:
    if not text:
        return b""
    return b"%b%b%b" % (HEAD, _encode(text) if text.isascii() else escape_line_ends(_encode(text)), TAIL)


def _text_parts(text: str) -> list[ResponsePart]:
    return [TextPart(value=text)] if text else []


def _signature_parts(item: Reasoning) -> list[ResponsePart]:
    sealed = item.encrypted_content
    return [ThinkingPart(value="", id=item.id, metadata={"signature": sealed})] if sealed else []


def _usage_from_hub(usage: Usage) -> UsageOut:
    return UsageOut(
        input_tokens=usage.input_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        total_tokens=usage.total_tokens,
    )


HEAD, _, TAIL = encode_line(TextPart(value="")).partition(b'""')
DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
