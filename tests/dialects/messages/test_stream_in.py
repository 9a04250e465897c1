"""A Messages server's stream, behaviour by behaviour; the recordings show whole streams."""

from __future__ import annotations

from typing import Any

import pytest
from tests.dialects.messages.reading import begin, delta, frame, read, read_frames, read_whole, reader, stop, text

from antiphon import sse
from antiphon.errors import UpstreamFault
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.nesting import MAX_NESTING


def test_text_and_call_in_one_answer_are_both_delivered() -> None:
    reading = read(
        *text(0, "Look: "), begin(1, type="tool_use", id="t", name="get_time", input={}), stop(1), stop="tool_use"
    )
    assert reading.summary == ["OutputText: Look: ", "t = get_time({})", "completed"]


@pytest.mark.parametrize(
    ("pieces", "end", "output"),
    [
        ([], [stop(0)], "t = get_time({})"),
        (['{"a":1}'], [stop(0)], 't = get_time({"a":1})'),
        (['{"a":'], [stop(0)], 't = get_time({"a":) (incomplete)'),
        ([], [], "t = get_time() (incomplete)"),  # the block did not end
    ],
)
def test_unknown_stop_reason_delivers_only_whole_calls(
    pieces: list[str], end: list[dict[str, Any]], output: str
) -> None:
    """REQ-3: the response is incomplete, and whole calls are complete. A call without arguments is whole if its block ended."""
    call = begin(0, type="tool_use", id="t", name="get_time", input={})
    deltas = [delta(0, type="input_json_delta", partial_json=piece) for piece in pieces]
    reading = read(call, *deltas, *end, stop="tired")
    assert (reading.summary, list(reading.losses)) == ([output, "incomplete: tired"], [])


def test_events_after_the_end_are_ignored() -> None:
    """STR-7."""
    to_hub = reader()
    for event in ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}):
        to_hub.feed(frame(event))
    assert to_hub.feed(frame(text(0, "more")[0])) == []
    assert to_hub.text_run([frame(delta(0, type="text_delta", text="x"))], 0) == (None, 0)
    assert to_hub.finish() == []


def test_error_passed_to_finish_is_emitted() -> None:
    """ITEM-3."""
    to_hub = reader()
    events = [event for one in text(0, "Half")[:2] for event in to_hub.feed(frame(one))]
    events += to_hub.finish(UpstreamFault("gone", code="upstream_timeout"))
    assert find_violations(events) == []
    assert to_hub.error is not None
    assert to_hub.error.code == "upstream_timeout"


def test_blank_data_is_ignored() -> None:
    assert read(b"  ", *text(0, "x")).summary == ["OutputText: x", "completed"]


@pytest.mark.parametrize("data", [b"nonsense", b"[1]", b'"text"', b'{"type": "content_block_start", "index": {}}'])
def test_invalid_event_fails_the_answer(data: bytes) -> None:
    """ERR-4."""
    reading = read_frames([frame(data)])
    assert reading.summary == ["failed: upstream_invalid_response"]


def test_undecodable_error_event_fails_the_response() -> None:
    """ERR-4."""
    assert read_frames([sse.Frame("error", b"nonsense")]).summary == ["failed: upstream_error"]
    assert read_frames([sse.Frame("error", b'{"type":"error"}')]).summary == ["failed: upstream_error"]


def test_text_of_two_open_blocks_stays_separate() -> None:
    reading = read(
        begin(0, type="text", text=""),
        delta(0, type="text_delta", text="a"),
        delta(0, type="text_delta", text="bc"),
        begin(1, type="text", text=""),
        delta(1, type="text_delta", text="X"),
        delta(0, type="text_delta", text="d"),
        delta(1, type="text_delta", text="Y"),
        delta(0, type="citations_delta", citation={"type": "char_location"}),
        delta(1, type="citations_delta", citation={"type": "web_search_result_location", "url": "u"}),
        stop(0),
        stop(1),
    )
    assert find_violations(reading.events) == []
    assert reading.summary == ["OutputText: abcd", "OutputText: XY", "completed"]


