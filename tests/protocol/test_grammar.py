"""The grammar: valid streams pass, violations are named by their row, and no sequence of events makes it raise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.generate.events import ENDINGS, FIRST_SECOND, counting_stamps, lives

from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.codec import decode_event, encode
from antiphon.protocol.content import (
    InputText,
    LogProb,
    OutputText,
    Refusal,
    SummaryText,
    UnknownContent,
    UrlCitation,
)
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    CallEvent,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    StreamEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
    UnknownEvent,
)
from antiphon.protocol.grammar import Grammar, Violation, find_violations
from antiphon.protocol.grammar_tables import (
    ITEM_GRAMMAR,
    PART_GRAMMAR,
    RESPONSE_GRAMMAR,
    ROW_OF_ITEM_STAGE,
    ROW_OF_RESPONSE_STAGE,
    ItemStage,
    PartStage,
    ResponseStage,
)
from antiphon.protocol.items import Message, UnknownItem, WebSearchCall
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.status import ItemStatus
from antiphon.protocol.writer import ResponseWriter

Write = Callable[[ResponseWriter], None]
Edit = Callable[[list[StreamEvent]], list[StreamEvent]]


# Laws


@given(lives(ENDINGS))
@settings(max_examples=40)
def test_writer_events_are_valid_STR_1_to_STR_12(events: list[StreamEvent]) -> None:
    assert find_violations(events) == []


@given(lives(["cut"]))
def test_truncated_stream_only_lacks_its_end(events: list[StreamEvent]) -> None:
    rows = {violation.row for violation in find_violations(events)}
    assert rows <= {"STR-7", "STR-4"} if events else rows == {"STR-1"}


@pytest.mark.without_coverage
@given(st.data(), lives())
def test_grammar_never_raises_for_any_sequence_of_events(data: st.DataObject, events: list[StreamEvent]) -> None:
    """Events in any order, omitted, repeated and edited: everything that can be decoded is checked, and every violation
    has its row."""
    events = [_edited_at_random(data, event) for event in data.draw(_jumbled(events))]
    for violation in find_violations(events):
        assert re.fullmatch(r"(STR|ITEM)-\d+", violation.row)
        assert violation.message


@given(st.data(), lives(ENDINGS))
def test_lost_repeated_and_swapped_events_violate_the_numbers_STR_5(
    data: st.DataObject, events: list[StreamEvent]
) -> None:
    at, last = data.draw(st.integers(0, len(events) - 1)), len(events) - 1
    assert ("STR-7" if at == last else "STR-5") in _rows(_dropped(events, at))
    assert ("STR-7" if at == last else "STR-5") in _rows(_repeated(events, at))
    assert at == last or "STR-5" in _rows(_swapped(events, at))


@pytest.mark.without_coverage
@given(lives(ENDINGS))
@settings(max_examples=30)
def test_undetected_changes_after_renumbering_keep_the_meaning(events: list[StreamEvent]) -> None:
    """A server that numbers its events after it lost, repeated or swapped some is detected too, unless the stream still
    has the same meaning: the order of events of different items or parts is free, as is that of citations among text;
    and unless nobody could know, which is the case for the few below."""
    meaning = _meaning(events)
    for at, event in enumerate(events):
        if not find_violations(_renumbered(_dropped(events, at))):
            assert _may_be_absent(events, at) or _meaning(_dropped(events, at)) == meaning
        if not find_violations(_renumbered(_repeated(events, at))):
            assert isinstance(event, UnknownEvent)
        if at + 1 < len(events) and not find_violations(_renumbered(_swapped(events, at))):
            assert _meaning(_swapped(events, at)) == meaning


def _may_be_absent(events: list[StreamEvent], at: int) -> bool:
    match events[at]:
        case UnknownEvent():  # its meaning is unknown
            return True
        case ResponseQueued():  # a response need not be queued
            return True
        case ResponseInProgress():  # a response may fail while it is queued
            return isinstance(events[at - 1], ResponseQueued) and isinstance(events[at + 1], ErrorEvent)
        case ErrorEvent():  # `response.failed` repeats it, and on a WebSocket it comes alone (WS-3)
            return True
        case ArgumentsDone(arguments="") | CustomInputDone(input=""):  # a call without arguments may come whole
            return True
        case _:
            return False


def _meaning(events: list[StreamEvent]) -> dict[Any, list[Any]]:
    """The content of the response, of each item, of each part and of its citations, each in its own order; deltas
    joined."""
    contents: dict[Any, list[Any]] = {}
    for event in events:
        match event:
            case UnknownEvent():
                continue
            case ResponseEvent() | ErrorEvent():
                place: tuple[Any, ...] = ("response",)
            case ItemAdded() | ItemDone() | ArgumentsDelta() | ArgumentsDone() | CustomInputDelta() | CustomInputDone():
                place = ("item", event.output_index)
            case SummaryPartAdded() | SummaryPartDone() | SummaryTextDelta() | SummaryTextDone():
                place = ("summary", event.output_index, event.summary_index)
            case AnnotationAdded():
                place = ("annotation", event.output_index, event.content_index)
            case _:
                place = ("content", event.output_index, event.content_index)
        content = contents.setdefault(place, [])
        delta = getattr(event, "delta", None)
        if delta is None:
            content.append(replace(event, sequence_number=0))
        elif content and isinstance(content[-1], tuple):
            content[-1] = (content[-1][0] + delta, content[-1][1] + (getattr(event, "logprobs", UNSET) or []))
        else:
            content.append((delta, getattr(event, "logprobs", UNSET) or []))
    return contents


def _dropped(events: list[StreamEvent], at: int) -> list[StreamEvent]:
    return events[:at] + events[at + 1 :]


def _repeated(events: list[StreamEvent], at: int) -> list[StreamEvent]:
    return events[: at + 1] + events[at:]


def _swapped(events: list[StreamEvent], at: int) -> list[StreamEvent]:
    return [*events[:at], events[at + 1], events[at], *events[at + 2 :]]


def _renumbered(events: list[StreamEvent]) -> list[StreamEvent]:
    return [replace(event, sequence_number=number) for number, event in enumerate(events)]


def _rows(events: list[StreamEvent]) -> set[str]:
    return {violation.row for violation in find_violations(events)}


def _jumbled(events: list[StreamEvent]) -> st.SearchStrategy[list[StreamEvent]]:
    return st.permutations(events) | st.lists(st.sampled_from(events or [_created()]), max_size=30)


def _created() -> StreamEvent:
    return ResponseCreated(
        sequence_number=0, response=make_initial_response(Request(model="m"), id="resp_1", created_at=FIRST_SECOND)
    )


def _edited_at_random(data: st.DataObject, event: StreamEvent) -> StreamEvent:
    """The event with one member, at any depth, replaced or removed; unchanged if it could not be decoded."""
    body = msgspec.json.decode(encode(event))
    holder, name = data.draw(st.sampled_from(_members(body)))
    value: Any = data.draw(
        st.sampled_from(
            [None, 0, 1, 7, -1, "", "x", "in_progress", "completed", [], {}, [{"type": "text", "text": ""}]]
        )
    )
    if data.draw(st.booleans()):
        holder[name] = value
    else:
        del holder[name]
    try:
        return decode_event(msgspec.json.encode(body))
    except ApiError:
        return event


def _members(value: Any) -> list[tuple[Any, Any]]:
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [member for name in names for member in [(value, name), *_members(value[name])]]


# The tables


def test_grammar_tables_cover_every_event() -> None:
    assert {event for moves in RESPONSE_GRAMMAR.values() for event in moves} == set(StreamEvent.__args__)
    in_items = {ItemAdded, ItemDone, *PartEvent.__args__, *CallEvent.__args__}
    assert {event for moves in ITEM_GRAMMAR.values() for event in moves} == in_items
    assert {event for moves in PART_GRAMMAR.values() for event in moves} == set(PartEvent.__args__)


def test_every_stage_is_in_its_table_and_reachable() -> None:
    assert set(RESPONSE_GRAMMAR) == set(ResponseStage)
    assert set(ITEM_GRAMMAR) == set(ItemStage)
    assert set(PART_GRAMMAR) == set(PartStage)
    assert {stage for moves in RESPONSE_GRAMMAR.values() for stage in moves.values()} == set(ResponseStage) - {
        ResponseStage.NOT_CREATED
    }
    assert {stage for moves in ITEM_GRAMMAR.values() for stage in moves.values()} == set(ItemStage) - {ItemStage.ABSENT}
    # A part becomes WHOLE by its kind, not by its own event.
    assert {stage for moves in PART_GRAMMAR.values() for stage in moves.values()} == set(PartStage) - {
        PartStage.ABSENT,
        PartStage.WHOLE,
    }
    assert set(ROW_OF_RESPONSE_STAGE) == set(ResponseStage) - {ResponseStage.ENDED}
    assert set(ROW_OF_ITEM_STAGE) == set(ItemStage)


# One broken rule at a time. Each case: what is written, how it is damaged, and the text of the violation.


def written(write: Write) -> list[StreamEvent]:
    """The events of a response."""
    collector = EventCollector()
    write(
        ResponseWriter(
            make_initial_response(Request(model="m"), id="resp_1", created_at=FIRST_SECOND),
            collector,
            counting_stamps(),
        )
    )
    return collector.events


def text(writer: ResponseWriter) -> None:
    writer.add_text("a", "Hel", logprobs=[PROBABLE])
    writer.add_text("a", "lo")
    writer.add_annotation("a", CITED)
    writer.complete()


def empty_text(writer: ResponseWriter) -> None:
    writer.add_text("a", "")
    writer.complete()


def two_texts(writer: ResponseWriter) -> None:
    writer.add_text("a", "one", part_key=0)
    writer.add_text("a", "two", part_key=1)
    writer.add_text("b", "three")
    writer.complete()


def refusal(writer: ResponseWriter) -> None:
    writer.add_refusal("a", "No")
    writer.complete()


def reasoning(writer: ResponseWriter) -> None:
    writer.add_reasoning("a", "Hm")
    writer.add_summary("a", "H", part_key=0)
    writer.complete()


def call(writer: ResponseWriter) -> None:
    writer.open_call("a", name="look", call_id="c_1")
    writer.add_arguments("a", '{"x"')
    writer.add_arguments("a", ":1}")
    writer.complete()


def custom_call(writer: ResponseWriter) -> None:
    writer.open_custom_call("a", name="patch", call_id="c_1")
    writer.add_custom_input("a", "x")
    writer.complete()


def hosted(writer: ResponseWriter) -> None:
    writer.add_whole_item("a", WebSearchCall(id="ws_1", status="completed"))
    writer.complete()


def extension(writer: ResponseWriter) -> None:
    writer.open_extension_item("a", "acme:step", {})
    writer.emit_extension_event("acme:progress", {})
    writer.complete()


def truncated(writer: ResponseWriter) -> None:
    writer.add_text("a", "one")
    writer.add_text("b", "two")
    writer.end_incomplete("max_output_tokens")


def failure(writer: ResponseWriter) -> None:
    writer.add_text("a", "one")
    writer.fail(UpstreamFault("gone"))


def waiting(writer: ResponseWriter) -> None:
    writer.queue()
    writer.fail(UpstreamFault("gone"))


def change(kind: type, nth: int = 0, **changes: Any) -> Edit:
    """Sets members of the nth event of a type."""

    def edit(events: list[StreamEvent]) -> list[StreamEvent]:
        at = _find(events, kind, nth)
        return [*events[:at], replace(events[at], **changes), *events[at + 1 :]]

    return edit


def change_item(kind: type, nth: int = 0, **changes: Any) -> Edit:
    """Sets members of the item of the nth event of a type."""

    def edit(events: list[StreamEvent]) -> list[StreamEvent]:
        event: Any = events[_find(events, kind, nth)]
        return change(kind, nth, item=replace(event.item, **changes))(events)

    return edit


def change_response(kind: type, **changes: Any) -> Edit:
    def edit(events: list[StreamEvent]) -> list[StreamEvent]:
        event: Any = events[_find(events, kind, 0)]
        return change(kind, response=replace(event.response, **changes))(events)

    return edit


def drop(kind: type, nth: int = 0) -> Edit:
    return lambda events: _renumbered(_dropped(events, _find(events, kind, nth)))


def repeat(kind: type, nth: int = 0) -> Edit:
    return lambda events: _renumbered(_repeated(events, _find(events, kind, nth)))


def put_off(kind: type, nth: int = 0) -> Edit:
    """Swaps the nth event of a type with the one that follows."""
    return lambda events: _renumbered(_swapped(events, _find(events, kind, nth)))


def cut_before(kind: type) -> Edit:
    return lambda events: events[: _find(events, kind, 0)]


def _find(events: list[StreamEvent], kind: type, nth: int) -> int:
    return [at for at, event in enumerate(events) if type(event) is kind][nth]


# Ways to damage more than one event


def insert(event: StreamEvent, after: type) -> Edit:
    def edit(events: list[StreamEvent]) -> list[StreamEvent]:
        at = _find(events, after, 0) + 1
        return _renumbered([*events[:at], event, *events[at:]])

    return edit


def exchange(kind: type, make: Callable[[Any], StreamEvent]) -> Edit:
    """Every event of a type becomes another."""
    return lambda events: [make(event) if type(event) is kind else event for event in events]


def without_inner_events(events: list[StreamEvent]) -> list[StreamEvent]:
    """Items are added and done, and none of their content is streamed."""
    return _renumbered([event for event in events if not isinstance(event, PartEvent | CallEvent)])


def other_contents(count: int) -> Edit:
    return change_item(ItemDone, content=[OutputText(text="x", annotations=[])] * count)


def other_output(events: list[StreamEvent]) -> list[StreamEvent]:
    message = Message(id="msg_1", status=ItemStatus.COMPLETED, role="assistant", content=[])
    return change_response(ResponseCompleted, output=[message])(events)


def announced_again(events: list[StreamEvent]) -> list[StreamEvent]:
    return insert(events[_find(events, ItemAdded, 0)], after=ItemDone)(events)


def error_event() -> StreamEvent:
    return written(failure)[_find(written(failure), ErrorEvent, 0)]


def unknown_event(kind: str, **members: Any) -> UnknownEvent:
    return UnknownEvent(kind=kind, sequence_number=0, raw=Raw(msgspec.json.encode({"type": kind, **members})))


AT: dict[str, Any] = {"sequence_number": 0, "item_id": "msg_1", "output_index": 0}
IN_CALL: dict[str, Any] = {"sequence_number": 0, "item_id": "fc_1", "output_index": 0}
PROBABLE = LogProb(token="Hel", logprob=-0.5, bytes=[72], top_logprobs=[])
CITED = UrlCitation(start_index=0, end_index=1, url="https://example.org", title="t")
OTHER = UnknownItem(kind="acme:other", raw=Raw(b'{"type":"acme:other","id":"msg_1"}'))

SPOILED: list[tuple[str, str, Write, Edit, str]] = [
    # (row, what is wrong, what is written, how it is damaged, words of the violation)
    ("STR-1", "not created", text, drop(ResponseCreated), "unexpected response.in_progress; expected response.created"),
    ("STR-1", "not in progress", text, drop(ResponseInProgress), "expected response.in_progress or response.queued"),
    ("STR-1", "created twice", text, repeat(ResponseCreated), "expected response.in_progress or response.queued"),
    ("STR-1", "in progress twice", text, repeat(ResponseInProgress), "in progress already"),
    ("STR-1", "queued twice", waiting, repeat(ResponseQueued), "expected response.in_progress, or error"),
    (
        "STR-1",
        "created under a wrong status",
        text,
        change_response(ResponseCreated, status="completed"),
        "'in_progress' or 'queued'",
    ),
    (
        "STR-1",
        "queued under a wrong status",
        waiting,
        change_response(ResponseQueued, status="in_progress"),
        "expected 'queued'",
    ),
    (
        "STR-1",
        "another id in progress",
        text,
        change_response(ResponseInProgress, id="resp_2"),
        "'resp_2'; expected 'resp_1'",
    ),
    ("STR-2", "not announced", text, drop(ItemAdded), "expected response.output_item.added before it"),
    ("STR-2", "not announced, a call", call, drop(ItemAdded), "expected response.output_item.added before it"),
    ("STR-2", "announced late", text, put_off(ItemAdded), "expected response.output_item.added before it"),
    (
        "STR-2",
        "announced after it was done",
        hosted,
        put_off(ItemAdded),
        "expected response.output_item.added before it",
    ),
    ("STR-2", "announced twice", text, repeat(ItemAdded), "it was announced before"),
    ("STR-2", "announced as nothing", text, change(ItemAdded, item=None), "null item"),
    (
        "STR-2",
        "announced as completed",
        text,
        change_item(ItemAdded, status=ItemStatus.COMPLETED),
        "expected 'in_progress'",
    ),
    ("STR-2", "an index too far", text, change(ItemAdded, output_index=5), "expected output_index 0"),
    ("STR-2", "an index below", text, change(ItemAdded, output_index=-1), "expected output_index 0"),
    (
        "STR-2",
        "an index that is taken",
        two_texts,
        change(ItemAdded, 1, output_index=0),
        "expected output_index 1 for the next",
    ),
    ("STR-3", "a part not announced", text, drop(ContentPartAdded), "expected response.content_part.added"),
    (
        "STR-3",
        "an empty part not announced",
        empty_text,
        drop(ContentPartAdded),
        "expected response.content_part.added",
    ),
    ("STR-3", "a part announced late", text, put_off(ContentPartAdded), "expected response.content_part.added"),
    ("STR-3", "a part announced twice", text, repeat(ContentPartAdded), "response.output_text.delta or"),
    ("STR-3", "a part too far", text, change(ContentPartAdded, content_index=2), "expected content_index 0"),
    ("STR-3", "a part below", text, change(ContentPartAdded, content_index=-2), "expected content_index 0"),
    (
        "STR-3",
        "text not told",
        text,
        drop(OutputTextDone),
        "unexpected response.content_part.done; expected response.output_text.delta or",
    ),
    ("STR-3", "text told twice", text, repeat(OutputTextDone), "expected response.output_text.annotation.added or"),
    ("STR-3", "a delta after the text was told", refusal, put_off(RefusalDelta), "expected response.content_part.done"),
    ("STR-3", "a part not done", text, drop(ContentPartDone), "the part is open; expected response.content_part.done"),
    ("STR-3", "a part done twice", text, repeat(ContentPartDone), "expected nothing more: the part is done"),
    (
        "STR-3",
        "a part done as another",
        text,
        change(ContentPartDone, part=Refusal(refusal="Hello")),
        "expected output_text",
    ),
    (
        "STR-11",
        "a refusal in a text",
        text,
        exchange(
            OutputTextDelta,
            lambda e: RefusalDelta(**{**AT, "sequence_number": e.sequence_number, "content_index": 0}, delta=e.delta),
        ),
        "unexpected response.refusal.delta; expected response.output_text",
    ),
    (
        "STR-3",
        "a part in a call",
        call,
        insert(ContentPartAdded(**IN_CALL, content_index=0, part=Refusal(refusal="")), after=ItemAdded),
        "in a function_call; expected it only in a message or reasoning",
    ),
    ("STR-3", "content never streamed", text, without_inner_events, "content that was not streamed"),
    ("STR-4", "not done", text, drop(ItemDone), "unexpected response.completed while the item is open"),
    ("STR-4", "done as nothing", text, change(ItemDone, item=None), "null item"),
    ("STR-4", "done as another type", text, change(ItemDone, item=OTHER), "as acme:other; expected message"),
    ("STR-4", "done under another name", call, change_item(ItemDone, name="hear"), "the name 'hear'; expected 'look'"),
    ("STR-5", "a number too far", text, change(OutputTextDelta, sequence_number=9), "sequence_number 9; expected 4"),
    ("STR-6", "a delta lost", text, drop(OutputTextDelta, 1), "response.output_text.done differs from the deltas"),
    ("STR-6", "a delta repeated", text, repeat(OutputTextDelta, 1), "they differ at character 5, 'lo' against ''"),
    ("STR-6", "deltas swapped", text, put_off(OutputTextDelta), "they differ at character 0"),
    (
        "STR-6",
        "the part differs",
        text,
        change(OutputTextDone, text="Help"),
        "they differ at character 3, 'lo' against 'p'",
    ),
    ("STR-6", "a part too many", two_texts, other_contents(3), "has 3 parts; expected the 2 that were streamed"),
    ("STR-6", "arguments lost", call, drop(ArgumentsDelta), "response.function_call_arguments.done differs"),
    (
        "STR-6",
        "arguments differ",
        call,
        change_item(ItemDone, arguments="{}"),
        "differs from the arguments sent before",
    ),
    (
        "STR-6",
        "input lost",
        custom_call,
        change(CustomInputDelta, delta="y"),
        "response.custom_tool_call_input.done differs",
    ),
    ("STR-6", "input differs", custom_call, change_item(ItemDone, input="y"), "differs from the input sent before"),
    ("STR-6", "arguments never streamed", call, without_inner_events, "and nothing was streamed"),
    ("STR-6", "refusal differs", refusal, change(RefusalDone, refusal="Yes"), "response.refusal.done differs"),
    ("STR-6", "reasoning differs", reasoning, change(ReasoningDone, text="Ho"), "response.reasoning.done differs"),
    (
        "STR-6",
        "summary differs",
        reasoning,
        change(SummaryTextDone, text="Ho"),
        "response.reasoning_summary_text.done differs",
    ),
    (
        "STR-6",
        "summary part differs",
        reasoning,
        change(SummaryPartDone, part=SummaryText(text="x")),
        "differs from the text",
    ),
    ("STR-6", "the item differs", text, other_contents(1), "differs from the part that was done: text: they differ"),
    ("STR-6", "the response differs", text, other_output, "response.completed differs from response.output_item.done"),
    ("STR-7", "no end", text, cut_before(ResponseCompleted), "without a terminal event"),
    ("STR-7", "two ends", text, repeat(ResponseCompleted), "after the terminal event"),
    ("STR-7", "something after the end", text, put_off(ItemDone), "after the terminal event"),
    (
        "STR-7",
        "an end under a wrong status",
        text,
        change_response(ResponseCompleted, status="failed"),
        "expected 'completed'",
    ),
    ("STR-7", "an end under another id", text, change_response(ResponseCompleted, id="resp_2"), "expected 'resp_1'"),
    ("STR-7", "an empty end", text, change_response(ResponseCompleted, output=[]), "has 0 items; expected the 1"),
    ("STR-8", "two errors", failure, repeat(ErrorEvent), "unexpected error; expected response.failed after error"),
    ("STR-8", "an error too early", failure, put_off(ItemDone), "expected response.failed after error"),
    (
        "STR-8",
        "an error, and all is well",
        text,
        insert(error_event(), after=ItemDone),
        "unexpected response.completed; expected response.failed",
    ),
    ("STR-8", "a failure without a reason", failure, change_response(ResponseFailed, error=None), "expected an error"),
    ("STR-9", "arguments not told", call, drop(ArgumentsDone), "expected response.function_call_arguments.done"),
    ("STR-9", "arguments told twice", call, repeat(ArgumentsDone), "the arguments are complete"),
    ("STR-9", "arguments after they were told", call, put_off(ArgumentsDelta, 1), "the arguments are complete"),
    (
        "STR-9",
        "arguments of another call",
        call,
        change(ArgumentsDone, name="hear"),
        "the name 'hear'; expected 'look'",
    ),
    (
        "STR-9",
        "arguments of a message",
        text,
        insert(ArgumentsDelta(**AT, delta="x"), after=ItemAdded),
        "in a message; expected it only in a function_call",
    ),
    (
        "STR-10",
        "reasoning in a refusal",
        refusal,
        insert(ReasoningDelta(**AT, content_index=0, delta="x"), after=ContentPartAdded),
        "unexpected response.reasoning.delta; expected response.refusal.delta",
    ),
    (
        "STR-10",
        "a summary not announced",
        reasoning,
        drop(SummaryPartAdded),
        "expected response.reasoning_summary_part.added",
    ),
    (
        "STR-10",
        "a summary not told",
        reasoning,
        drop(SummaryTextDone),
        "expected response.reasoning_summary_text.delta or",
    ),
    ("STR-10", "a summary not done", reasoning, drop(SummaryPartDone), "expected response.reasoning_summary_part.done"),
    (
        "STR-10",
        "a summary of a message",
        text,
        insert(SummaryTextDelta(**AT, summary_index=0, delta="x"), after=ItemAdded),
        "in a message; expected it only in a reasoning",
    ),
    ("STR-10", "a summary never streamed", reasoning, without_inner_events, "content that was not streamed"),
    ("STR-11", "a citation lost", text, drop(AnnotationAdded), "differ from those that were added"),
    ("STR-11", "a citation repeated", text, repeat(AnnotationAdded), "annotation_index 0; expected 1"),
    (
        "STR-11",
        "a citation of a call",
        call,
        insert(AnnotationAdded(**IN_CALL, content_index=0, annotation_index=0, annotation=CITED), after=ItemAdded),
        "expected it only in a message or reasoning",
    ),
    (
        "STR-12",
        "logprobs lost",
        text,
        change(OutputTextDelta, logprobs=UNSET),
        "logprobs of response.output_text.done differ",
    ),
    (
        "STR-12",
        "logprobs not told",
        text,
        change(OutputTextDone, logprobs=UNSET),
        "an array of 1 against an array of 0",
    ),
    ("ITEM-2", "no id", hosted, change_item(ItemAdded, id=None), "response.output_item.added has no id"),
    ("ITEM-2", "no id at the end", hosted, change_item(ItemDone, id=""), "response.output_item.done has no id"),
    (
        "ITEM-2",
        "done in progress",
        text,
        change_item(ItemDone, status=ItemStatus.IN_PROGRESS),
        "'completed' or 'incomplete'",
    ),
    (
        "ITEM-2",
        "a failed message",
        text,
        change_item(ItemDone, status=ItemStatus.FAILED),
        "expected 'completed' or 'incomplete'",
    ),
    ("ITEM-2", "a search that goes on", hosted, change_item(ItemDone, status="searching"), "'incomplete' or 'failed'"),
    (
        "ITEM-3",
        "incomplete in completed",
        text,
        change_item(ItemDone, status=ItemStatus.INCOMPLETE),
        "or response.incomplete",
    ),
    (
        "ITEM-3",
        "incomplete, not last",
        truncated,
        change_item(ItemDone, 0, status=ItemStatus.INCOMPLETE),
        "only in the last item",
    ),
    (
        "ITEM-3",
        "incomplete for no reason",
        truncated,
        change_response(ResponseIncomplete, incomplete_details=None),
        "a reason",
    ),
    ("ITEM-4", "done twice", text, repeat(ItemDone), "nothing more at this output_index: the item is done"),
    ("ITEM-4", "announced again when done", hosted, announced_again, "the item is done"),
    ("ITEM-4", "content after it is done", text, put_off(ContentPartDone), "the item is done"),
    (
        "ITEM-5",
        "an item without a slug",
        extension,
        change(ItemAdded, item=UnknownItem(kind="step", raw=Raw(b'{"type":"step","id":"acme_1"}'))),
        "'step'; expected a known type or one spelled slug:name",
    ),
    (
        "ITEM-5",
        "an event without a slug",
        extension,
        insert(unknown_event("progress"), after=ItemAdded),
        "or the form slug:name",
    ),
    (
        "ITEM-6",
        "an id that is taken",
        two_texts,
        change_item(ItemAdded, 1, id="msg_1"),
        "the id 'msg_1' belongs to output[0]",
    ),
    ("ITEM-6", "an id that drifts", text, change(OutputTextDelta, item_id="x"), "the item_id 'x'; expected 'msg_1'"),
    ("ITEM-6", "another id at the end", text, change_item(ItemDone, id="x"), "the id 'x'; expected 'msg_1'"),
]


@pytest.mark.parametrize(
    ("row", "write", "spoil", "words"),
    [(r, w, s, v) for r, _, w, s, v in SPOILED],
    ids=[f"{r} {n}" for r, n, *_ in SPOILED],
)
def test_violation_is_named_by_its_row(row: str, write: Write, spoil: Edit, words: str) -> None:
    events = written(write)
    assert find_violations(events) == []
    violations = find_violations(spoil(events))
    assert row in {violation.row for violation in violations}
    assert any(words in violation.message for violation in violations), violations
    assert len(violations) <= 4, "one mistake is not told many times"


# Valid streams that look odd


def test_parallel_calls_may_interleave_STR_9() -> None:
    def write(writer: ResponseWriter) -> None:
        for key in ("a", "b"):
            writer.open_call(key, name="look", call_id=f"c_{key}")
        for piece in ('{"x"', ":1}"):
            for key in ("a", "b"):
                writer.add_arguments(key, piece)
        writer.complete()

    assert find_violations(written(write)) == []


def test_citation_may_come_between_text_and_part_done_STR_11() -> None:
    assert find_violations(put_off(AnnotationAdded)(written(text))) == []


def test_response_may_fail_while_queued() -> None:
    assert find_violations(drop(ResponseInProgress)(written(waiting))) == []


def test_part_added_whole_needs_no_deltas_STR_3() -> None:
    """Its text is in its `added` event; that of kinds without deltas always is."""
    whole = OutputText(text="Hello", annotations=[CITED], logprobs=[PROBABLE])
    events = change(ContentPartAdded, part=whole)(written(text))
    events = _renumbered([event for event in events if not isinstance(event, OutputTextDelta | AnnotationAdded)])
    assert find_violations(events) == []


@pytest.mark.parametrize(
    "part",
    [
        InputText(text="hi"),
        SummaryText(text="hi"),
        UnknownContent(kind="acme:chart", raw=Raw(b'{"type":"acme:chart"}')),
    ],
)
def test_part_without_deltas_is_added_and_done_STR_3(part: Any) -> None:
    def parts_of(events: list[StreamEvent]) -> list[StreamEvent]:
        events = change(ContentPartAdded, part=part)(change(ContentPartDone, part=part)(events))
        events = change_item(ItemDone, content=[part])(events)
        events = change_response(ResponseCompleted, output=[events[_find(events, ItemDone, 0)].item])(events)  # type: ignore[union-attr]
        return _renumbered([event for event in events if not isinstance(event, RefusalDelta | RefusalDone)])

    events = parts_of(written(refusal))
    assert find_violations(events) == []
    assert _rows(insert(RefusalDelta(**AT, content_index=0, delta="x"), after=ContentPartAdded)(events)) == {"STR-11"}


def test_item_of_unknown_type_may_contain_anything_ITEM_5() -> None:
    item = UnknownItem(kind="acme:talk", raw=Raw(b'{"type":"acme:talk","id":"msg_1"}'))
    events = change(ItemAdded, item=item)(change(ItemDone, item=item)(written(refusal)))
    events = change_response(ResponseCompleted, output=[item])(events)
    assert find_violations(events) == []


def test_status_may_be_absent_where_the_type_allows_it_ITEM_2() -> None:
    events = change_item(ItemAdded, status=UNSET)(change_item(ItemDone, status=UNSET)(written(reasoning)))
    events = change_response(ResponseCompleted, output=[events[_find(events, ItemDone, 0)].item])(events)  # type: ignore[union-attr]
    assert find_violations(events) == []


def test_absent_null_and_empty_are_equal_in_the_terminal_response() -> None:
    done: Any = written(text)[_find(written(text), ItemDone, 0)]
    parts = [OutputText(text="Hello", annotations=[CITED], logprobs=[PROBABLE])]
    last = replace(done.item, content=parts, extra={"acme": Raw(b"null"), "more": Raw(b"[]")})
    assert find_violations(change_response(ResponseCompleted, output=[last])(written(text))) == []


# After a violation


def test_two_violations_are_both_reported() -> None:
    events = drop(ItemAdded, 1)(drop(OutputTextDelta)(written(two_texts)))
    assert {(violation.row, violation.message.partition(":")[0]) for violation in find_violations(events)} == {
        ("STR-6", "output[0].content[0]"),
        ("STR-2", "output[1]"),
    }


def test_items_in_the_wrong_order_are_reported_once_STR_2() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.open_message("a")
        writer.open_message("b")
        writer.complete()

    (violation,) = find_violations(put_off(ItemAdded)(written(write)))
    assert violation.row == "STR-2"


def test_constant_output_index_is_reported_once_STR_2() -> None:
    def write(writer: ResponseWriter) -> None:
        for key in ("a", "b", "c"):
            writer.add_refusal(key, key)
            writer.close_item(key)
        writer.complete()

    events = [replace(event, output_index=0) if hasattr(event, "output_index") else event for event in written(write)]
    (violation,) = find_violations(events)
    assert violation == Violation(
        "STR-2", "output[0]: the index belongs to 'msg_1'; expected output_index 1 for the next", 8
    )


def test_hosted_tool_event_of_an_existing_item_is_valid_ITEM_5() -> None:
    events = insert(unknown_event("response.web_search_call.searching"), after=ItemAdded)(written(hosted))
    assert find_violations(events) == []


def test_items_without_id_are_tracked_by_their_events_ITEM_6() -> None:
    """A null `added` event names no item; its first event does, and the rest must match it."""
    events = change(ItemAdded, item=None)(written(text))
    assert _rows(events) == {"STR-2"}
    assert _rows(change(OutputTextDone, item_id="x")(events)) == {"STR-2", "ITEM-6"}


def test_call_without_added_event_is_not_compared() -> None:
    events = drop(ItemAdded)(change(ArgumentsDelta, delta="nonsense")(written(call)))
    assert _rows(events) == {"STR-2"}


def test_items_of_the_deepest_allowed_nesting_are_compared() -> None:
    deep: Any = "x"
    for _ in range(MAX_NESTING):
        deep = [deep]
    item = WebSearchCall(id="ws_1", status="completed", action={"deep": deep})
    assert "STR-6" in _rows(change(ItemDone, item=item)(written(hosted)))


@pytest.mark.parametrize("other", [{"a": {"b": 1}}, {"a": [1, 2]}, {"a": 1.5}, {"a": None}])
def test_difference_is_reported_with_its_path(other: dict[str, Any]) -> None:
    events = change_item(ItemDone, action={"a": [{"b": "q"}], "same": [1, {"c": "d"}]})(written(hosted))
    last = WebSearchCall(id="ws_1", status="completed", action={"same": [1, {"c": "d"}], **other})
    (violation,) = find_violations(change_response(ResponseCompleted, output=[last])(events))
    assert "action.a: an array of 1 against " in violation.message


def test_violation_has_its_sequence_number_and_the_end_is_checked_once() -> None:
    grammar = Grammar()
    events = written(text)[:3]
    assert grammar.feed(events[0]) == []
    assert [(violation.row, violation.sequence) for violation in grammar.feed(events[2])] == [
        ("STR-5", 2),
        ("STR-1", 2),
    ]
    ended = grammar.finish()
    assert [(violation.row, violation.sequence) for violation in ended] == [("STR-7", None), ("STR-4", None)]
    assert str(ended[0]).startswith("STR-7: response: the stream ended")
    assert grammar.finish() == []
