"""The output for clients of this API: frames or messages, in the spelling of the specification or the older one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.dialects.responses.upstreams import REQUEST, frames
from tests.generate.events import lives

from antiphon import sse
from antiphon.dialects.responses import EventsFromHub
from antiphon.dialects.responses.stream_out import EventStyle, Framing
from antiphon.protocol import codec
from antiphon.protocol.codec import LARGE_SETTING
from antiphon.protocol.content import LogProb
from antiphon.protocol.errors import ErrorPayload
from antiphon.protocol.events import (
    TYPE_OF_EVENT,
    ArgumentsDelta,
    ErrorEvent,
    Event,
    OutputTextDelta,
    ReasoningDelta,
    ReasoningDone,
    ResponseCompleted,
    ResponseFailed,
    StreamEvent,
    UnknownEvent,
)
from antiphon.protocol.items import UnknownItem
from antiphon.protocol.response import make_initial_response

THOUGHT = ReasoningDelta(sequence_number=4, item_id="rs_1", output_index=0, content_index=1, delta="Hm")
IDS = st.text(min_size=1, max_size=12)
SOMETIMES = st.sampled_from([UNSET, UNSET, {"acme": Raw(b'{"a": [1]}')}])
PADDING = st.sampled_from([UNSET, "x9"])
DELTAS: st.SearchStrategy[OutputTextDelta | ReasoningDelta | ArgumentsDelta] = st.one_of(
    st.builds(
        OutputTextDelta,
        sequence_number=st.integers(0, 2**40),
        item_id=IDS,
        output_index=st.integers(0, 99),
        content_index=st.integers(0, 99),
        delta=st.text(),
        logprobs=st.sampled_from([UNSET, [], [LogProb(token="a", logprob=-1, bytes=[97], top_logprobs=[])]]),
        obfuscation=PADDING,
        extra=SOMETIMES,
    ),
    st.builds(
        ReasoningDelta,
        sequence_number=st.integers(0, 2**40),
        item_id=IDS,
        output_index=st.integers(0, 99),
        content_index=st.integers(0, 99),
        delta=st.text(),
        obfuscation=PADDING,
        extra=SOMETIMES,
    ),
    st.builds(
        ArgumentsDelta,
        sequence_number=st.integers(0, 2**40),
        item_id=IDS,
        output_index=st.integers(0, 99),
        delta=st.text(),
        obfuscation=PADDING,
        extra=SOMETIMES,
    ),
)


def encoded(event: StreamEvent, style: EventStyle = "standard", framing: Framing = "sse") -> bytes:
    return EventsFromHub(REQUEST, style=style, framing=framing).feed(event)


def type_of(event: Event | UnknownEvent) -> str:
    return event.kind if isinstance(event, UnknownEvent) else TYPE_OF_EVENT[type(event)]


@given(st.lists(DELTAS, max_size=4))
@settings(max_examples=40)
def test_template_encoder_equals_the_general_encoder(
    deltas: list[OutputTextDelta | ReasoningDelta | ArgumentsDelta],
) -> None:
    from_hub, on_websocket = (
        EventsFromHub(REQUEST, style="standard", framing=framing) for framing in ("sse", "websocket")
    )
    for delta in deltas:
        general = codec.encode(delta)
        assert from_hub.feed(delta) == sse.encode_frame(type_of(delta), general)
        assert on_websocket.feed(delta) == general


@given(lives())
def test_frame_has_the_event_name_and_one_data_line(life: list[StreamEvent]) -> None:
    """HTTP-3, HTTP-5"""
    from_hub = EventsFromHub(REQUEST, style="standard")
    for event in life:
        lines = from_hub.feed(event).split(b"\n")
        assert len(lines) == 4
        assert lines[0] == b"event: " + type_of(event).encode()
        data = json.loads(lines[1].removeprefix(b"data: "))
        assert data["type"] == type_of(event)
        assert data == json.loads(codec.encode(event))  # by any fast path
        assert lines[2:] == [b"", b""]


def test_stream_ends_with_the_end_mark() -> None:
    """HTTP-4"""
    assert EventsFromHub(REQUEST).finish() == b"data: [DONE]\n\n"


@given(lives())
def test_sequence_numbers_rise_by_one_in_every_framing(life: list[StreamEvent]) -> None:
    """STR-5, WS-3: also where an error event is omitted."""
    for framing in ("sse", "websocket"):
        from_hub = EventsFromHub(REQUEST, framing=framing)
        written = [data for event in life if (data := from_hub.feed(event))]
        messages = [frames(data)[0].data for data in written] if framing == "sse" else written
        assert [json.loads(message)["sequence_number"] for message in messages] == list(range(len(messages)))


@given(lives(endings=("fail",)))
def test_websocket_failure_is_sent_once(life: list[StreamEvent]) -> None:
    """WS-3: `response.failed` alone, with the error in it; no frames, no end mark."""
    from_hub = EventsFromHub(REQUEST, framing="websocket")
    messages = [json.loads(data) for event in life if (data := from_hub.feed(event))]
    assert from_hub.finish() == b""
    assert [message["type"] for message in messages if "failed" in message["type"] or message["type"] == "error"] == [
        "response.failed"
    ]
    last = life[-1]
    assert isinstance(last, ResponseFailed)
    assert last.response.error is not None
    assert messages[-1]["response"]["error"]["code"] == last.response.error.code


EVENT_STYLES: list[EventStyle] = ["default", "standard", "older"]


@pytest.mark.parametrize(
    ("style", "name"),
    [("default", "response.reasoning_text"), ("standard", "response.reasoning"), ("older", "response.reasoning_text")],
)
def test_style_names_reasoning_events(style: EventStyle, name: str) -> None:
    """STR-10, API-6: by the template and by the general encoder."""
    assert encoded(THOUGHT, style) == (
        b"event: %b.delta\n"
        b'data: {"type":"%b.delta","sequence_number":4,"item_id":"rs_1","output_index":0,"content_index":1,"delta":"Hm"}\n\n'
    ) % (name.encode(), name.encode())
    padded = ReasoningDelta(
        sequence_number=4, item_id="rs_1", output_index=0, content_index=1, delta="Hm", obfuscation="x"
    )
    assert frames(encoded(padded, style))[0].event == f"{name}.delta"
    done = ReasoningDone(
        sequence_number=5, item_id="rs_1", output_index=0, content_index=1, text="Hm", extra={"acme": Raw(b"1")}
    )
    assert json.loads(frames(encoded(done, style))[0].data) == {
        "type": f"{name}.done",
        "sequence_number": 5,
        "item_id": "rs_1",
        "output_index": 0,
        "content_index": 1,
        "text": "Hm",
        "acme": 1,
    }


@pytest.mark.parametrize("style", EVENT_STYLES)
def test_style_chooses_form_of_errors(style: EventStyle) -> None:
    """STR-8, API-6: only `older` has no `error` object."""
    payload: dict[str, Any] = {"type": "server_error", "code": "upstream_error", "message": "no", "param": None}
    frame = frames(encoded(ErrorEvent(sequence_number=7, error=ErrorPayload(**payload)), style))[0]
    assert frame.event == "error"
    flat = {"code": "upstream_error", "message": "no", "param": None}
    assert json.loads(frame.data) == {
        "type": "error",
        "sequence_number": 7,
        **(flat if style == "older" else {"error": payload}),
    }


@pytest.mark.parametrize("style", EVENT_STYLES)
def test_style_chooses_end_mark(style: EventStyle) -> None:
    """HTTP-4, API-6."""
    assert EventsFromHub(REQUEST, style=style).finish() == (b"" if style == "older" else b"data: [DONE]\n\n")


@given(lives())
def test_style_changes_nothing_else(life: list[StreamEvent]) -> None:
    """API-6"""
    standard, *others = (EventsFromHub(REQUEST, style=style) for style in ("standard", "default", "older"))
    for event in life:
        written = standard.feed(event)
        if not isinstance(event, ReasoningDelta | ReasoningDone | ErrorEvent):
            assert [other.feed(event) for other in others] == [written, written]


@pytest.mark.parametrize("framing", ["sse", "websocket"])
def test_line_endings_in_raw_bytes_give_no_second_line(framing: Framing) -> None:
    """HTTP-3, ITEM-5: an extension event that came with line breaks between its members."""
    raw = Raw(b'{"type":"acme:note",\r\n "sequence_number":3,\n "text":"a\\nb"}')
    written = encoded(UnknownEvent(kind="acme:note", raw=raw, sequence_number=3), framing=framing)
    data = frames(written)[0].data if framing == "sse" else written
    assert data == b'{"type":"acme:note","sequence_number":3,"text":"a\\nb"}'


@pytest.mark.parametrize("framing", ["sse", "websocket"])
@pytest.mark.parametrize("size", [10, LARGE_SETTING])
def test_line_endings_in_a_response_give_no_second_line(size: int, framing: Framing) -> None:
    """HTTP-3: also beside large instructions, which are not searched."""
    response = make_initial_response(REQUEST, id="resp_1", created_at=1)
    text = Raw(b'"%b"' % (b"x" * size))
    item = UnknownItem(kind="acme:note", raw=Raw(b'{"type":"acme:note",\r\n "text":"a\\nb"}'))
    event = ResponseCompleted(sequence_number=3, response=replace(response, instructions=text, output=[item]))
    written = encoded(event, framing=framing)
    data = frames(written)[0].data if framing == "sse" else written
    assert b"\n" not in data
    sent = json.loads(data)["response"]
    assert sent["output"] == [{"type": "acme:note", "text": "a\nb"}]
    assert sent["instructions"] == "x" * size


@pytest.mark.parametrize("size", [10, LARGE_SETTING])
@pytest.mark.parametrize("framing", ["sse", "websocket"])
def test_split_event_has_the_bytes_of_the_event(framing: Framing, size: int) -> None:
    """Only events of a stream with large settings are split. The settings are not copied."""
    text = Raw(b'"%b"' % (b"x" * size))
    response = replace(make_initial_response(REQUEST, id="resp_1", created_at=1), instructions=text)
    event = ResponseCompleted(sequence_number=3, response=response)
    pieces = EventsFromHub(REQUEST, framing=framing).split_event(event)
    if framing == "websocket" or size < LARGE_SETTING:
        assert pieces is None
    else:
        assert pieces is not None
        assert b"".join(pieces) == encoded(event, framing=framing)
        assert [type(piece) for piece in pieces].count(memoryview) == 1


def test_event_with_unknown_members_is_not_split() -> None:
    text = Raw(b'"%b"' % (b"x" * LARGE_SETTING))
    response = replace(make_initial_response(REQUEST, id="resp_1", created_at=1), instructions=text)
    event = ResponseCompleted(sequence_number=3, response=response, extra={"acme": Raw(b"1")})
    error = ErrorPayload(type="server_error", code="x", message="x", param=None)
    assert EventsFromHub(REQUEST).split_event(event) is None
    assert EventsFromHub(REQUEST).split_event(ErrorEvent(sequence_number=0, error=error)) is None