def test_text_run_ends_at_a_delta_of_another_block() -> None:
    to_hub = reader()
    pieces = [
        delta(0, type="text_delta", text="a"),
        delta(0, type="text_delta", text="b"),
        delta(1, type="text_delta", text="c"),
    ]
    frames = [frame(event) for event in (begin(0, type="text", text=""), *pieces)]
    to_hub.feed(frames[0])
    to_hub.feed(frames[1])
    run, at = to_hub.text_run(frames, 2)
    assert run is not None
    assert (run.deltas, at) == (["b"], 3)
    assert to_hub.text_run(frames, 3) == (None, 3)


def test_citations_without_text_and_invalid_citations_are_losses() -> None:
    """F-4."""
    without_text = read(begin(0, type="text", text="", citations=[{"type": "char_location"}]), stop(0))
    assert (without_text.summary, without_text.lost) == (["completed"], ["content.citations"])
    none = read(begin(0, type="text", text="x", citations=[7]), stop(0))
    assert (none.summary, none.lost) == (["OutputText: x", "completed"], ["content.citations"])


def test_citation_before_its_block_is_accepted() -> None:
    reading = read(
        delta(0, type="citations_delta", citation={"type": "char_location"}), delta(0, type="text_delta", text="x")
    )
    assert (reading.summary, reading.lost) == (["OutputText: x", "completed"], [])


def test_block_that_is_started_twice_gives_two_items() -> None:
    reading = read(begin(0, type="text", text="one"), begin(0, type="thinking", thinking="two"), stop(0))
    assert reading.summary == ["OutputText: one", "ReasoningText: two", "completed"]


def test_undecodable_blocks_are_losses() -> None:
    """F-4."""
    reading = read(
        begin(0, no_type=1), begin(1, type="text", text=7), {"type": "content_block_start", "index": 2}, *text(3, "x")
    )
    assert (reading.summary, reading.lost) == (["OutputText: x", "completed"], ["content[0]", "content[1]"])


def test_call_without_a_name_and_its_arguments_are_losses() -> None:
    """TOOL-3."""
    reading = read(
        begin(0, type="tool_use", id="t", input={}), delta(0, type="input_json_delta", partial_json="{}"), stop(0)
    )
    assert (reading.summary, reading.lost) == (["completed"], ["content[0]", "content[0]"])


def test_invalid_names_and_ids_are_replaced() -> None:
    """REQ-8."""
    reading = read(
        *(
            event
            for at, id in enumerate(("t", "t", "x" * 65))
            for event in (begin(at, type="tool_use", id=id, name="get_time"), stop(at))
        ),
        begin(3, type="tool_use", id="u", name="get the time", input=None),
        stop(3),
    )
    assert reading.summary == [
        "t = get_time({})",
        "call_2 = get_time({})",
        "call_4 = get_time({})",
        "u = get_the_time({})",
        "completed",
    ]
    assert reading.lost == ["tool_use.id", "tool_use.id", "tool_use.name"]


def test_caller_of_a_call_is_kept() -> None:
    """F-4."""
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    reading = read(
        begin(0, type="tool_use", id="a", name="get_time", input={}, caller=caller),
        stop(0),
        begin(1, type="tool_use", id="b", name="get_time", input={}, caller={"type": "direct"}),
    )
    first, second = reading.response.output
    assert isinstance(first, FunctionCall)
    assert isinstance(second, FunctionCall)
    assert set(first.extra or ()) == {"caller"}
    assert not second.extra


def test_further_arguments_of_a_custom_call_are_a_loss() -> None:
    """TOOL-1, F-4."""
    reading = read(
        begin(0, type="tool_use", id="a", name="apply_patch", input={}),
        delta(0, type="input_json_delta", partial_json='{"input": "x", "more": 1}'),
        stop(0),
    )
    assert (reading.summary, reading.lost) == (["a = apply_patch[x]", "completed"], ["tool_use.input"])


