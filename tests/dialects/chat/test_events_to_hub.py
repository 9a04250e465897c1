"""Chat streams → hub events: laws over generated messages and habits, then each habit and each fault by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.dialects.chat.habits import Habit, habits, messages, spelled, whole
from tests.dialects.chat.habits import Message as Spoken
from tests.dialects.chat.reading import (
    OPENING,
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
from antiphon.dialects.chat.answers import Choice, Chunk, Delta, TextChoice, TextChunk, TextDelta
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

# Chunks whose members hold anything: of the right kind, of the wrong kind, halves of characters, nested.
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
def test_the_same_message_comes_out_whatever_the_habits_of_the_server(
    message: Spoken, habit: Habit, data: st.DataObject
) -> None:
    """STR-6, STR-9, E-6, law (a): what was said is what the fold says, and the events obey the grammar."""
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
def test_a_stream_and_the_same_answer_without_one_give_the_same_response(
    message: Spoken, habit: Habit, data: st.DataObject
) -> None:
    """STR-14, law (c)."""
    reading = read_frames([frame(piece) for piece in spelled(message, habit, data.draw)])
    response, _ = read_whole(whole(message, habit))
    assert response == reading.response


@given(messages(), habits(), st.data())
def test_a_stream_cut_anywhere_ends_once_and_leaves_nothing_open(
    message: Spoken, habit: Habit, data: st.DataObject
) -> None:
    """Law (e), ITEM-3."""
    frames = [frame(piece) for piece in spelled(message, habit, data.draw)]
    events = read_frames(frames[: data.draw(st.integers(0, len(frames)))]).events
    assert find_violations(events) == []
    assert [event for event in events if isinstance(event, TerminalEvent)] == events[-1:]


@given(st.lists(NONSENSE, max_size=4))
def test_nonsense_never_raises_and_never_breaks_the_grammar(pieces: list[Any]) -> None:
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
def test_many_frames_at_once_are_what_they_are_one_by_one(pieces: list[bytes]) -> None:
    """Runs of text are decoded together; whatever else stands among them, or looks like two of them, is not."""
    frames = [frame(TEXT), *map(frame, pieces)]
    one_by_one, at_once = (EventsToHub(REQUEST, OPENING, counting_stamps()) for _ in range(2))
    wanted = [event for each in frames for event in one_by_one.feed(each)]
    told: list[StreamEvent] = []
    at = 0
    while at < len(frames):
        run, at = at_once.text_run(frames, at)
        if run is not None:
            told += run.events()
        else:
            told += at_once.feed(frames[at])
            at += 1
    assert told == wanted
    assert list(at_once.losses) == list(one_by_one.losses)


def test_reasoning_ends_where_text_begins_and_text_where_reasoning_or_a_call_does() -> None:
    """RSN-1: each keeps its own item, in the order in which they came."""
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


def test_text_and_a_call_in_one_chunk_are_both_told() -> None:
    assert read(chunk(content="a", tool_calls=[call(0, "x", "get_time", "{}")])).summary == [
        "OutputText: a",
        "x = get_time({})",
        "completed",
    ]


def test_arguments_go_on_behind_a_text_that_came_between() -> None:
    reading = read(
        calls(call(0, "x", "get_time", "{")), chunk(content="a"), calls(call(0, None, None, "}")), chunk(content="b")
    )
    assert reading.summary == ["x = get_time({})", "OutputText: ab", "completed"]


def test_the_response_begins_with_the_first_chunk_though_it_says_nothing() -> None:
    events = reader().feed(frame(chunk(role="assistant", content="")))
    assert [type(event) for event in events][:1] == [ResponseCreated]
    assert len(events) == 2


# Calls


def added(events: list[StreamEvent]) -> list[str]:
    return [
        event.item.name for event in events if isinstance(event, ItemAdded) and isinstance(event.item, FunctionCall)
    ]


def test_a_call_is_announced_once_its_name_is_whole() -> None:
    """TOOL-3: not with its first piece, but when arguments come, another call begins, text comes or the end does."""
    to_hub = reader()
    assert added(to_hub.feed(frame(calls(call(0, "a", "get_", ""))))) == []
    assert added(to_hub.feed(frame(calls(call(0, None, "weather", ""))))) == []
    assert added(to_hub.feed(frame(calls(call(1, "b", "get_time", ""))))) == ["get_weather"]
    assert added(to_hub.feed(frame(chunk(content="so")))) == ["get_time"]
    assert added(to_hub.feed(frame(calls(call(2, "c", "get_time", "{"))))) == ["get_time"]
    assert added(to_hub.feed(frame(calls(call(3, "d", "get_weather"))))) == []
    to_hub.feed(frame(chunk(finish="tool_calls")))
    assert added(to_hub.finish()) == ["get_weather"]


def test_arguments_that_come_before_their_name_wait_for_it() -> None:
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
        # The same function twice, no index and no id: whole arguments part them, in one chunk or in two.
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
        # A name again behind whole arguments, without more of them, is only the name again.
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
        # No index: the id tells them apart, also when they are interleaved.
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
        # No index, an id nobody knows and no name: the last call.
        ([[call(None, "a", "get_time", "{")], [call(None, "b", None, "}")]], ["a = get_time({})"]),
        # Arguments that are no JSON are delivered as they are.
        ([[call(0, "a", "get_time", "so}")], [call(0, "a", "get_time", "!")]], ["a = get_time(so}!)"]),
    ],
)
def test_pieces_find_their_call(entries: list[list[dict[str, Any]]], wanted: list[str]) -> None:
    """STR-9: however the server numbers its calls."""
    reading = read(*[calls(*chunk_entries) for chunk_entries in entries])
    assert reading.summary == [*wanted, "completed"]
    assert find_violations(reading.events) == []


def test_a_call_id_is_unique_in_its_answer() -> None:
    reading = read(calls(call(0, "a", "get_time", "{}"), call(1, "a", "get_time", "{}")))
    assert reading.summary == ["a = get_time({})", "call_2 = get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls.id"]


def test_a_call_id_that_could_not_be_sent_back_is_replaced() -> None:
    """REQ-8."""
    reading = read(calls(call(0, "x" * 65, "get_time", "{}")))
    assert reading.summary == ["call_1 = get_time({})", "completed"]
    assert "65 characters" in str(next(iter(reading.losses)))


def test_an_id_that_comes_too_late_is_a_loss() -> None:
    reading = read(calls(call(0, None, "get_time", "{")), calls(call(0, "late", None, "}")))
    assert reading.summary == ["call_1 = get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls.id"]


def test_a_name_that_could_not_be_sent_back_is_mended() -> None:
    reading = read(calls(call(0, "a", "functions.get time", "{}")))
    assert reading.summary == ["a = functions_get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls.name"]


def test_a_call_without_a_name_is_a_loss() -> None:
    reading = read(calls(call(0, "a", None, "{}")), calls({"index": 1, "id": "b"}))
    assert reading.summary == ["completed"]
    assert [loss.path for loss in reading.losses] == ["tool_calls[0]", "tool_calls[1]"]


def test_a_call_without_arguments_gets_empty_ones() -> None:
    """Clients parse arguments as JSON, and nothing is none."""
    reading = read(calls(call(0, "a", "get_time")))
    assert reading.summary == ["a = get_time({})", "completed"]
    assert find_violations(reading.events) == []
    assert [loss.path for loss in reading.losses] == ["tool_calls[0].arguments"]


def test_a_custom_tool_is_told_as_it_is_written() -> None:
    """Its own item and events, though the server knows only functions."""
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


def test_a_custom_call_in_its_own_form_may_come_without_input() -> None:
    reading = read(chunk(tool_calls=[{"index": 0, "id": "a", "type": "custom", "custom": {"name": "apply_patch"}}]))
    assert reading.summary == ["a = apply_patch[]", "completed"]


def test_length_with_a_call_open_leaves_it_incomplete() -> None:
    """ITEM-3, REQ-3: arguments that were cut; only the last item is incomplete."""
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
def test_think_tags_are_reasoning_where_the_profile_says_so(tags: Any, text: str, wanted: list[str]) -> None:
    reading = read(*[chunk(content=char) for char in text], wire=ChatWire(think_tags=tags))
    assert reading.summary == [*wanted, "completed"]
    assert find_violations(reading.events) == []


def test_tags_are_text_where_the_server_has_a_field_for_its_reasoning() -> None:
    reading = read(chunk(reasoning_content="a"), chunk(content="<think>"), chunk(content="b"))
    assert reading.summary == ["ReasoningText: a", "OutputText: <think>b", "completed"]


def test_a_beginning_that_a_call_interrupts_is_text() -> None:
    assert read(chunk(content="<thi"), calls(call(0, "a", "get_time", "{}"))).summary == [
        "OutputText: <thi",
        "a = get_time({})",
        "completed",
    ]


def test_empty_pieces_open_nothing() -> None:
    assert read(chunk(content="", reasoning_content="", refusal="")).summary == ["completed"]


def test_one_delta_makes_one_event_once_the_text_has_begun() -> None:
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a")))
    events = to_hub.feed(frame({**chunk(content="b"), "service_tier": "flex"}))
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == ["b"]
    assert len(events) == 1


def test_a_server_that_always_sends_more_is_read_all_the_same() -> None:
    pieces = [{**chunk(content=str(at)), "usage": {"prompt_tokens": 1, "completion_tokens": at}} for at in range(20)]
    reading = read(*pieces, chunk(content="."))
    assert reading.summary == ["OutputText: 012345678910111213141516171819.", "completed"]
    assert reading.response.usage is not None
    assert reading.response.usage.output_tokens == 19


def test_the_short_way_for_text_refuses_whatever_the_long_way_takes_in() -> None:
    """Else something would be lost in silence (F-4). The service tier is told with the first chunk."""
    for short, long in ((TextDelta, Delta), (TextChoice, Choice), (TextChunk, Chunk)):
        assert set(long.__struct_fields__) - set(short.__struct_fields__) <= {"service_tier"}


def test_content_may_be_parts() -> None:
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


def test_reasoning_of_a_form_nobody_knows_is_a_loss() -> None:
    reading = read(chunk(reasoning={"steps": 3}), chunk(reasoning=["a", {"content": "b"}, {"summary": "c"}, [["d"]]]))
    assert reading.summary == ["ReasoningText: abc", "completed"]
    assert [loss.path for loss in reading.losses] == ["message.reasoning"]


def test_content_summary_and_sealed_form_of_reasoning_are_each_kept() -> None:
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


def test_a_refusal_is_a_part_of_its_own() -> None:
    """STR-11."""
    assert read(chunk(content="Well"), chunk(refusal="No"), chunk(refusal=".")).summary == [
        "OutputText: Well",
        "Refusal: No.",
        "completed",
    ]


def test_citations_are_flattened_and_other_annotations_carried() -> None:
    """STR-11, ITEM-5."""
    nested = {
        "type": "url_citation",
        "url_citation": {"url": "u", "title": "t", "start_index": 1, "end_index": 2, "content": "c"},
    }
    other = {"type": "file_citation", "file_id": "f"}
    reading = read(
        chunk(content="a"), chunk(annotations=[nested, other, {"type": "url_citation", "url": "flat"}, {"type": 3}])
    )
    found = [event.annotation for event in reading.events if isinstance(event, AnnotationAdded)]
    assert isinstance(found[0], UrlCitation)
    assert (found[0].url, found[0].title, found[0].start_index, found[0].end_index) == ("u", "t", 1, 2)
    assert list(found[0].extra or ()) == ["content"]
    assert isinstance(found[1], UnknownAnnotation)
    assert isinstance(found[2], UrlCitation)
    assert found[2].url == "flat"
    assert len(found) == 3
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
    return [found.token for found in part.logprobs or ()]


def test_log_probabilities_stand_on_deltas_and_on_the_part() -> None:
    """STR-12."""
    reading = read(with_tokens("a", "a"), with_tokens("b", "b"))
    told = [event.logprobs for event in reading.events if isinstance(event, OutputTextDelta)]
    one = LogProb(token="a", logprob=-1.0, bytes=[97], top_logprobs=[TopLogProb(token="a", logprob=-1.0, bytes=[])])
    assert told[0] == [one]
    assert logprobs(reading) == ["a", "b"]


def test_minus_infinity_has_a_number() -> None:
    tokens = b'[{"token":"a","logprob":-Infinity},{"token":"b","logprob":null}]'
    body = b'{"choices":[{"delta":{"content":"a"},"logprobs":{"content":%b}}]}' % tokens
    message = read(body).response.output[0]
    assert isinstance(message, Message)
    part = message.content[0]
    assert isinstance(part, OutputText)
    assert [found.logprob for found in part.logprobs or ()] == [-9999.0, -9999.0]


def test_tokens_that_are_no_text_yet_wait_for_it() -> None:
    assert logprobs(read(with_tokens("", "\\xf0"), with_tokens("é", "é"), with_tokens("", "end"))) == [
        "\\xf0",
        "é",
        "end",
    ]


def test_tokens_that_are_no_text_yet_wait_for_it_behind_reasoning_too() -> None:
    reading = read(chunk(reasoning_content="r"), with_tokens("", "\\xf0"), with_tokens("é", "é"))
    assert reading.summary == ["ReasoningText: r", "OutputText: é", "completed"]
    assert logprobs(reading) == ["\\xf0", "é"]


def test_tokens_that_never_become_text_are_a_loss() -> None:
    reading = read(with_tokens("", "end"))
    assert reading.summary == ["completed"]
    assert [loss.path for loss in reading.losses] == ["logprobs"]


def test_tokens_of_calls_have_no_place() -> None:
    entry = call(0, "a", "get_time", "{}")
    reading = read(
        {"choices": [{"delta": {"content": None, "tool_calls": [entry]}, "logprobs": {"content": [token("{}")]}}]}
    )
    assert reading.summary == ["a = get_time({})", "completed"]
    assert [loss.path for loss in reading.losses] == ["logprobs"]


def test_tokens_of_reasoning_in_tags_have_no_place() -> None:
    reading = read(
        with_tokens("<think>", "<think>"), with_tokens("a</think>\n\n", "a", "</think>", "\n\n"), with_tokens("b", "b")
    )
    assert logprobs(reading) == ["b"]
    assert [loss.path for loss in reading.losses] == ["logprobs"]
    assert logprobs(read(chunk(content="<think>a</think>"), with_tokens("bc", "b", "c"))) == ["b", "c"]
    assert logprobs(read(with_tokens("<b", "<", "b"), with_tokens("c", "c"))) == ["<", "b", "c"]


def test_tokens_of_a_refusal_have_no_place() -> None:
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
        (
            {"prompt_tokens": "3", "completion_tokens": 4.0, "completion_tokens_details": {"reasoning_tokens": 4}},
            (3, 4, 7, 0, 4),
        ),
        ({"prompt_tokens": None}, None),
        ({"prompt_tokens": [], "completion_tokens": 1}, None),
    ],
)
def test_usage_is_told_with_cached_and_reasoning_tokens(usage: dict[str, Any], wanted: tuple[int, ...] | None) -> None:
    """REQ-4: null only where the upstream has none that can be read."""
    found = read({"choices": [], "usage": usage}).response.usage
    if wanted is None:
        assert found is None
        return
    read_, written, total, cached, reasoning = wanted
    assert found == Usage(
        input_tokens=read_,
        output_tokens=written,
        total_tokens=total,
        input_tokens_details=InputTokensDetails(cached_tokens=cached),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning),
    )


def test_usage_that_cannot_be_read_is_a_loss() -> None:
    reading = read({**chunk(content="a"), "usage": {"prompt_tokens": "many"}})
    assert reading.summary == ["OutputText: a", "completed"]
    assert [loss.path for loss in reading.losses] == ["usage"]


def test_the_service_tier_is_the_servers_own() -> None:
    """REQ-5."""
    assert read({**chunk(content="a"), "service_tier": "priority"}).response.service_tier == "priority"


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("stop", "completed"),
        ("tool_calls", "completed"),
        ("function_call", "completed"),
        ("eos", "completed"),
        ("length", "incomplete: max_output_tokens"),
        ("model_length", "incomplete: max_output_tokens"),
        ("content_filter", "incomplete: content_filter"),
        ("error", "failed: upstream_error"),
        ("insufficient_system_resource", "failed: overloaded"),
    ],
)
def test_the_finish_reason_says_how_it_ends(reason: str, wanted: str) -> None:
    """REQ-3."""
    assert read_frames([frame(chunk(content="a")), frame(chunk(finish=reason))]).summary[-1] == wanted


def test_a_finish_reason_alone_does_not_end_it_for_usage_may_follow() -> None:
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a")))
    assert to_hub.feed(frame(chunk(finish="stop"))) == []
    assert to_hub.feed(frame({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})) == []
    end = to_hub.feed(frame(sse.DONE))[-1]
    assert isinstance(end, ResponseCompleted)
    assert end.response.usage is not None


def test_stream_with_a_finish_reason_is_complete_however_the_bytes_end() -> None:
    to_hub = reader()
    to_hub.feed(frame(chunk(content="a", finish="stop")))
    assert isinstance(to_hub.finish(UpstreamFault("too slow", code="upstream_timeout"))[-1], ResponseCompleted)


def test_nothing_follows_the_end() -> None:
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
        ([chunk(content="a"), sse.DONE], "upstream_invalid_response"),
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
def test_a_stream_that_fails_says_why(frames: list[Any], code: str) -> None:
    """STR-8, ITEM-3."""
    reading = read_frames([frame(data) for data in frames])
    assert reading.summary[-1] == f"failed: {code}"
    assert find_violations(reading.events) == []
    error = reading.events[-2]
    assert isinstance(error, ErrorEvent)
    assert error.error.code == code
    assert "sk-" not in error.error.message


@pytest.mark.parametrize("levels", [MAX_NESTING, MAX_NESTING + 1, 900, 5000])
def test_chunk_nesting_is_bounded(levels: int) -> None:
    """Faults: a chunk of the deepest allowed nesting is read, one level more fails the answer."""
    chunk_of = (
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"get_time","arguments":%b}}]}}]}'
    )
    depth = levels - 7  # the brackets around it
    end = str(read(chunk_of % (b"[" * depth + b"]" * depth)).summary[-1])
    assert end == ("completed" if levels <= MAX_NESTING else "failed: upstream_invalid_response")


def test_chunk_nesting_is_bounded_in_a_run_of_texts() -> None:
    """Faults: also where many frames are decoded together."""
    texts = [b'{"choices":[{"delta":{"content":"a"}}]}'] * 12
    deep = b'{"choices":[{"delta":{"content":"a"}}],"x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert read(*texts, deep, *texts).summary[-1] == "failed: upstream_invalid_response"


def test_an_event_named_error_is_one() -> None:
    assert read_frames([frame({"message": "gone"}, "error")]).summary == ["failed: upstream_error"]


@pytest.mark.parametrize(("event", "end"), [("error", "failed: upstream_error"), ("", "completed")])
def test_an_unknown_field_beyond_all_measure_breaks_nothing(event: str, end: str) -> None:
    """A number that the typed decode passes over and that no other reader takes."""
    odd = b'{"object": "chat.completion.chunk", "seed": ' + b"9" * 5000 + b"}"
    last = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    assert read_frames([frame(odd, event), frame(last), frame(sse.DONE)]).summary[-1] == end


def test_the_error_that_is_given_at_the_end_is_told() -> None:
    to_hub = reader()
    to_hub.feed(frame(calls(call(0, "a", "get_", ""))))
    events = to_hub.finish(UpstreamFault("too slow", code="upstream_timeout"))
    assert [event.error.code for event in events if isinstance(event, ErrorEvent)] == ["upstream_timeout"]
    assert to_hub.error is not None
    # TOOL-3: a name that may not be whole is not delivered, not even as an incomplete call.
    assert added(events) == []
    assert [loss.path for loss in to_hub.losses] == ["tool_calls[0]"]


def test_nonsense_is_shown_in_short_and_without_keys() -> None:
    """ERR-5."""
    reading = read_frames([frame(b"Bearer sk-abcdefgh123 " + b"x" * 500)])
    assert reading.response.error is not None
    assert "sk-abc" not in reading.response.error.message
    assert len(reading.response.error.message) < 200


def test_frames_without_data_or_meaning_are_passed_over() -> None:
    assert read(
        b"", b" ", {}, {"choices": []}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}
    ).summary == ["completed"]


def test_another_answer_besides_the_first_is_a_loss() -> None:
    reading = read(
        {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}, {"index": 2, "delta": {"content": "c"}}]}
    )
    assert reading.summary == ["OutputText: a", "completed"]
    assert [loss.path for loss in reading.losses] == ["choices[1]", "choices[2]"]


# Characters cut in two


def half(channel: str, text: str) -> bytes:
    return b'{"choices":[{"delta":{"%b":"%b"}}]}' % (channel.encode(), text.encode())


def test_characters_cut_in_two_come_together_in_their_own_channel() -> None:
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


def test_bytes_that_are_no_utf_8_are_a_loss_and_the_rest_is_kept() -> None:
    reading = read(b'{"choices":[{"delta":{"content":"a\xffb"}}]}')
    assert reading.summary == ["OutputText: a\ufffdb", "completed"]
    assert [loss.path for loss in reading.losses] == ["stream"]


def test_a_stream_knows_the_tools_of_its_request() -> None:
    to_hub = EventsToHub(REQUEST, OPENING, counting_stamps())
    events = to_hub.feed(frame(calls(call(0, "a", "files__read", "{}"))))
    assert [
        event.item.namespace
        for event in events
        if isinstance(event, ItemAdded) and isinstance(event.item, FunctionCall)
    ] == ["files"]
    assert [event.delta for event in events if isinstance(event, ArgumentsDelta)] == ["{}"]
    assert summary_of(OPENING) == ["in_progress"]
