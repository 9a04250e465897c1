"""Follows each item and each part of a stream, and compares each event with the earlier ones (STR-2 … STR-11, STR-6).

After a violation the item continues in its current stage or in the stage of the event, whichever is later. Its content
is then unreliable and is not compared any more.
"""

from __future__ import annotations

from typing import Any, assert_never, cast

import msgspec
from msgspec import Struct, UnsetType

from antiphon.protocol.base import EXTRA_NAME, is_extension_type
from antiphon.protocol.content import Content, LogProb, OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.events import (
    TYPE_OF_EVENT,
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    ContentPartEvent,
    CustomInputDelta,
    CustomInputDone,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseEvent,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryPartEvent,
    SummaryTextDelta,
    SummaryTextDone,
    UnknownEvent,
)
from antiphon.protocol.grammar_tables import (
    EMPTY_VALUES,
    EXPECTED_IN_ITEM_STAGE,
    IMMUTABLE_FIELDS,
    ITEM_GRAMMAR,
    ITEM_TYPES_OF_EVENT,
    KIND_OF_EVENT,
    PART_ADDED_EVENTS,
    PART_GRAMMAR,
    ROW_OF_EVENT,
    ROW_OF_ITEM_STAGE,
    ROW_OF_PART_LIST,
    STREAMED_KINDS,
    ItemStage,
    PartStage,
    next_stage,
)
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning, UnknownItem
from antiphon.protocol.open_items import has_final_status, id_of, may_fail, status_of, type_of
from antiphon.protocol.status import ItemStatus


class Violation(Struct, frozen=True):
    """A violated requirement: its row, a message, and the sequence number of the event (None: at the end of the
    stream)."""

    row: str
    message: str
    sequence: int | None

    def __str__(self) -> str:
        return f"{self.row}: {self.message}"


class ViolationReport:
    """Collects violations until they are taken. Each row is reported once for each path."""

    def __init__(self, ignored_rows: tuple[str, ...] = ()) -> None:
        self.sequence: int | None = None
        self._ignored_rows = ignored_rows
        self._violations: list[Violation] = []
        self._reported: set[tuple[str, str]] = set()

    def add(self, row: str, path: str, message: str) -> None:
        if row not in self._ignored_rows and (row, path) not in self._reported:
            self._reported.add((row, path))
            self._violations.append(Violation(row, f"{path}: {message}", self.sequence))

    def take_violations(self) -> list[Violation]:
        violations, self._violations = self._violations, []
        return violations