def test_invalid_input_of_a_server_tool_is_a_loss() -> None:
    """F-4."""
    reading = read(
        begin(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta(0, type="input_json_delta", partial_json='{"query": "x'),
        stop(0),
    )
    assert reading.lost == ["content[0].input"]
    assert (
        reading.summary[0]
        == 'messages:server_tool_use {"type":"server_tool_use","id":"s","name":"web_search","input":{}}'
    )


def test_delta_of_another_kind_starts_a_new_item() -> None:
    reading = read(
        begin(0, type="text", text="a"),
        delta(0, type="thinking_delta", thinking="b"),
        delta(0, type="text_delta", text="c"),
    )
    assert reading.summary == ["OutputText: a", "ReasoningText: b", "OutputText: c", "completed"]


def test_empty_deltas_are_ignored() -> None:
    reading = read(
        begin(0, type="text", text="a"),
        delta(0, type="text_delta"),
        {"type": "content_block_delta", "index": 0},
        stop(9),
    )
    assert (reading.summary, reading.lost) == (["OutputText: a", "completed"], [])


def test_invalid_json_in_a_native_delta_is_a_loss() -> None:
    """F-4."""
    broken = b'{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"\\ud83d"}}'
    reading = read(begin(0, type="compaction", content="x"), broken, stop(0))
    assert reading.summary[0] == 'messages:compaction {"type":"compaction","content":"x"}'
    assert "content[0]" in reading.lost


def test_refusal_closes_open_items() -> None:
    """STR-11, REQ-3."""
    ending = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "No."}}}
    reading = read(begin(0, type="tool_use", id="a", name="get_time", input={}), ending, stop="refusal")
    assert find_violations(reading.events) == []
    assert reading.summary == ["a = get_time({})", "Refusal: No. (incomplete)", "incomplete: content_filter"]


def test_invalid_utf8_and_numbers_are_repaired() -> None:
    """F-4."""
    bad = (
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\xff"},'
        b'"x":1e999,"y":[0.5,null]}'
    )
    reading = read(begin(0, type="text", text=""), bad, delta(0, type="text_delta", text="b"), stop(0))
    assert (reading.summary, reading.lost) == (["OutputText: a\ufffdb", "completed"], ["stream"])


def test_invalid_utf8_in_a_block_is_repaired() -> None:
    """A block is decoded later than its event, and may contain invalid bytes."""
    call = b'{"type":"tool_use","id":"t","name":"f","input":{"a":"x\xff"},"caller":{"b":"\xff"}}'
    streamed = read(b'{"type":"content_block_start","index":0,"content_block":' + call + b"}", stop(0), stop="tool_use")
    assert (streamed.summary, streamed.lost) == (['t = f({"a":"x\ufffd"})', "completed"], ["stream"])
    whole, losses = read_whole(b'{"content":[' + call + b'],"stop_reason":"tool_use"}')
    assert [item.arguments for item in whole.output if isinstance(item, FunctionCall)] == ['{"a":"x\ufffd"}']
    assert [loss.path for loss in losses] == ["stream"]


@pytest.mark.parametrize(
    "block",
    [
        b'{"type":"tool_use","id":"t","name":"f","input":{},"caller":{"a":1e400}}',
        b'{"type":"text","text":"x","citations":[{"a":1e400}]}',
        b'{"type":"server_tool_use","id":"s","name":"web_search","input":{"a":1e400}}',
    ],
)
def test_block_with_unrepresentable_number_is_omitted(block: bytes) -> None:
    """F-4."""
    reading = read(b'{"type":"content_block_start","index":0,"content_block":' + block + b"}", stop(0), *text(1, "y"))
    assert (reading.summary, reading.lost) == (["OutputText: y", "completed"], ["content[0]"])


def test_citation_with_unrepresentable_number_is_omitted() -> None:
    """F-4."""
    citation = b'{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"a":1e400}}}'
    reading = read(begin(0, type="text", text="x"), citation, stop(0))
    assert (reading.summary, reading.lost) == (["OutputText: x", "completed"], ["content.citations"])


def test_lone_surrogate_outside_text_deltas_is_replaced() -> None:
    """F-4."""
    bad = b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a\\ud83d"}}'
    reading = read(bad, stop(0))
    assert (reading.summary, reading.lost) == (["OutputText: a\ufffd", "completed"], ["stream"])


def test_pending_surrogate_is_replaced_at_the_end() -> None:
    """F-4."""
    half = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"}}'
    assert read_frames([frame(half)]).summary == ["OutputText: a\ufffd (incomplete)", "failed: upstream_disconnected"]
    assert read(half).summary == ["OutputText: a\ufffd", "completed"]


