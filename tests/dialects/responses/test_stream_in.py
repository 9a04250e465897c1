"""Streams of other servers, complete, incomplete and older: the output is always conformant and has the same
content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.responses.impoverish import (
    Habit,
    Rich,
    apply,
    as_json,
    habits,
    one_by_one,
    only_the_end,
    without_added,
)
from tests.dialects.responses.upstreams import (
    PAIRS,
    REQUEST,
    STREAMS,
    frame_of,
    frames,
    normalized,
    read_events,
    read_frames,
    read_stream,
    reader,
    recording,
    stable_fields,
)
from tests.generate.events import Life, counting_stamps, written

from antiphon import sse
from antiphon.dialects.responses import (
    EventsFromHub,
    ResponsesWire,
    frames_without_settings,
    response_to_hub,
    without_settings,
)
from antiphon.dialects.responses.stream_out import EventStyle
from antiphon.errors import UpstreamFault
from antiphon.protocol.events import (
    ItemAdded,
    OutputTextDelta,
    ResponseCompleted,
    ResponseFailed,
    StreamEvent,
    TerminalEvent,
    UnknownEvent,
)
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.response import make_initial_response

# Laws


@pytest.mark.parametrize("name", sorted(set(PAIRS) - {"good_failed"}))
def test_stream_equals_the_plain_answer(name: str) -> None:
    """STR-14. Items streamed before a failure are not in a plain answer: that pair is excluded."""
    streamed = read_stream(recording(f"{name}_stream.sse"))
    initial_response = make_initial_response(REQUEST, id="resp_2", created_at=5)
    plain, losses = response_to_hub(recording(f"{name}_plain.json"), REQUEST, initial_response, counting_stamps())
    assert normalized(stable_fields(streamed.response)) == normalized(stable_fields(plain))
    assert streamed.losses == list(losses)


@given(written(), st.sampled_from(["default", "standard", "older"]))
@settings(max_examples=40)
def test_stream_of_our_own_server_reads_back_unchanged(life: Life, style: EventStyle) -> None:
    """Hub → this dialect → hub, in every style (API-6): the same response, and for every event of it an equal one."""
    from_hub = EventsFromHub(REQUEST, style=style)
    data = b"".join(from_hub.feed(event) for event in life.events) + from_hub.finish()
    ended = bool(life.events) and isinstance(life.events[-1], TerminalEvent)
    read = read_stream(data)
    assert find_violations(read.events) == []
    if ended:
        assert normalized(stable_fields(read.response)) == normalized(stable_fields(fold_events(life.events)))
        if not any(_comes_whole(event) for event in life.events):
            assert _types(read.events) == _types(life.events)
        assert _unknown(read.events) == _unknown(life.events)


@given(one_by_one(), habits())
@settings(max_examples=40)
def test_stream_of_an_incomplete_server_is_normalized(rich: Rich, chosen: list[Habit]) -> None:
    read = read_events(apply(chosen, as_json(rich.events)))
    assert find_violations(read.events) == []
    assert stable_fields(read.response) == stable_fields(rich.response)
    assert read.losses == []


@given(written(endings=("complete", "incomplete", "fail")), habits(where=(), who=(), parts=()))
@settings(max_examples=40)
def test_interleaved_items_are_separated_by_id_and_index(life: Life, chosen: list[Habit]) -> None:
    """STR-9: habits that keep ids, indexes and `added` events, because the order of items depends on them."""
    read = read_events(apply([habit for habit in chosen if habit is not without_added], as_json(life.events)))
    assert find_violations(read.events) == []
    assert normalized(stable_fields(read.response)) == normalized(stable_fields(life.response))


@given(one_by_one())
def test_answer_in_the_terminal_event_is_streamed(rich: Rich) -> None:
    read = read_events(only_the_end(as_json(rich.events)))
    assert find_violations(read.events) == []
    assert stable_fields(read.response) == stable_fields(rich.response)


@given(st.lists(st.sampled_from(STREAMS), min_size=2, max_size=2), st.randoms())
def test_frames_in_any_order_give_conformant_events(names: list[str], random: st.DataObject) -> None:
    mixed = [frame for name in names for frame in frames(recording(f"{name}.sse"))]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert find_violations(read_frames(mixed).events) == []


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, -7, 1.5, True, "", "text", [], [None], [{}], {}, {"type": 3}, {"text": "x"}, "\u2028"]
)


@given(
    st.sampled_from(STREAMS), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), JUNK), min_size=1, max_size=6)
)
@settings(max_examples=40)
def test_members_of_any_type_give_valid_events(name: str, spoiled: list[tuple[int, int, Any]]) -> None:
    """At any place, also inside items, parts and responses."""
    given = [
        frame
        for frame in frames(recording(f"{name}.sse"))
        if frame.data.startswith(b"{") and b"ud83d" not in frame.data
    ]
    for at, place, junk in spoiled:
        frame = given[at % len(given)]
        try:
            event = json.loads(frame.data)
        except ValueError:
            continue
        _spoil(event, place, junk)
        given[at % len(given)] = frame_of(event)
    rows = {violation.row for violation in find_violations(read_frames(given).events)}
    # An invalid item or event is passed through, and the grammar reports it.
    assert rows <= {"ITEM-5", "STR-4"}


def _spoil(members: dict[str, Any], place: int, junk: Any) -> None:
    """Replaces the nth member, counted through all objects, by junk."""
    objects, waiting = [members], [members]
    while waiting:
        for member in waiting.pop().values():
            for inner in member if isinstance(member, list) else [member]:
                if isinstance(inner, dict):
                    objects.append(inner)
                    waiting.append(inner)
    names = [(holder, name) for holder in objects for name in holder]
    holder, name = names[place % len(names)]
    holder[name] = junk


def _types(events: list[StreamEvent]) -> list[str]:
    """In order, where no item is incomplete: their status is known, and sent, only at the end (ITEM-3)."""
    types = [type(event).__name__ for event in events]
    return types if isinstance(events[-1], ResponseCompleted) else sorted(types)


def _comes_whole(event: StreamEvent) -> bool:
    """A message or reasoning that the writer was given whole: decoded again, it is streamed in pieces."""
    return isinstance(event, ItemAdded) and (
        (isinstance(event.item, Message) and event.item.content != [])
        or (isinstance(event.item, Reasoning) and event.item.summary != [])
    )


def _unknown(events: list[StreamEvent]) -> list[dict[str, Any]]:
    event_members = [json.loads(bytes(event.raw)) for event in events if isinstance(event, UnknownEvent)]
    return [
        {name: member for name, member in members.items() if name != "sequence_number"} for members in event_members
    ]


# Ends


def test_stream_without_an_end_fails_unless_configured() -> None:
    """STR-7"""
    events = [frame for frame in frames(recording("poor_no_terminal_event.sse")) if frame.data != sse.DONE]
    assert read_frames(events).response.status == "failed"
    assert read_frames(events, wire=ResponsesWire(end="items")).response.status == "completed"
    assert read_frames(events[:5], wire=ResponsesWire(end="items")).response.status == "failed"
    assert read_frames([], wire=ResponsesWire(end="items")).response.status == "failed"


def test_end_mark_does_not_complete_an_open_item() -> None:
    """STR-7"""
    cut = [*frames(recording("good_text_stream.sse"))[:5], sse.Frame("", sse.DONE)]
    response = read_frames(cut).response
    assert response.error is not None
    assert response.error.code == "upstream_disconnected"


def test_error_passed_to_finish_fails_the_response() -> None:
    """STR-8: for example a timeout; but the server's own error counts more."""
    timeout = UpstreamFault("too slow", code="upstream_timeout", status=504)
    to_hub = reader()
    to_hub.feed(frame_of({"type": "response.output_text.delta", "delta": "a"}))
    failed = to_hub.finish(timeout)[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.response.error is not None
    assert failed.response.error.code == "upstream_timeout"
    to_hub = reader()
    to_hub.feed(frame_of({"type": "error", "message": "boom"}))
    failed = to_hub.finish(timeout)[-1]
    assert isinstance(failed, ResponseFailed)
    assert failed.response.error is not None
    assert failed.response.error.message == "boom"


def test_frames_after_the_end_are_ignored() -> None:
    """STR-7"""
    to_hub = reader()
    delta = frame_of({"type": "response.output_text.delta", "item_id": "msg_1", "delta": "a"})
    assert to_hub.feed(delta)
    assert to_hub.feed(delta)
    assert to_hub.finish()
    assert to_hub.feed(delta) == []
    assert to_hub.feed(sse.Frame("", b"no json")) == []
    assert to_hub.feed(sse.Frame("", sse.DONE)) == []
    assert to_hub.finish() == []


# Unusual events


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (sse.Frame("", b"{}"), "an event without a type"),
        (sse.Frame("acme:x", b"5"), "an event of type 'acme:x'"),
        (frame_of({"type": "response.output_item.added"}), "an item without a type"),
        (frame_of({"type": "response.output_item.done", "item": 5}), "an item without a type"),
        (
            frame_of({"type": "response.content_part.added", "part": {"type": "output_audio"}}),
            "a part of type 'output_audio'",
        ),
        (
            frame_of({"type": "response.content_part.done", "part": {"type": "output_audio"}}),
            "a part of type 'output_audio'",
        ),
    ],
)
def test_undecodable_events_are_losses(frame: sse.Frame, expected: str) -> None:
    """F-4"""
    assert [loss.what for loss in read_frames([frame]).losses] == [expected]


