"""Translates a hub request to the body for a server of this API.

The hub uses this dialect, so most fields and items pass unchanged, unknown ones included (REQ-7, ITEM-5). Changed are
the parts that the server's `ResponsesWire` asks for, and content types that do not fit their role (C-2).
"""

from __future__ import annotations

import re
from typing import Final, TypeVar, get_args

from msgspec import UNSET, Struct
from msgspec.structs import replace

from antiphon.dialects.common.cache_marks import (
    CACHE_CONTROL,
    CACHE_MARK,
    OutputT,
    breakpoint_from_mark,
    breakpoint_options,
    has_cache_marks,
    mark_of,
    output_as_parts,
    with_mark,
    without_mark,
)
from antiphon.dialects.common.call_ids import MAX_CALL_ID_LENGTH, shorten_call_id
from antiphon.dialects.common.documents import text_of_document
from antiphon.dialects.common.effort import supported_effort
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.model_names import matches_any
from antiphon.dialects.common.output_limit import refuse_empty_output
from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.request_fields import refuse_several_answers
from antiphon.dialects.common.tool_errors import mark_failure_in_text
from antiphon.dialects.common.unknown_fields import REDUNDANT_FIELDS, is_handled_by_gateway
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.responses.tools_out import FlatTools, NativeTools
from antiphon.dialects.responses.wire import ResponsesWire
from antiphon.errors import UnsupportedParameter
from antiphon.protocol import codec
from antiphon.protocol.base import Shape
from antiphon.protocol.content import (
    ContentParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
    ToolResult,
    ToolUse,
    UnknownContent,
)
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    FunctionCallOutputParam,
    ItemParam,
    ItemReference,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import (
    ENCRYPTED_IF_ANY,
    JsonObjectFormat,
    JsonSchemaFormatParam,
    PromptCacheOptions,
    Request,
)
from antiphon.protocol.tools import UnknownTool, UnknownToolChoice

T = TypeVar("T", bound=Struct)
P = TypeVar("P", bound=ContentParam)
TextPart = InputText | OutputTextParam | Text | SummaryText | ReasoningText | Refusal


def request_from_hub(request: Request, wire: ResponsesWire = ResponsesWire()) -> tuple[bytes, Losses]:  # noqa: B008
    """Return the body for a server, and the losses."""
    refuse_empty_output(request)
    refuse_several_answers(request)
    losses = Losses()
    if not wire.stateful:
        request = replace(
            request, store=False, previous_response_id=UNSET, conversation=UNSET, background=UNSET, generate=UNSET
        )
    request = _with_supported_include(request, wire, losses)
    request = _with_supported_effort(request, wire, losses)
    accepts_marks = matches_any(request.model or "", wire.breakpoint_models)
    request = _with_cache_options(_without_tool_marks(request, losses), accepts_marks, losses)
    tools = FlatTools(request, losses) if wire.extension_tools == "flatten" else NativeTools(request)
    if isinstance(request.input, list):
        request = _InputRewriter(wire, losses, tools, accepts_marks).rewrite(request, request.input)
    request = tools.rewrite_request(request)
    request = _without_foreign_tools(_without_foreign_fields(request, wire, losses), losses)
    if "text.format" in wire.lacks:
        _check_format(request)
    for name in wire.lacks:
        request = _without_field(request, name, losses)
    return codec.encode(request), losses


def _check_format(request: Request) -> None:
    """REQ-1: refuse a request for JSON output if the server writes text only."""
    format = request.text.format if request.text else UNSET
    if isinstance(format, JsonObjectFormat | JsonSchemaFormatParam):
        raise UnsupportedParameter("text.format: the server supports only text output", param="text.format")


