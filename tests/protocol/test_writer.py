"""The writer: it numbers, opens and closes, and refuses invalid calls; the grammar checks the rest of its output."""

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
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage, make_initial_response
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
    initial_response = make_initial_response(Request(model="m"), id="resp_1", created_at=FIRST_SECOND)
    return ResponseWriter(initial_response, collector, counting_stamps()), collector


def events_of(*moves: Move) -> list[StreamEvent]:
    """The events of a response."""
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
def test_events_are_decoded_as_encoded(events: list[StreamEvent]) -> None:
    for event in events:
        assert decode_event(encode(event)) == event


@given(lives())
def test_sequence_numbers_start_at_zero_without_gaps_STR_5(events: list[StreamEvent]) -> None:
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for event in events:
        if isinstance(event, UnknownEvent):
            assert msgspec.json.decode(event.raw_members()["sequence_number"]) == event.sequence_number


# The 24 events (B-2)


def test_event_types_are_those_of_the_schema_and_of_custom_tools_B_2() -> None:
    names = {
        schema["properties"]["type"]["enum"][0]
        for name, schema in published().items()
        if name.endswith("StreamingEvent")
    }
    custom = {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}
    assert len(names) == 24
    assert set(TYPE_OF_EVENT.values()) == names | custom


def test_writer_can_emit_every_event_type_B_2() -> None:
    def write_all(writer: ResponseWriter) -> None:
        writer.queue()
        writer.add_text("m", "a")
        writer.add_annotation("m", CITED)
        writer.add_refusal("m", "b")
        writer.add_reasoning("r", "c")
        writer.add_summary("r", "d")
        writer.open_call("f", name="look", call_id="c_1")
        writer.add_arguments("f", "{}")
        writer.open_custom_call("c", name="patch", call_id="c_2")
        writer.add_custom_input("c", "e")

    def ended(end: Move) -> set[type]:
        return set(kinds(events_of(write_all, end)))

    emitted = ended(complete) | ended(lambda w: w.end_incomplete("content_filter")) | ended(lambda w: w.fail(GONE))
    assert emitted == set(TYPE_OF_EVENT)


# The requirements of each row


def test_writer_emits_created_and_in_progress_first_STR_1() -> None:
    assert kinds(events_of(lambda w: w.add_text("a", "x")))[:2] == [ResponseCreated, ResponseInProgress]
    assert kinds(events_of(lambda w: w.start()))[:2] == [ResponseCreated, ResponseInProgress]
    queued = events_of(lambda w: w.queue(), lambda w: w.emit_extension_event("acme:progress", {}))
    assert kinds(queued)[:3] == [ResponseCreated, ResponseQueued, ResponseInProgress]
    assert [event.response.status for event in queued[:3]] == ["queued", "queued", "in_progress"]  # type: ignore[union-attr]
    writer, collector = fresh()
    waited = ResponseWriter(replace(writer.response, status=ResponseStatus.QUEUED), collector, counting_stamps())
    waited.add_text("a", "x")
    assert kinds(collector.events)[:3] == [ResponseCreated, ResponseQueued, ResponseInProgress]


@pytest.mark.parametrize(
    ("announce", "item"),
    [
        (
            lambda w: w.open_message("a"),
            Message(id="msg_1", status=ItemStatus.IN_PROGRESS, role="assistant", content=[]),
        ),
        (lambda w: w.open_reasoning("a"), Reasoning(id="rs_1", status=ItemStatus.IN_PROGRESS, summary=[])),
        (
            lambda w: w.open_call("a", name="look", call_id="c_1", namespace="eyes"),
            FunctionCall(
                id="fc_1", call_id="c_1", name="look", arguments="", status=ItemStatus.IN_PROGRESS, namespace="eyes"
            ),
        ),
        (
            lambda w: w.open_custom_call("a", name="patch", call_id="c_1"),
            CustomToolCall(id="ctc_1", call_id="c_1", name="patch", input="", status=ItemStatus.IN_PROGRESS),
        ),
        (
            lambda w: w.open_item("a", WebSearchCall(id="ws", status="completed", action={"query": "q"})),
            WebSearchCall(id="ws", status="in_progress", action={"query": "q"}),
        ),
    ],
)
def test_added_item_has_known_fields_and_zero_values_STR_2(announce: Move, item: Item) -> None:
    announced = events_of(announce)[2]
    assert isinstance(announced, ItemAdded)
    assert announced.item == item