@pytest.mark.parametrize("place", ["top", "message"])
def test_usage_of_unknown_form_is_omitted(place: str) -> None:
    """REQ-4, F-4."""
    usage = {"usage": {"input_tokens": "many"}}
    event = (
        {"type": "message_delta", "delta": {}, **usage}
        if place == "top"
        else {"type": "message_start", "message": usage}
    )
    reading = read(event, *text(0, "x"))
    assert (reading.summary, reading.lost) == (["OutputText: x", "completed"], ["usage"])


DEEP_EVENTS = {
    "citation": b'{"type":"content_block_delta","index":0,'
    b'"delta":{"type":"citations_delta","citation":{"type":"a","b":%s}}}',
    "text": b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x","citations":[%s]}}',
    "call": b'{"type":"content_block_start","index":0,'
    b'"content_block":{"type":"tool_use","id":"t","name":"f","input":%s}}',
    "carried": b'{"type":"content_block_start","index":0,"content_block":{"type":"hologram","of":%s}}',
    "delta": b'{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":%s}}',
}


@pytest.mark.parametrize("name", DEEP_EVENTS)
def test_event_nesting_is_limited(name: str) -> None:
    """REQ-8: an event of the deepest allowed nesting is read, one level more fails the answer."""
    first = begin(0, type="compaction", content=None) if name == "delta" else begin(0, type="text", text="x")
    around = level_of(DEEP_EVENTS[name])
    for depth in (MAX_NESTING - around, MAX_NESTING - around + 1, 900, 5000):
        event = DEEP_EVENTS[name] % (b"[" * depth + b"]" * depth)
        reading = read(first, event, stop(0))
        assert find_violations(reading.events) == []
        assert reading.summary[-1] == (
            "completed" if depth + around <= MAX_NESTING else "failed: upstream_invalid_response"
        )


def level_of(event: bytes) -> int:
    """The number of open brackets at the `%s` of a template."""
    before = event[: event.index(b"%s")]
    return sum(map(before.count, (b"[", b"{"))) - sum(map(before.count, (b"]", b"}")))


def test_many_brackets_are_not_deep_nesting() -> None:
    many = [{"url": "]]", "x": [["[["]]} for _ in range(100)]
    reading = read(begin(0, type="web_search_tool_result", tool_use_id="s", content=many), stop(0))
    assert (len(reading.response.output), reading.lost) == (1, [])


def whole_of_depth(depth: int) -> bytes:
    return b'{"content":[{"type":"text","text":"x"},{"type":"hologram","of":' + b"[" * depth + b"]" * depth + b"}]}"


def test_plain_answer_of_the_deepest_allowed_nesting_is_decoded() -> None:
    """REQ-8, F-4."""
    assert list(read_whole(whole_of_depth(MAX_NESTING - 3))[1]) == []


@pytest.mark.parametrize("depth", [MAX_NESTING - 2, 900, 5000])
def test_plain_answer_nested_too_deeply_is_invalid(depth: int) -> None:
    """REQ-8."""
    with pytest.raises(UpstreamFault) as raised:
        read_whole(whole_of_depth(depth))
    assert raised.value.code == "upstream_invalid_response"


def test_text_after_a_lone_surrogate_keeps_its_place() -> None:
    """The first piece ends with half a character, and the next piece, which is valid, does not complete it."""
    pieces = [delta(0, type="text_delta", text=piece) for piece in ("a", "\ud83d", "b", "c")]
    reading = read(begin(0, type="text", text=""), *pieces, stop(0))
    assert reading.summary == ["OutputText: a\ufffdbc", "completed"]


def test_later_usage_replaces_earlier_counts_also_with_zero() -> None:
    """REQ-4: counts that the later usage omits stay."""
    first = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 5}
    last = {"input_tokens": 0, "output_tokens": 4, "cache_read_input_tokens": 0}
    reading = read(
        {"type": "message_start", "message": {"usage": first}},
        *text(0, "x"),
        {"type": "message_delta", "delta": {}, "usage": last},
    )
    usage = reading.response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (5, 4)
    assert usage.input_tokens_details.cached_tokens == 0
    assert usage.input_tokens_details.cache_write_tokens == 5
