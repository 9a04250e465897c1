"""Rewrites the input items of a request for a server of this API.

Most items pass unchanged. Changed are parts and members that only other APIs know, ids that the server cannot have
issued, reasoning that it does not accept, and calls without an output, which servers refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar, get_args

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import (
    CACHE_CONTROL,
    OutputT,
    breakpoint_from_mark,
    has_cache_marks,
    mark_of,
    output_as_parts,
    with_mark,
    without_mark,
)
from antiphon.dialects.common.call_ids import MAX_CALL_ID_LENGTH, shorten_call_id
from antiphon.dialects.common.documents import text_of_document
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.history import CALL_TYPES, NO_RESULT, OUTPUT_TYPES, ToolCallParam
from antiphon.dialects.common.placeholders import replace_with_placeholder, type_of
from antiphon.dialects.common.tool_errors import mark_failure_in_text
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.responses.tools_out import FlatTools, NativeTools
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    AnnotationParam,
    ContentParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolResult,
    ToolUse,
    UnknownAnnotation,
    UnknownContent,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    ItemParam,
    ItemReference,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request

T = TypeVar("T", bound=Struct)
P = TypeVar("P", bound=ContentParam)
TextPart = InputText | OutputTextParam | Text | SummaryText | ReasoningText | Refusal
_Placed = tuple[str, ItemParam]  # the path of an item in the request, and the item


class InputRewriter:
    """Rewrites the input items of one request for the server."""

    def __init__(
        self, wire: ResponsesWire, losses: Losses, tools: FlatTools | NativeTools, accepts_marks: bool
    ) -> None:
        self._wire = wire
        self._losses = losses
        self._tools = tools
        self._accepts_marks = accepts_marks
        self._outputs_as_parts = False
        self._shows_content_as_summary = False  # the client asked for summaries

    def rewrite(self, request: Request, items: list[ItemParam]) -> Request:
        self._outputs_as_parts = self._accepts_marks and has_cache_marks(items, CACHE_CONTROL)
        self._shows_content_as_summary = bool(request.reasoning and request.reasoning.summary)
        placed_items: list[_Placed] = []
        for index, item in enumerate(items):
            path = f"input[{index}]"
            new_item = self._rewrite_item(item, path)
            if new_item is not None:
                placed_items.append((path, new_item))
        if self._wire.unpaired_reasoning == "drop":
            placed_items = self._without_unpaired_reasoning(placed_items)
        sent_items = [_with_short_call_id(item) for item in self._with_all_outputs(placed_items)]
        if self._wire.item_ids != "keep":
            sent_items = [self._without_foreign_id(item) for item in sent_items]
        return replace(request, input=sent_items)

    def _rewrite_item(self, item: ItemParam, path: str) -> ItemParam | None:
        match self._tools.rewrite_item(item, path):
            case None:
                return None
            case MessageParam() as item:
                message = self._without_bookkeeping(self._rewrite_message(item, path), path)
                return None if _is_empty(message) else message
            case ReasoningParam() as item:
                return self._rewrite_reasoning(item, path)
            case FunctionCallOutputParam() | CustomToolCallOutputParam() as item:
                return self._without_bookkeeping(self._rewrite_output(mark_failure_in_text(item), path), path)
            case UnknownItem() as item:
                if item.kind.startswith(FOREIGN_PREFIXES):
                    self._losses.add(path, f"an item of type {item.kind!r}", FOREIGN_REASON)
                    return None
                if self._wire.unknown_items == "drop":
                    self._losses.add(path, f"an item of type {item.kind!r}", "the server does not support it")
                    return None
                return item
            case item:
                return self._without_bookkeeping(item, path)

    def _without_bookkeeping(self, item: T, path: str) -> T:
        """Remove members of other APIs, a cache mark, and the status if the server does not accept it."""
        if self._wire.status_fields == "drop" and getattr(item, "status", UNSET) is not UNSET:
            item = replace(item, status=UNSET)
        return without_foreign_members(without_mark(item, path, self._losses), path, self._losses)

    def _without_foreign_id(self, item: ItemParam) -> ItemParam:
        """Leave out an id that the server did not issue, or may not have issued."""
        keeps_id = self._wire.item_ids == "own" or type_of(item) in TYPES_WITH_ID
        return item if keeps_id and _has_own_id(item) else _without_id(item)

    # Messages

    def _rewrite_message(self, message: MessageParam, path: str) -> MessageParam:
        if message.role == "assistant":
            return self._rewrite_assistant(message, path)
        if isinstance(message.content, str):
            return message
        parts = [self._input_part(part, f"{path}.content[{index}]") for index, part in enumerate(message.content)]
        return replace(message, content=parts or "")

    def _input_part(self, part: ContentParam, path: str) -> ContentParam:
        """C-2: content of user, system and developer messages is `input_*`, whatever type the client sent."""
        return self._own_part(self._input_text(part, path) if isinstance(part, TextPart) else part, path)

    def _own_part(self, part: P, path: str) -> P | InputText:
        """A part of a message or an output as the server knows it: without members of other APIs, and with the cache
        mark in the form of this API (E-4). A part that it does not know becomes a text."""
        if isinstance(part, UnknownContent):
            is_lacking = part.kind.startswith(FOREIGN_PREFIXES)
        else:
            is_lacking = type_of(part) in self._wire.lacks_parts
        if is_lacking:
            return InputText(text=replace_with_placeholder(part, path, LACKING_REASON, self._losses))
        return self._with_breakpoint(without_foreign_members(part, path, self._losses), path)

    def _with_breakpoint(self, part: P, path: str) -> P:
        mark = mark_of(part) if isinstance(part, Shape) else None
        if mark is None:
            return part
        if not self._accepts_marks:
            return without_mark(part, path, self._losses)
        marked: P = with_mark(part, breakpoint_from_mark(mark, path, self._losses))
        return marked

    def _rewrite_output(self, item: OutputT, path: str) -> OutputT:
        if self._outputs_as_parts:
            item = output_as_parts(item)
        if isinstance(item.output, str):
            return item
        parts = [self._own_part(part, f"{path}.output[{index}]") for index, part in enumerate(item.output)]
        return replace(item, output=parts or "")

    def _input_text(self, part: TextPart, path: str) -> InputText:
        if isinstance(part, InputText):
            return part
        if isinstance(part, Refusal):
            self._losses.add(path, "the mark that a text is a refusal", "it is sent as plain text")
        elif isinstance(part, OutputTextParam) and (part.annotations or part.logprobs):
            self._losses.add(path, "citations and log probabilities", "the server accepts only plain text here")
        return InputText(text=_text_of(part), extra=part.extra)

    def _rewrite_assistant(self, message: MessageParam, path: str) -> MessageParam:
        if message.phase and self._wire.phase == "drop":
            self._losses.add(f"{path}.phase", "the phase of a message", "the server does not support it")
            message = replace(message, phase=UNSET)
        content = message.content
        if isinstance(content, str):
            return (
                replace(message, content=[InputText(text=content)])
                if self._wire.assistant_content == "input_text"
                else message
            )
        new_parts = [self._assistant_part(part, f"{path}.content[{index}]") for index, part in enumerate(content)]
        return replace(message, content=[part for part in new_parts if part is not None])

    def _assistant_part(self, part: ContentParam, path: str) -> ContentParam | None:
        """C-2: assistant text is `output_text` or `refusal`, unless the server wants `input_text`."""
        if isinstance(part, TextPart):
            part = without_foreign_members(without_mark(part, path, self._losses), path, self._losses)
            if self._wire.assistant_content == "input_text":
                return self._input_text(part, path)
            if isinstance(part, OutputTextParam):
                return self._with_own_citations(part, path)
            return part if isinstance(part, Refusal) else OutputTextParam(text=_text_of(part), extra=part.extra)
        if isinstance(part, UnknownContent):
            return self._unknown_assistant_part(part, path)
        if isinstance(part, ToolUse | ToolResult):
            return part
        self._losses.add(path, f"a part of type {type_of(part)!r}", "an assistant message cannot have it")
        return None

    def _unknown_assistant_part(self, part: UnknownContent, path: str) -> ContentParam | None:
        if not part.kind.startswith(FOREIGN_PREFIXES):
            return part
        text = text_of_document(part, path, self._losses)
        if text is not None:
            return InputText(text=text) if self._wire.assistant_content == "input_text" else OutputTextParam(text=text)
        self._losses.add(path, f"a part of type {part.kind!r}", FOREIGN_REASON)
        return None

    def _with_own_citations(self, part: OutputTextParam, path: str) -> OutputTextParam:
        if not part.annotations:
            return part
        annotations = [
            own_annotation
            for index, annotation in enumerate(part.annotations)
            if (own_annotation := self._own_citation(annotation, f"{path}.annotations[{index}]"))
        ]
        return replace(part, annotations=annotations)

    def _own_citation(self, annotation: AnnotationParam, path: str) -> AnnotationParam | None:
        """A citation without what only the server of another API that made it knows."""
        if isinstance(annotation, UnknownAnnotation):
            if not annotation.kind.startswith(FOREIGN_PREFIXES):
                return annotation
            self._losses.add(path, f"a citation of type {annotation.kind.partition(':')[2]!r}", FOREIGN_REASON)
            return None
        if self._wire.citation_members == "own" and annotation.extra:
            report_unknown_fields(annotation, path, self._losses)
            return replace(annotation, extra=UNSET)
        return annotation

    # Reasoning

    def _rewrite_reasoning(self, item: ReasoningParam, path: str) -> ItemParam | None:
        """RSN-3: send only the reasoning that the server accepts."""
        unsealed = self._unseal(item, path)
        if unsealed is None:
            return None
        item = unsealed
        if self._wire.reasoning == "encrypted_only":
            if not item.encrypted_content:
                self._losses.add(path, "earlier reasoning", "the server accepts only reasoning that it sealed itself")
                return None
            if item.content:
                self._losses.add(f"{path}.content", "the text of earlier reasoning", "its sealed form is sent")
                item = replace(item, content=UNSET)
        elif self._shows_content_as_summary:
            item = summary_as_content(item)
        return self._without_bookkeeping(item, path)

    def _unseal(self, item: ReasoningParam, path: str) -> ReasoningParam | None:
        """RSN-2: return the server's own reasoning as it was sent. Content without our envelope passes unchanged."""
        envelope = unseal_reasoning(item.encrypted_content)
        if envelope is None:
            return item
        match envelope.content:
            case {"encrypted_content": str() as sealed, **rest} if envelope.maker == self._wire.maker:
                original_id = rest.get("id")
                return replace(
                    item,
                    encrypted_content=sealed,
                    id=original_id if item.id and isinstance(original_id, str) else item.id,
                )
            case _:
                self._losses.add(path, "earlier reasoning", f"{envelope.maker} made it, and only its servers accept it")
                return None

    def _without_unpaired_reasoning(self, items: list[_Placed]) -> list[_Placed]:
        """RSN-3: leave out reasoning that no message or call of the model follows."""
        kept_items: list[_Placed] = []
        is_paired = False
        for path, item in reversed(items):
            if not isinstance(item, ReasoningParam):
                is_paired = _is_of_the_model(item)
            elif not is_paired:
                self._losses.add(path, "earlier reasoning", "no message or call of the model follows it")
                continue
            kept_items.append((path, item))
        return kept_items[::-1]

    # Calls

    def _with_all_outputs(self, items: list[_Placed]) -> Iterator[ItemParam]:
        """E-2: add an output after calls that have none."""
        answered_ids = {call_id for _, item in items for call_id in _answered_calls(item)}
        missing_outputs: list[ItemParam] = []
        for path, item in [*items, ("", None)]:
            if not isinstance(item, CALL_TYPES):
                yield from missing_outputs
                missing_outputs = []
            elif item.call_id not in answered_ids:
                answered_ids.add(item.call_id)
                missing_outputs.append(self._missing_output(item, path))
            if item is not None:
                yield item

    def _missing_output(self, call: ToolCallParam, path: str) -> ItemParam:
        self._losses.add(path, f"call {call.call_id!r} has no output", "a placeholder result is added")
        output_type = CustomToolCallOutputParam if isinstance(call, CustomToolCallParam) else FunctionCallOutputParam
        return output_type(call_id=call.call_id, output=NO_RESULT)


