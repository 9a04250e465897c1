"""Open reasoning of responses servers as the summary that a client asked for (RSN-4), and how much memory content takes.
`test_stream_in` and `test_answer_in` test all other content."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest
from tests.dialects.responses.upstreams import frame_of, read_frames, reader, recording
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.responses import response_to_hub
from antiphon.errors import UpstreamFault
from antiphon.protocol import codec
from antiphon.protocol.events import (
    ContentPartAdded,
    ContentPartDone,
    ReasoningDelta,
    ReasoningDone,
    ResponseFailed,
    StreamEvent,
    SummaryTextDelta,
    UnknownEvent,
)
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Reasoning
from antiphon.protocol.output_limits import OutputLimitExceeded, OutputLimits
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import make_initial_response

ASKED = Request(model="m", input="hi", reasoning=ReasoningConfigParam(summary="auto"))
Event = dict[str, Any]
PLACE: Event = {"item_id": "rs_1", "output_index": 0}
TEXT: Event = {**PLACE, "content_index": 0}
SUMMARY: Event = {**PLACE, "summary_index": 0}
EMPTY: Event = {"type": "reasoning", "id": "rs_1", "summary": [], "status": "in_progress"}
CONTENT = [{"type": "reasoning_text", "text": "Long thought."}]
OWN = [{"type": "summary_text", "text": "Short."}]
OPEN: Event = {**EMPTY, "status": "completed", "content": CONTENT}
CREATED: Event = {"type": "response.created", "response": {"status": "in_progress"}}
ADDED: Event = {"type": "response.output_item.added", "output_index": 0, "item": EMPTY}
TEXT_EVENTS: list[Event] = [
    {"type": "response.reasoning_text.delta", **TEXT, "delta": "Long "},
    {"type": "response.reasoning_text.delta", **TEXT, "delta": "thought."},
    {"type": "response.reasoning_text.done", **TEXT, "text": "Long thought."},
]
PART_ADDED: Event = {"type": "response.content_part.added", **TEXT, "part": {"type": "reasoning_text", "text": ""}}
PART_DONE: Event = {"type": "response.content_part.done", **TEXT, "part": CONTENT[0]}
SUMMARY_EVENTS: list[Event] = [
    {"type": "response.reasoning_summary_part.added", **SUMMARY, "part": {"type": "summary_text", "text": ""}},
    {"type": "response.reasoning_summary_text.delta", **SUMMARY, "delta": "Short."},
    {"type": "response.reasoning_summary_text.done", **SUMMARY, "text": "Short."},
    {"type": "response.reasoning_summary_part.done", **SUMMARY, "part": OWN[0]},
]
CONTENT_EVENTS = (ContentPartAdded, ContentPartDone, ReasoningDelta, ReasoningDone)


def done(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def completed(*output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "output": list(output)}}


def renamed(event: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {**event, "type": event["type"].replace(old, new)}


#: Streams of one open thought, as several servers send it.
STREAMS: dict[str, list[Event]] = {
    "full": [CREATED, ADDED, PART_ADDED, *TEXT_EVENTS, PART_DONE, done(OPEN), completed(OPEN)],
    "own part events": [
        *(CREATED, ADDED, renamed(PART_ADDED, "content", "reasoning"), *TEXT_EVENTS),
        *(renamed(PART_DONE, "content", "reasoning"), done(OPEN), completed(OPEN)),
    ],
    "without parts": [CREATED, ADDED, *TEXT_EVENTS[:2], done(OPEN), completed(OPEN)],
    "older names": [
        *(CREATED, ADDED, *(renamed(event, "reasoning_text", "reasoning") for event in TEXT_EVENTS)),
        *(done(OPEN), completed(OPEN)),
    ],
    "half of the deltas": [CREATED, ADDED, TEXT_EVENTS[0], done(OPEN), completed(OPEN)],
    "only done": [CREATED, done(OPEN), completed(OPEN)],
    "only completed": [CREATED, completed(OPEN)],
    "without item events": [CREATED, *TEXT_EVENTS, completed(OPEN)],
}


def read(events: list[dict[str, Any]], request: Request = ASKED) -> list[StreamEvent]:
    result = read_frames(map(frame_of, events), request)
    assert find_violations(result.events) == []
    assert result.losses == []
    return result.events


def thought(events: list[StreamEvent]) -> Reasoning:
    """The only reasoning item, the same in the fold of the events and in the terminal event."""
    (item,) = (item for item in fold_events(events).output if isinstance(item, Reasoning))
    (final,) = (item for item in events[-1].response.output if isinstance(item, Reasoning))  # type: ignore[union-attr]
    assert item == final
    return item


def texts(parts: Any) -> list[str]:
    return [part.text for part in parts or ()]


@pytest.mark.parametrize("name", STREAMS)
def test_open_reasoning_is_the_summary_on_request(name: str) -> None:
    """RSN-4: once, as summary, and in no event as content."""
    events = read(STREAMS[name])
    item = thought(events)
    assert (texts(item.summary), item.content or None) == (["Long thought."], None)
    assert "".join(event.delta for event in events if isinstance(event, SummaryTextDelta)) == "Long thought."
    assert not any(isinstance(event, (*CONTENT_EVENTS, UnknownEvent)) for event in events)
    assert b"reasoning_text" not in b"".join(codec.encode(event) for event in events)


@pytest.mark.parametrize("summary", [None, ...])
@pytest.mark.parametrize("name", STREAMS)
def test_open_reasoning_stays_content_without_a_request(name: str, summary: Any) -> None:
    """RSN-4."""
    reasoning = ReasoningConfigParam(effort="low") if summary is ... else ReasoningConfigParam(summary=None)
    result = read_frames(map(frame_of, STREAMS[name]), Request(model="m", input="hi", reasoning=reasoning))
    item = thought(result.events)
    assert (item.summary, texts(item.content)) == ([], ["Long thought."])


def test_deltas_of_the_summary_arrive_at_once() -> None:
    to_hub = reader(ASKED)
    for event in STREAMS["full"][:3]:
        to_hub.feed(frame_of(event))
    for event in TEXT_EVENTS[:2]:
        (delta,) = to_hub.feed(frame_of(event))
        assert isinstance(delta, SummaryTextDelta)
        assert (delta.delta, delta.summary_index) == (event["delta"], 0)


def test_several_parts_stay_several_parts() -> None:
    content = [*CONTENT, {"type": "reasoning_text", "text": "More."}]
    second = {"type": "response.reasoning_text.delta", **PLACE, "content_index": 1, "delta": "More."}
    item = {**OPEN, "content": content}
    for events in ([CREATED, ADDED, *TEXT_EVENTS, second, done(item), completed(item)], [CREATED, completed(item)]):
        assert texts(thought(read(events)).summary) == ["Long thought.", "More."]


def test_unknown_members_and_padding_stay() -> None:
    """ITEM-5."""
    part = {**CONTENT[0], "mark": 1}
    delta = {**TEXT_EVENTS[0], "obfuscation": "xx"}
    events = read(
        [
            *(CREATED, ADDED, {**PART_ADDED, "mark": 2}, delta, {**TEXT_EVENTS[1], "mark": 3}, TEXT_EVENTS[2]),
            *({**PART_DONE, "part": part}, done({**OPEN, "content": [part], "mark": 4}), completed(OPEN)),
        ]
    )
    written = [json.loads(codec.encode(event)) for event in events]
    kinds = [(event["type"].removeprefix("response.reasoning_summary_"), event.get("mark")) for event in written[2:-2]]
    assert kinds == [
        *(("response.output_item.added", None), ("part.added", 2), ("text.delta", None), ("text.delta", 3)),
        *(("text.done", None), ("part.done", None)),
    ]
    assert not any("content_index" in event for event in written)
    assert written[4]["obfuscation"] == "xx"
    assert written[7]["part"] == {"type": "summary_text", "text": "Long thought.", "mark": 1}
    assert written[8]["item"] == {
        **{"type": "reasoning", "id": "rs_1", "status": "completed", "mark": 4},
        "summary": [{"type": "summary_text", "text": "Long thought.", "mark": 1}],
    }


def test_summary_of_the_server_leaves_content_where_it_is() -> None:
    """RSN-1, RSN-4: streamed first, announced, or both in one piece."""
    both = {**OPEN, "summary": OWN}
    announced = {**ADDED, "item": {**EMPTY, "summary": OWN}}
    for events in (
        [CREATED, ADDED, *SUMMARY_EVENTS, PART_ADDED, *TEXT_EVENTS, PART_DONE, done(both), completed(both)],
        [CREATED, ADDED, SUMMARY_EVENTS[1], *TEXT_EVENTS, done(both), completed(both)],
        [CREATED, announced, *TEXT_EVENTS, done(both), completed(both)],
        [CREATED, done(both), completed(both)],
        [CREATED, completed(both)],
    ):
        item = thought(read(events))
        assert (texts(item.summary), texts(item.content)) == (["Short."], ["Long thought."])
        unasked = read(events, Request(model="m", input="hi"))
        assert thought(unasked) == item


@pytest.mark.parametrize("is_cut", [False, True])
def test_later_summary_follows_at_the_end_of_the_item(is_cut: bool) -> None:
    """RSN-4: no text is lost, and none comes twice."""
    both = {**OPEN, "summary": OWN}
    events = [CREATED, ADDED, PART_ADDED, *TEXT_EVENTS, PART_DONE, *SUMMARY_EVENTS]
    rest = [] if is_cut else [done(both), completed(both)]
    for start in (events, events[:-2], [event for event in events if event not in (PART_ADDED, PART_DONE)]):
        result = read_frames(map(frame_of, [*start, *rest]), ASKED)
        assert find_violations(result.events) == []
        item = thought(result.events)
        assert (texts(item.summary), item.content or None) == (["Long thought.", "Short."], None)
        assert isinstance(result.events[-1], ResponseFailed) == is_cut


@pytest.mark.parametrize("whole", [True, False])
def test_later_summary_that_repeats_the_text_is_left_out(whole: bool) -> None:
    """RSN-4: some servers send each piece in both forms."""
    twin = [{**event, "summary_index": 0} for event in TEXT_EVENTS]
    copies = [renamed(event, "reasoning_text", "reasoning_summary_text") for event in twin]
    both = {**OPEN, "summary": [{"type": "summary_text", "text": "Long thought."}]}
    pairs = list(itertools.chain(*zip(TEXT_EVENTS, copies, strict=True)))
    events = [*TEXT_EVENTS, *copies] if whole else pairs
    item = thought(read([CREATED, ADDED, *events, done(both), completed(both)]))
    assert (texts(item.summary), item.content or None) == (["Long thought."], None)


def test_each_item_is_decided_by_itself() -> None:
    both = {**OPEN, "id": "rs_2", "summary": OWN}
    output = fold_events(read([CREATED, done(OPEN), {**done(both), "output_index": 1}, completed(OPEN, both)])).output
    assert [(texts(item.summary), texts(item.content)) for item in output if isinstance(item, Reasoning)] == [
        (["Long thought."], []),
        (["Short."], ["Long thought."]),
    ]


def test_part_event_of_a_server_with_summaries_passes() -> None:
    """ITEM-5: and so does one without an item."""
    event = renamed(PART_ADDED, "content", "reasoning")
    both = {**OPEN, "summary": OWN}
    for start in ([ADDED, *SUMMARY_EVENTS, event], [event, ADDED, *SUMMARY_EVENTS]):
        result = read_frames(map(frame_of, [CREATED, *start, *TEXT_EVENTS, done(both), completed(both)]), ASKED)
        assert [each.kind for each in result.events if isinstance(each, UnknownEvent)] == [event["type"]]


def test_text_after_the_end_of_a_part_is_a_loss() -> None:
    """STR-3."""
    result = read_frames(map(frame_of, [CREATED, ADDED, PART_ADDED, PART_DONE, TEXT_EVENTS[0], completed()]), ASKED)
    assert [loss.path for loss in result.losses] == ["output[0].content[0]"]


def test_withheld_summary_counts_for_the_limit() -> None:
    to_hub = reader(ASKED)
    to_hub.limit_output(OutputLimits(max_items=10, max_bytes=1000))
    for event in [CREATED, ADDED, *TEXT_EVENTS]:
        to_hub.feed(frame_of(event))
    with pytest.raises(OutputLimitExceeded):
        to_hub.feed(frame_of({**SUMMARY_EVENTS[1], "delta": "x" * 2000}))
    events = to_hub.end_incomplete("max_output_bytes")
    assert texts(events[-1].response.output[0].summary) == ["Long thought."]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("item", "delta_type"),
    [
        ({"type": "message", "id": "x_1", "role": "assistant", "content": []}, "output_text"),
        ({"type": "message", "id": "x_1", "role": "assistant", "content": []}, "refusal"),
        ({"type": "reasoning", "id": "x_1", "summary": []}, "reasoning_text"),
        ({"type": "function_call", "id": "x_1", "name": "f", "call_id": "c"}, "function_call_arguments"),
        ({"type": "custom_tool_call", "id": "x_1", "name": "f", "call_id": "c"}, "custom_tool_call_input"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("request_", [ASKED, Request(model="m", input="hi")], ids=["summary", "plain"])
def test_streamed_content_is_held_once(item: Event, delta_type: str, request_: Request) -> None:
    """While it streams, and after its end: its last events have one string."""
    to_hub, piece, count = reader(request_), "x" * 65_536, 100
    for event in [CREATED, {"type": "response.output_item.added", "output_index": 0, "item": item}]:
        to_hub.feed(frame_of(event))
    place = {"item_id": "x_1", "output_index": 0, "content_index": 0}
    frame = frame_of({"type": f"response.{delta_type}.delta", **place, "delta": piece})
    tracemalloc.start()
    try:
        for _ in range(count):
            to_hub.feed(frame)
        streamed_size = tracemalloc.get_traced_memory()[0]
        events = to_hub.end_incomplete("max_output_bytes")
        ended_size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert piece * count in str(codec.encode(events[-1]))
    assert streamed_size < 1.2 * count * len(piece)
    assert ended_size < 1.2 * count * len(piece)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "own part events", "half of the deltas", "recorded"])
def test_stream_is_the_same_for_every_cut_of_its_bytes(name: str) -> None:
    """STR-14: and equal to the whole answer; a stream that ends early has all text that came."""
    if name == "recorded":
        data = recording("llama_cpp_reasoning_stream.sse")
    else:
        data = b"".join(sse.encode_frame(event["type"], json.dumps(event).encode()) for event in STREAMS[name])
    whole = fed([data])
    expected = [json.loads(codec.encode(event)) for event in whole]
    text = "".join(event.delta for event in whole if isinstance(event, SummaryTextDelta))
    for cut in range(1, len(data)):
        assert [json.loads(codec.encode(event)) for event in fed([data[:cut], data[cut:]])] == expected
        ended = fed([data[:cut]])
        assert find_violations(ended) == []
        parts = [part for item in fold_events(ended).output if isinstance(item, Reasoning) for part in item.summary]
        deltas = "".join(event.delta for event in ended if isinstance(event, SummaryTextDelta))
        assert "".join(texts(parts)) == deltas
        assert text.startswith(deltas)


def fed(pieces: list[bytes]) -> list[StreamEvent]:
    decoder, to_hub = sse.Decoder(), reader(ASKED)
    frames = [frame for piece in pieces for frame in decoder.feed(piece)] + decoder.finish()
    events = [event for frame in frames for event in to_hub.feed(frame)]
    return events + to_hub.finish(UpstreamFault("cut") if not to_hub.error else None)


@pytest.mark.parametrize("item", [OPEN, {**OPEN, "summary": OWN}, {**OPEN, "content": []}, {**OPEN, "summary": None}])
def test_whole_answer_has_the_reasoning_of_its_stream(item: dict[str, Any]) -> None:
    """STR-14."""
    body = json.dumps({"object": "response", "status": "completed", "output": [item]}).encode()
    initial_response = make_initial_response(ASKED, id="resp_1", created_at=1)
    response, losses = response_to_hub(body, ASKED, initial_response, counting_stamps())
    streamed = thought(read([CREATED, done(item), completed(item)]))
    assert (response.output, list(losses)) == ([streamed], [])