class ItemState:
    """The state of one output index. After a violation it is unreliable, and its content is not compared any more."""

    def __init__(self, report: ViolationReport, index: int, judges_foreign_items: bool = True) -> None:
        self.index = index
        self._judges_foreign_items = judges_foreign_items
        self.path = f"output[{index}]"
        self.stage = ItemStage.ABSENT
        self.id: str | None = None
        self.is_announced = False
        self.is_unreliable = False
        self.final_item: Item | None = None
        self._report = report
        self._announced_item: Item | None = None
        self._parts: dict[str, dict[int, PartState]] = {"content": {}, "summary": {}}
        self._pieces: list[str] = []
        self._done_text: str | None = None

    def assume_announced(self) -> None:
        """Continues as if the item had been announced."""
        self.stage = ItemStage.ANNOUNCED
        self.is_unreliable = True

    def announce(self, event: ItemAdded) -> None:
        """STR-2. The announcement may come late, after the first content."""
        is_late = self.is_unreliable and not self.is_announced
        if not is_late and not self._advance_stage(event):
            return
        self.is_announced = True
        self._announced_item = event.item
        if event.item is None:
            self.is_unreliable = True
            self._report.add(
                "STR-2", self.path, "response.output_item.added has a null item; expected one with its id and type"
            )
            return
        self.id = id_of(event.item) or self.id
        self._judge_id(event.item, "response.output_item.added")
        status = status_of(event.item)
        if status not in (None, ItemStatus.IN_PROGRESS) and self._judges_status_of(event.item):
            self._report.add(
                "STR-2", self.path, f"the item is announced with the status {status!r}; expected 'in_progress'"
            )
        if isinstance(event.item, UnknownItem) and not is_extension_type(event.item.kind):
            self._report.add(
                "ITEM-5", self.path, f"its type is {event.item.kind!r}; expected a known type or one spelled slug:name"
            )

    def feed(self, event: PartEvent | CallEvent) -> None:
        """Checks an event between `output_item.added` and `output_item.done`."""
        if self.id is None:
            self.id = event.item_id
        elif event.item_id != self.id:
            self._report.add(
                "ITEM-6", self.path, f"{event_type(event)} has the item_id {event.item_id!r}; expected {self.id!r}"
            )
        item_types = ITEM_TYPES_OF_EVENT[type(event)]
        if self._announced_item is not None and not isinstance(self._announced_item, (*item_types, UnknownItem)):
            expected = " or ".join(str(item_type.__struct_config__.tag) for item_type in item_types)
            message = (
                f"unexpected {event_type(event)} in a {type_of(self._announced_item)}; expected it only in a {expected}"
            )
            self._report.add(ROW_OF_EVENT[type(event)], self.path, message)
        elif not self._advance_stage(event):
            self.is_unreliable = True
        elif isinstance(event, CallEvent):
            self._judge_call(event)
        elif isinstance(event, SummaryPartEvent):
            self._get_or_add_part("summary", event.summary_index, event).feed(event)
        else:
            self._get_or_add_part("content", event.content_index, event).feed(event)

    def finish(self, event: ItemDone) -> None:
        """STR-4"""
        if self.stage is ItemStage.DONE:
            self._advance_stage(event)
            return
        self._judge_open_parts()
        if not self._advance_stage(event):
            self.is_unreliable = True
        self.final_item = event.item
        if event.item is None:
            self._report.add("STR-4", self.path, "response.output_item.done has a null item; expected its final form")
            return
        self._judge_id(event.item, "response.output_item.done")
        self._judge_status(event.item)
        if self._announced_item is not None and not self.is_unreliable:
            self._judge_against_announcement(self._announced_item, event.item)
            self._judge_contents(self._announced_item, event.item)

    def _advance_stage(self, event: ItemAdded | ItemDone | PartEvent | CallEvent) -> bool:
        stage = self.stage
        self.stage, is_legal = next_stage(ITEM_GRAMMAR, stage, event)
        if not is_legal:
            self._report.add(
                ROW_OF_ITEM_STAGE[stage],
                self.path,
                f"unexpected {event_type(event)}; expected {EXPECTED_IN_ITEM_STAGE[stage]}",
            )
        return is_legal

    def _get_or_add_part(self, list_name: str, index: int, event: PartEvent) -> PartState:
        parts = self._parts[list_name]
        part = parts.get(index)
        if part is None:
            path, row = f"{self.path}.{list_name}[{index}]", ROW_OF_PART_LIST[list_name]
            expected = max(parts, default=-1) + 1
            if isinstance(event, PART_ADDED_EVENTS) and (index > expected or index < 0):
                self._report.add(
                    row, path, f"the next part is here; expected {list_name}_index {expected}, without gaps"
                )
            part = parts[index] = PartState(self._report, path, row)
        return part

    # Fields of the item

    def _judge_id(self, item: Item, name: str) -> None:
        """ITEM-2, ITEM-6: the item has an id, and it never changes."""
        id = id_of(item)
        if not id:
            self._report.add("ITEM-2", self.path, f"the item of {name} has no id; expected one")
        elif self.id is not None and id != self.id:
            self._report.add("ITEM-6", self.path, f"the item of {name} has the id {id!r}; expected {self.id!r}")

    def _judge_status(self, item: Item) -> None:
        """ITEM-2. Reasoning and compaction items need no status; extension items may have any."""
        status = status_of(item)
        if status is None or not self._judges_status_of(item):
            return
        expected = "'completed', 'incomplete' or 'failed'" if may_fail(item) else "'completed' or 'incomplete'"
        if not has_final_status(item) or (status == ItemStatus.FAILED and not may_fail(item)):
            self._report.add("ITEM-2", self.path, f"the item is done with the status {status!r}; expected {expected}")

    def _judges_status_of(self, item: Item) -> bool:
        return self._judges_foreign_items or not may_fail(item)

    def _judge_against_announcement(self, announced_item: Item, final_item: Item) -> None:
        if type_of(announced_item) != type_of(final_item):
            self.is_unreliable = True
            self._report.add(
                "STR-4",
                self.path,
                f"the item is done as {type_of(final_item)}; expected {type_of(announced_item)}, as announced",
            )
        for name in IMMUTABLE_FIELDS:
            announced_value, final_value = getattr(announced_item, name, None), getattr(final_item, name, None)
            if announced_value and announced_value != final_value:
                self._report.add(
                    "STR-4",
                    self.path,
                    f"the item is done with the {name} {final_value!r}; expected {announced_value!r}, as announced",
                )

    def _judge_contents(self, announced_item: Item, final_item: Item) -> None:
        """STR-6: compares the item with its streamed content. An item without streamed content must not change."""
        match announced_item, final_item:
            case Message(), Message():
                self._judge_parts("content", announced_item.content, final_item.content)
            case Reasoning(), Reasoning():
                self._judge_parts("content", announced_item.content or [], final_item.content or [])
                self._judge_parts("summary", announced_item.summary, final_item.summary)
            case FunctionCall(), FunctionCall():
                self._judge_done_text("arguments", announced_item.arguments, final_item.arguments)
            case CustomToolCall(), CustomToolCall():
                self._judge_done_text("input", announced_item.input, final_item.input)

    # Calls

    def _judge_call(self, event: CallEvent) -> None:
        """STR-9"""
        match event:
            case ArgumentsDelta() | CustomInputDelta():
                self._pieces.append(event.delta)
            case ArgumentsDone():
                self._set_done_text(event.arguments, "arguments", event)
                announced_name = getattr(self._announced_item, "name", None)
                if announced_name and event.name and event.name != announced_name:
                    self._report.add(
                        "STR-9",
                        self.path,
                        f"{event_type(event)} has the name {event.name!r}; expected {announced_name!r}",
                    )
            case CustomInputDone():
                self._set_done_text(event.input, "input", event)
            case _ as never:
                assert_never(never)

    def _set_done_text(self, done_text: str, field: str, event: CallEvent) -> None:
        if not self.is_unreliable:
            announced_text = getattr(self._announced_item, field, "")
            streamed_text = "".join(self._pieces) if self._pieces else announced_text
            if done_text != streamed_text:
                self._report.add(
                    "STR-6",
                    f"{self.path}.{field}",
                    f"{event_type(event)} differs from the deltas: {_describe_difference(streamed_text, done_text)}",
                )
        self._done_text = done_text

    def _judge_done_text(self, field: str, announced_text: str, final_text: str) -> None:
        done_text = announced_text if self._done_text is None else self._done_text
        if done_text != final_text:
            source = (
                "the announced value, and nothing was streamed"
                if self._done_text is None
                else f"the {field} sent before"
            )
            message = f"response.output_item.done differs from {source}: {_describe_difference(done_text, final_text)}"
            self._report.add("STR-6", f"{self.path}.{field}", message)

    # Parts

    def _judge_open_parts(self) -> None:
        for list_name, parts in self._parts.items():
            for part in parts.values():
                if part.stage is not PartStage.CLOSED and not part.is_unreliable:
                    expected = (
                        "response.content_part.done"
                        if list_name == "content"
                        else "response.reasoning_summary_part.done"
                    )
                    self._report.add(
                        part.row, part.path, f"the item is done while the part is open; expected {expected}"
                    )
                    part.is_unreliable = True

    def _judge_parts(self, list_name: str, announced_parts: list[Content], final_parts: list[Content]) -> None:
        parts = self._parts[list_name]
        if not parts:
            difference = first_difference(announced_parts, final_parts)
            if difference:
                message = f"response.output_item.done has content that was not streamed: {difference}"
                self._report.add(ROW_OF_PART_LIST[list_name], f"{self.path}.{list_name}", message)
        elif len(parts) != len(final_parts):
            message = (
                f"response.output_item.done has {len(final_parts)} parts; expected the {len(parts)} that were streamed"
            )
            self._report.add("STR-6", f"{self.path}.{list_name}", message)
        else:
            for part, content in zip((parts[index] for index in sorted(parts)), final_parts, strict=True):
                part.judge_in_item(content)