class _InputRewriter:
    """Rewrites the input items of one request for the server."""

    def __init__(
        self, wire: ResponsesWire, losses: Losses, tools: FlatTools | NativeTools, accepts_marks: bool
    ) -> None:
        self._wire = wire
        self._losses = losses
        self._tools = tools
        self._accepts_marks = accepts_marks
        self._outputs_as_parts = False

    def rewrite(self, request: Request, items: list[ItemParam]) -> Request:
        self._outputs_as_parts = self._accepts_marks and has_cache_marks(items, CACHE_CONTROL)
        new_items = [self._rewrite_item(item, f"input[{index}]") for index, item in enumerate(items)]
        sent_items = [_with_short_call_id(item) for item in new_items if item is not None]
        if self._wire.item_ids == "own":
            sent_items = [_without_foreign_id(item) for item in sent_items]
        return replace(request, input=sent_items)

    def _rewrite_item(self, item: ItemParam, path: str) -> ItemParam | None:
        match self._tools.rewrite_item(item, path):
            case None:
                return None
            case MessageParam() as item:
                return self._without_bookkeeping(self._rewrite_message(item, path), path)
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
        """Remove redundant fields, a cache mark, and the status if the server does not accept it."""
        if self._wire.status_fields == "drop" and getattr(item, "status", UNSET) is not UNSET:
            item = replace(item, status=UNSET)
        item = without_mark(item, path, self._losses)
        return _without_redundant_fields(item)

    # Messages

    def _rewrite_message(self, message: MessageParam, path: str) -> MessageParam:
        if message.role == "assistant":
            return self._rewrite_assistant(message, path)
        if isinstance(message.content, str):
            return message
        parts = [self._input_part(part, f"{path}.content[{index}]") for index, part in enumerate(message.content)]
        return replace(message, content=[part for part in parts if part is not None])

    def _input_part(self, part: ContentParam, path: str) -> ContentParam | None:
        """C-2: content of user, system and developer messages is `input_*`, whatever type the client sent."""
        if isinstance(part, UnknownContent):
            return self._unknown_part(part, path)
        part = _without_redundant_fields(part)
        return self._with_breakpoint(self._input_text(part, path) if isinstance(part, TextPart) else part, path)

    def _with_breakpoint(self, part: P, path: str) -> P:
        """E-4: the cache mark of a part in the form of this API."""
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
        parts = [
            self._with_breakpoint(_without_redundant_fields(part), f"{path}.output[{index}]")
            for index, part in enumerate(item.output)
        ]
        return replace(item, output=parts)

    def _unknown_part(self, part: UnknownContent, path: str) -> ContentParam | None:
        if not part.kind.startswith(FOREIGN_PREFIXES):
            return part
        text = text_of_document(part)
        if text is not None:
            return InputText(text=text)
        self._losses.add(path, f"a part of type {part.kind!r}", FOREIGN_REASON)
        return None

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
            part = without_mark(part, path, self._losses)
            if self._wire.assistant_content == "input_text":
                return self._input_text(part, path)
            is_output = isinstance(part, OutputTextParam | Refusal)
            return part if is_output else OutputTextParam(text=_text_of(part), extra=part.extra)
        if isinstance(part, UnknownContent):
            return self._unknown_part(part, path)
        if isinstance(part, ToolUse | ToolResult):
            return part
        self._losses.add(path, f"a part of type {type_of(part)!r}", "an assistant message cannot have it")
        return None

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


def _with_short_call_id(item: ItemParam) -> ItemParam:
    """REQ-8: replace a call id that is too long. Calls and their results get the same one."""
    call_id = getattr(item, "call_id", None)
    if not isinstance(call_id, str) or len(call_id) <= MAX_CALL_ID_LENGTH:
        return item
    return replace(item, call_id=shorten_call_id(call_id))


def _without_foreign_id(item: ItemParam) -> ItemParam:
    """Leave out the id of an item that a server of this API did not issue: of another form, or made by a gateway."""
    id = getattr(item, "id", None)
    if not isinstance(id, str) or isinstance(item, ItemReference):
        return item
    prefix = PREFIX_OF_ITEM.get(type_of(item), "")
    if id.startswith(prefix) and len(id) <= MAX_ITEM_ID_LENGTH and not GATEWAY_ID.fullmatch(id):
        return item
    without_id: ItemParam = replace(item, id=UNSET)
    return without_id


