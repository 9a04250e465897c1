"""Chat streams → hub events: laws over generated messages and server habits, then each habit and each fault."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.dialects.chat.habits import Habit, habits, messages, spelled, whole
from tests.dialects.chat.habits import Message as Spoken
from tests.dialects.chat.reading import (
    INITIAL_RESPONSE,
    REQUEST,
    ReadResult,
    call,
    calls,
    chunk,
    read,
    read_frames,
    read_whole,
    reader,
    summary_of,
)
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.chat import EventsToHub
from antiphon.dialects.chat.answer_out import usage_from_hub
from antiphon.dialects.chat.response_wire import Choice, Chunk, Delta, TextChoice, TextChunk, TextDelta
from antiphon.dialects.chat.wire import ChatWire
from antiphon.errors import UpstreamFault
from antiphon.protocol.content import LogProb, OutputText, TopLogProb, UnknownAnnotation, UrlCitation
from antiphon.protocol.events import (
    AnnotationAdded,
    ArgumentsDelta,
    CustomInputDelta,
    ErrorEvent,
    ItemAdded,
    OutputTextDelta,
    ResponseCompleted,
    ResponseCreated,
    StreamEvent,
    TerminalEvent,
)
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCall, Message
from antiphon.protocol.nesting import MAX_NESTING
from antiphon.protocol.response import InputTokensDetails, OutputTokensDetails, Usage

# Chunks with any members: of the right kind, of the wrong kind, lone surrogates, nested.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "a", "<think>", "{}", "\ud83d", "\ude00"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "thinking", "url"]), inner)
    ),
    max_leaves=4,
)
FUNCTIONS = st.dictionaries(st.sampled_from(["name", "arguments", "input"]), VALUES)
TOOL_CALLS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"index": st.integers(0, 2), "id": VALUES, "function": FUNCTIONS, "custom": FUNCTIONS}
    ),
    max_size=3,
)
NAMES = [
    "content",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "refusal",
    "function_call",
    "annotations",
    "audio",
]
DELTAS = st.fixed_dictionaries({}, optional={**dict.fromkeys(NAMES, VALUES), "tool_calls": TOOL_CALLS})
CHOICES = st.fixed_dictionaries(
    {"delta": DELTAS}, optional={"index": VALUES, "finish_reason": VALUES, "logprobs": VALUES}
)
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(CHOICES, min_size=1, max_size=2)}, optional={"usage": VALUES, "error": VALUES}
)
NONSENSE = st.binary(max_size=30) | VALUES | CHUNKS


def frame(data: Any, event: str = "") -> sse.Frame:
    return sse.Frame(event, data if isinstance(data, bytes) else json.dumps(data).encode())


def without_ids(lines: list[str]) -> list[str]:
    return [line.partition(" = ")[2] if line.startswith("call_") else line for line in lines]


# Laws


@given(messages(), habits(), st.data())
def test_message_is_the_same_for_every_server_habit(message: Spoken, habit: Habit, data: st.DataObject) -> None:
    """STR-6, STR-9, E-6, law (a): the fold equals the message, and the events pass the grammar."""
    reading = read_frames([frame(piece) for piece in spelled(message, habit, data.draw)])
    assert find_violations(reading.events) == []
    wanted = [*message.lines([called.id for called in message.calls]), "completed"]
    if habit.ids == "never":
        assert without_ids(reading.summary) == without_ids(wanted)
    else:
        assert reading.summary == wanted
    assert (reading.response.usage is None) == (habit.usage == "never")
    assert len({item.call_id for item in reading.response.output if isinstance(item, FunctionCall)}) == len(
        [item for item in reading.response.output if isinstance(item, FunctionCall)]
    )


@given(messages(), habits(), st.data())
def test_stream_and_plain_answer_give_the_same_response(message: Spoken, habit: Habit, data: st.DataObject) -> None:
    """STR-14, law (c)."""
    reading = read_frames([frame(piece) for piece in spelled(message, habit, data.draw)])
    response, _ = read_whole(whole(message, habit))
    assert response == reading.response


@given(messages(), habits(), st.data())
def test_truncated_stream_ends_once_with_no_open_items(message: Spoken, habit: Habit, data: st.DataObject) -> None:
    """Law (e), ITEM-3."""
    frames = [frame(piece) for piece in spelled(message, habit, data.draw)]
    events = read_frames(frames[: data.draw(st.integers(0, len(frames)))]).events
    assert find_violations(events) == []
    assert [event for event in events if isinstance(event, TerminalEvent)] == events[-1:]


@given(st.lists(NONSENSE, max_size=4))
def test_invalid_chunks_never_raise_or_violate_the_grammar(pieces: list[Any]) -> None:
    events = read_frames([frame(piece) for piece in pieces]).events
    assert find_violations(events) == []
    assert isinstance(events[-1], TerminalEvent)


# Order


TEXT = b'{"choices":[{"delta":{"content":"a"}}]}'
PIECES = [
    TEXT,
    TEXT,
    TEXT,
    b"",
    b" ",
    b'{"choices":[{"delta":{"content":""}}]}',
    b'{"choices":\n[{"delta":{"content":"b"}}]}',
]
PIECES += [
    b'{"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}]}',
    b'{"choices":[],"usage":null}',
    b"[DONE]",
    b"nonsense",
]


@given(pieces=st.lists(st.sampled_from(PIECES), min_size=8, max_size=20))
@example(pieces=[*[TEXT] * 6, b"", *[TEXT] * 6])
@example(pieces=[*[TEXT] * 12, PIECES[7], PIECES[8], PIECES[9]])
def test_frames_decoded_together_give_the_same_events(pieces: list[bytes]) -> None:
    """Runs of text are decoded together; other chunks among them, or chunks that look like two, are not."""
    frames = [frame(TEXT), *map(frame, pieces)]
    one_by_one, at_once = (EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps()) for _ in range(2))
    wanted = [event for each in frames for event in one_by_one.feed(each)]
    received: list[StreamEvent] = []
    at = 0
    while at < len(frames):
        run, at = at_once.text_run(frames, at)
        if run is not None:
            received += run.events()
        else:
            received += at_once.feed(frames[at])
            at += 1
    assert received == wanted
    assert list(at_once.losses) == list(one_by_one.losses)


def test_reasoning_text_and_calls_are_separate_items() -> None:
    """RSN-1: each keeps its own item, in order."""
    reading = read(
        chunk(reasoning_content="a"),
        chunk(content="b"),
        chunk(reasoning_content="c"),
        calls(call(0, "x", "get_time", "{}")),
        chunk(content="d"),
    )
    assert reading.summary == [
        "ReasoningText: a",
        "OutputText: b",
        "ReasoningText: c",
        "x = get_time({})",
        "OutputText: d",
        "completed",
    ]
    assert find_violations(reading.events) == []


def test_text_and_call_in_one_chunk_are_both_delivered() -> None:
    assert read(chunk(content="a", tool_calls=[call(0, "x", "get_time", "{}")])).summary == [
        "OutputText: a",
        "x = get_time({})",
        "completed",
    ]


def test_arguments_continue_after_a_text_in_between() -> None:
    reading = read(
        calls(call(0, "x", "get_time", "{")), chunk(content="a"), calls(call(0, None, None, "}")), chunk(content="b")
    )
    assert reading.summary == ["x = get_time({})", "OutputText: ab", "completed"]


def test_response_starts_with_an_empty_first_chunk() -> None:
    events = reader().feed(frame(chunk(role="assistant", content="")))
    assert [type(event) for event in events][:1] == [ResponseCreated]
    assert len(events) == 2


# Calls


def added(events: list[StreamEvent]) -> list[str]:
    return [
        event.item.name for event in events if isinstance(event, ItemAdded) and isinstance(event.item, FunctionCall)
    ]


def test_call_is_added_once_its_name_is_complete() -> None:
    """TOOL-3: not with its first piece, but when arguments arrive, another call starts, text arrives or the stream
    ends."""
    to_hub = reader()
    assert added(to_hub.feed(frame(calls(call(0, "a", "get_", ""))))) == []
    assert added(to_hub.feed(frame(calls(call(0, None, "weather", ""))))) == []
    assert added(to_hub.feed(frame(calls(call(1, "b", "get_time", ""))))) == ["get_weather"]
    assert added(to_hub.feed(frame(chunk(content="so")))) == ["get_time"]
    assert added(to_hub.feed(frame(calls(call(2, "c", "get_time", "{"))))) == ["get_time"]
    assert added(to_hub.feed(frame(calls(call(3, "d", "get_weather"))))) == []
    to_hub.feed(frame(chunk(finish="tool_calls")))
    assert added(to_hub.finish()) == ["get_weather"]


def test_arguments_before_the_name_wait_for_it() -> None:
    reading = read(
        calls(call(0, "a", None, '{"x"')),
        calls(call(0, None, None, ":1")),
        calls(call(0, None, "get_time")),
        calls(call(0, None, None, "}")),
    )
    assert reading.summary == ['a = get_time({"x":1})', "completed"]


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        # The same function twice, no index and no id: complete arguments separate them, in one chunk or in two.
        (
            [[call(None, None, "get_time", "{}"), call(None, None, "get_time", '{"a":1}')]],
            ["call_1 = get_time({})", 'call_3 = get_time({"a":1})'],
        ),
        (
            [[call(None, None, "get_time", "{}")], [call(None, None, "get_time", '{"a":1}')]],
            ["call_1 = get_time({})", 'call_3 = get_time({"a":1})'],
        ),
        (
            [[call(0, None, "get_time", "{} "), call(0, None, None, "\n")], [call(0, None, "get_time", "{}")]],
            ["call_1 = get_time({} \n)", "call_3 = get_time({})"],
        ),
        # A name repeated after complete arguments, without more of them, is only a repetition.
        ([[call(0, "a", "get_time", "{}")], [call(0, "a", "get_time", "")]], ["a = get_time({})"]),
        # Another name is another call.
        (
            [[call(None, None, "get_time", "{")], [call(None, None, "get_weather", "{}")]],
            ["call_1 = get_time({)", "call_3 = get_weather({})"],
        ),
        # One index for all: another id is another call, with or without arguments yet.
        (
            [[call(0, "a", "get_time", "")], [call(0, "b", "get_time", "")], [call(0, None, None, "{}")]],
            ["a = get_time({})", "b = get_time({})"],
        ),
        (
            [[call(0, "a", "get_time", "{}")], [call(0, "b", "get_time", "")], [call(0, None, None, '{"a":1}')]],
            ["a = get_time({})", 'b = get_time({"a":1})'],
        ),
        # No index: the id separates them, also when they are interleaved.
        (
            [
                [call(None, "a", "get_time", "{")],
                [call(None, "b", "get_time", "{")],
                [call(None, "a", None, "}")],
                [call(None, "b", None, "}")],
            ],
            ["a = get_time({})", "b = get_time({})"],
        ),
        # An index that comes late.
        ([[call(None, "a", "get_time", "{")], [call(0, "a", "get_time", "}")]], ["a = get_time({})"]),
        # A new id with every chunk, no name: the index counts.
        ([[call(0, "a", "get_time", "{")], [call(0, "b", None, "}")]], ["a = get_time({})"]),
        # No index, an unknown id and no name: the last call.
        ([[call(None, "a", "get_time", "{")], [call(None, "b", None, "}")]], ["a = get_time({})"]),
        # A call that is sent again with its id is one call, also after another call.
        ([[call(0, "a", "get_time", "{}")], [call(0, "a", "get_time", "{ }")]], ["a = get_time({})"]),
        ([[call(None, "a", "get_time", "{}")], [call(None, "a", "get_time", "{}")]], ["a = get_time({})"]),
        (
            [[call(0, "a", "get_time", "{")], [call(0, None, None, "}")], [call(0, "a", "get_time", "{}")]],
            ["a = get_time({})"],
        ),
        (
            [[call(0, "a", "get_time", "{}")], [call(1, "b", "get_time", "{}")], [call(0, "a", "get_time", "{}")]],
            ["a = get_time({})", "b = get_time({})"],
        ),
        # A name in pieces: with or without arguments, in one chunk, with an index or without.
        ([[call(0, "a", "get_", "")], [call(0, None, "time", "{}")]], ["a = get_time({})"]),
        ([[call(None, "a", "get_", "")], [call(None, "a", "time", "{}")]], ["a = get_time({})"]),
        ([[call(0, "a", "get_", "{")], [call(0, "a", "time", "}")]], ["a = get_time({})"]),
        ([[call(0, "a", "get_", ""), call(0, None, "time", "{}")]], ["a = get_time({})"]),
        # A name that is repeated, whole or with its next piece.
        ([[call(0, "a", "get_time", "")], [call(0, "a", "get_time", "{}")]], ["a = get_time({})"]),
        ([[call(0, "a", "get_", "")], [call(0, "a", "get_time", "{}")]], ["a = get_time({})"]),
        # Arguments that start before the rest of a name that never comes.
        ([[call(0, "a", "get_", "{}")]], ["a = get_({})"]),
        # Arguments that are no JSON are delivered unchanged.
        ([[call(0, "a", "get_time", "so}")], [call(0, "a", "get_time", "!")]], ["a = get_time(so}!)"]),
    ],
)
def test_call_pieces_are_matched_with_their_call(entries: list[list[dict[str, Any]]], wanted: list[str]) -> None:
    """STR-9: for any numbering of calls."""
    reading = read(*[calls(*chunk_entries) for chunk_entries in entries])
    assert reading.summary == [*wanted, "completed"]
    assert find_violations(reading.events) == []


def test_repeated_call_id_is_replaced() -> None:
    reading = read(calls(call(0, "a", "get_time", "{}"), call(1, "a", "get_time", "{}")))
    assert reading.summary == ["a = get_time({})", "call_2 = get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls.id"]


@pytest.mark.parametrize(
    "again", [call(0, "a", "get_time", '{"x":2}'), call(1, "a", "get_time", "{}"), call(0, "a", "get_weather", "{}")]
)
def test_other_call_with_the_same_id_is_a_second_call(again: dict[str, Any]) -> None:
    reading = read(calls(call(0, "a", "get_time", "{}")), calls(again))
    assert len(reading.summary) == 3
    assert [loss.path for loss in reading.losses] == ["tool_calls.id"]


def test_overlong_call_id_is_replaced() -> None:
    """REQ-8."""
    reading = read(calls(call(0, "x" * 65, "get_time", "{}")))
    assert reading.summary == ["call_1 = get_time({})", "completed"]
    assert "65 characters" in str(next(iter(reading.losses)))


def test_late_call_id_is_a_loss() -> None:
    reading = read(calls(call(0, None, "get_time", "{")), calls(call(0, "late", None, "}")))
    assert reading.summary == ["call_1 = get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls.id"]


def test_invalid_tool_name_is_normalized() -> None:
    reading = read(calls(call(0, "a", "functions.get time", "{}")))
    assert reading.summary == ["a = functions_get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls.name"]


def test_call_without_a_name_is_a_loss() -> None:
    reading = read(calls(call(0, "a", None, "{}")), calls({"index": 1, "id": "b"}))
    assert reading.summary == ["completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls[0]", "tool_calls[1]"]


def test_call_without_arguments_gets_an_empty_object() -> None:
    """Clients parse arguments as JSON, and an empty string is invalid."""
    reading = read(calls(call(0, "a", "get_time")))
    assert reading.summary == ["a = get_time({})", "completed"]
    assert find_violations(reading.events) == []
    assert [loss.path for loss in reading.losses] == ["tool_calls[0].arguments"]


def test_custom_tool_input_is_streamed() -> None:
    """Its own item and events, although the server supports only functions."""
    reading = read(
        calls(call(0, "a", "apply_patch", '{"input":"*** Begin')),
        calls(call(0, None, None, "\\nP")),
        calls(call(0, None, None, 'atch"}')),
        calls(call(1, "b", "files__edit", "no JSON")),
    )
    assert reading.summary == ["a = apply_patch[*** Begin\nPatch]", "b = files.edit[no JSON]", "completed"]
    deltas = [event.delta for event in reading.events if isinstance(event, CustomInputDelta)]
    assert deltas == ["*** Begin", "\nP", "atch", "no JSON"]
    assert len(reading.losses) == 0
    assert find_violations(reading.events) == []


def test_custom_tool_arguments_besides_the_string_are_a_loss() -> None:
    reading = read(calls(call(0, "a", "apply_patch", '{"input":"x","mode":1}')))
    assert reading.summary == ["a = apply_patch[x]", "completed"]
    assert "mode" in str(next(iter(reading.losses)))


def test_native_custom_call_may_have_no_input() -> None:
    reading = read(chunk(tool_calls=[{"index": 0, "id": "a", "type": "custom", "custom": {"name": "apply_patch"}}]))
    assert reading.summary == ["a = apply_patch[]", "completed"]


def test_finish_reason_length_leaves_the_open_call_incomplete() -> None:
    """ITEM-3, REQ-3: truncated arguments; only the last item is incomplete."""
    frames = [
        frame(calls(call(0, "a", "get_time", "{"), call(1, "b", "get_time", '{"c'))),
        frame(chunk(finish="length")),
    ]
    reading = read_frames(frames)
    assert reading.summary == ["a = get_time({)", 'b = get_time({"c) (incomplete)', "incomplete: max_output_tokens"]
    assert find_violations(reading.events) == []


# Text


@pytest.mark.parametrize(
    ("tags", "text", "wanted"),
    [
        ("leading", "<think>a</think>b", ["ReasoningText: a", "OutputText: b"]),
        ("leading", "b<think>a</think>", ["OutputText: b<think>a</think>"]),
        ("anywhere", "b<think>a</think>c", ["OutputText: b", "ReasoningText: a", "OutputText: c"]),
        ("implied", "a</think>b", ["ReasoningText: a", "OutputText: b"]),
        ("off", "<think>a</think>b", ["OutputText: <think>a</think>b"]),
        ("leading", "<think>a", ["ReasoningText: a"]),
        ("leading", "<thi", ["OutputText: <thi"]),
    ],
)
def test_think_tags_are_reasoning_if_configured(tags: Any, text: str, wanted: list[str]) -> None:
    reading = read(*[chunk(content=char) for char in text], wire=ChatWire(think_tags=tags))
    assert reading.summary == [*wanted, "completed"]
    assert find_violations(reading.events) == []


def test_think_tags_are_text_if_the_server_has_a_reasoning_field() -> None:
    reading = read(chunk(reasoning_content="a"), chunk(content="<think>"), chunk(content="b"))
    assert reading.summary == ["ReasoningText: a", "OutputText: <think>b", "completed"]


def test_partial_think_tag_before_a_call_is_text() -> None:
    assert read(chunk(content="<thi"), calls(call(0, "a", "get_time", "{}"))).summary == [
        "OutputText: <thi",
        "a = get_time({})",
        "completed",
    ]


def test_empty_deltas_open_no_items() -> None:
    assert read(chunk(content="", reasoning_content="", refusal="")).summary == ["completed"]


def test_one_delta_gives_one_event_after_the_start() -> None:
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a")))
    events = to_hub.feed(frame({**chunk(content="b"), "service_tier": "flex"}))
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == ["b"]
    assert len(events) == 1


def test_usage_in_every_chunk_is_read() -> None:
    pieces = [{**chunk(content=str(at)), "usage": {"prompt_tokens": 1, "completion_tokens": at}} for at in range(20)]
    reading = read(*pieces, chunk(content="."))
    assert reading.summary == ["OutputText: 012345678910111213141516171819.", "completed"]
    assert reading.response.usage is not None
    assert reading.response.usage.output_tokens == 19


def test_fast_text_decoder_declares_every_field_of_the_full_decoder() -> None:
    """Otherwise content would be lost in silence (F-4). The service tier comes with the first chunk."""
    for short, long in ((TextDelta, Delta), (TextChoice, Choice), (TextChunk, Chunk)):
        assert set(long.__struct_fields__) - set(short.__struct_fields__) <= {"service_tier"}


def test_content_as_parts_is_decoded() -> None:
    reading = read(
        chunk(
            content=[
                "a",
                {"type": "text", "text": "b"},
                {"type": "thinking", "thinking": "c"},
                {"type": "refusal", "refusal": "d"},
            ]
        ),
        chunk(content=[{"type": "image_url"}, 3]),
        chunk(content={"type": "output_text", "text": "e"}),
    )
    assert reading.summary == ["OutputText: ab", "ReasoningText: c", "Refusal: d", "OutputText: e", "completed"]
    assert [loss.what for loss in reading.losses] == [
        "a part of type 'image_url'",
        "a part of type 'int'",
    ]


def test_images_and_audio_in_responses_are_losses() -> None:
    reading = read(chunk(content="a", images=[{"type": "image_url"}], audio={"id": "x"}))
    assert [loss.path for loss in reading.losses] == ["message.audio", "message.images"]


def test_reasoning_of_unknown_form_is_a_loss() -> None:
    reading = read(chunk(reasoning={"steps": 3}), chunk(reasoning=["a", {"content": "b"}, {"summary": "c"}, [["d"]]]))
    assert reading.summary == ["ReasoningText: abc", "completed"]
    assert [loss.path for loss in reading.losses] == ["message.reasoning"]


def test_reasoning_details_keep_content_summary_and_sealed_form() -> None:
    """RSN-1."""
    reading = read(
        chunk(reasoning_details=[{"type": "reasoning.summary", "summary": "short"}]),
        chunk(reasoning_details=[{"type": "reasoning.text", "text": "long", "signature": "s"}]),
        chunk(
            reasoning_details=[
                {"type": "reasoning.encrypted", "data": "one"},
                {"type": "reasoning.encrypted", "data": "two"},
            ]
        ),
        chunk(
            reasoning_details=[
                {"type": "reasoning.text", "text": ""},
                {"type": "reasoning.summary", "summary": ""},
                {"type": "other"},
            ]
        ),
        chunk(reasoning="told", reasoning_details=[{"type": "reasoning.summary", "summary": "told"}]),
    )
    assert reading.summary == ["SummaryText: short", "ReasoningText: longtold", "sealed: s one two", "completed"]
    assert list(reading.losses) == []
    assert find_violations(reading.events) == []


def test_refusal_is_a_separate_part() -> None:
    """STR-11."""
    assert read(chunk(content="Well"), chunk(refusal="No"), chunk(refusal=".")).summary == [
        "OutputText: Well",
        "Refusal: No.",
        "completed",
    ]


def test_citations_are_flattened_and_other_annotations_passed_through() -> None:
    """STR-11, ITEM-5."""
    nested = {
        "type": "url_citation",
        "url_citation": {"url": "u", "title": "t", "start_index": 1, "end_index": 2, "content": "c"},
    }
    other = {"type": "file_citation", "file_id": "f"}
    reading = read(
        chunk(content="a"), chunk(annotations=[nested, other, {"type": "url_citation", "url": "flat"}, {"type": 3}])
    )
    added_annotations = [event.annotation for event in reading.events if isinstance(event, AnnotationAdded)]
    assert isinstance(added_annotations[0], UrlCitation)
    assert (
        added_annotations[0].url,
        added_annotations[0].title,
        added_annotations[0].start_index,
        added_annotations[0].end_index,
    ) == ("u", "t", 1, 2)
    assert list(added_annotations[0].extra or ()) == ["content"]
    assert isinstance(added_annotations[1], UnknownAnnotation)
    assert isinstance(added_annotations[2], UrlCitation)
    assert added_annotations[2].url == "flat"
    assert len(added_annotations) == 3
    assert [loss.path for loss in reading.losses] == ["message.annotations"]


# Log probabilities


def token(text: str, logprob: float | None = -1.0) -> dict[str, Any]:
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode()),
        "top_logprobs": [{"token": text, "logprob": logprob}],
    }


def with_tokens(content: str, *tokens: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": content}, "logprobs": {"content": [token(text) for text in tokens]}}]}


def logprobs(reading: ReadResult) -> list[str]:
    message = reading.response.output[-1]
    assert isinstance(message, Message)
    part = message.content[0]
    assert isinstance(part, OutputText)
    return [each.token for each in part.logprobs or ()]


def test_log_probabilities_are_on_deltas_and_on_the_part() -> None:
    """STR-12."""
    reading = read(with_tokens("a", "a"), with_tokens("b", "b"))
    deltas = [event.logprobs for event in reading.events if isinstance(event, OutputTextDelta)]
    one = LogProb(token="a", logprob=-1.0, bytes=[97], top_logprobs=[TopLogProb(token="a", logprob=-1.0, bytes=[])])
    assert deltas[0] == [one]
    assert logprobs(reading) == ["a", "b"]


def test_log_probability_of_minus_infinity_becomes_a_number() -> None:
    tokens = b'[{"token":"a","logprob":-Infinity},{"token":"b","logprob":null}]'
    body = b'{"choices":[{"delta":{"content":"a"},"logprobs":{"content":%b}}]}' % tokens
    message = read(body).response.output[0]
    assert isinstance(message, Message)
    part = message.content[0]
    assert isinstance(part, OutputText)
    assert [each.logprob for each in part.logprobs or ()] == [-9999.0, -9999.0]


def test_tokens_without_text_are_added_to_the_next_text() -> None:
    assert logprobs(read(with_tokens("", "\\xf0"), with_tokens("é", "é"), with_tokens("", "end"))) == [
        "\\xf0",
        "é",
        "end",
    ]


def test_tokens_without_text_after_reasoning_are_added_to_the_next_text() -> None:
    reading = read(chunk(reasoning_content="r"), with_tokens("", "\\xf0"), with_tokens("é", "é"))
    assert reading.summary == ["ReasoningText: r", "OutputText: é", "completed"]
    assert logprobs(reading) == ["\\xf0", "é"]


def test_tokens_without_any_text_are_a_loss() -> None:
    reading = read(with_tokens("", "end"))
    assert reading.summary == ["completed"]
    assert [loss.path for loss in reading.losses] == ["logprobs"]


def test_tokens_of_calls_are_a_loss() -> None:
    entry = call(0, "a", "get_time", "{}")
    reading = read(
        {"choices": [{"delta": {"content": None, "tool_calls": [entry]}, "logprobs": {"content": [token("{}")]}}]}
    )
    assert reading.summary == ["a = get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["logprobs"]


def test_tokens_of_reasoning_in_tags_are_dropped() -> None:
    reading = read(
        with_tokens("<think>", "<think>"), with_tokens("a</think>\n\n", "a", "</think>", "\n\n"), with_tokens("b", "b")
    )
    assert logprobs(reading) == ["b"]
    assert [loss.path for loss in reading.losses] == ["logprobs"]
    assert logprobs(read(chunk(content="<think>a</think>"), with_tokens("bc", "b", "c"))) == ["b", "c"]
    assert logprobs(read(with_tokens("<b", "<", "b"), with_tokens("c", "c"))) == ["<", "b", "c"]


def test_tokens_of_a_refusal_are_a_loss() -> None:
    reading = read({"choices": [{"delta": {"refusal": "no"}, "logprobs": {"refusal": [token("no")]}}]})
    assert [loss.path for loss in reading.losses] == ["logprobs.refusal"]


# Usage, service tier, ends


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, (3, 4, 7, 0, 0)),
        (
            {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9, "prompt_cache_hit_tokens": 2},
            (3, 4, 9, 2, 0),
        ),
        ({"prompt_tokens": 3, "total_tokens": 3, "cached_tokens": 1, "prompt_tokens_details": {}}, (3, 0, 3, 1, 0)),
        (  # xAI counts reasoning beside the other output
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "total_tokens": 12,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            (3, 9, 12, 0, 5),
        ),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 9,
                "total_tokens": 12,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            (3, 9, 12, 0, 5),
        ),
        (
            {"prompt_tokens": "3", "completion_tokens": 4.0, "completion_tokens_details": {"reasoning_tokens": 4}},
            (3, 4, 7, 0, 4),
        ),
        ({"prompt_tokens": None}, None),
        ({"prompt_tokens": [], "completion_tokens": 1}, None),
    ],
)
def test_usage_includes_cached_and_reasoning_tokens(usage: dict[str, Any], wanted: tuple[int, ...] | None) -> None:
    """REQ-4: null only where the upstream has no readable usage."""
    decoded = read({"choices": [], "usage": usage}).response.usage
    if wanted is None:
        assert decoded is None
        return
    read_, written, total, cached, reasoning = wanted
    assert decoded == Usage(
        input_tokens=read_,
        output_tokens=written,
        total_tokens=total,
        input_tokens_details=InputTokensDetails(cached_tokens=cached, cache_write_tokens=None),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning),
    )


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"prompt_tokens_details": {"cache_write_tokens": 2}}, 2),
        ({"prompt_tokens_details": {"cache_write_tokens": 0}, "cache_creation_input_tokens": 5}, 0),
        ({"cache_creation_input_tokens": 2}, 2),
        ({}, None),
    ],
)
def test_tokens_written_to_the_cache_are_counted(usage: dict[str, Any], wanted: int | None) -> None:
    """REQ-4: unknown if the server does not report them."""
    decoded = read({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, **usage}}).response.usage
    assert decoded is not None
    assert decoded.input_tokens_details.cache_write_tokens == wanted
    details = usage_from_hub(decoded).prompt_tokens_details
    assert details.cache_write_tokens == (UNSET if wanted is None else wanted)


def test_unreadable_usage_is_a_loss() -> None:
    reading = read({**chunk(content="a"), "usage": {"prompt_tokens": "many"}})
    assert reading.summary == ["OutputText: a", "completed"]
    assert [loss.path for loss in reading.losses] == ["usage"]


def test_service_tier_is_read_from_the_server() -> None:
    """REQ-5."""
    assert read({**chunk(content="a"), "service_tier": "priority"}).response.service_tier == "priority"


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("stop", "completed"),
        ("tool_calls", "completed"),
        ("function_call", "completed"),
        ("eos", "completed"),
        ("eos_token", "completed"),
        ("stop_sequence", "completed"),
        ("end_turn", "completed"),
        ("tired", "incomplete: tired"),
        ("length", "incomplete: max_output_tokens"),
        ("model_length", "incomplete: max_output_tokens"),
        ("content_filter", "incomplete: content_filter"),
        ("error", "failed: upstream_error"),
        ("insufficient_system_resource", "failed: overloaded"),
    ],
)
def test_finish_reason_determines_the_status(reason: str, wanted: str) -> None:
    """REQ-3."""
    assert read_frames([frame(chunk(content="a")), frame(chunk(finish=reason))]).summary[-1] == wanted


@pytest.mark.parametrize("reason", ["", None])
@pytest.mark.parametrize(
    ("delta", "output"),
    [
        ({"content": "a"}, "OutputText: a"),
        (calls(call(0, "c", "get_time", "{}")), "c = get_time({})"),
    ],
)
def test_end_mark_without_a_finish_reason_completes_whole_content(reason: str | None, delta: Any, output: str) -> None:
    """REQ-3: some servers send null or "" to the end."""
    delta = delta if "choices" in delta else chunk(**delta)
    reading = read_frames([frame(delta), frame(chunk(finish=reason)), frame(sse.DONE)])
    assert reading.summary == [output, "completed"]
    assert [loss.path for loss in reading.losses] == []


@pytest.mark.parametrize(
    ("deltas", "output"),
    [
        ([calls(call(0, "c", "get_time", "{}"))], ["c = get_time({})"]),
        (
            [calls(call(0, "c", "get_time", "{}")), calls(call(1, "d", "get_time", '{"a":1}'))],
            ["c = get_time({})", 'd = get_time({"a":1})'],
        ),
        (
            [chunk(reasoning_content="Hm."), calls(call(0, "c", "get_time", '{"a":1}'))],
            ["ReasoningText: Hm.", 'c = get_time({"a":1})'],
        ),
        ([calls(call(0, "c", "get_time", '{"a":'))], ['c = get_time({"a":) (incomplete)']),
        (
            [chunk(content="a"), calls(call(0, "c", "get_time", "{}"))],
            ["OutputText: a", "c = get_time({}) (incomplete)"],
        ),
    ],
)
def test_unknown_finish_reason_delivers_only_whole_calls(deltas: Any, output: list[str]) -> None:
    """REQ-3: the response is incomplete, and whole calls are complete."""
    reading = read_frames([*map(frame, deltas), frame(chunk(finish="tired")), frame(sse.DONE)])
    assert [line.split(" sealed")[0] for line in reading.summary] == [*output, "incomplete: tired"]
    assert [loss.path for loss in reading.losses] == []


def test_finish_reason_does_not_end_the_stream_before_usage() -> None:
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a")))
    assert to_hub.feed(frame(chunk(finish="stop"))) == []
    assert to_hub.feed(frame({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})) == []
    end = to_hub.feed(frame(sse.DONE))[-1]
    assert isinstance(end, ResponseCompleted)
    assert end.response.usage is not None


def test_stream_with_a_finish_reason_completes_despite_a_fault() -> None:
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a", finish="stop")))
    assert isinstance(to_hub.finish(UpstreamFault("too slow", code="upstream_timeout"))[-1], ResponseCompleted)


def test_frames_after_the_end_are_ignored() -> None:
    """STR-7."""
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a", finish="stop")))
    assert to_hub.feed(frame(sse.DONE)) != []
    assert to_hub.feed(frame(chunk(content="b"))) == []
    assert to_hub.finish() == []


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], "upstream_disconnected"),
        ([chunk(content="a")], "upstream_disconnected"),
        ([sse.DONE], "upstream_invalid_response"),
        ([calls(call(0, "c", "get_time", '{"a":')), sse.DONE], "upstream_invalid_response"),
        ([b"<html>no</html>"], "upstream_invalid_response"),
        ([b'{"choices":'], "upstream_invalid_response"),
        ([b"[1]"], "upstream_invalid_response"),
        ([b'{"choices":[{"delta":7}]}'], "upstream_invalid_response"),
        ([b'{"x":' * 3000], "upstream_invalid_response"),
        ([{"error": {"message": "slow down", "type": "rate_limit_error"}}], "rate_limit_exceeded"),
        ([{"error": {"message": "too long", "code": "context_length_exceeded"}}], "context_length_exceeded"),
        ([{"error": {"message": "bad key sk-123456789", "code": 401}}], "upstream_auth_failed"),
        ([{"error": "it broke"}], "upstream_error"),
        ([{"object": "error", "message": "no", "code": 503}], "overloaded"),
        ([{"detail": "no"}], "upstream_error"),
        ([chunk(content="a"), {**chunk(finish="error"), "error": {"code": 529, "message": "busy"}}], "overloaded"),
    ],
)
def test_failed_stream_has_its_error_code(frames: list[Any], code: str) -> None:
    """STR-8, ITEM-3."""
    reading = read_frames([frame(data) for data in frames])
    assert reading.summary[-1] == f"failed: {code}"
    assert find_violations(reading.events) == []
    error = reading.events[-2]
    assert isinstance(error, ErrorEvent)
    assert error.error.code == code
    assert "sk-" not in error.error.message


@pytest.mark.parametrize("levels", [MAX_NESTING, MAX_NESTING + 1, 900, 5000])
def test_chunk_nesting_is_limited(levels: int) -> None:
    """Faults: a chunk of the deepest allowed nesting is decoded, one level more fails the answer."""
    chunk_of = (
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"get_time","arguments":%b}}]}}]}'
    )
    depth = levels - 7  # the brackets around it
    end = str(read(chunk_of % (b"[" * depth + b"]" * depth)).summary[-1])
    assert end == ("completed" if levels <= MAX_NESTING else "failed: upstream_invalid_response")


def test_chunk_nesting_is_limited_in_a_run_of_texts() -> None:
    """Faults: also where many frames are decoded together."""
    texts = [b'{"choices":[{"delta":{"content":"a"}}]}'] * 12
    deep = b'{"choices":[{"delta":{"content":"a"}}],"x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert read(*texts, deep, *texts).summary[-1] == "failed: upstream_invalid_response"


def test_event_named_error_fails_the_response() -> None:
    assert read_frames([frame({"message": "gone"}, "error")]).summary == ["failed: upstream_error"]


@pytest.mark.parametrize(("event", "end"), [("error", "failed: upstream_error"), ("", "completed")])
def test_huge_number_in_an_unknown_field_is_tolerated(event: str, end: str) -> None:
    """A number that the typed decoder skips and that no other decoder accepts."""
    odd = b'{"object": "chat.completion.chunk", "seed": ' + b"9" * 5000 + b"}"
    last = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    assert read_frames([frame(odd, event), frame(last), frame(sse.DONE)]).summary[-1] == end


def test_error_passed_to_finish_is_emitted() -> None:
    to_hub = reader()
    to_hub.feed(frame(calls(call(0, "a", "get_", ""))))
    events = to_hub.finish(UpstreamFault("too slow", code="upstream_timeout"))
    assert [event.error.code for event in events if isinstance(event, ErrorEvent)] == ["upstream_timeout"]
    assert to_hub.error is not None
    # TOOL-3: a possibly incomplete name is not delivered, not even as an incomplete call.
    assert added(events) == []
    assert [loss.path for loss in to_hub.losses] == ["tool_calls[0]"]


def test_invalid_frame_is_quoted_briefly_without_keys() -> None:
    """ERR-5."""
    reading = read_frames([frame(b"Bearer sk-abcdefgh123 " + b"x" * 500)])
    assert reading.response.error is not None
    assert "sk-abc" not in reading.response.error.message
    assert len(reading.response.error.message) < 200


def test_empty_frames_are_ignored() -> None:
    assert read(
        b"", b" ", {}, {"choices": []}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}
    ).summary == ["completed"]


def test_further_choices_are_a_loss() -> None:
    reading = read(
        {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}, {"index": 2, "delta": {"content": "c"}}]}
    )
    assert reading.summary == ["OutputText: a", "completed"]
    assert [loss.path for loss in reading.losses] == ["choices[1]", "choices[2]"]


# Split characters


def half(channel: str, text: str) -> bytes:
    return b'{"choices":[{"delta":{"%b":"%b"}}]}' % (channel.encode(), text.encode())


def test_surrogate_halves_are_joined_per_channel() -> None:
    reading = read(
        half("reasoning_content", "\\ud83d"), half("reasoning_content", "\\ude00"),
        half("content", "a\\ud83d"), half("content", "\\ude80"), half("content", "b"),
        half("refusal", "\\ud83c"), half("refusal", "\\udf0d"),
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"get_time","arguments":"\\ud83d"}}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\ude00"}}]}}]}',
    )  # fmt: skip
    assert reading.summary == ["ReasoningText: 😀", "OutputText: a🚀b", "Refusal: 🌍", "x = get_time(😀)", "completed"]
    assert len(reading.losses) == 0
    assert find_violations(reading.events) == []


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        ([half("content", "a\\ud83d")], ["OutputText: a\ufffd"]),
        ([half("content", "\\ud83d"), half("content", "b")], ["OutputText: \ufffdb"]),
        ([half("content", "\\ud83d"), half("reasoning_content", "b")], ["OutputText: \ufffd", "ReasoningText: b"]),
        ([half("content", "<think>a\\ud83d")], ["ReasoningText: a\ufffd"]),
        ([half("reasoning_content", "\\ud83d")], ["ReasoningText: \ufffd"]),
        ([half("reasoning_content", "a\\ud83d"), half("content", "b")], ["ReasoningText: a\ufffd", "OutputText: b"]),
        ([half("refusal", "\\ud83d")], ["Refusal: \ufffd"]),
        ([half("refusal", "a\\ud83d"), half("reasoning_content", "b")], ["Refusal: a\ufffd", "ReasoningText: b"]),
        ([json.dumps(calls(call(0, "x", "get_time", "{\ud83d"))).encode()], ["x = get_time({\ufffd)"]),
        (
            [json.dumps(calls(call(0, "x\ude00", "get_time", {"a": "\ud83d"}))).encode()],
            ['x\ufffd = get_time({"a":"\ufffd"})'],
        ),
    ],
)
def test_lone_surrogate_is_a_loss(pieces: list[bytes], wanted: list[str]) -> None:
    reading = read(*pieces)
    assert reading.summary == [*wanted, "completed"]
    assert [loss.path for loss in reading.losses] == ["stream"]
    assert find_violations(reading.events) == []


def test_invalid_utf_8_is_a_loss_and_the_rest_is_kept() -> None:
    reading = read(b'{"choices":[{"delta":{"content":"a\xffb"}}]}')
    assert reading.summary == ["OutputText: a\ufffdb", "completed"]
    assert [loss.path for loss in reading.losses] == ["stream"]


def test_stream_maps_tool_names_of_its_request() -> None:
    to_hub = EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps())
    events = to_hub.feed(frame(calls(call(0, "a", "files__read", "{}"))))
    assert [
        event.item.namespace
        for event in events
        if isinstance(event, ItemAdded) and isinstance(event.item, FunctionCall)
    ] == ["files"]
    assert [event.delta for event in events if isinstance(event, ArgumentsDelta)] == ["{}"]
    assert summary_of(INITIAL_RESPONSE) == ["in_progress"]
