"""`AnswerToHub` assigns the pieces of a chat message to hub items and passes them to the writer.

Reasoning ends where text or a call starts. Text ends where a call or reasoning starts; text after a call is a new
message. Calls stay open to the end, because servers interleave them. A call is announced once its name is complete
(TOOL-3).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.dialects.chat.call_tracker import CallPiece, CallTracker, StreamedCall
from antiphon.dialects.chat.forced_tools import ForcedCallReader
from antiphon.dialects.chat.reasoning import ReasoningCollector, has_content
from antiphon.dialects.chat.response_wire import (
    ChoiceLogProbs,
    CustomDelta,
    Delta,
    FunctionDelta,
    TokenLogProb,
    ToolCallDelta,
)
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.freeform_tools import FreeformInput
from antiphon.dialects.common.server_turn import StreamOutcome
from antiphon.dialects.common.surrogates import SURROGATE_LOSS, SurrogateJoiner
from antiphon.dialects.common.think_tags import TextPiece, ThinkSplitter
from antiphon.dialects.common.tool_names import SendableCalls, ToolNames
from antiphon.errors import ClientFault
from antiphon.protocol.codec import decode_as
from antiphon.protocol.content import Annotation, LogProb, TopLogProb
from antiphon.protocol.losses import Losses
from antiphon.protocol.output_limits import PART_OVERHEAD_BYTES
from antiphon.protocol.writer import ResponseWriter


class AnswerToHub:
    """Writes one response. `add_delta` takes its pieces, or all of it; `finish` writes what is still pending."""

    def __init__(
        self,
        writer: ResponseWriter,
        losses: Losses,
        names: ToolNames,
        new_id: Callable[[str], str],
        wire: ChatWire,
        forced: ForcedCallReader | None = None,
    ) -> None:
        self._writer = writer
        self._losses = losses
        self._forced = forced  # set while the text is read as a forced call
        self._wire = wire
        self._think_tags = wire.think_tags  # `off` when no more tags are expected
        self._think_splitter: ThinkSplitter | None = None  # created with the first text that may begin with a tag
        self._pending_logprobs: list[LogProb] = []
        self._surrogates: SurrogateJoiner | None = None
        self._calls: CallTracker | None = None  # created with the first call
        self._names = names
        self._sendable_calls = SendableCalls("tool_calls", names, losses, new_id)
        self._chunk_count = 0
        self._item_count = 0
        self._message_key: int | None = None
        self._reasoning_key: int | None = None
        self._reasoning_collector: ReasoningCollector  # of the open reasoning item
        #: The writer's key of the open message, while text can be written to it directly; else None.
        self.open_text_key: int | None = None

    def add_delta(self, delta: Delta, logprobs: ChoiceLogProbs | None) -> None:
        """Write a piece of the message."""
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._add_reasoning_fields(delta)
        tokens = _tokens_to_hub(logprobs.content) if logprobs and logprobs.content else None
        content = delta.content
        if type(content) is str:
            if content or tokens:
                self._add_text(content, tokens)
        elif content is not None or tokens:
            parts = [] if content is None else content if isinstance(content, list) else [content]
            self._add_parts(parts, tokens)
        if delta.refusal:
            self._add_refusal(delta.refusal)
        if logprobs and logprobs.refusal:
            self._losses.add(
                "logprobs.refusal", "the log probabilities of a refusal", "Open Responses has no equivalent"
            )
        for annotation in delta.annotations or ():
            self._add_annotation(annotation)
        if delta.tool_calls or delta.function_call:
            self._add_call_deltas(delta.tool_calls or [], delta.function_call)
        if delta.audio:
            self._losses.add("message.audio", "audio in an answer", "Open Responses has no equivalent")
        if delta.images:
            self._losses.add("message.images", "images in an answer", "Open Responses has no equivalent")

    def add_message(self, message: Delta, logprobs: ChoiceLogProbs | None) -> None:
        """Write a complete message. Each entry of its call list is one call, whatever its index says."""
        calls = [
            msgspec.structs.replace(call, index=position) for position, call in enumerate(message.tool_calls or ())
        ]
        self.add_delta(msgspec.structs.replace(message, tool_calls=calls or None), logprobs)

    def join_surrogates(self) -> None:
        """From now on, join surrogate pairs that are split over two pieces."""
        self._surrogates = self._surrogates or SurrogateJoiner()
        self._update_open_text_key()

    def finish(self, outcome: StreamOutcome) -> None:
        """Write all pending output at the end of the message. The items close with the response."""
        self._finish_forced(outcome)
        self._flush_text()
        self._end_refusal()
        self._seal_reasoning()
        for index, call in enumerate(self._calls.calls if self._calls is not None else ()):
            self._finish_call(index, call, outcome)
        if self._pending_logprobs:
            self._losses.add(*TOKENS_OUTSIDE_TEXT)
        if self._surrogates is not None and self._surrogates.lost_count:
            self._losses.add(*SURROGATE_LOSS)

    # Text

    def _add_text(self, text: str, logprobs: list[LogProb] | None) -> None:
        if self._forced is not None:
            self._add_forced_text(self._forced, text, logprobs)
            return
        self._write_unsplit_text(text if self._surrogates is None else self._surrogates.join("text", text), logprobs)

    def _write_unsplit_text(self, text: str, logprobs: list[LogProb] | None) -> None:
        if self._think_tags == "leading" and self._think_splitter is None and text.lstrip()[:1] not in ("", "<"):
            self._think_tags = "off"  # the text does not begin with a tag
        if self._think_tags == "off":
            self._write_text(text, logprobs)
            return
        splitter = self._think_splitter = self._think_splitter or ThinkSplitter(self._think_tags)
        self._pending_logprobs += logprobs or ()
        self._write_pieces(splitter.feed(text))
        if splitter.is_settled:
            self._end_think_tags()
            self._update_open_text_key()

    def _end_think_tags(self) -> None:
        self._think_tags, self._think_splitter = "off", None

    def _write_pieces(self, pieces: list[TextPiece]) -> None:
        for is_reasoning, piece in pieces:
            if is_reasoning:
                self._write_reasoning(piece)
            else:
                self._write_text(piece, self._logprobs_of(piece))

    def _flush_text(self) -> None:
        """Write the pending text, because another item starts."""
        if self._surrogates is not None and (rest := self._surrogates.flush("text")):
            self._write_unsplit_text(rest, None)
        if self._think_splitter is not None:
            self._write_pieces(self._think_splitter.flush())

    def _write_text(self, text: str, logprobs: list[LogProb] | None) -> None:
        if self._pending_logprobs:
            logprobs, self._pending_logprobs = self._pending_logprobs + (logprobs or []), []
        if text or (logprobs and self._message_key is not None):
            self._writer.add_text(self._open_message(), text, logprobs=logprobs)
        elif logprobs:
            self._pending_logprobs = logprobs  # a token without text, such as the first bytes of a character

    def _open_message(self) -> int:
        if self._message_key is None:
            self._close_reasoning()
            self._announce_waiting_calls()
            self._message_key = self._next_key()
            self._update_open_text_key()
        return self._message_key

    def _logprobs_of(self, piece: str) -> list[LogProb]:
        """Return the pending tokens of `piece`. Tokens of tags and of reasoning before it are a loss."""
        tokens, self._pending_logprobs = self._pending_logprobs, []
        if not tokens or self._think_splitter is None or not self._think_splitter.has_found_tag:
            return tokens
        index, length = len(tokens), 0
        while index and length + len(tokens[index - 1].token) <= len(piece):
            index -= 1
            length += len(tokens[index].token)
        if index:
            self._losses.add("logprobs", "the log probabilities of reasoning", "Open Responses has no equivalent")
        return tokens[index:]

    def _add_parts(self, parts: list[Any], logprobs: list[LogProb] | None) -> None:
        for part in parts:
            match part:
                case (str() as text) | {"type": "text" | "output_text", "text": str() as text}:
                    self._add_text(text, logprobs)
                    logprobs = None
                case {"type": "thinking", "thinking": thinking}:
                    self._add_reasoning(_text_of(thinking))
                case {"type": "refusal", "refusal": str() as refusal}:
                    self._add_refusal(refusal)
                case _:
                    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                    self._losses.add("message.content", f"a part of type {kind!r}", "Open Responses has no equivalent")
        if logprobs:
            self._losses.add(*TOKENS_OUTSIDE_TEXT)

    def _add_refusal(self, text: str) -> None:
        self._flush_text()
        if self._surrogates is not None:
            text = self._surrogates.join("refusal", text)
        if text:
            self._writer.add_refusal(self._open_message(), text)

    def _end_refusal(self) -> None:
        if self._surrogates is not None and (rest := self._surrogates.flush("refusal")):
            self._writer.add_refusal(self._open_message(), rest)

    def _add_annotation(self, annotation: dict[str, Any]) -> None:
        self._flush_text()
        hub_annotation = _annotation_to_hub(annotation)
        if hub_annotation is None:
            self._losses.add(
                "message.annotations", f"an annotation of type {annotation.get('type')!r}", "it has an unknown form"
            )
        else:
            self._writer.add_annotation(self._open_message(), hub_annotation)

    def _close_message(self) -> None:
        if self._message_key is not None:
            self._end_refusal()
            self._writer.close_item(self._message_key)
            self._message_key = None
            self._update_open_text_key()

    # Reasoning

    def _add_reasoning_fields(self, delta: Delta) -> None:
        reasoning = delta.reasoning_content or _text_of(delta.reasoning)  # servers that send both send the same text
        if reasoning:
            self._add_reasoning(reasoning)
        if delta.reasoning_details:
            self._add_details(delta.reasoning_details, has_text=bool(reasoning))
        elif not reasoning:
            self._losses.add("message.reasoning", "reasoning", "it has an unknown form")

    def _add_reasoning(self, text: str) -> None:
        if self._think_tags != "off" or self._surrogates is not None:  # otherwise no text is pending
            self._flush_text()
            self._end_think_tags()  # a server with a reasoning field does not use tags in the text
        if self._surrogates is not None:
            text = self._surrogates.join("reasoning", text)
        if text:
            self._write_reasoning(text)

    def _write_reasoning(self, text: str) -> None:
        self._writer.add_reasoning(self._open_reasoning(), text)
        self._reasoning_collector.add_text(text)

    def _open_reasoning(self) -> int:
        if self._reasoning_key is None:
            self._close_message()
            self._announce_waiting_calls()
            self._reasoning_key = self._next_key()
            self._reasoning_collector = ReasoningCollector(self._wire)
        return self._reasoning_key

    def _close_reasoning(self) -> None:
        if self._reasoning_key is not None:
            self._seal_reasoning()
            self._writer.close_item(self._reasoning_key)
            self._reasoning_key = None

    def _seal_reasoning(self) -> None:
        """RSN-2: add the encrypted content that the server must get back to the complete reasoning item."""
        if self._surrogates is not None and (rest := self._surrogates.flush("reasoning")):
            self._write_reasoning(rest)
        if self._reasoning_key is not None and (sealed := self._reasoning_collector.to_envelope()) is not None:
            self._writer.set_encrypted_content(self._reasoning_key, sealed)

    def _add_details(self, details: list[dict[str, Any]], has_text: bool) -> None:
        """RSN-1: read reasoning details: texts and summaries, and data that only the server can read."""
        for detail in details:
            match detail:
                case {"type": "reasoning.text", "text": str() as text} if text and not has_text:
                    self._add_reasoning(text)
                case {"type": "reasoning.summary", "summary": str() as text} if text and not has_text:
                    self._writer.add_summary(self._open_reasoning(), text)
        if any(map(has_content, details)):
            self._open_reasoning()
        if self._reasoning_key is not None:
            self._writer.count_bytes(len(json.dumps(details)))
            self._reasoning_collector.add_details(details)

    # Calls

    def _add_call_deltas(self, deltas: list[ToolCallDelta], function_call: FunctionDelta | None) -> None:
        self._flush_text()
        self._chunk_count += 1
        for delta in deltas:
            self._add_call_piece(_call_piece_of(delta))
        if function_call is not None:
            self._add_call_piece(_call_piece_of(ToolCallDelta(function=function_call)))

    def _add_call_piece(self, piece: CallPiece) -> None:
        if self._calls is None:
            self._calls = CallTracker(self._names)
        if self._calls.is_repeated_call(piece, self._chunk_count):
            return
        call, is_new = self._calls.call_for_piece(piece, self._chunk_count)
        if is_new:
            self._writer.count_bytes(PART_OVERHEAD_BYTES)
            self._close_reasoning()
            self._close_message()
            self._announce_waiting_calls(before=call)
        if piece.id and call.is_announced and piece.id != call.id:
            self._losses.add(
                "tool_calls.id",
                "an id that arrived after the start of the call",
                "the call was already delivered with another id",
            )
        arguments = piece.arguments
        if self._surrogates is not None:
            arguments = self._surrogates.join(call, arguments)
        if arguments:
            call.pieces.append(arguments)
            if call.is_announced:
                self._write_arguments(call, arguments)
            elif call.name and not self._has_incomplete_name(call):
                self._announce_calls([call])
            else:
                self._writer.count_bytes(len(arguments))

    def _has_incomplete_name(self, call: StreamedCall) -> bool:
        return not self._names.is_offered(call.name) and self._names.is_start_of_name(call.name)

    def _add_forced_text(self, forced: ForcedCallReader, text: str, logprobs: list[LogProb] | None) -> None:
        if logprobs:
            self._losses.add(*TOKENS_OUTSIDE_TEXT)
        piece = forced.feed(text)
        if piece is not None:
            self._add_call_piece(piece)
        elif forced.is_ordinary_text:
            self._write_forced_as_text(forced)

    def _write_forced_as_text(self, forced: ForcedCallReader) -> None:
        """Write the text of a server that did not follow the schema as ordinary text."""
        self._forced = None
        self._losses.add("tool_choice", "a forced tool call", "the server sent text that does not follow the schema")
        self._add_text(forced.unconsumed_text, None)

    def _finish_forced(self, outcome: StreamOutcome) -> None:
        forced = self._forced
        if forced is None or not forced.unconsumed_text.strip():
            return
        if forced.has_started:
            self._losses.add("message.content", "text after the forced call")
        elif outcome == "completed":
            self._write_forced_as_text(forced)
        else:
            self._losses.add("message.content", "a call with a missing or incomplete name")

    def _announce_waiting_calls(self, before: StreamedCall | None = None) -> None:
        if self._calls is not None:
            self._announce_calls(self._calls.unannounced_calls(before))

    def _announce_calls(self, calls: list[StreamedCall]) -> None:
        """TOOL-3: announce calls. Their names are complete, because their arguments or another item started."""
        for call in calls:
            self._announce_call(call)
            for piece in call.pieces:
                self._write_arguments(call, piece)

    def _announce_call(self, call: StreamedCall) -> None:
        called = self._sendable_calls.tool(call.name)
        call_id = self._sendable_calls.id(call.id)
        call.is_announced = True
        if call.is_custom or called.kind == "custom":
            call.freeform_input = None if call.is_custom else FreeformInput()
            call.is_custom = True
            self._writer.open_custom_call(call, name=called.name, call_id=call_id, namespace=called.namespace)
        else:
            self._writer.open_call(call, name=called.name, call_id=call_id, namespace=called.namespace)

    def _write_arguments(self, call: StreamedCall, piece: str) -> None:
        if call.freeform_input is not None:
            self._writer.count_bytes(len(piece))
            self._writer.add_custom_input(call, call.freeform_input.feed(piece))
        elif call.is_custom:
            self._writer.add_custom_input(call, piece)
        else:
            self._writer.add_arguments(call, piece)

    def _finish_call(self, index: int, call: StreamedCall, outcome: StreamOutcome) -> None:
        if not call.is_announced:
            if not call.name or outcome == "failed":
                self._losses.add(f"tool_calls[{index}]", "a call with a missing or incomplete name")
                return
            self._announce_calls([call])
        if self._surrogates is not None and (rest := self._surrogates.flush(call)):
            call.pieces.append(rest)
            self._write_arguments(call, rest)
        if call.freeform_input is not None:
            self._writer.add_custom_input(call, call.freeform_input.finish())
            if rest := call.freeform_input.left_over:
                self._losses.add(f"tool_calls[{index}]", f"{rest[:80]!r}", "a custom tool accepts one string")
        elif not call.is_custom and not call.pieces and outcome == "completed":
            self._writer.add_arguments(call, "{}")
            self._losses.add(f"tool_calls[{index}].arguments", "a call without arguments", "{} is used")

    # State

    def _next_key(self) -> int:
        self._item_count += 1
        return self._item_count

    def _update_open_text_key(self) -> None:
        self.open_text_key = self._message_key if self._think_tags == "off" and self._surrogates is None else None


def _text_of(value: Any) -> str:
    """Return the text of a string, of an object with a text member, or of a list of these."""
    match value:
        case str():
            return value
        case list():
            return "".join(_text_of(member) for member in value if not isinstance(member, list))
        case {"text": str() as text} | {"content": str() as text} | {"summary": str() as text}:
            return text
        case _:
            return ""


def _call_piece_of(delta: ToolCallDelta) -> CallPiece:
    function = delta.function or NO_FUNCTION
    if delta.custom is not None and _is_custom(delta, delta.custom, function):
        return CallPiece(delta.index, delta.id or "", delta.custom.name or "", delta.custom.input or "", is_custom=True)
    arguments = function.arguments
    if arguments is None:
        arguments = ""
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return CallPiece(delta.index, delta.id or "", function.name or "", arguments)


def _is_custom(delta: ToolCallDelta, custom: CustomDelta, function: FunctionDelta) -> bool:
    """Whether a call is custom. Some servers send both forms, one of them empty: the type decides, else the content."""
    if delta.type in ("function", "custom") and delta.function is not None:
        return delta.type == "custom"
    return delta.function is None or (bool(custom.name or custom.input) and not (function.name or function.arguments))


def _annotation_to_hub(annotation: dict[str, Any]) -> Annotation | None:
    """Translate an annotation. Citations are flattened, other kinds are kept. None if it cannot be read."""
    match annotation:
        case {"type": "url_citation", "url_citation": dict() as members}:
            annotation = members
    if annotation.get("type", "url_citation") == "url_citation":
        annotation = {**BLANK_CITATION, **annotation}
    try:
        hub_annotation: Annotation = decode_as(json.dumps(annotation).encode(), Annotation)
    except ClientFault:
        return None
    return hub_annotation


def _tokens_to_hub(tokens: list[TokenLogProb]) -> list[LogProb]:
    return [
        LogProb(
            token=token.token,
            logprob=_logprob_of(token),
            bytes=token.bytes or [],
            top_logprobs=[
                TopLogProb(token=top.token, logprob=_logprob_of(top), bytes=top.bytes or [])
                for top in token.top_logprobs or ()
            ],
        )
        for token in tokens
    ]


def _logprob_of(token: TokenLogProb) -> int | float:
    return MIN_LOGPROB if token.logprob is None else token.logprob


TOKENS_OUTSIDE_TEXT: Final = (
    "logprobs",
    "the log probabilities of tokens outside the text",
    "Open Responses has no equivalent",
)
NO_FUNCTION: Final = FunctionDelta()
MIN_LOGPROB: Final = -9999.0  # the value that this API uses for minus infinity
BLANK_CITATION: Final[dict[str, Any]] = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 0,
    "url": "",
    "title": "",
}
