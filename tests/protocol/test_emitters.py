"""Emitters (B-2): each receives every event, in order; the SSE bytes contain exactly the events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from tests.generate.events import ENDINGS, FIRST_SECOND, counting_stamps, lives

from antiphon import sse
from antiphon.protocol.codec import decode_event, decode_item, encode
from antiphon.protocol.emitters import CallbackEmitter, Emitter, EventCollector, NullEmitter, SseEmitter
from antiphon.protocol.events import TYPE_OF_EVENT, StreamEvent, UnknownEvent
from antiphon.protocol.items import UnknownItem
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.writer import ResponseWriter


def written_to(emit: Emitter, *moves: Callable[[ResponseWriter], None]) -> None:
    writer = ResponseWriter(
        make_initial_response(Request(model="m"), id="resp_1", created_at=FIRST_SECOND), emit, counting_stamps()
    )
    for move in moves:
        move(writer)


def test_collector_returns_events_since_the_last_take_B_2() -> None:
    collector = EventCollector()
    written_to(collector, lambda w: w.start())
    assert [event.sequence_number for event in collector.take()] == [0, 1]
    assert collector.take() == collector.events == []


def test_callback_emitter_calls_every_listener_in_order_B_2() -> None:
    calls: list[tuple[str, StreamEvent]] = []
    written_to(
        CallbackEmitter(lambda event: calls.append(("first", event)), lambda event: calls.append(("second", event))),
        lambda w: w.start(),
    )
    assert [(name, event.sequence_number) for name, event in calls] == [
        ("first", 0),
        ("second", 0),
        ("first", 1),
        ("second", 1),
    ]


def test_null_emitter_discards_events_B_2() -> None:
    written_to(NullEmitter(), lambda w: w.add_text("a", "x"), lambda w: w.complete())


@given(lives(ENDINGS))
def test_sse_bytes_decode_to_the_emitted_events_B_2_HTTP_3_HTTP_4(events: list[StreamEvent]) -> None:
    sent: list[bytes] = []
    emit: Emitter = SseEmitter(sent.append)
    for event in events:
        emit(event)
    decoder = sse.Decoder()
    frames = decoder.feed(b"".join(sent)) + decoder.finish()
    assert sent[-1] == sse.DONE_FRAME
    assert frames.pop().data == sse.DONE
    assert [decode_event(frame.data) for frame in frames] == events
    names = [event.kind if isinstance(event, UnknownEvent) else TYPE_OF_EVENT[type(event)] for event in events]
    assert [frame.event for frame in frames] == names


@given(lives(["cut"]))
def test_sse_emitter_sends_done_only_at_the_end_HTTP_4(events: list[StreamEvent]) -> None:
    for event in events:
        sent: list[bytes] = []
        SseEmitter(sent.append)(event)
        name = event.kind if isinstance(event, UnknownEvent) else TYPE_OF_EVENT[type(event)]
        assert sent == [sse.encode_frame(name, encode(event))]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_sse_emitter_writes_multi_line_items_on_one_line_HTTP_3(ending: str) -> None:
    """An item of unknown type is kept as its original bytes, which may contain line breaks."""
    text = '{|"type": "acme:note",|"id": "n",|"deep": {|"a": "1\\\\n2"|}|}'.replace("|", ending)
    item = decode_item(text.encode())
    assert isinstance(item, UnknownItem)
    sent: list[bytes] = []
    written_to(SseEmitter(sent.append), lambda w: w.add_whole_item("a", item))
    assert all(frame.count(b"\n") == 3 and frame.endswith(b"\n\n") and b"\r" not in frame for frame in sent)


def test_event_name_from_an_upstream_cannot_forge_a_frame_HTTP_3() -> None:
    sent: list[bytes] = []
    written_to(SseEmitter(sent.append), lambda w: w.emit_unknown_event("x\r\n\ndata: [DONE]\n\n", {}))
    assert [len(sse.Decoder().feed(frame)) for frame in sent] == [1, 1, 1]
    assert sse.Decoder().feed(sent[-1])[0].data != sse.DONE