@pytest.mark.parametrize("kind", ["ping", "keepalive"])
def test_keep_alive_events_are_ignored(kind: str) -> None:
    to_hub = reader()
    assert to_hub.feed(frame_of({"type": kind})) == []
    assert list(to_hub.losses) == []


def test_frame_name_replaces_a_missing_type() -> None:
    to_hub = reader()
    events = to_hub.feed(sse.Frame("response.output_text.delta", b'{"delta":"a"}'))
    assert isinstance(events[-1], OutputTextDelta)


def test_queued_response_emits_queued_first() -> None:
    """STR-1"""
    to_hub = reader()
    first = to_hub.feed(frame_of({"type": "response.queued", "response": {"status": "queued"}}))
    assert [type(event).__name__ for event in first] == ["ResponseCreated", "ResponseQueued"]
    assert to_hub.feed(frame_of({"type": "response.queued"})) == []
    assert [type(event).__name__ for event in to_hub.feed(frame_of({"type": "response.in_progress"}))] == [
        "ResponseInProgress"
    ]


def test_fast_path_gives_the_same_events() -> None:
    """A delta with the same address as the previous one takes a fast path; logprobs and new addresses end it."""
    logprob = {"token": "c", "logprob": -1}
    deltas: list[dict[str, Any]] = [
        {"delta": "a", "content_index": 0},
        {"delta": "b", "content_index": 0},
        {"delta": "", "content_index": 0},
        {"delta": "c", "content_index": 0, "logprobs": [logprob]},
        {"delta": "d", "content_index": 1},
        {"delta": "e", "content_index": 0},
    ]
    read = read_events({"type": "response.output_text.delta", "item_id": "msg_1", **delta} for delta in deltas)
    assert [part["text"] for part in stable_fields(read.response)["output"][0]["content"]] == ["abce", "d"]


@pytest.mark.parametrize("body", [b"[]", b"{", b"", b'{"tools":[}'])
def test_invalid_response_keeps_its_bytes_when_settings_are_removed(body: bytes) -> None:
    assert without_settings(body) == body


def test_only_settings_of_valid_events_are_removed() -> None:
    invalid = b'data: {"response":{"tools":[}}\n\ndata: [DONE]\n\ndata: {"response":1}\n\n'
    assert frames_without_settings(invalid) == invalid
    event = b'event: x\ndata: {"type":"x","response":{"tools":[1],"id":"r","instructions":null,"a":[]},"n":1.50}\n\n'
    assert frames_without_settings(event) == b'event: x\ndata: {"type":"x","response":{"id":"r","a":[]},"n":1.50}\n\n'


def test_too_long_event_is_left_to_its_reader() -> None:
    stream = b"data: %b\n\n" % bytes(sse.MAX_EVENT_LENGTH + 1)
    assert frames_without_settings(stream) == stream
