"""Folding a stream into a response and replaying it: both ways lose nothing, and an incomplete or truncated stream is
read as far as it goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.generate.events import ENDINGS, FIRST_SECOND, Life, counting_stamps, lives, responses, written

from antiphon.errors import InvalidTransition, UpstreamFault
from antiphon.protocol.content import InputText, OutputText, ReasoningText, Refusal, SummaryText, UrlCitation
from antiphon.protocol.emitters import EventCollector
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    CustomInputDelta,
    DeltaEvent,
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
    ResponseInProgress,
    ResponseQueued,
    StreamEvent,
    SummaryTextDelta,
    SummaryTextDone,
    UnknownEvent,
)
from antiphon.protocol.fold import ResponseFold, fold_events, replay_response
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, McpListTools, Message, Reasoning
from antiphon.protocol.open_items import id_of
from antiphon.protocol.request import Request
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.status import ItemStatus, ResponseStatus
from antiphon.protocol.writer import ResponseWriter

# Laws


@given(written(ENDINGS))
@settings(max_examples=40)
def test_fold_of_writer_events_equals_the_response_STR_6(life: Life) -> None:
    assert fold_events(life.events) == life.response


@given(responses())
@settings(max_examples=40)
def test_fold_of_a_replay_equals_the_response_ITEM_7(response: Response) -> None:
    """Ids, statuses, phases, citations, logprobs, sealed reasoning, namespaces, extensions, times, usage and error
    included."""
    events = replay_response(response)
    assert find_violations(events) == []
    assert fold_events(events) == response


@given(lives(["cut"]))
def test_unfinished_response_is_replayed_up_to_its_last_event(events: list[StreamEvent]) -> None:
    if not events:
        return
    cut = fold_events(events)
    again = replay_response(cut)
    assert fold_events(again) == cut
    assert {violation.row for violation in find_violations(again)} <= {"STR-7", "STR-4"}


@given(lives())
def test_fold_contains_all_events_so_far(events: list[StreamEvent]) -> None:
    reader = ResponseFold()
    added: list[int] = []
    done: dict[int, Item | None] = {}
    texts: dict[int, str] = {}
    for event in events:
        reader.feed(event)
        match event:
            case ItemAdded():
                added.append(event.output_index)
            case ItemDone():
                done[event.output_index] = event.item
            case ArgumentsDelta() | CustomInputDelta():
                texts[event.output_index] = texts.get(event.output_index, "") + event.delta
            case _:
                pass
        output = reader.response.output
        assert len(output) == len(added)
        assert {index: output[index] for index in done} == done
        for index, text in texts.items():
            call: Any = output[index]
            assert text == (call.arguments if isinstance(call, FunctionCall) else call.input)


@given(st.data(), lives())
def test_fold_never_raises_for_any_sequence_of_events(data: st.DataObject, events: list[StreamEvent]) -> None:
    assert fold_events([created(), *data.draw(st.permutations(events))]).id == "resp_1"


# Truncated streams, part by part


def created(output: list[Item] | None = None) -> ResponseCreated:
    response = make_initial_response(Request(model="m"), id="resp_1", created_at=FIRST_SECOND)
    return ResponseCreated(sequence_number=0, response=replace(response, output=output or []))


def item(kind: type[Item], **changes: Any) -> Any:
    """An item in progress, with no content yet."""
    defaults: dict[type, dict[str, Any]] = {
        Message: {"role": "assistant", "content": []},
        Reasoning: {"summary": []},
        FunctionCall: {"call_id": "c_1", "name": "look", "arguments": ""},
        CustomToolCall: {"call_id": "c_1", "name": "patch", "input": ""},
    }
    return kind(**{"id": "it_1", "status": ItemStatus.IN_PROGRESS, **defaults.get(kind, {}), **changes})


def folded(announced: Item, *events: StreamEvent) -> Any:
    """The result of a fold of one item."""
    (result,) = fold_events([created(), ItemAdded(sequence_number=1, output_index=0, item=announced), *events]).output
    return result


AT: dict[str, Any] = {"sequence_number": 0, "item_id": "it_1", "output_index": 0, "content_index": 0}
IN_SUMMARY: dict[str, Any] = {"sequence_number": 0, "item_id": "it_1", "output_index": 0, "summary_index": 0}
IN_CALL: dict[str, Any] = {"sequence_number": 0, "item_id": "it_1", "output_index": 0}


@pytest.mark.parametrize(
    ("events", "part"),
    [
        (
            [OutputTextDelta(**AT, delta="Hel"), OutputTextDelta(**AT, delta="lo")],
            OutputText(text="Hello", annotations=[]),
        ),
        (
            [OutputTextDelta(**AT, delta="Hel"), OutputTextDone(**AT, text="Hello")],
            OutputText(text="Hello", annotations=[]),
        ),
        ([AnnotationAdded(**AT, annotation_index=0, annotation=None)], OutputText(text="", annotations=[])),
        ([RefusalDelta(**AT, delta="N"), RefusalDelta(**AT, delta="o")], Refusal(refusal="No")),
        ([RefusalDone(**AT, refusal="No")], Refusal(refusal="No")),
    ],
)
def test_fold_reads_parts_without_added_events(events: list[StreamEvent], part: Any) -> None:
    assert folded(item(Message), *events).content == [part]


def test_fold_reads_reasoning_without_added_events() -> None:
    cut = folded(item(Reasoning), ReasoningDelta(**AT, delta="H"), SummaryTextDelta(**IN_SUMMARY, delta="S"))
    assert (cut.content, cut.summary) == ([ReasoningText(text="H")], [SummaryText(text="S")])
    done = folded(item(Reasoning), ReasoningDone(**AT, text="Hm"), SummaryTextDone(**IN_SUMMARY, text="So"))
    assert (done.content, done.summary) == ([ReasoningText(text="Hm")], [SummaryText(text="So")])


def test_truncated_call_has_the_received_arguments() -> None:
    assert folded(item(FunctionCall), ArgumentsDelta(**IN_CALL, delta='{"x')).arguments == '{"x'
    assert (
        folded(
            item(FunctionCall), ArgumentsDelta(**IN_CALL, delta="{"), ArgumentsDone(**IN_CALL, arguments="{}")
        ).arguments
        == "{}"
    )
    assert folded(item(FunctionCall, arguments="{}")).arguments == "{}"
    assert folded(item(CustomToolCall), CustomInputDelta(**IN_CALL, delta="x")).input == "x"


def test_content_of_an_added_item_is_kept() -> None:
    announced = item(Message, content=[InputText(text="a"), OutputText(text="b", annotations=[])])
    result = folded(announced, ContentPartAdded(**AT, part=InputText(text="c")))
    assert result.content == [InputText(text="c"), OutputText(text="b", annotations=[])]


def test_done_item_is_not_changed_by_later_events_ITEM_4() -> None:
    done = item(Message, status=ItemStatus.COMPLETED)
    late: list[StreamEvent] = [
        OutputTextDelta(**AT, delta="late"),
        ItemAdded(sequence_number=0, output_index=0, item=item(Message)),
        ItemDone(sequence_number=0, output_index=0, item=item(Message, id="other")),
    ]
    assert folded(item(Message), ItemDone(sequence_number=0, output_index=0, item=done), *late) == done


# Incomplete servers


def ended(*output: Item) -> StreamEvent:
    response = replace(created().response, status="completed", output=list(output))
    return ResponseCompleted(sequence_number=9, response=response)


def test_items_that_were_not_streamed_are_read_from_the_terminal_event() -> None:
    first, second = (
        item(Message, id="a", status=ItemStatus.COMPLETED),
        item(Message, id="b", status=ItemStatus.COMPLETED),
    )
    streamed: list[StreamEvent] = [ItemDone(sequence_number=1, output_index=0, item=first)]
    assert fold_events([created(), *streamed, ended(first, second)]).output == [first, second]


def test_unfinished_item_is_read_from_the_terminal_event() -> None:
    done = item(Message, status=ItemStatus.COMPLETED)
    assert folded(item(Message), ended(done)) == done


def test_streamed_items_are_kept_if_the_terminal_event_has_no_output() -> None:
    done = item(Message, status=ItemStatus.COMPLETED)
    assert folded(item(Message), ItemDone(sequence_number=2, output_index=0, item=done), ended()) == done
    assert folded(item(Message), ended()) == item(Message)


def test_streamed_items_override_a_different_terminal_event() -> None:
    done = item(Message, status=ItemStatus.COMPLETED)
    assert (
        folded(
            item(Message), ItemDone(sequence_number=2, output_index=0, item=done), ended(replace(done, id="drifted"))
        )
        == done
    )


def test_null_items_are_ignored() -> None:
    null: list[StreamEvent] = [
        ItemAdded(sequence_number=1, output_index=0, item=None),
        OutputTextDelta(**AT, delta="a"),
    ]
    assert fold_events([created(), *null]).output == []
    assert folded(item(Message), ItemDone(sequence_number=2, output_index=0, item=None)) == item(Message)


def test_items_are_ordered_by_index_despite_gaps() -> None:
    first, second = item(Message, id="a"), item(Message, id="b")
    far: list[StreamEvent] = [
        ItemAdded(sequence_number=1, output_index=10**12, item=second),
        ItemAdded(sequence_number=2, output_index=3, item=first),
    ]
    assert fold_events([created(), *far]).output == [first, second]


def test_fold_without_a_response_event_raises() -> None:
    with pytest.raises(InvalidTransition, match="none of the events was a response event"):
        fold_events([])


# Replays


def made(*output: Item, status: str = "completed") -> Response:
    return replace(created().response, status=status, output=list(output))


def test_queued_response_is_replayed_as_queued() -> None:
    assert [type(event) for event in replay_response(made(status="queued"))] == [ResponseCreated, ResponseQueued]


def test_replay_can_include_the_queued_event() -> None:
    """STR-1"""
    events = replay_response(made(), was_queued=True)
    assert [type(event) for event in events] == [ResponseCreated, ResponseQueued, ResponseInProgress, ResponseCompleted]
    assert not find_violations(events)


@pytest.mark.parametrize("status", ["cancelled", "in_progress", "something_new"])
def test_response_without_a_terminal_status_is_replayed_without_terminal_event(status: str) -> None:
    """The specification has no event for `cancelled`: the finished parts are replayed, and the stream just ends."""
    done, open_item = item(Message, id="a", status=ItemStatus.INCOMPLETE), item(FunctionCall, id="b", arguments="{")
    events = replay_response(made(done, open_item, status=status))
    assert [type(event) for event in events[:2]] == [ResponseCreated, ResponseInProgress]
    assert {violation.row for violation in find_violations(events)} == {"STR-7", "STR-4"}
    assert fold_events(events).output == [done, open_item]


@pytest.mark.parametrize(
    "odd",
    [
        item(Message, role="user"),
        item(Message, content=[InputText(text="a")]),
        item(Reasoning, status=UNSET),
        item(Reasoning, content=[]),
        item(Reasoning, content=None),
        item(Reasoning, content=[OutputText(text="t", annotations=[], logprobs=[])]),
        item(Reasoning, summary=[ReasoningText(text="t")]),
        item(Reasoning, encrypted_content=None),
    ],
)
def test_item_that_cannot_be_streamed_is_replayed_whole(odd: Any) -> None:
    still_open = made(odd, status="in_progress")
    assert fold_events(replay_response(still_open)) == still_open
    done = made(odd if odd.status is UNSET else replace(odd, status=ItemStatus.COMPLETED))
    events = replay_response(done)
    assert fold_events(events) == done
    assert find_violations(events) == []
    assert [type(event) for event in events[2:-1]] == [ItemAdded, ItemDone]


@pytest.mark.parametrize("kind", [Message, Reasoning, FunctionCall, CustomToolCall])
def test_unknown_fields_of_an_item_survive_a_replay_ITEM_5(kind: type[Item]) -> None:
    done = made(item(kind, status=ItemStatus.COMPLETED, extra={"acme": Raw(b"1")}))
    assert fold_events(replay_response(done)) == done
    still_open = made(item(kind, extra={"acme": Raw(b"1")}), status="in_progress")
    assert fold_events(replay_response(still_open)) == still_open


@pytest.mark.parametrize("status", ["completed", "in_progress"])
def test_every_kind_of_part_survives_a_replay_RSN_1(status: str) -> None:
    cited = UrlCitation(start_index=0, end_index=1, url="https://example.org", title="t")
    texts = [OutputText(text="x", annotations=[cited], logprobs=[]), Refusal(refusal="y")]
    message = item(Message, id="a", status=ItemStatus(status), phase="commentary", content=texts)
    thoughts = {"content": [ReasoningText(text="x")], "summary": [SummaryText(text="y")]}
    done = made(message, item(Reasoning, id="b", status=ItemStatus(status), **thoughts), status=status)
    assert fold_events(replay_response(done)) == done


def test_reasoning_sealed_before_its_end_is_replayed_whole() -> None:
    """The writer emits the sealed form when the item is done; this item is not done and has it already."""
    sealed = made(item(Reasoning, encrypted_content="x"), status="in_progress")
    assert fold_events(replay_response(sealed)) == sealed


def test_reasoning_with_an_empty_seal_keeps_it_RSN_1() -> None:
    sealed = made(item(Reasoning, encrypted_content="", status=ItemStatus.COMPLETED))
    assert fold_events(replay_response(sealed)) == sealed


def test_items_without_ids_get_the_same_ids_in_every_replay_ITEM_6() -> None:
    twice = [McpListTools(server_label="s", tools=[]), item(Message, id="a", status=ItemStatus.COMPLETED)]
    first, again = (
        fold_events(replay_response(made(*twice, *twice))),
        fold_events(replay_response(made(*twice, *twice))),
    )
    assert first == again
    assert len({id_of(item) for item in first.output}) == 4


def test_failed_response_is_replayed_with_its_error_STR_8() -> None:
    collector = EventCollector()
    writer = ResponseWriter(created().response, collector, counting_stamps())
    writer.fail(UpstreamFault("gone", code="upstream_disconnected"))
    error = replay_response(writer.response)[-2]
    assert isinstance(error, ErrorEvent)
    assert (error.error.code, error.error.message) == ("upstream_disconnected", "gone")


def test_failed_response_without_error_is_replayed_without_error_event() -> None:
    assert not any(isinstance(event, ErrorEvent) for event in replay_response(made(status="failed")))


def test_invalid_response_cannot_be_replayed_ITEM_3() -> None:
    with pytest.raises(InvalidTransition, match="ITEM-3"):
        replay_response(made(item(Message, status=ItemStatus.INCOMPLETE)))
    with pytest.raises(InvalidTransition, match="from in_progress to in_progress"):
        replay_response(made(item(Message, content=[OutputText(text="", annotations=[], logprobs=[])])))


def test_fold_ignores_extension_events() -> None:
    unknown = UnknownEvent(kind="acme:progress", sequence_number=1, raw=Raw(b'{"type":"acme:progress"}'))
    assert fold_events([created(), unknown]) == created().response


def test_items_with_unstreamed_members_are_replayed_in_parts() -> None:
    """Servers leave out the status of reasoning, send null, or have members of their own."""
    own = {"rank": Raw(b"1")}
    thought = Reasoning(
        id="rs_1", summary=[SummaryText(text="s", extra=own)], content=None, encrypted_content=None, extra=own
    )
    text = OutputText(text="Hi", annotations=[], extra=own)
    message = Message(id="m_1", status=ItemStatus.COMPLETED, role="assistant", content=[text], phase=None)
    call = FunctionCall(
        id="fc_1", call_id="c_1", name="f", arguments="{}", status=ItemStatus.COMPLETED, namespace=None, extra=own
    )
    initial = make_initial_response(Request(), id="resp_1", created_at=1)
    response = replace(initial, status=ResponseStatus.COMPLETED, completed_at=2, output=[thought, message, call])
    events = replay_response(response)
    assert find_violations(events) == []
    deltas = [event.delta for event in events if isinstance(event, DeltaEvent)]
    assert deltas == ["s", "Hi", "{}"]
    assert fold_events(events) == response
    # The end of an open item is not known yet, so its members cannot come later.
    open_response = replace(
        initial,
        output=[
            replace(thought, status=ItemStatus.IN_PROGRESS, encrypted_content="x"),
            replace(message, status=ItemStatus.IN_PROGRESS),
            replace(call, status=ItemStatus.IN_PROGRESS),
        ],
    )
    open_events = replay_response(open_response)
    assert not any(isinstance(event, DeltaEvent) for event in open_events)
    assert fold_events(open_events) == open_response