@pytest.mark.parametrize(
    ("say", "part"),
    [
        (lambda w: w.add_text("a", ""), [ContentPartAdded, OutputTextDone, ContentPartDone]),
        (lambda w: w.add_refusal("a", ""), [ContentPartAdded, RefusalDone, ContentPartDone]),
        (lambda w: w.add_reasoning("a", ""), [ContentPartAdded, ReasoningDone, ContentPartDone]),
        (lambda w: w.add_summary("a", ""), [SummaryPartAdded, SummaryTextDone, SummaryPartDone]),
    ],
)
def test_part_has_added_and_done_events_even_if_empty_STR_3(say: Move, part: list[type]) -> None:
    assert kinds(events_of(say, complete)[2:]) == [ItemAdded, *part, ItemDone, ResponseCompleted]


def test_part_without_key_ends_when_another_kind_starts_STR_3() -> None:
    events = events_of(
        lambda w: w.add_text("a", "x"), lambda w: w.add_refusal("a", "no"), lambda w: w.add_text("a", "y"), complete
    )
    assert kinds(events[3:]) == [
        *[ContentPartAdded, OutputTextDelta, OutputTextDone, ContentPartDone],
        *[ContentPartAdded, RefusalDelta, RefusalDone, ContentPartDone],
        *[ContentPartAdded, OutputTextDelta, OutputTextDone, ContentPartDone],
        *[ItemDone, ResponseCompleted],
    ]
    places = [event.content_index for event in events if isinstance(event, ContentPartDone)]
    assert places == [0, 1, 2]


def test_parts_with_keys_stay_open_in_parallel_STR_3() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_text("a", "1", part_key="x")
        writer.add_text("a", "2", part_key="y")
        writer.add_text("a", "3", part_key="x")
        writer.end_part("a", OutputText, "y")
        writer.end_part("a", Refusal, "y")  # there is none, which is allowed
        writer.complete()

    (message,) = _output(write)
    assert [part.text for part in message.content] == ["13", "2"]
    assert find_violations(events_of(write)) == []


def test_end_part_ends_the_current_part_STR_3() -> None:
    (message,) = _output(
        lambda w: w.add_text("a", "1"), lambda w: w.end_part("a"), lambda w: w.add_text("a", "2"), complete
    )
    assert [part.text for part in message.content] == ["1", "2"]


def _output(*moves: Move) -> list[Any]:
    writer, _ = fresh()
    for move in moves:
        move(writer)
    return writer.response.output


def test_done_item_equals_the_item_of_the_response_STR_4_STR_6() -> None:
    events = events_of(lambda w: w.add_text("a", "Hel"), lambda w: w.add_text("a", "lo"), complete)
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
        (lambda w: w.end_incomplete("max_output_tokens"), ResponseIncomplete),
        (lambda w: w.fail(GONE), ResponseFailed),
    ],
)
def test_terminal_event_is_unique_and_last_STR_7(end: Move, kind: type) -> None:
    events = events_of(lambda w: w.add_text("a", "x"), end)
    terminal = [
        type(event) for event in events if isinstance(event, ResponseCompleted | ResponseIncomplete | ResponseFailed)
    ]
    assert terminal == [kind]
    assert type(events[-1]) is kind


