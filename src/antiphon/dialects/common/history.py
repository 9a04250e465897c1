"""Groups the hub's items into the turns that chat-like servers expect: messages, tool calls, and their outputs.

Such servers require the outputs of a turn's calls directly after it, in the order of the calls. Outputs are moved to
their calls; the order of all other items is kept. Outputs that were added or joined are reported as losses. This module
knows no dialect.
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, assert_never, final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.placeholders import type_of
from antiphon.dialects.common.tool_errors import ERROR_MARK, is_failed, mark_failure_in_text
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.errors import InvalidValue, OrphanToolOutput
from antiphon.protocol import codec
from antiphon.protocol.content import (
    ContentParam,
    InputImageParam,
    InputText,
    ToolOutputContentParam,
    ToolResult,
    ToolUse,
    UnknownContent,
)
from antiphon.protocol.items import (
    AdditionalTools,
    CustomToolCallOutputParam,
    CustomToolCallParam,
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    ItemReference,
    MessageParam,
    ReasoningParam,
    ToolSearchCall,
)
from antiphon.protocol.losses import Losses

ToolCallParam = FunctionCallParam | CustomToolCallParam
ToolOutputParam = FunctionCallOutputParam | CustomToolCallOutputParam
#: For a tool output without a call: refuse the request, add a call, or send the output as text.
OrphanPolicy = Literal["error", "synthesize", "text"]

NO_RESULT: Final = "[no result for this call]"
UNKNOWN_TOOL: Final = "unknown_tool"

T = TypeVar("T")


class InstructionsAndItems(NamedTuple):
    """The conversation of a client's request."""

    instructions: str | UnsetType
    items: list[ItemParam]


class PlacedItem(Struct, Generic[T], frozen=True, gc=False):
    """An item and its path in the request, for losses and errors."""

    path: str
    item: T
    #: The index of the first part, if the message is a piece of a longer one.
    first_part: int = 0


_Entry = tuple[str, ItemParam, int]  # the fields of a `PlacedItem` before the item is classified


class AnsweredCall(Struct, frozen=True, gc=False):
    call: PlacedItem[ToolCallParam]
    output: PlacedItem[ToolOutputParam]


@final
class AssistantTurn(Struct, gc=False):
    """The consecutive reasoning, messages and calls of the model."""

    reasoning: list[PlacedItem[ReasoningParam]] = []
    messages: list[PlacedItem[MessageParam]] = []
    calls: list[AnsweredCall] = []


#: A message of the user, the system or the developer is a turn by itself.
HistoryTurn = PlacedItem[MessageParam] | AssistantTurn


class History(NamedTuple):
    turns: list[HistoryTurn]
    #: Items that belong to no turn: calls of hosted tools, compactions, tools, unknown items.
    others: list[PlacedItem[ItemParam]]


def build_history(items: list[ItemParam], losses: Losses, orphans: OrphanPolicy = "error") -> History:
    """Groups `items` into turns."""
    entries = _unfold_messages(items, losses)
    turns = _Turns(_match_outputs(entries), losses, orphans)
    turns.add_entries(entries)
    return History(turns.turns, turns.others)