def without_foreign_members(shape: T, path: str, losses: Losses) -> T:
    """The shape without members of other APIs, which are losses. Other unknown members are kept (REQ-7)."""
    extra: dict[str, Any] = getattr(shape, "extra", None) or {}
    foreign = {name: raw for name, raw in extra.items() if name.startswith(FOREIGN_PREFIXES)}
    if not foreign:
        return shape
    report_unknown_fields(Shape(extra=foreign), path, losses)
    return replace(shape, extra={name: raw for name, raw in extra.items() if name not in foreign} or UNSET)


def summary_as_content(item: ReasoningParam) -> ReasoningParam:
    """RSN-4: return open reasoning, which the client got as its summary, as content. Reasoning with encrypted content
    stays as it is: the server reads its own encrypted form."""
    texts = [ReasoningText(text=part.text, extra=part.extra) for part in item.summary if isinstance(part, SummaryText)]
    if item.content or item.encrypted_content or not texts or len(texts) < len(item.summary):
        return item
    return replace(item, content=[*texts], summary=[])


def _is_empty(message: MessageParam) -> bool:
    """Whether a message of the system or the model has no content. A user's message stays: it is a turn."""
    if message.role == "user":
        return False
    if message.role == "assistant":
        return not isinstance(message.content, str) and not message.content
    return not message.content or _has_only_empty_texts(message.content)