class PartState:
    """The state of one part of an item. After a violation it is unreliable, and its content is not compared any
    more."""

    def __init__(self, report: ViolationReport, path: str, row: str) -> None:
        self.path = path
        self.row = row
        self.stage = PartStage.ABSENT
        self._event_types = SummaryPartEvent if row == ROW_OF_PART_LIST["summary"] else ContentPartEvent
        self.is_unreliable = False
        self._report = report
        self._kind: type | None = None
        self._announced_part: Content | None = None
        self._done_part: Content | None = None
        self._pieces: list[str] = []
        self._done_text: str | None = None
        self._logprobs: list[LogProb] = []
        self._annotations: list[Any] = []

    def feed(self, event: PartEvent) -> None:
        """STR-3: added, deltas, the done event of its content, done."""
        self._advance_stage(event)
        match event:
            case ContentPartAdded() | SummaryPartAdded():
                self._announce_part(event.part)
            case OutputTextDelta():
                self._pieces.append(event.delta)
                self._logprobs += event.logprobs or ()
            case RefusalDelta() | ReasoningDelta() | SummaryTextDelta():
                self._pieces.append(event.delta)
            case AnnotationAdded():
                self._add_annotation(event)
            case OutputTextDone():
                self._set_done_text(event.text, event)
                self._judge_logprobs(event.logprobs, event_type(event))
            case RefusalDone():
                self._set_done_text(event.refusal, event)
            case ReasoningDone() | SummaryTextDone():
                self._set_done_text(event.text, event)
            case ContentPartDone() | SummaryPartDone():
                self._finish_part(event.part, event_type(event))
            case _ as never:
                assert_never(never)

    def judge_in_item(self, content: Content) -> None:
        """STR-6: compares the part in the finished item with the part that was done."""
        if self._done_part is not None and not self.is_unreliable:
            difference = first_difference(self._done_part, content)
            if difference:
                self._report.add(
                    "STR-6", self.path, f"response.output_item.done differs from the part that was done: {difference}"
                )

    def _advance_stage(self, event: PartEvent) -> None:
        stage, row = self.stage, self.row
        self.stage, is_legal = next_stage(PART_GRAMMAR, stage, event)
        if self._kind is not None and KIND_OF_EVENT.get(type(event), self._kind) is not self._kind:
            self.stage, is_legal, row = stage, False, ROW_OF_EVENT[type(event)]
        if not is_legal:
            if not self.is_unreliable:
                self._report.add(
                    row, self.path, f"unexpected {event_type(event)}; expected {self._expected_events(stage)}"
                )
            self.is_unreliable = True

    def _expected_events(self, stage: PartStage) -> str:
        """The events that are allowed in this stage, for this list of parts and this kind of part."""
        own_events = [event for event in PART_GRAMMAR[stage] if issubclass(event, self._event_types)]
        expected = [event for event in own_events if KIND_OF_EVENT.get(event) in (None, self._kind)]
        return " or ".join(TYPE_OF_EVENT[event] for event in expected) or "nothing more: the part is done"

    def _announce_part(self, part: Content) -> None:
        if self._announced_part is None:
            self._announced_part = part
            self._kind = type(part)
            kind = STREAMED_KINDS.get(self._kind)
            if self.stage is PartStage.OPEN and (kind is None or not issubclass(kind.delta, self._event_types)):
                self.stage = PartStage.WHOLE

    def _add_annotation(self, event: AnnotationAdded) -> None:
        """STR-11"""
        expected = len(self._annotations)
        if event.annotation_index != expected:
            message = f"{event_type(event)} has the annotation_index {event.annotation_index}; expected {expected}"
            self._report.add("STR-11", self.path, message)
        self._annotations.append(event.annotation)

    def _set_done_text(self, done_text: str, event: PartEvent) -> None:
        if self._done_text is None:
            streamed_text = "".join(self._pieces) if self._pieces else _text_of(self._announced_part)
            if done_text != streamed_text and not self.is_unreliable:
                self._report.add(
                    "STR-6",
                    self.path,
                    f"{event_type(event)} differs from the deltas: {_describe_difference(streamed_text, done_text)}",
                )
            self._done_text = done_text

    def _judge_logprobs(self, logprobs: list[LogProb] | UnsetType, name: str) -> None:
        """STR-12"""
        if not self.is_unreliable:
            announced_logprobs = self._announced_part.logprobs if isinstance(self._announced_part, OutputText) else []
            difference = first_difference(self._logprobs or announced_logprobs or [], logprobs or [])
            if difference:
                self._report.add(
                    "STR-12", self.path, f"the logprobs of {name} differ from those of the deltas: {difference}"
                )

    def _finish_part(self, part: Content, name: str) -> None:
        self._done_part = part
        if self.is_unreliable or self._announced_part is None:
            return
        if type(part) is not type(self._announced_part):
            self.is_unreliable = True
            expected = self._announced_part.__struct_config__.tag
            self._report.add(
                self.row, self.path, f"{name} has a part of another type; expected {expected}, as announced"
            )
            return
        if self._done_text is not None and _text_of(part) != self._done_text:
            self._report.add(
                "STR-6",
                self.path,
                f"{name} differs from the text that was done: {_describe_difference(self._done_text, _text_of(part))}",
            )
        if isinstance(part, OutputText):
            self._judge_logprobs(part.logprobs, name)
            difference = first_difference(
                self._annotations or cast(OutputText, self._announced_part).annotations, part.annotations
            )
            if difference:
                self._report.add(
                    "STR-11", self.path, f"the annotations of {name} differ from those that were added: {difference}"
                )


