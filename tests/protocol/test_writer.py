"""The writer: it numbers, opens and closes, and refuses what cannot be; the grammar judges the rest of what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.generate.events import FIRST_SECOND, counting_stamps, lives
from tests.generate.schema import published

from antiphon.errors import ApiError, InvalidTransition, UpstreamFault
from antiphon.protocol.codec import decode_event, encode
from antiphon.protocol.content import LogProb, OutputText, ReasoningText, Refusal, SummaryText, UrlCitation
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import (
    TYPE_OF_EVENT,
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseCreated,
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
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import (
    CodeInterpreterCall,
    Compaction,
    CustomToolCall,
    FunctionCall,
    FunctionCallOutput,
    Item,
    McpListTools,
    Message,
    Reasoning,
    UnknownItem,
    WebSearchCall,
)
from antiphon.protocol.open_items import id_of, status_of
from antiphon.protocol.request import Request
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, initial_response
from antiphon.protocol.status import RESPONSE_TRANSITIONS, ItemStatus, ResponseStatus
from antiphon.protocol.writer import ResponseWriter

GONE = UpstreamFault("gone", code="upstream_disconnected")
CITED = UrlCitation(start_index=0, end_index=1, url="https://example.org", title="t")
PROBABLE = LogProb(token="a", logprob=-0.5, bytes=[97], top_logprobs=[])
USED = Usage(
    input_tokens=1,
    output_tokens=2,
    total_tokens=3,
    input_tokens_details=InputTokensDetails(cached_tokens=0),
    output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
)
Move = Callable[[ResponseWriter], None]


def fresh() -> tuple[ResponseWriter, EventCollector]:
    collector = EventCollector()
    begun = initial_response(Request(model="m"), id="resp_1", created_at=FIRST_SECOND)
    return ResponseWriter(begun, collector, counting_stamps()), collector


def said(*moves: Move) -> list[StreamEvent]:
    """The events of a life."""
    writer, collector = fresh()
    for move in moves:
        move(writer)
    return collector.events


def kinds(events: list[StreamEvent]) -> list[type]:
    return [type(event) for event in events]


def complete(writer: ResponseWriter) -> None:
    writer.complete()


# Laws


@given(lives())
def test_every_event_survives_the_wire(events: list[StreamEvent]) -> None:
    for event in events:
        assert decode_event(encode(event)) == event


@given(lives())
def test_numbers_start_at_zero_and_have_no_gap_STR_5(events: list[StreamEvent]) -> None:
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for event in events:
        if isinstance(event, UnknownEvent):
            assert msgspec.json.decode(event.raw_members()["sequence_number"]) == event.sequence_number


# The 24 events (B-2)


def test_every_event_of_the_schema_is_typed_and_no_other_but_those_of_custom_tools_B_2() -> None:
    names = {
        schema["properties"]["type"]["enum"][0]
        for name, schema in published().items()
        if name.endswith("StreamingEvent")
    }
    custom = {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}
    assert len(names) == 24
    assert set(TYPE_OF_EVENT.values()) == names | custom


def test_the_writer_can_say_every_one_of_them_B_2() -> None:
    def everything(writer: ResponseWriter) -> None:
        writer.queue()
        writer.text("m", "a")
        writer.annotation("m", CITED)
        writer.refusal("m", "b")
        writer.reasoning("r", "c")
        writer.summary("r", "d")
        writer.call("f", name="look", call_id="c_1")
        writer.arguments("f", "{}")
        writer.custom_call("c", name="patch", call_id="c_2")
        writer.custom_input("c", "e")

    def ended(end: Move) -> set[type]:
        return set(kinds(said(everything, end)))

    spoken = ended(complete) | ended(lambda w: w.incomplete("content_filter")) | ended(lambda w: w.fail(GONE))
    assert spoken == set(TYPE_OF_EVENT)


# What each row asks for


def test_a_response_is_created_and_in_progress_before_anything_else_STR_1() -> None:
    assert kinds(said(lambda w: w.text("a", "x")))[:2] == [ResponseCreated, ResponseInProgress]
    assert kinds(said(lambda w: w.start()))[:2] == [ResponseCreated, ResponseInProgress]
    queued = said(lambda w: w.queue(), lambda w: w.extension_event("acme:progress", {}))
    assert kinds(queued)[:3] == [ResponseCreated, ResponseQueued, ResponseInProgress]
    assert [event.response.status for event in queued[:3]] == ["queued", "queued", "in_progress"]  # type: ignore[union-attr]
    writer, collector = fresh()
    waited = ResponseWriter(replace(writer.response, status=ResponseStatus.QUEUED), collector, counting_stamps())
    waited.text("a", "x")
    assert kinds(collector.events)[:3] == [ResponseCreated, ResponseQueued, ResponseInProgress]


@pytest.mark.parametrize(
    ("announce", "item"),
    [
        (lambda w: w.message("a"), Message(id="msg_1", status=ItemStatus.IN_PROGRESS, role="assistant", content=[])),
        (lambda w: w.reasoning_item("a"), Reasoning(id="rs_1", status=ItemStatus.IN_PROGRESS, summary=[])),
        (
            lambda w: w.call("a", name="look", call_id="c_1", namespace="eyes"),
            FunctionCall(
                id="fc_1", call_id="c_1", name="look", arguments="", status=ItemStatus.IN_PROGRESS, namespace="eyes"
            ),
        ),
        (
            lambda w: w.custom_call("a", name="patch", call_id="c_1"),
            CustomToolCall(id="ctc_1", call_id="c_1", name="patch", input="", status=ItemStatus.IN_PROGRESS),
        ),
        (
            lambda w: w.add_item("a", WebSearchCall(id="ws", status="completed", action={"query": "q"})),
            WebSearchCall(id="ws", status="in_progress", action={"query": "q"}),
        ),
    ],
)
def test_an_item_is_announced_with_what_is_known_and_zero_values_STR_2(announce: Move, item: Item) -> None:
    announced = said(announce)[2]
    assert isinstance(announced, ItemAdded)
    assert announced.item == item


@pytest.mark.parametrize(
    ("say", "part"),
    [
        (lambda w: w.text("a", ""), [ContentPartAdded, OutputTextDone, ContentPartDone]),
        (lambda w: w.refusal("a", ""), [ContentPartAdded, RefusalDone, ContentPartDone]),
        (lambda w: w.reasoning("a", ""), [ContentPartAdded, ReasoningDone, ContentPartDone]),
        (lambda w: w.summary("a", ""), [SummaryPartAdded, SummaryTextDone, SummaryPartDone]),
    ],
)
def test_a_part_is_announced_told_and_done_also_if_it_stays_empty_STR_3(say: Move, part: list[type]) -> None:
    assert kinds(said(say, complete)[2:]) == [ItemAdded, *part, ItemDone, ResponseCompleted]


def test_without_keys_a_part_ends_where_another_kind_begins_STR_3() -> None:
    events = said(lambda w: w.text("a", "x"), lambda w: w.refusal("a", "no"), lambda w: w.text("a", "y"), complete)
    assert kinds(events[3:]) == [
        *[ContentPartAdded, OutputTextDelta, OutputTextDone, ContentPartDone],
        *[ContentPartAdded, RefusalDelta, RefusalDone, ContentPartDone],
        *[ContentPartAdded, OutputTextDelta, OutputTextDone, ContentPartDone],
        *[ItemDone, ResponseCompleted],
    ]
    places = [event.content_index for event in events if isinstance(event, ContentPartDone)]
    assert places == [0, 1, 2]


def test_parts_with_keys_stay_open_beside_each_other_STR_3() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.text("a", "1", part="x")
        writer.text("a", "2", part="y")
        writer.text("a", "3", part="x")
        writer.end_part("a", OutputText, "y")
        writer.end_part("a", Refusal, "y")  # there is none, which is fine
        writer.complete()

    (message,) = _output(write)
    assert [part.text for part in message.content] == ["13", "2"]
    assert find_violations(said(write)) == []


def test_the_current_part_can_be_ended_STR_3() -> None:
    (message,) = _output(lambda w: w.text("a", "1"), lambda w: w.end_part("a"), lambda w: w.text("a", "2"), complete)
    assert [part.text for part in message.content] == ["1", "2"]


def _output(*moves: Move) -> list[Any]:
    writer, _ = fresh()
    for move in moves:
        move(writer)
    return writer.response.output


def test_an_item_ends_in_its_final_form_which_the_response_has_too_STR_4_STR_6() -> None:
    events = said(lambda w: w.text("a", "Hel"), lambda w: w.text("a", "lo"), complete)
    done, last = events[-2], events[-1]
    assert isinstance(done, ItemDone)
    assert isinstance(last, ResponseCompleted)
    assert isinstance(done.item, Message)
    assert done.item.content == [OutputText(text="Hello", annotations=[], logprobs=[])]
    assert last.response.output == [done.item]


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (complete, ResponseCompleted),
        (lambda w: w.incomplete("max_output_tokens"), ResponseIncomplete),
        (lambda w: w.fail(GONE), ResponseFailed),
    ],
)
def test_there_is_one_terminal_event_and_it_is_the_last_STR_7(end: Move, kind: type) -> None:
    events = said(lambda w: w.text("a", "x"), end)
    terminal = [
        type(event) for event in events if isinstance(event, ResponseCompleted | ResponseIncomplete | ResponseFailed)
    ]
    assert terminal == [kind]
    assert type(events[-1]) is kind


def test_a_failure_closes_what_is_open_and_tells_the_error_first_STR_8_ITEM_3() -> None:
    events = said(
        lambda w: w.text("a", "x"), lambda w: w.call("b", name="look", call_id="c"), lambda w: w.fail(GONE, USED)
    )
    assert kinds(events[-4:]) == [ArgumentsDone, ItemDone, ErrorEvent, ResponseFailed]
    error, last = events[-2], events[-1]
    assert isinstance(error, ErrorEvent)
    assert isinstance(last, ResponseFailed)
    assert (error.error.type, error.error.code, error.error.message, error.error.param) == (
        "server_error",
        "upstream_disconnected",
        "gone",
        None,
    )
    assert last.response.error is not None
    assert (last.response.error.code, last.response.usage) == ("upstream_disconnected", USED)
    assert [status_of(item) for item in last.response.output] == ["incomplete", "incomplete"]


def test_parallel_calls_keep_their_own_arguments_STR_9() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.call(0, name="look", call_id="c_0")
        writer.call(1, name="hear", call_id="c_1")
        for key, piece in [(0, '{"a"'), (1, "{"), (0, ""), (1, "}"), (0, ":1}")]:
            writer.arguments(key, piece)
        writer.complete()

    first, second = _output(write)
    assert (first.arguments, second.arguments) == ('{"a":1}', "{}")
    told = [event for event in said(write) if isinstance(event, ArgumentsDelta | ArgumentsDone)]
    assert [event.output_index for event in told] == [0, 1, 1, 0, 0, 1]
    assert [event.name for event in told if isinstance(event, ArgumentsDone)] == ["look", "hear"]


def test_the_input_of_a_custom_tool_has_its_own_events() -> None:
    events = said(lambda w: w.custom_call("a", name="patch", call_id="c"), lambda w: w.custom_input("a", "x"), complete)
    assert kinds(events[2:]) == [ItemAdded, CustomInputDelta, CustomInputDone, ItemDone, ResponseCompleted]


def test_reasoning_has_a_part_and_summaries_have_theirs_STR_10() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.reasoning("a", "Hm")
        writer.summary("a", "So")
        writer.encrypted_content("a", "sealed")
        writer.complete()

    assert kinds(said(write)[3:]) == [
        *[ContentPartAdded, ReasoningDelta, ReasoningDone, ContentPartDone],
        *[SummaryPartAdded, SummaryTextDelta, SummaryTextDone, SummaryPartDone],
        *[ItemDone, ResponseCompleted],
    ]
    (found,) = _output(write)
    assert (found.content, found.summary) == ([ReasoningText(text="Hm")], [SummaryText(text="So")])
    assert found.encrypted_content == "sealed"


@pytest.mark.parametrize("say", [lambda w: w.summary("a", "So"), lambda w: w.encrypted_content("a", "sealed")])
def test_anything_of_reasoning_announces_it_STR_10_RSN_1(say: Move) -> None:
    (found,) = _output(say, complete)
    assert isinstance(found, Reasoning)
    assert found.content is UNSET


def test_refusals_and_citations_have_their_own_events_STR_11() -> None:
    events = said(
        lambda w: w.refusal("a", "No"), lambda w: w.annotation("b", CITED), lambda w: w.annotation("b", CITED), complete
    )
    assert {RefusalDelta, RefusalDone} <= set(kinds(events))
    assert [event.annotation_index for event in events if isinstance(event, AnnotationAdded)] == [0, 1]
    done = [event.part for event in events if isinstance(event, ContentPartDone)]
    assert done == [Refusal(refusal="No"), OutputText(text="", annotations=[CITED, CITED], logprobs=[])]


def test_logprobs_stand_on_deltas_done_and_part_STR_12() -> None:
    events = said(
        lambda w: w.text("a", "a", logprobs=[PROBABLE]), lambda w: w.text("a", "", logprobs=[PROBABLE]), complete
    )
    assert [event.logprobs for event in events if isinstance(event, OutputTextDelta)] == [[PROBABLE], [PROBABLE]]
    assert [event.logprobs for event in events if isinstance(event, OutputTextDone)] == [[PROBABLE, PROBABLE]]
    parts: list[Any] = [event.part for event in events if isinstance(event, ContentPartDone)]
    assert [part.logprobs for part in parts] == [[PROBABLE, PROBABLE]]


def test_the_last_item_of_an_incomplete_response_is_incomplete_and_no_other_ITEM_3() -> None:
    writer, _ = fresh()
    writer.call("a", name="look", call_id="c")
    writer.text("b", "x")
    writer.incomplete("max_output_tokens", USED)
    assert [status_of(item) for item in writer.response.output] == ["completed", "incomplete"]
    assert writer.response.incomplete_details is not None
    assert (writer.response.incomplete_details.reason, writer.response.usage) == ("max_output_tokens", USED)


def test_an_id_is_taken_over_once_and_never_shared_ITEM_6() -> None:
    writer, _ = fresh()
    for key, id in [(1, "msg_1"), (2, "msg_1"), (3, None), (4, "")]:
        writer.message(key, id=id)
    writer.complete()
    ids = [id_of(item) for item in writer.response.output]
    assert ids[0] == "msg_1"
    assert len(set(ids)) == 4


def test_a_phase_is_kept_whenever_it_is_told_ITEM_7() -> None:
    early, late = _output(
        lambda w: w.message("a", phase="commentary"),
        lambda w: w.text("b", "x"),
        lambda w: w.set_phase("b", "final_answer"),
        complete,
    )
    assert (early.phase, late.phase) == ("commentary", "final_answer")


def test_unknown_fields_are_told_when_the_item_is_done_ITEM_5() -> None:
    (found,) = _output(lambda w: w.text("a", "x"), lambda w: w.set_extra_fields("a", {"acme": Raw(b"1")}), complete)
    assert found.extra == {"acme": Raw(b"1")}


# Items that come whole


def test_an_item_that_comes_whole_is_announced_and_done() -> None:
    item = FunctionCallOutput(id="fco_1", call_id="c", output="ok", status=ItemStatus.COMPLETED)
    assert _output(lambda w: w.whole_item("a", item), complete) == [item]


def test_a_compaction_needs_no_status_ITEM_2() -> None:
    assert _output(lambda w: w.whole_item("a", Compaction(id="c", encrypted_content="x")), complete) == [
        Compaction(id="c", encrypted_content="x")
    ]


def test_a_hosted_tool_may_fail_though_the_response_goes_on_ITEM_2() -> None:
    failed = CodeInterpreterCall(id="ci", status="failed")
    assert _output(lambda w: w.whole_item("a", failed), complete) == [failed]


def test_a_status_that_is_no_end_becomes_one_ITEM_2() -> None:
    (found,) = _output(lambda w: w.whole_item("a", WebSearchCall(id="ws", status="searching")), complete)
    assert found.status == "completed"


def test_an_item_without_an_id_gets_one_and_a_missing_status_stays_missing_ITEM_2() -> None:
    hosted, unknown = _output(
        lambda w: w.whole_item("a", McpListTools(server_label="s", tools=[])),
        lambda w: w.whole_item("b", UnknownItem(kind="acme:note", raw=Raw(b'{"type":"acme:note","text":"x"}'))),
        complete,
    )
    assert (id_of(hosted), hosted.status) == ("item_1", UNSET)
    assert msgspec.json.decode(unknown.raw) == {"type": "acme:note", "text": "x", "id": "item_2"}


def test_an_unknown_item_keeps_its_own_word_for_its_end_ITEM_5() -> None:
    item = UnknownItem(kind="acme:run", raw=Raw(b'{"type":"acme:run","id":"r","status":"succeeded"}'))
    assert _output(lambda w: w.whole_item("a", item), complete) == [item]


def test_an_item_that_was_announced_and_never_done_ends_with_the_response() -> None:
    item = UnknownItem(kind="acme:run", raw=Raw(b'{"type":"acme:run","id":"r","status":"completed"}'))
    (found,) = _output(lambda w: w.add_item("a", item), lambda w: w.fail(GONE))
    assert status_of(found) == "incomplete"


# Extensions, B-3


def test_an_item_of_our_own_kind_has_its_slug_B_3() -> None:
    (found,) = _output(
        lambda w: w.extension_item("a", "vtcode:file_change", {"path": "x", "type": "forged", "id": "forged"}), complete
    )
    members = msgspec.json.decode(found.raw)
    assert members == {"type": "vtcode:file_change", "id": "vtcode_1", "status": "completed", "path": "x"}


def test_our_own_items_may_fail_ITEM_2() -> None:
    (found,) = _output(
        lambda w: w.extension_item("a", "vtcode:command_execution", {}),
        lambda w: w.close("a", ItemStatus.FAILED),
        complete,
    )
    assert status_of(found) == "failed"


def test_an_event_that_is_carried_speaks_of_our_item_under_our_numbers_ITEM_5() -> None:
    carried = said(
        lambda w: w.message("a"),
        lambda w: w.unknown_event("acme:moved", {"sequence_number": 99, "item_id": "theirs", "x": 1}, key="a"),
    )[-1]
    assert isinstance(carried, UnknownEvent)
    assert msgspec.json.decode(carried.raw) == {
        "type": "acme:moved",
        "sequence_number": 3,
        "item_id": "msg_1",
        "output_index": 0,
        "x": 1,
    }


@pytest.mark.parametrize("kind", ["file_change", "vtcode:", ":file_change", "VT code:x", "vtcode:file change"])
def test_a_kind_of_our_own_without_a_slug_is_refused_B_3(kind: str) -> None:
    writer, collector = fresh()
    with pytest.raises(InvalidTransition, match="slug:name, such as acme:progress"):
        writer.extension_item("a", kind, {})
    with pytest.raises(InvalidTransition, match="slug:name, such as acme:progress"):
        writer.extension_event(kind, {})
    assert collector.events == []


# The response's life (B-1, B-4): every status, and every move from it


REACH: dict[str, list[Move]] = {
    "new": [],
    "queued": [lambda w: w.queue()],
    "in_progress": [lambda w: w.start()],
    "completed": [complete],
    "incomplete": [lambda w: w.incomplete("max_output_tokens")],
    "failed": [lambda w: w.fail(GONE)],
}
MOVES: dict[str, Move] = {
    "queued": lambda w: w.queue(),
    "in_progress": lambda w: w.start(),
    "completed": complete,
    "incomplete": lambda w: w.incomplete("content_filter"),
    "failed": lambda w: w.fail(GONE),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("status", REACH)
def test_a_response_moves_as_its_table_says_and_no_other_way_B_1_B_4(status: str, move: str) -> None:
    """From `new` everything can be reached, and on the way to an end a response runs, also where that was not said."""
    writer, collector = fresh()
    for reach in REACH[status]:
        reach(writer)
    before = collector.take()
    runs_first = status == "queued" and move in ("completed", "incomplete")
    if status == "new" or runs_first or ResponseStatus(move) in RESPONSE_TRANSITIONS[ResponseStatus(status)]:
        MOVES[move](writer)
        assert writer.response.status == move
    else:
        with pytest.raises(InvalidTransition, match=status):
            MOVES[move](writer)
        assert collector.events == []
        assert writer.response.status == status
        assert before


AFTER_THE_END: dict[str, Move] = {
    "message": lambda w: w.message("b"),
    "text": lambda w: w.text("b", "x"),
    "refusal": lambda w: w.refusal("b", "x"),
    "annotation": lambda w: w.annotation("b", CITED),
    "reasoning": lambda w: w.reasoning("b", "x"),
    "summary": lambda w: w.summary("b", "x"),
    "encrypted": lambda w: w.encrypted_content("b", "x"),
    "call": lambda w: w.call("b", name="look", call_id="c"),
    "custom_call": lambda w: w.custom_call("b", name="patch", call_id="c"),
    "add": lambda w: w.add_item("b", WebSearchCall()),
    "extension_item": lambda w: w.extension_item("b", "acme:x", {}),
    "extension": lambda w: w.extension_event("acme:x", {}),
    "carry": lambda w: w.unknown_event("acme:x", {}),
    "update": lambda w: w.update(service_tier="flex"),
    "end_as": lambda w: w.end_as(w.response),
}


@pytest.mark.parametrize("move", AFTER_THE_END)
@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_nothing_comes_after_the_end_STR_7(status: str, move: str) -> None:
    writer, collector = fresh()
    REACH[status][0](writer)
    collector.take()
    with pytest.raises(InvalidTransition, match=f"the response is {status}.*STR-7"):
        AFTER_THE_END[move](writer)
    assert collector.events == []


def test_a_response_has_its_times_and_its_details_B_4() -> None:
    completed, _ = fresh()
    assert (completed.has_started, completed.has_ended) == (False, False)
    completed.update(service_tier="flex")
    completed.complete(USED)
    assert (completed.has_started, completed.has_ended) == (True, True)
    made = completed.response
    assert (made.created_at, made.completed_at, made.usage, made.service_tier) == (
        FIRST_SECOND,
        FIRST_SECOND,
        USED,
        "flex",
    )
    assert (made.error, made.incomplete_details) == (None, None)
    failed, _ = fresh()
    failed.fail(ApiError("no", type="model_error", code="tool_not_allowed"))
    assert failed.response.completed_at is None


# An item's life (ITEM-2, ITEM-4)


OPEN: dict[str, Move] = {
    "message": lambda w: w.text("a", "x"),
    "reasoning item": lambda w: w.reasoning("a", "x"),
    "function call": lambda w: w.call("a", name="look", call_id="c"),
    "custom tool call": lambda w: w.custom_call("a", name="patch", call_id="c"),
    "whole item": lambda w: w.add_item("a", WebSearchCall(id="ws")),
}
# What can be done to an open item, and to which.
DO: dict[str, tuple[Move, tuple[str, ...]]] = {
    "text": (lambda w: w.text("a", "y"), ("message",)),
    "refusal": (lambda w: w.refusal("a", "y"), ("message",)),
    "annotation": (lambda w: w.annotation("a", CITED), ("message",)),
    "phase": (lambda w: w.set_phase("a", "commentary"), ("message",)),
    "reasoning": (lambda w: w.reasoning("a", "y"), ("reasoning item",)),
    "summary": (lambda w: w.summary("a", "y"), ("reasoning item",)),
    "encrypted": (lambda w: w.encrypted_content("a", "y"), ("reasoning item",)),
    "arguments": (lambda w: w.arguments("a", "y"), ("function call",)),
    "custom_input": (lambda w: w.custom_input("a", "y"), ("custom tool call",)),
    "done": (lambda w: w.finish_item("a", WebSearchCall(id="ws")), ("whole item",)),
    "keep": (lambda w: w.set_extra_fields("a", {}), ("message", "reasoning item", "function call", "custom tool call")),
    "end_part": (lambda w: w.end_part("a"), tuple(OPEN)),
    "close": (lambda w: w.close("a"), tuple(OPEN)),
    "close as incomplete": (lambda w: w.close("a", ItemStatus.INCOMPLETE), tuple(OPEN)),
    "close as failed": (lambda w: w.close("a", ItemStatus.FAILED), ("whole item",)),
    "close as in_progress": (lambda w: w.close("a", ItemStatus.IN_PROGRESS), ()),
    "message": (lambda w: w.message("a"), ()),
    "reasoning_item": (lambda w: w.reasoning_item("a"), ()),
    "call": (lambda w: w.call("a", name="look", call_id="c"), ()),
    "custom_call": (lambda w: w.custom_call("a", name="patch", call_id="c"), ()),
    "add": (lambda w: w.add_item("a", WebSearchCall(id="ws")), ()),
    "extension_item": (lambda w: w.extension_item("a", "acme:x", {}), ()),
}


@pytest.mark.parametrize("what", DO)
@pytest.mark.parametrize("kind", OPEN)
def test_an_open_item_takes_what_its_kind_holds_and_no_other_B_1(kind: str, what: str) -> None:
    writer, collector = fresh()
    OPEN[kind](writer)
    assert (writer.open_keys, writer.item_count, writer.is_open("a"), writer.was_closed("a")) == (["a"], 1, True, False)
    collector.take()
    do, allowed = DO[what]
    if kind in allowed:
        do(writer)
    else:
        with pytest.raises(InvalidTransition):
            do(writer)
        assert collector.events == []
        assert writer.is_open("a")
        writer.complete()
        assert writer.has_ended


@pytest.mark.parametrize("what", DO)
@pytest.mark.parametrize("kind", OPEN)
def test_nothing_touches_an_item_that_is_done_ITEM_4(kind: str, what: str) -> None:
    writer, collector = fresh()
    OPEN[kind](writer)
    writer.close("a")
    assert (writer.is_open("a"), writer.was_closed("a")) == (False, True)
    before = collector.take()
    with pytest.raises(InvalidTransition, match="ITEM-4"):
        DO[what][0](writer)
    assert collector.events == []
    writer.complete()
    assert find_violations(before + collector.events) == []


@pytest.mark.parametrize("what", ["phase", "arguments", "custom_input", "done", "keep", "end_part", "close"])
def test_what_was_never_announced_cannot_be_touched(what: str) -> None:
    writer, collector = fresh()
    with pytest.raises(InvalidTransition, match="'a' names no item: none was announced under it"):
        DO[what][0](writer)
    assert collector.events == []


def test_a_refused_move_says_what_was_there_and_what_was_wanted() -> None:
    writer, _ = fresh()
    writer.call("a", name="look", call_id="c")
    with pytest.raises(InvalidTransition, match="'a' names an open function call; expected an open custom tool call"):
        writer.custom_input("a", "x")
    with pytest.raises(InvalidTransition, match=r"a function call holds no part of the type output_text \(STR-3\)"):
        writer.text("a", "x")
    with pytest.raises(InvalidTransition, match=r"a function call cannot fail, only extension items can.*ITEM-2"):
        writer.close("a", ItemStatus.FAILED)


def test_an_item_cannot_end_as_another_STR_4() -> None:
    writer, _ = fresh()
    writer.add_item("a", WebSearchCall(id="ws"))
    with pytest.raises(InvalidTransition, match="announced as web_search_call and cannot end as compaction"):
        writer.finish_item("a", Compaction(id="c", encrypted_content="x"))


def test_an_item_of_the_specification_cannot_end_as_failed_ITEM_2() -> None:
    writer, _ = fresh()
    with pytest.raises(InvalidTransition, match="a function_call_output cannot fail"):
        writer.whole_item("a", FunctionCallOutput(id="f", call_id="c", output="", status=ItemStatus.FAILED))


@pytest.mark.parametrize("end", [complete, lambda w: w.incomplete("max_output_tokens")])
def test_an_incomplete_item_in_the_middle_ends_no_response_by_itself_ITEM_3(end: Move) -> None:
    writer, _ = fresh()
    writer.text("a", "x")
    writer.close("a", ItemStatus.INCOMPLETE)
    writer.text("b", "y")
    with pytest.raises(InvalidTransition, match=r"output\[0\] is incomplete.*ITEM-3"):
        end(writer)
    writer.fail(GONE)


def test_a_response_ends_as_another_did_only_if_it_can_STR_7() -> None:
    writer, _ = fresh()
    writer.message("a")
    ended, _ = fresh()
    ended.complete()
    with pytest.raises(InvalidTransition, match=r"items are open: \['a'\]"):
        writer.end_as(ended.response)
    writer.close("a")
    with pytest.raises(InvalidTransition, match="in_progress has no terminal event"):
        writer.end_as(writer.response)
    writer.end_as(ended.response)
    assert writer.response.status == "completed"


def test_a_response_ends_as_another_did_in_every_word_STR_7_STR_8() -> None:
    failed, _ = fresh()
    failed.fail(GONE, USED)
    again, collector = fresh()
    again.end_as(failed.response)
    assert again.response == failed.response
    assert kinds(collector.events[-2:]) == [ErrorEvent, ResponseFailed]
    unexplained, told = fresh()
    unexplained.end_as(replace(failed.response, error=None))
    assert kinds(told.events[-2:]) == [ResponseInProgress, ResponseFailed]


def test_a_response_ends_as_incomplete_only_if_its_items_let_it_ITEM_3() -> None:
    cut, _ = fresh()
    cut.text("a", "x")
    cut.incomplete("content_filter")
    again, _ = fresh()
    again.text("a", "x")
    again.close("a", ItemStatus.INCOMPLETE)
    with pytest.raises(InvalidTransition, match="ITEM-3"):
        again.end_as(replace(cut.response, status="completed"))
    again.end_as(cut.response)
    assert again.response == cut.response