def _has_only_empty_texts(content: str | Sequence[ContentParam]) -> bool:
    return all(isinstance(part, InputText) and not part.text for part in content)


def _is_of_the_model(item: ItemParam) -> bool:
    """Whether the model made an item. Items of unknown type may be of the model."""
    if isinstance(item, MessageParam):
        return item.role == "assistant"
    kind = type_of(item)
    return not kind.endswith("_output") and kind not in CLIENT_ITEMS


def _answered_calls(item: ItemParam) -> list[str]:
    """The ids of the calls that an item answers: an output, or a message with `tool_result` parts (E-2)."""
    if isinstance(item, OUTPUT_TYPES):
        return [item.call_id]
    if not isinstance(item, MessageParam) or isinstance(item.content, str):
        return []
    return [part.tool_use_id for part in item.content if isinstance(part, ToolResult)]


def _with_short_call_id(item: ItemParam) -> ItemParam:
    """REQ-8: replace a call id that is too long. Calls and their results get the same one."""
    call_id = getattr(item, "call_id", None)
    if not isinstance(call_id, str) or len(call_id) <= MAX_CALL_ID_LENGTH:
        return item
    return replace(item, call_id=shorten_call_id(call_id))


def _has_own_id(item: ItemParam) -> bool:
    """Whether a server of this API can have issued the id of an item: it has its form, and no gateway made it."""
    id = getattr(item, "id", None)
    if not isinstance(id, str):
        return True
    prefix = PREFIX_OF_ITEM.get(type_of(item), "")
    return id.startswith(prefix) and len(id) <= MAX_ITEM_ID_LENGTH and not GATEWAY_ID.fullmatch(id)