def event_type(event: StreamEvent | ResponseEvent) -> str:
    return event.kind if isinstance(event, UnknownEvent) else TYPE_OF_EVENT[type(event)]


def _text_of(part: Content | None) -> str:
    match part:
        case Refusal(refusal=text):
            return text
        case OutputText(text=text) | ReasoningText(text=text) | SummaryText(text=text):
            return text
        case _:
            return ""


def _describe_difference(left: str, right: str) -> str:
    """Describes the first character at which two texts differ."""
    shorter = min(len(left), len(right))
    index = next((index for index in range(shorter) if left[index] != right[index]), shorter)
    return f"they differ at character {index}, {_excerpt(left[index:])} against {_excerpt(right[index:])}"


def first_difference(left: Any, right: Any) -> str:
    """Describes the first difference of two values on the wire; empty if they are equal.

    Absent, null and empty values are equal. Unknown members are not compared (ITEM-5).
    """
    pending = [("", _json_value(left), _json_value(right))]
    while pending:
        path, left, right = pending.pop()
        match left, right:
            case dict(), dict():
                names = reversed({**left, **right})
                pending += [(f"{path}.{name}".lstrip("."), left.get(name), right.get(name)) for name in names]
            case list(), list() if len(left) == len(right):
                pending += [(f"{path}[{index}]", left[index], right[index]) for index in reversed(range(len(left)))]
            case str(), str() if left != right:
                return f"{path}: {_describe_difference(left, right)}".removeprefix(": ")
            case _ if left != right and (left not in EMPTY_VALUES or right not in EMPTY_VALUES):
                return f"{path}: {_excerpt(left)} against {_excerpt(right)}".removeprefix(": ")
    return ""


def _json_value(value: Any) -> Any:
    return _without_unknown_members(msgspec.json.decode(msgspec.json.encode(value)))


def _without_unknown_members(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_unknown_members(member) for name, member in value.items() if name != EXTRA_NAME}
        case list():
            return [_without_unknown_members(member) for member in value]
        case _:
            return value


def _excerpt(value: Any, limit: int = 40) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return f"an array of {len(value)}"
        case str():
            return ascii(value[:limit]) + ("…" if len(value) > limit else "")
        case None:
            return "nothing"
        case _:
            return repr(value)