def _with_supported_include(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """RSN-2: request encrypted reasoning where the server needs it back, and never of a model that does not reason."""
    requested = request.include or ()
    if matches_any(request.model or "", wire.no_reasoning_models):
        if ENCRYPTED_REASONING in requested:
            losses.add(
                f"include[{requested.index(ENCRYPTED_REASONING)}]",
                f"the included data {ENCRYPTED_REASONING!r}",
                "the model does not support reasoning",
            )
        remaining = [name for name in requested if name not in (ENCRYPTED_REASONING, ENCRYPTED_IF_ANY)]
        return replace(request, include=remaining or UNSET) if len(remaining) < len(requested) else request
    include = [name for name in requested if name != ENCRYPTED_IF_ANY]
    if ENCRYPTED_REASONING not in include and (wire.sealed_reasoning or len(include) < len(requested)):
        include.append(ENCRYPTED_REASONING)
    return replace(request, include=include) if include != [*requested] else request


def _without_redundant_fields(shape: T) -> T:
    """The item or part without the fields that repeat others in the form of another dialect."""
    extra = getattr(shape, "extra", UNSET)
    if not extra or REDUNDANT_FIELDS.isdisjoint(extra):
        return shape
    rest = {name: raw for name, raw in extra.items() if name not in REDUNDANT_FIELDS} or UNSET
    return replace(shape, extra=rest)


def _with_supported_effort(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """RSN-4: replace a reasoning effort that the server does not support by the nearest one."""
    effort = request.reasoning.effort if request.reasoning else None
    if not request.reasoning or not effort or not wire.efforts or effort in wire.efforts:
        return request
    supported = supported_effort(effort, wire.efforts, losses)
    return replace(request, reasoning=replace(request.reasoning, effort=supported))


def _without_tool_marks(request: Request, losses: Losses) -> Request:
    """E-4: tools have no place for cache marks."""
    if not any(CACHE_MARK in (getattr(tool, "extra", None) or ()) for tool in request.tools or ()):
        return request
    tools = [without_mark(tool, f"tools[{index}]", losses) for index, tool in enumerate(request.tools or ())]
    return replace(request, tools=tools)


def _with_cache_options(request: Request, accepts_marks: bool, losses: Losses) -> Request:
    """E-4: the cache options in the form of this API."""
    options = request.prompt_cache_options
    if not options:
        return request
    if not accepts_marks:
        losses.add("prompt_cache_options", "the field 'prompt_cache_options'", "the model does not support it")
        return replace(request, prompt_cache_options=UNSET)
    if not options.extra or CACHE_CONTROL not in options.extra:
        return request
    return replace(request, prompt_cache_options=PromptCacheOptions(**breakpoint_options(options, losses)))


def _text_of(part: TextPart) -> str:
    return part.refusal if isinstance(part, Refusal) else part.text


def _without_foreign_fields(request: Request, wire: ResponsesWire, losses: Losses) -> Request:
    """Remove fields of other dialects, and report those that the profile does not list. Other unknown fields are kept
    (REQ-7)."""
    extra = request.extra or {}
    foreign = {name: raw for name, raw in extra.items() if name.startswith(FOREIGN_PREFIXES)}
    if not foreign:
        return request
    remaining_fields = {name: raw for name, raw in extra.items() if name not in foreign}
    for name, raw in foreign.items():
        wire_name = EQUIVALENT_FIELDS.get(name) or name.partition(":")[2]
        if wire_name in wire.extra_fields and wire_name not in remaining_fields:
            remaining_fields[wire_name] = raw
        elif not is_handled_by_gateway(name, raw, request):
            losses.add(name.partition(":")[2], f"the field {name.partition(':')[2]!r}", "the API has no equivalent")
    return replace(request, extra=remaining_fields or UNSET)


def _without_foreign_tools(request: Request, losses: Losses) -> Request:
    """Remove hosted tools of other APIs, because servers refuse tools of unknown type."""
    foreign = {
        index
        for index, tool in enumerate(request.tools or ())
        if type(tool) is UnknownTool and FOREIGN_TOOL.match(tool.kind)
    }
    if not request.tools or not foreign:
        return request
    for index in foreign:
        losses.add(f"tools[{index}]", f"a tool of type {type_of(request.tools[index])!r}", FOREIGN_REASON)
    remaining_tools = [tool for index, tool in enumerate(request.tools) if index not in foreign]
    if (
        isinstance(request.tool_choice, UnknownToolChoice) and request.tool_choice.kind == "tool"
    ):  # the form of the Messages API
        losses.add("tool_choice", "a forced tool call", "the tool could not be offered")
        request = replace(request, tool_choice=UNSET)
    return replace(request, tools=remaining_tools or UNSET)


def _without_field(request: Request, name: str, losses: Losses) -> Request:
    """REQ-6: remove a field that the server does not accept. `text.verbosity` names a nested field."""
    outer, _, inner = name.partition(".")
    if request.extra and outer in request.extra:
        losses.add(name, f"the field {name!r}", "the server does not support it")
        return replace(request, extra={key: raw for key, raw in request.extra.items() if key != outer} or UNSET)
    outer_value = getattr(request, outer, UNSET)
    if inner and outer_value:
        if getattr(outer_value, inner) not in (UNSET, None):
            losses.add(name, f"the field {name!r}", "the server does not support it")
        return replace(request, **{outer: replace(outer_value, **{inner: UNSET})})
    if outer_value not in (UNSET, None):
        losses.add(name, f"the field {name!r}", "the server does not support it")
        return replace(request, **{outer: UNSET})
    return request


MAX_ITEM_ID_LENGTH: Final = 64
#: The start of ids that servers issue, by the type of the item.
PREFIX_OF_ITEM: Final = {"message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_", "reasoning": "rs_"}
#: The form of ids that a gateway issues, alone and in a group.
GATEWAY_ID: Final = re.compile(r"[a-z]+_[0-9a-f]{40}(x[0-9a-f]+)?")
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
FOREIGN_PREFIXES: Final = tuple(f"{name}:" for name in get_args(ServerDialectName) if name != "responses")
#: Fields of other dialects, with the name that servers of this API use for them.
EQUIVALENT_FIELDS: Final = {"gemini:topK": "top_k"}
#: Hosted tools of the Messages API end in a date.
FOREIGN_TOOL: Final = re.compile(r"(chat|gemini|messages):|[a-z0-9_]+_20\d{6}$|mcp_toolset$")
FOREIGN_REASON: Final = "only servers of another API support it"