def _without_id(item: ItemParam) -> ItemParam:
    """The item without its id. The id of a reference is all that it has."""
    if isinstance(item, ItemReference) or not isinstance(getattr(item, "id", None), str):
        return item
    without_id: ItemParam = replace(item, id=UNSET)
    return without_id


def _text_of(part: TextPart) -> str:
    return part.refusal if isinstance(part, Refusal) else part.text


MAX_ITEM_ID_LENGTH: Final = 64
#: The start of ids that servers issue and take, by the type of the item, from public reports of "Expected an ID that
#: begins with …".
PREFIX_OF_ITEM: Final = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fc",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs_",
    "web_search_call": "ws_",
}
#: Items that the API requires an id of. Codex sends all others without one.
TYPES_WITH_ID: Final = frozenset(
    {
        *("image_generation_call", "file_search_call", "code_interpreter_call", "computer_call"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request"),
    }
)
#: The form of ids that a gateway issues, alone and in a group.
GATEWAY_ID: Final = re.compile(r"[a-z]+_[0-9a-f]{40}(x[0-9a-f]+)?")
FOREIGN_PREFIXES: Final = tuple(f"{name}:" for name in get_args(ServerDialectName) if name != "responses")
FOREIGN_REASON: Final = "only servers of another API support it"
LACKING_REASON: Final = "the server has no such part"
#: Items of clients besides messages and outputs.
CLIENT_ITEMS: Final = frozenset({"additional_tools", "compaction_trigger", "mcp_approval_response"})