class MessageLosses:
    """Reports the fields of messages in the history that a server does not get."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._has_reported_phase = False

    def report_fields(self, message: PlacedItem[MessageParam]) -> None:
        if message.item.extra:
            report_unknown_fields(message.item, message.path, self._losses)
        if message.item.phase and not self._has_reported_phase:  # once: the history of an agent has hundreds
            self._has_reported_phase = True
            self._losses.add(f"{message.path}.phase", "the phase of a message", "the API has no equivalent")


def report_other_items(others: list[PlacedItem[ItemParam]], losses: Losses) -> None:
    """Report the items of a history that belong to no turn."""
    for other in others:
        if isinstance(other.item, AdditionalTools):  # its tools are offered with the others
            report_unknown_fields(other.item, other.path, losses)
        else:
            losses.add(other.path, f"an item of type {type_of(other.item)!r}", "the API has no equivalent")


def call_from_block(block: ToolUse) -> FunctionCallParam:
    """E-1: the call in a `tool_use` block of a message."""
    return FunctionCallParam(call_id=block.id, name=block.name, arguments=codec.encode(block.input).decode())


def output_from_block(block: ToolResult) -> FunctionCallOutputParam:
    """E-1: the output in a `tool_result` block of a message."""
    content = block.content if isinstance(block.content, list) else [block.content or ""]
    parts = [_result_part(part) for part in content]
    extra = ERROR_MARK if block.is_error else UNSET
    match parts:
        case [InputText(text=text)]:
            return FunctionCallOutputParam(call_id=block.tool_use_id, output=text, extra=extra)
        case _:
            return FunctionCallOutputParam(call_id=block.tool_use_id, output=parts, extra=extra)


def _result_part(part: Any) -> ToolOutputContentParam:
    """Reads one part of a `tool_result`, whose content is not typed: text and images in their usual forms."""
    match part:
        case str() | {"type": "text" | "input_text" | "output_text", "text": str()}:
            return InputText(text=part if isinstance(part, str) else part["text"])
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
            return InputImageParam(image_url=url)
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return InputImageParam(image_url=f"data:{kind};base64,{data}")
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return InputImageParam(image_url=url)
        case {"type": str(kind)}:
            return UnknownContent(kind=kind, raw=Raw(codec.encode(part)))
        case _:
            return InputText(text=codec.encode(part).decode())


def _unfold_messages(items: list[ItemParam], losses: Losses) -> list[_Entry]:
    """Every item with its path. Messages with calls or results are split at them."""
    entries: list[_Entry] = []
    for index, item in enumerate(items):
        if isinstance(item, MessageParam) and not isinstance(item.content, str):
            for part in item.content:
                if type(part) in BLOCK_TYPES:
                    entries += _split_message(item, f"input[{index}]", losses)
                    break
            else:
                entries.append((f"input[{index}]", item, 0))
        else:
            entries.append((f"input[{index}]", item, 0))
    return entries


def _split_message(message: MessageParam, path: str, losses: Losses) -> list[_Entry]:
    pieces: list[_Entry] = []
    rest: list[ContentParam] = []
    for index, part in enumerate([*message.content, None]):
        if not isinstance(part, ToolUse | ToolResult | None):
            rest.append(part)
            continue
        if rest:
            pieces.append((path, replace(message, content=rest), index - len(rest)))
            rest = []
        if part is not None:
            block_path = f"{path}.content[{index}]"
            report_unknown_fields(part, block_path, losses)
            pieces.append(
                (block_path, call_from_block(part) if isinstance(part, ToolUse) else output_from_block(part), 0)
            )
    return pieces


class _MatchedOutputs(NamedTuple):
    call_of_output: dict[int, int]  #: position of an output → position of its call
    outputs: dict[int, dict[int, PlacedItem[ToolOutputParam]]]  #: position of a call → its outputs by position


def _match_outputs(entries: list[_Entry]) -> _MatchedOutputs:
    """Matches outputs with calls. Outputs without a call are left out.

    Call ids repeat on some servers. An output belongs to the nearest call before it that has no output yet, else to the
    first call after it that has none, else it is another output of the nearest call before it.
    """
    call_of_output: dict[int, int] = {}
    outputs: dict[int, PlacedItem[ToolOutputParam]] = {}
    unanswered_calls: dict[str, list[int]] = {}
    latest_call: dict[str, int] = {}
    unmatched_outputs: list[tuple[int, str, int | None]] = []
    for index, (path, item, _) in enumerate(entries):
        if isinstance(item, MessageParam):
            continue
        if isinstance(item, CALL_TYPES):
            unanswered_calls.setdefault(item.call_id, []).append(index)
            latest_call[item.call_id] = index
        elif isinstance(item, OUTPUT_TYPES):
            outputs[index] = PlacedItem(path, item)
            if unanswered_calls.get(item.call_id):
                call_of_output[index] = unanswered_calls[item.call_id].pop()
            else:
                unmatched_outputs.append((index, item.call_id, latest_call.get(item.call_id)))
    for index, call_id, previous_call in unmatched_outputs:
        if unanswered_calls.get(call_id):
            call_of_output[index] = unanswered_calls[call_id].pop(0)
        elif call_id in latest_call:
            call_of_output[index] = latest_call[call_id] if previous_call is None else previous_call
    by_call: dict[int, dict[int, PlacedItem[ToolOutputParam]]] = {}
    for index in sorted(call_of_output):
        by_call.setdefault(call_of_output[index], {})[index] = outputs[index]
    return _MatchedOutputs(call_of_output, by_call)


class _Turns:
    """Builds turns, item by item."""

    def __init__(self, matches: _MatchedOutputs, losses: Losses, orphans: OrphanPolicy) -> None:
        self.turns: list[HistoryTurn] = []
        self.others: list[PlacedItem[ItemParam]] = []
        self._matches = matches
        self._search_ids: set[str] = set()  # call ids of tool searches, which only Responses servers know
        self._losses = losses
        self._orphans = orphans
        self._open_turn: AssistantTurn | None = None
        self._opened_index = 0
        self._last_output_index = -1  # the position of the last output of the open turn's calls

    def add_entries(self, entries: list[_Entry]) -> None:
        self._search_ids = {item.call_id for _, item, _ in entries if isinstance(item, ToolSearchCall) and item.call_id}
        for index, (path, item, first) in enumerate(entries):
            match item:
                case MessageParam():
                    message = PlacedItem(path, item, first)
                    if item.role == "assistant":
                        self._turn_for_text(index).messages.append(message)
                    else:
                        self._add_turn(message)
                case FunctionCallParam() | CustomToolCallParam():
                    turn = self._turn_for_call(index, item.call_id)
                    turn.calls.append(
                        AnsweredCall(PlacedItem(path, item), self._output_of_call(index, PlacedItem(path, item)))
                    )
                    self._last_output_index = max([self._last_output_index, *self._matches.outputs.get(index, ())])
                case FunctionCallOutputParam() | CustomToolCallOutputParam():
                    self._add_output(index, PlacedItem(path, item))
                case ReasoningParam():
                    self._turn_for_text(index).reasoning.append(PlacedItem(path, item))
                case ItemReference():
                    raise InvalidValue(
                        f"{path}: unknown item {item.id!r}; send the item itself instead of a reference",
                        param=f"{path}.id",
                    )
                case _:
                    self.others.append(PlacedItem(path, item))

    def _turn_for_text(self, index: int) -> AssistantTurn:
        """The turn for a message or reasoning. Text before calls, or between calls and their outputs, joins their
        turn."""
        turn = self._open_turn
        if turn is None or (self._last_output_index < index if turn.calls else turn.messages):
            return self._begin_turn(index)
        return turn

    def _turn_for_call(self, index: int, call_id: str) -> AssistantTurn:
        """The turn for a call. A turn ends with its first output, or when a call id repeats."""
        turn = self._open_turn
        if turn is None or any(answered.call.item.call_id == call_id for answered in turn.calls):
            return self._begin_turn(index)
        return turn

    def _begin_turn(self, index: int) -> AssistantTurn:
        self._open_turn, self._opened_index, self._last_output_index = AssistantTurn(), index, -1
        self.turns.append(self._open_turn)
        return self._open_turn

    def _add_turn(self, turn: HistoryTurn) -> None:
        self._open_turn = None
        self.turns.append(turn)

    def _add_output(self, index: int, output: PlacedItem[ToolOutputParam]) -> None:
        call = self._matches.call_of_output.get(index)
        if call is None and output.item.call_id in self._search_ids:
            self._losses.add(output.path, "the output of a tool search", "the API has no equivalent")
        elif call is None:
            self._add_turn(self._turn_for_orphan(output))
        elif self._open_turn and self._opened_index <= call < index:
            self._open_turn = None  # calls after the first output belong to a new turn

    def _output_of_call(self, index: int, call: PlacedItem[ToolCallParam]) -> PlacedItem[ToolOutputParam]:
        call_id = call.item.call_id
        outputs = list(self._matches.outputs.get(index, {}).values())
        if not outputs:
            self._losses.add(call.path, f"call {call_id!r} has no output", "a placeholder result is added")
            return PlacedItem(call.path, FunctionCallOutputParam(call_id=call_id, output=NO_RESULT))
        if len(outputs) > 1 and not all(
            is_failed(output.item) for output in outputs
        ):  # the joined output cannot be marked
            outputs = [PlacedItem(output.path, mark_failure_in_text(output.item)) for output in outputs]
        joined = outputs[0]
        for other in outputs[1:]:
            self._losses.add(other.path, f"call {call_id!r} has more than one output", "the outputs are joined")
            joined = PlacedItem(
                joined.path, replace(joined.item, output=[*output_parts(joined.item), *output_parts(other.item)])
            )
        return joined

    def _turn_for_orphan(self, output: PlacedItem[ToolOutputParam]) -> HistoryTurn:
        """The turn for an output without a call."""
        path, item = output.path, output.item
        what = f"no call has the call_id {item.call_id!r} of this output"
        match self._orphans:
            case "error":
                raise OrphanToolOutput(
                    f"{path}: {what}; expected such a call earlier in the input", param=f"{path}.call_id"
                )
            case "synthesize":
                self._losses.add(path, what, f"a call of {UNKNOWN_TOOL!r} is added")
                call = FunctionCallParam(call_id=item.call_id, name=UNKNOWN_TOOL, arguments="{}")
                return AssistantTurn(calls=[AnsweredCall(PlacedItem(path, call), output)])
            case "text":
                self._losses.add(path, what, "the output is sent as user text")
                return PlacedItem(path, MessageParam(role="user", content=_output_as_text(item)))
            case _ as never:
                assert_never(never)


def output_parts(output: ToolOutputParam) -> list[ToolOutputContentParam]:
    """The output of a tool as content parts."""
    return [InputText(text=output.output)] if isinstance(output.output, str) else output.output


def _output_as_text(output: ToolOutputParam) -> list[ContentParam]:
    # D-2: the text form of a result.
    label = f"[Tool Result for {output.call_id}]: "
    match output_parts(mark_failure_in_text(output)):
        case [InputText(text=text), *others]:
            return [InputText(text=label + text), *others]
        case others:
            return [InputText(text=label.rstrip()), *others]


BLOCK_TYPES: Final = frozenset((ToolUse, ToolResult))
CALL_TYPES: Final = (FunctionCallParam, CustomToolCallParam)
OUTPUT_TYPES: Final = (FunctionCallOutputParam, CustomToolCallOutputParam)