def test_failure_closes_open_items_and_emits_the_error_first_STR_8_ITEM_3() -> None:
    events = events_of(
        lambda w: w.add_text("a", "x"),
        lambda w: w.open_call("b", name="look", call_id="c"),
        lambda w: w.fail(GONE, USED),
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


def test_parallel_calls_keep_separate_arguments_STR_9() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.open_call(0, name="look", call_id="c_0")
        writer.open_call(1, name="hear", call_id="c_1")
        for key, piece in [(0, '{"a"'), (1, "{"), (0, ""), (1, "}"), (0, ":1}")]:
            writer.add_arguments(key, piece)
        writer.complete()

    first, second = _output(write)
    assert (first.arguments, second.arguments) == ('{"a":1}', "{}")
    events = [event for event in events_of(write) if isinstance(event, ArgumentsDelta | ArgumentsDone)]
    assert [event.output_index for event in events] == [0, 1, 1, 0, 0, 1]
    assert [event.name for event in events if isinstance(event, ArgumentsDone)] == ["look", "hear"]


def test_custom_tool_input_has_its_own_events() -> None:
    events = events_of(
        lambda w: w.open_custom_call("a", name="patch", call_id="c"), lambda w: w.add_custom_input("a", "x"), complete
    )
    assert kinds(events[2:]) == [ItemAdded, CustomInputDelta, CustomInputDone, ItemDone, ResponseCompleted]


def test_reasoning_and_summaries_have_separate_parts_STR_10() -> None:
    def write(writer: ResponseWriter) -> None:
        writer.add_reasoning("a", "Hm")
        writer.add_summary("a", "So")
        writer.set_encrypted_content("a", "sealed")
        writer.complete()

    assert kinds(events_of(write)[3:]) == [
        *[ContentPartAdded, ReasoningDelta, ReasoningDone, ContentPartDone],
        *[SummaryPartAdded, SummaryTextDelta, SummaryTextDone, SummaryPartDone],
        *[ItemDone, ResponseCompleted],
    ]
    (item,) = _output(write)
    assert (item.content, item.summary) == ([ReasoningText(text="Hm")], [SummaryText(text="So")])
    assert item.encrypted_content == "sealed"


@pytest.mark.parametrize("say", [lambda w: w.add_summary("a", "So"), lambda w: w.set_encrypted_content("a", "sealed")])
def test_any_reasoning_call_adds_the_item_STR_10_RSN_1(say: Move) -> None:
    (item,) = _output(say, complete)
    assert isinstance(item, Reasoning)
    assert item.content is UNSET


def test_refusals_and_citations_have_their_own_events_STR_11() -> None:
    events = events_of(
        lambda w: w.add_refusal("a", "No"),
        lambda w: w.add_annotation("b", CITED),
        lambda w: w.add_annotation("b", CITED),
        complete,
    )
    assert {RefusalDelta, RefusalDone} <= set(kinds(events))
    assert [event.annotation_index for event in events if isinstance(event, AnnotationAdded)] == [0, 1]
    done = [event.part for event in events if isinstance(event, ContentPartDone)]
    assert done == [Refusal(refusal="No"), OutputText(text="", annotations=[CITED, CITED], logprobs=[])]


def test_logprobs_are_on_deltas_done_and_part_STR_12() -> None:
    events = events_of(
        lambda w: w.add_text("a", "a", logprobs=[PROBABLE]),
        lambda w: w.add_text("a", "", logprobs=[PROBABLE]),
        complete,
    )
    assert [event.logprobs for event in events if isinstance(event, OutputTextDelta)] == [[PROBABLE], [PROBABLE]]
    assert [event.logprobs for event in events if isinstance(event, OutputTextDone)] == [[PROBABLE, PROBABLE]]
    parts: list[Any] = [event.part for event in events if isinstance(event, ContentPartDone)]
    assert [part.logprobs for part in parts] == [[PROBABLE, PROBABLE]]


def test_only_the_last_item_of_an_incomplete_response_is_incomplete_ITEM_3() -> None:
    writer, _ = fresh()
    writer.open_call("a", name="look", call_id="c")
    writer.add_text("b", "x")
    writer.end_incomplete("max_output_tokens", USED)
    assert [status_of(item) for item in writer.response.output] == ["completed", "incomplete"]
    assert writer.response.incomplete_details is not None
    assert (writer.response.incomplete_details.reason, writer.response.usage) == ("max_output_tokens", USED)


def test_given_item_id_is_used_once_ITEM_6() -> None:
    writer, _ = fresh()
    for key, id in [(1, "msg_1"), (2, "msg_1"), (3, None), (4, "")]:
        writer.open_message(key, id=id)
    writer.complete()
    ids = [id_of(item) for item in writer.response.output]
    assert ids[0] == "msg_1"
    assert len(set(ids)) == 4


def test_phase_can_be_set_early_or_late_ITEM_7() -> None:
    early, late = _output(
        lambda w: w.open_message("a", phase="commentary"),
        lambda w: w.add_text("b", "x"),
        lambda w: w.set_phase("b", "final_answer"),
        complete,
    )
    assert (early.phase, late.phase) == ("commentary", "final_answer")


def test_extra_fields_are_in_the_done_item_ITEM_5() -> None:
    (item,) = _output(lambda w: w.add_text("a", "x"), lambda w: w.set_extra_fields("a", {"acme": Raw(b"1")}), complete)
    assert item.extra == {"acme": Raw(b"1")}


# Items that are added whole


def test_whole_item_is_added_and_done() -> None:
    item = FunctionCallOutput(id="fco_1", call_id="c", output="ok", status=ItemStatus.COMPLETED)
    assert _output(lambda w: w.add_whole_item("a", item), complete) == [item]


def test_compaction_needs_no_status_ITEM_2() -> None:
    assert _output(lambda w: w.add_whole_item("a", Compaction(id="c", encrypted_content="x")), complete) == [
        Compaction(id="c", encrypted_content="x")
    ]


def test_hosted_tool_call_may_fail_in_a_completed_response_ITEM_2() -> None:
    failed = CodeInterpreterCall(id="ci", status="failed")
    assert _output(lambda w: w.add_whole_item("a", failed), complete) == [failed]


def test_non_terminal_item_status_becomes_completed_ITEM_2() -> None:
    (item,) = _output(lambda w: w.add_whole_item("a", WebSearchCall(id="ws", status="searching")), complete)
    assert item.status == "completed"


def test_whole_item_without_id_gets_one_and_keeps_a_missing_status_ITEM_2() -> None:
    hosted, unknown = _output(
        lambda w: w.add_whole_item("a", McpListTools(server_label="s", tools=[])),
        lambda w: w.add_whole_item("b", UnknownItem(kind="acme:note", raw=Raw(b'{"type":"acme:note","text":"x"}'))),
        complete,
    )
    assert (id_of(hosted), hosted.status) == ("item_1", UNSET)
    assert msgspec.json.decode(unknown.raw) == {"type": "acme:note", "text": "x", "id": "item_2"}


def test_unknown_item_keeps_its_own_status_ITEM_5() -> None:
    item = UnknownItem(kind="acme:run", raw=Raw(b'{"type":"acme:run","id":"r","status":"succeeded"}'))
    assert _output(lambda w: w.add_whole_item("a", item), complete) == [item]


def test_added_item_without_done_ends_with_the_response() -> None:
    item = UnknownItem(kind="acme:run", raw=Raw(b'{"type":"acme:run","id":"r","status":"completed"}'))
    (done,) = _output(lambda w: w.open_item("a", item), lambda w: w.fail(GONE))
    assert status_of(done) == "incomplete"


# Extensions, B-3


def test_extension_item_has_its_slug_B_3() -> None:
    (item,) = _output(
        lambda w: w.open_extension_item("a", "vtcode:file_change", {"path": "x", "type": "forged", "id": "forged"}),
        complete,
    )
    members = msgspec.json.decode(item.raw)
    assert members == {"type": "vtcode:file_change", "id": "vtcode_1", "status": "completed", "path": "x"}


def test_extension_items_may_fail_ITEM_2() -> None:
    (item,) = _output(
        lambda w: w.open_extension_item("a", "vtcode:command_execution", {}),
        lambda w: w.close_item("a", ItemStatus.FAILED),
        complete,
    )
    assert status_of(item) == "failed"


def test_passed_through_event_gets_our_item_id_and_numbers_ITEM_5() -> None:
    carried = events_of(
        lambda w: w.open_message("a"),
        lambda w: w.emit_unknown_event("acme:moved", {"sequence_number": 99, "item_id": "theirs", "x": 1}, key="a"),
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
def test_extension_type_without_a_slug_is_refused_B_3(kind: str) -> None:
    writer, collector = fresh()
    with pytest.raises(InvalidTransition, match="slug:name, such as acme:progress"):
        writer.open_extension_item("a", kind, {})
    with pytest.raises(InvalidTransition, match="slug:name, such as acme:progress"):
        writer.emit_extension_event(kind, {})
    assert collector.events == []


# The lifecycle of a response (B-1, B-4): every status, and every transition from it


REACH: dict[str, list[Move]] = {
    "new": [],
    "queued": [lambda w: w.queue()],
    "in_progress": [lambda w: w.start()],
    "completed": [complete],
    "incomplete": [lambda w: w.end_incomplete("max_output_tokens")],
    "failed": [lambda w: w.fail(GONE)],
}
MOVES: dict[str, Move] = {
    "queued": lambda w: w.queue(),
    "in_progress": lambda w: w.start(),
    "completed": complete,
    "incomplete": lambda w: w.end_incomplete("content_filter"),
    "failed": lambda w: w.fail(GONE),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("status", REACH)
def test_response_transitions_follow_the_table_B_1_B_4(status: str, move: str) -> None:
    """From `new` every status can be reached; before its end a response is in progress, even if no call said so."""
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
    "message": lambda w: w.open_message("b"),
    "text": lambda w: w.add_text("b", "x"),
    "refusal": lambda w: w.add_refusal("b", "x"),
    "annotation": lambda w: w.add_annotation("b", CITED),
    "reasoning": lambda w: w.add_reasoning("b", "x"),
    "summary": lambda w: w.add_summary("b", "x"),
    "encrypted": lambda w: w.set_encrypted_content("b", "x"),
    "call": lambda w: w.open_call("b", name="look", call_id="c"),
    "custom_call": lambda w: w.open_custom_call("b", name="patch", call_id="c"),
    "add": lambda w: w.open_item("b", WebSearchCall()),
    "extension_item": lambda w: w.open_extension_item("b", "acme:x", {}),
    "extension": lambda w: w.emit_extension_event("acme:x", {}),
    "carry": lambda w: w.emit_unknown_event("acme:x", {}),
    "update": lambda w: w.update_response(service_tier="flex"),
    "end_as": lambda w: w.end_as(w.response),
}


@pytest.mark.parametrize("move", AFTER_THE_END)
@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_writer_refuses_calls_after_the_end_STR_7(status: str, move: str) -> None:
    writer, collector = fresh()
    REACH[status][0](writer)
    collector.take()
    with pytest.raises(InvalidTransition, match=f"the response is {status}.*STR-7"):
        AFTER_THE_END[move](writer)
    assert collector.events == []


def test_response_has_its_times_and_details_B_4() -> None:
    completed, _ = fresh()
    assert (completed.has_started, completed.has_ended) == (False, False)
    completed.update_response(service_tier="flex")
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


# The lifecycle of an item (ITEM-2, ITEM-4)


OPEN: dict[str, Move] = {
    "message": lambda w: w.add_text("a", "x"),
    "reasoning item": lambda w: w.add_reasoning("a", "x"),
    "function call": lambda w: w.open_call("a", name="look", call_id="c"),
    "custom tool call": lambda w: w.open_custom_call("a", name="patch", call_id="c"),
    "whole item": lambda w: w.open_item("a", WebSearchCall(id="ws")),
}
# The calls on an open item, and the kinds that allow each.
DO: dict[str, tuple[Move, tuple[str, ...]]] = {
    "text": (lambda w: w.add_text("a", "y"), ("message",)),
    "refusal": (lambda w: w.add_refusal("a", "y"), ("message",)),
    "annotation": (lambda w: w.add_annotation("a", CITED), ("message",)),
    "phase": (lambda w: w.set_phase("a", "commentary"), ("message",)),
    "reasoning": (lambda w: w.add_reasoning("a", "y"), ("reasoning item",)),
    "summary": (lambda w: w.add_summary("a", "y"), ("reasoning item",)),
    "encrypted": (lambda w: w.set_encrypted_content("a", "y"), ("reasoning item",)),
    "arguments": (lambda w: w.add_arguments("a", "y"), ("function call",)),
    "custom_input": (lambda w: w.add_custom_input("a", "y"), ("custom tool call",)),
    "done": (lambda w: w.finish_item("a", WebSearchCall(id="ws")), ("whole item",)),
    "keep": (lambda w: w.set_extra_fields("a", {}), ("message", "reasoning item", "function call", "custom tool call")),
    "end_part": (lambda w: w.end_part("a"), tuple(OPEN)),
    "close": (lambda w: w.close_item("a"), tuple(OPEN)),
    "close as incomplete": (lambda w: w.close_item("a", ItemStatus.INCOMPLETE), tuple(OPEN)),
    "close as failed": (lambda w: w.close_item("a", ItemStatus.FAILED), ("whole item",)),
    "close as in_progress": (lambda w: w.close_item("a", ItemStatus.IN_PROGRESS), ()),
    "message": (lambda w: w.open_message("a"), ()),
    "reasoning_item": (lambda w: w.open_reasoning("a"), ()),
    "call": (lambda w: w.open_call("a", name="look", call_id="c"), ()),
    "custom_call": (lambda w: w.open_custom_call("a", name="patch", call_id="c"), ()),
    "add": (lambda w: w.open_item("a", WebSearchCall(id="ws")), ()),
    "extension_item": (lambda w: w.open_extension_item("a", "acme:x", {}), ()),
}


@pytest.mark.parametrize("case", DO)
@pytest.mark.parametrize("kind", OPEN)
def test_open_item_accepts_only_calls_of_its_kind_B_1(kind: str, case: str) -> None:
    writer, collector = fresh()
    OPEN[kind](writer)
    assert (writer.open_keys, writer.item_count, writer.is_open("a"), writer.was_closed("a")) == (["a"], 1, True, False)
    collector.take()
    do, allowed = DO[case]
    if kind in allowed:
        do(writer)
    else:
        with pytest.raises(InvalidTransition):
            do(writer)
        assert collector.events == []
        assert writer.is_open("a")
        writer.complete()
        assert writer.has_ended


@pytest.mark.parametrize("case", DO)
@pytest.mark.parametrize("kind", OPEN)
def test_done_item_refuses_all_calls_ITEM_4(kind: str, case: str) -> None:
    writer, collector = fresh()
    OPEN[kind](writer)
    writer.close_item("a")
    assert (writer.is_open("a"), writer.was_closed("a")) == (False, True)
    before = collector.take()
    with pytest.raises(InvalidTransition, match="ITEM-4"):
        DO[case][0](writer)
    assert collector.events == []
    writer.complete()
    assert find_violations(before + collector.events) == []


@pytest.mark.parametrize("case", ["phase", "arguments", "custom_input", "done", "keep", "end_part", "close"])
def test_unknown_key_is_refused(case: str) -> None:
    writer, collector = fresh()
    with pytest.raises(InvalidTransition, match="'a' names no item: none was announced under it"):
        DO[case][0](writer)
    assert collector.events == []


def test_refused_call_names_actual_and_expected_item() -> None:
    writer, _ = fresh()
    writer.open_call("a", name="look", call_id="c")
    with pytest.raises(InvalidTransition, match="'a' names an open function call; expected an open custom tool call"):
        writer.add_custom_input("a", "x")
    with pytest.raises(InvalidTransition, match=r"a function call holds no part of the type output_text \(STR-3\)"):
        writer.add_text("a", "x")
    with pytest.raises(InvalidTransition, match=r"a function call cannot fail, only extension items can.*ITEM-2"):
        writer.close_item("a", ItemStatus.FAILED)


def test_item_cannot_end_as_another_type_STR_4() -> None:
    writer, _ = fresh()
    writer.open_item("a", WebSearchCall(id="ws"))
    with pytest.raises(InvalidTransition, match="announced as web_search_call and cannot end as compaction"):
        writer.finish_item("a", Compaction(id="c", encrypted_content="x"))


def test_specified_item_cannot_end_as_failed_ITEM_2() -> None:
    writer, _ = fresh()
    with pytest.raises(InvalidTransition, match="a function_call_output cannot fail"):
        writer.add_whole_item("a", FunctionCallOutput(id="f", call_id="c", output="", status=ItemStatus.FAILED))


@pytest.mark.parametrize("end", [complete, lambda w: w.end_incomplete("max_output_tokens")])
def test_incomplete_item_in_the_middle_refuses_a_normal_end_ITEM_3(end: Move) -> None:
    writer, _ = fresh()
    writer.add_text("a", "x")
    writer.close_item("a", ItemStatus.INCOMPLETE)
    writer.add_text("b", "y")
    with pytest.raises(InvalidTransition, match=r"output\[0\] is incomplete.*ITEM-3"):
        end(writer)
    writer.fail(GONE)


def test_end_as_requires_closed_items_and_a_terminal_status_STR_7() -> None:
    writer, _ = fresh()
    writer.open_message("a")
    ended, _ = fresh()
    ended.complete()
    with pytest.raises(InvalidTransition, match=r"items are open: \['a'\]"):
        writer.end_as(ended.response)
    writer.close_item("a")
    with pytest.raises(InvalidTransition, match="in_progress has no terminal event"):
        writer.end_as(writer.response)
    writer.end_as(ended.response)
    assert writer.response.status == "completed"


def test_end_as_copies_the_end_of_another_response_STR_7_STR_8() -> None:
    failed, _ = fresh()
    failed.fail(GONE, USED)
    again, collector = fresh()
    again.end_as(failed.response)
    assert again.response == failed.response
    assert kinds(collector.events[-2:]) == [ErrorEvent, ResponseFailed]
    unexplained, collected = fresh()
    unexplained.end_as(replace(failed.response, error=None))
    assert kinds(collected.events[-2:]) == [ResponseInProgress, ResponseFailed]


def test_end_as_incomplete_requires_an_incomplete_item_ITEM_3() -> None:
    cut, _ = fresh()
    cut.add_text("a", "x")
    cut.end_incomplete("content_filter")
    again, _ = fresh()
    again.add_text("a", "x")
    again.close_item("a", ItemStatus.INCOMPLETE)
    with pytest.raises(InvalidTransition, match="ITEM-3"):
        again.end_as(replace(cut.response, status="completed"))
    again.end_as(cut.response)
    assert again.response == cut.response
