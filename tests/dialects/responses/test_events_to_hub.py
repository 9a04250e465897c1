"""Other servers' streams, good, poor and older: whatever comes in, what comes out is conformant and says the same."""

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
    Read,
    frames,
    gist,
    normal,
    read_events,
    read_frames,
    read_stream,
    reader,
    recording,
)
from tests.generate.events import Life, counting_stamps, written

from antiphon import sse
from antiphon.dialects.responses import EventsFromHub, response_to_hub
from antiphon.dialects.responses.events_from_hub import Style
from antiphon.protocol.events import ItemAdded, ResponseCompleted, StreamEvent, TerminalEvent, UnknownEvent
from antiphon.protocol.fold import fold
from antiphon.protocol.grammar import judge
from antiphon.protocol.items import Message, Reasoning
from antiphon.protocol.response import opening

HELLO = {
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello, world!"}],
}
CALL = {"type": "function_call", "status": "completed", "name": "get_weather", "arguments": '{"city":"Paris"}'}


def said(read: Read) -> list[object]:
    """The output, without what is empty."""
    output: list[object] = gist(read.response)["output"]
    return _full(output)  # type: ignore[return-value]


def _full(value: object) -> object:
    match value:
        case dict():
            return {name: _full(member) for name, member in value.items() if member not in ([], None)}
        case list():
            return [_full(member) for member in value]
        case _:
            return value


# Laws


@pytest.mark.parametrize("name", STREAMS)
def test_every_recording_comes_out_conformant(name: str) -> None:
    """The grammar's rows, STR-1 … STR-12 and ITEM-2 … ITEM-6, whatever the server did."""
    assert judge(read_stream(recording(f"{name}.sse")).events) == []


@pytest.mark.parametrize("name", STREAMS)
def test_any_cut_of_the_bytes_gives_equal_events(name: str) -> None:
    data = recording(f"{name}.sse")
    whole = frames(data)
    for at in range(len(data)):
        decoder = sse.Decoder()
        assert decoder.feed(data[:at]) + decoder.feed(data[at:]) + decoder.finish() == whole
    decoder, to_hub = sse.Decoder(), reader()
    events: list[StreamEvent] = []
    for at in range(len(data)):
        for frame in decoder.feed(data[at : at + 1]):
            events += to_hub.feed(frame)
    for frame in decoder.finish():
        events += to_hub.feed(frame)
    assert events + to_hub.finish() == read_frames(whole).events


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_anywhere_ends_once_with_nothing_open(name: str) -> None:
    """STR-7: each distinct set of frames that some cut of the bytes leaves."""
    data = recording(f"{name}.sse")
    left = {len(cut): cut for cut in (frames(data[:at]) for at in range(len(data) + 1))}
    for cut in left.values():
        events = read_frames(cut).events
        assert judge(events) == []
        assert [event for event in events if isinstance(event, TerminalEvent)] == events[-1:]


@pytest.mark.parametrize("name", PAIRS)
def test_a_stream_says_the_same_as_the_plain_answer(name: str) -> None:
    """STR-14"""
    if name == "good_failed":
        pytest.skip("what was streamed before a failure is not in a plain answer")
    streamed = read_stream(recording(f"{name}_stream.sse"))
    begun = opening(REQUEST, id="resp_2", created_at=5)
    plain, losses = response_to_hub(recording(f"{name}_plain.json"), REQUEST, begun, counting_stamps())
    assert gist(streamed.response) == gist(plain)
    assert streamed.losses == list(losses)


@given(written(), st.sampled_from(["standard", "older"]))
@settings(max_examples=150)
def test_what_our_own_server_says_is_read_back_as_it_was(life: Life, style: Style) -> None:
    """Hub → this dialect → hub, in both styles (API-6): the same response, and for every event of it an equal one."""
    from_hub = EventsFromHub(REQUEST, style=style)
    data = b"".join(from_hub.feed(event) for event in life.events) + from_hub.finish()
    ended = bool(life.events) and isinstance(life.events[-1], TerminalEvent)
    read = read_stream(data)
    assert judge(read.events) == []
    if ended:
        assert normal(gist(read.response)) == normal(gist(fold(life.events)))
        if not any(_comes_whole(event) for event in life.events):
            assert _types(read.events) == _types(life.events)
        assert _unknown(read.events) == _unknown(life.events)


@given(one_by_one(), habits())
@settings(max_examples=250)
def test_a_poor_server_is_understood_as_a_rich_one(rich: Rich, chosen: list[Habit]) -> None:
    read = read_events(apply(chosen, as_json(rich.events)))
    assert judge(read.events) == []
    assert gist(read.response) == gist(rich.response)
    assert read.losses == []


@given(written(endings=("complete", "incomplete", "fail")), habits(where=(), who=(), parts=()))
@settings(max_examples=150)
def test_items_side_by_side_are_kept_apart_by_id_and_index(life: Life, chosen: list[Habit]) -> None:
    """STR-9: poor habits, but ids and indexes are kept, and items are announced: else their order could not be known."""
    read = read_events(apply([habit for habit in chosen if habit is not without_added], as_json(life.events)))
    assert judge(read.events) == []
    assert normal(gist(read.response)) == normal(gist(life.response))


@given(one_by_one())
def test_an_answer_that_comes_only_in_the_terminal_event_is_streamed_after_all(rich: Rich) -> None:
    read = read_events(only_the_end(as_json(rich.events)))
    assert judge(read.events) == []
    assert gist(read.response) == gist(rich.response)


@given(st.lists(st.sampled_from(STREAMS), min_size=2, max_size=2), st.randoms())
def test_frames_in_any_order_from_any_servers_come_out_conformant(names: list[str], random: st.DataObject) -> None:
    mixed = [frame for name in names for frame in frames(recording(f"{name}.sse"))]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert judge(read_frames(mixed).events) == []


def _types(events: list[StreamEvent]) -> list[str]:
    """In order, where no item is incomplete: how those end is known, and told, at the very end (ITEM-3)."""
    types = [type(event).__name__ for event in events]
    return types if isinstance(events[-1], ResponseCompleted) else sorted(types)


def _comes_whole(event: StreamEvent) -> bool:
    """A message or reasoning that the writer was given whole: read back, it is streamed piece by piece."""
    return isinstance(event, ItemAdded) and (
        (isinstance(event.item, Message) and event.item.content != [])
        or (isinstance(event.item, Reasoning) and event.item.summary != [])
    )


def _unknown(events: list[StreamEvent]) -> list[dict[str, Any]]:
    told = [json.loads(bytes(event.raw)) for event in events if isinstance(event, UnknownEvent)]
    return [{name: member for name, member in members.items() if name != "sequence_number"} for members in told]
