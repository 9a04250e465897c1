"""Raw streams of Messages servers, each named after its behaviour. The laws of all dialects are in `test_laws`.

`x.json` beside `x.sse` is the same answer without a stream.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.dialects.messages.reading import REQUEST, frames_of, read_frames, read_whole, reader

from antiphon.dialects.messages import EventsFromHub
from antiphon.dialects.messages.response_wire import UsageIn
from antiphon.dialects.messages.stream_in import usage_to_hub
from antiphon.dialects.messages.wire import CACHE_CREATION_FIELD, STOP_REASON_FIELD, STOP_SEQUENCE_FIELD, MessagesWire
from antiphon.protocol.content import OutputText, UnknownAnnotation, UrlCitation
from antiphon.protocol.items import Message
from antiphon.protocol.response import Usage

FOLDER = Path(__file__).parents[2] / "recordings" / "messages"
STREAMS = sorted(FOLDER.glob("*.sse"))
PAIRS = [path for path in STREAMS if path.with_suffix(".json").exists()]


def of(name: str) -> Path:
    return FOLDER / f"{name}.sse"


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_recorded_stream_folds_to_the_recorded_answer(path: Path) -> None:
    """STR-14, law (c)."""
    response, _ = read_whole(path.with_suffix(".json").read_bytes())
    assert read_frames(frames_of(path.read_bytes())).response == response


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recording_can_be_written_for_a_messages_client(path: Path) -> None:
    """E-6, law (d): hub → messages → hub keeps content and end. There, a refusal is text and a seal is a signature."""
    reading = read_frames(frames_of(path.read_bytes()))
    from_hub = EventsFromHub(REQUEST)
    data = b"".join(map(from_hub.feed, reading.events)) + from_hub.finish()
    again = read_frames(frames_of(data))
    assert again.response.status == reading.response.status
    if reading.response.status != "failed":
        assert _unsealed(again.summary) == _unsealed(reading.summary)
        assert again.response.usage == reading.response.usage or reading.response.usage is None


@pytest.mark.parametrize("name", [path.stem for path in STREAMS])
def test_recording_contains_its_expected_content(name: str) -> None:
    reading = read_frames(frames_of(of(name).read_bytes()))
    assert reading.summary == SUMMARIES[name]
    assert reading.lost == LOST.get(name, [])


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_text_runs_equal_single_frames(path: Path) -> None:
    """A run has the same deltas and numbers as its single events."""
    frames = frames_of(path.read_bytes())
    to_hub = reader()
    received: list[object] = []
    at = 0
    while at < len(frames):
        run, at = to_hub.text_run(frames, at)
        if run is not None:
            received += run.events()
        else:
            received += to_hub.feed(frames[at])
            at += 1
    assert [*received, *to_hub.finish()] == read_frames(frames).events


def test_text_run_declines_empty_deltas() -> None:
    to_hub = reader()
    start, *others = frames_of(of("text").read_bytes())
    empty = frames_of(b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}\n\n')
    for frame in [start, *others[:3]]:
        to_hub.feed(frame)
    assert to_hub.text_run(empty, 0) == (None, 0)
    assert to_hub.feed(empty[0]) == []


@pytest.mark.parametrize(
    ("name", "counts"), [("usage_with_cache", (3210, 3000, 7)), ("usage_only_at_the_end", (36, 5, 4))]
)
def test_cached_tokens_are_counted_once_inside_the_input(name: str, counts: tuple[int, int, int]) -> None:
    """REQ-4: this API counts them separately, the hub inside the input."""
    usage = _usage(name)
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens) == counts
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def test_tokens_written_to_the_cache_are_counted() -> None:
    """REQ-4: unknown if the server does not report them; their parts by lifetime are kept."""
    assert _usage("usage_with_cache").input_tokens_details.cache_write_tokens == 200
    parts = {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}
    usage = usage_to_hub(UsageIn(input_tokens=1, cache_read_input_tokens=4, cache_creation=parts))
    assert usage is not None
    assert (usage.input_tokens, usage.input_tokens_details.cache_write_tokens) == (10, 5)
    assert json.loads(bytes((usage.input_tokens_details.extra or {})[CACHE_CREATION_FIELD])) == parts
    unknown = usage_to_hub(UsageIn(input_tokens=1))
    assert unknown is not None
    assert unknown.input_tokens_details.cache_write_tokens is None


def test_thinking_tokens_are_part_of_the_output_count() -> None:
    """REQ-4."""
    usage = _usage("thinking_then_text")
    assert (usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (40, 25)


def test_missing_usage_is_null() -> None:
    """REQ-4."""
    assert read_frames(frames_of(of("no_usage").read_bytes())).response.usage is None


def test_service_tier_is_translated() -> None:
    """REQ-5."""
    tiers = {
        name: read_frames(frames_of(of(name).read_bytes())).response.service_tier
        for name in ("text", "usage_with_cache")
    }
    assert tiers == {"text": "default", "usage_with_cache": "priority"}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("stop_sequence", STOP_SEQUENCE_FIELD, "three"),
        ("pause_turn", STOP_REASON_FIELD, "pause_turn"),
        ("model_context_window_exceeded", STOP_REASON_FIELD, "model_context_window_exceeded"),
        ("stop_reason_nobody_knows", STOP_REASON_FIELD, "tired"),
    ],
)
def test_values_without_hub_field_are_in_extra(name: str, field: str, value: str) -> None:
    """F-4."""
    extra = read_frames(frames_of(of(name).read_bytes())).response.extra
    assert extra
    assert {field: msgspec.json.decode(raw) for field, raw in extra.items()} == {field: value}


def test_web_citations_are_annotations_of_their_block() -> None:
    """STR-11: with the members that the server requires back."""
    message = read_frames(frames_of(of("web_search_with_citations").read_bytes())).response.output[3]
    assert isinstance(message, Message)
    cited, plain = message.content
    assert isinstance(cited, OutputText)
    assert isinstance(plain, OutputText)
    citation = cited.annotations[0]
    assert isinstance(citation, UrlCitation)
    assert (citation.start_index, citation.end_index, citation.url, citation.title) == (
        0,
        9,
        "https://example.com/rain",
        "Rain",
    )
    assert set(citation.extra or ()) == {"cited_text", "encrypted_index"}
    assert plain.annotations == []


def test_document_citations_are_passed_through() -> None:
    """F-4."""
    message = read_frames(frames_of(of("citations_of_documents").read_bytes())).response.output[0]
    assert isinstance(message, Message)
    part = message.content[0]
    assert isinstance(part, OutputText)
    assert [annotation.kind for annotation in part.annotations if isinstance(annotation, UnknownAnnotation)] == [
        "messages:page_location"
    ]


def test_unsigned_thoughts_are_sealed_if_the_server_accepts_them() -> None:
    """RSN-2."""
    wire = MessagesWire(maker="other", unsigned_thinking=True)
    summary = read_frames(frames_of(of("unsigned_thinking").read_bytes()), wire).summary
    assert summary[1] == "sealed: other {'thinking': 'No name under it.', 'signature': ''}"


def _unsealed(summary_lines: list[str]) -> list[str]:
    return [line.replace("Refusal: ", "OutputText: ") for line in summary_lines if not line.startswith("sealed: ")]


def _usage(name: str) -> Usage:
    usage = read_frames(frames_of(of(name).read_bytes())).response.usage
    assert usage is not None
    return usage


SUMMARIES: dict[str, list[str]] = {
    "blocks_that_never_stop": ["OutputText: Go:", "toolu_01M = get_time({})", "completed"],
    "blocks_that_share_an_index": [
        "OutputText: Look:",
        "toolu_01K = get_time({})",
        "toolu_01L = get_time({})",
        "completed",
    ],
    "call_into_a_namespace": ['toolu_01I = files.read({"path":"a"})', "toolu_01J = files.edit[b]", "completed"],
    "call_then_text": ["toolu_01E = get_time({})", "OutputText: That should do.", "completed"],
    "call_without_input": ["toolu_01F = get_time({})", "completed"],
    "calls_without_ids": ["call_1 = get_time({})", "call_3 = get_time({})", "completed"],
    "characters_cut_in_two": ["ReasoningText: a😀b", "OutputText: up 🌍", "completed"],
    "citations_of_documents": ["OutputText: As it says.", "completed"],
    "compaction": [
        'messages:compaction {"type":"compaction","content":"What was said before."}',
        "OutputText: Going on.",
        "completed",
    ],
    "custom_tool_as_one_string": ['toolu_01H = apply_patch[*** Begin \nPatch 😀 "end"]', "completed"],
    "deltas_without_a_start": ["ReasoningText: Hm", "OutputText: Hello you", "completed"],
    "done_in_place_of_message_stop": ["OutputText: Fine", "completed"],
    "empty_blocks": ["OutputText: Words", "completed"],
    "error_event": ["OutputText: The (incomplete)", "failed: overloaded"],
    "error_first": ["failed: rate_limit_exceeded"],
    "error_of_another_form": ["failed: upstream_error"],
    "half_a_character_at_the_end": ["OutputText: a�", "completed"],
    "input_only_at_the_start_of_the_block": ['toolu_01G = get_weather({"city":"Köln","days":3})', "completed"],
    "interleaved_thinking": [
        "ReasoningText: First.",
        "sealed: messages {'thinking': 'First.', 'signature': 'RXF1'}",
        "OutputText: Let me look.",
        "ReasoningText: Then the time.",
        "sealed: messages {'thinking': 'Then the time.', 'signature': 'Mg=='}",
        "toolu_01C = get_time({})",
        "completed",
    ],
    "max_tokens_cuts_arguments": [
        "toolu_01N = get_time({})",
        'toolu_01O = get_weather({"city": "San F) (incomplete)',
        "incomplete: max_output_tokens",
    ],
    "max_tokens_cuts_before_arguments": ["toolu_01P = get_weather() (incomplete)", "incomplete: max_output_tokens"],
    "max_tokens_cuts_text": ["OutputText: It was a dark and (incomplete)", "incomplete: max_output_tokens"],
    "max_tokens_cuts_thinking": ["ReasoningText: On the one hand (incomplete)", "incomplete: max_output_tokens"],
    "message_in_its_start": ["OutputText: All at once", "completed"],
    "model_context_window_exceeded": ["OutputText: So much (incomplete)", "incomplete: max_output_tokens"],
    "no_event_names": ["OutputText: Nameless", "completed"],
    "no_message_stop": ["OutputText: Fine", "completed"],
    "no_stop_reason": ["OutputText: Fine (incomplete)", "failed: upstream_invalid_response"],
    "no_usage": ["OutputText: Free", "completed"],
    "numbers_as_strings": ["OutputText: Twelve", "completed"],
    "overlapping_blocks_with_text_before_thinking": [
        "OutputText: Well, hello",
        "ReasoningText: Now I think.",
        "sealed: messages {'thinking': 'Now I think.', 'signature': 'RXF1'}",
        "completed",
    ],
    "pause_turn": [
        "OutputText: Searching.",
        'messages:server_tool_use {"type":"server_tool_use","id":"srvtoolu_02",'
        '"name":"web_search","input":{"query":"x"}}',
        "incomplete: pause_turn",
    ],
    "pings_everywhere": ["OutputText: Still here", "completed"],
    "redacted_thinking": [
        "sealed: messages {'redacted': 'c2VhbGVk'}",
        "sealed: messages {'redacted': 'YWdhaW4='}",
        "OutputText: I can say this.",
        "completed",
    ],
    "refusal_with_words": [
        "OutputText: First you take (incomplete)",
        "Refusal: This could enable harm. (incomplete)",
        "incomplete: content_filter",
    ],
    "refusal_without_words": ["incomplete: content_filter"],
    "second_message_start": ["OutputText: Once", "completed"],
    "several_text_blocks": ["OutputText: One. ", "OutputText: Two.", "completed"],
    "signature_in_pieces": [
        "ReasoningText: Hm.",
        "sealed: messages {'thinking': 'Hm.', 'signature': 'QUJDREVG'}",
        "OutputText: So.",
        "completed",
    ],
    "stop_reason_nobody_knows": ["OutputText: Bye (incomplete)", "incomplete: tired"],
    "stop_sequence": ["OutputText: one two", "completed"],
    "text": ["OutputText: Grüße aus Köln 🌧️", "completed"],
    "text_and_a_call": ["OutputText: I'll look it up.", 'toolu_01D = get_weather({"city":"Bern"})', "completed"],
    "thinking_that_is_not_shown": [
        "sealed: messages {'thinking': '', 'signature': 'T3BhcXVl'}",
        "OutputText: Four.",
        "completed",
    ],
    "thinking_then_parallel_calls": [
        "ReasoningText: Both cities.",
        "sealed: messages {'thinking': 'Both cities.', 'signature': 'RXF1'}",
        'toolu_01A = get_weather({"city":"Oslo"})',
        'toolu_01B = get_weather({"city":"Rome"})',
        "completed",
    ],
    "thinking_then_text": [
        "ReasoningText: Compare 9.11 and 9.8.",
        "sealed: messages {'thinking': 'Compare 9.11 and 9.8.', 'signature': 'RXF1'}",
        "OutputText: 9.8 is greater.",
        "completed",
    ],
    "types_only_in_event_names": ["OutputText: Bare", "completed"],
    "unknown_blocks_deltas_and_events": [
        'messages:hologram {"type":"hologram","depth":3}',
        "OutputText: Seen?",
        "completed",
    ],
    "unsigned_thinking": ["ReasoningText: No name under it.", "OutputText: Fine.", "completed"],
    "usage_only_at_the_end": ["OutputText: Late", "completed"],
    "usage_with_cache": ["OutputText: Cheap", "completed"],
    "web_search_with_citations": [
        "OutputText: I'll search.",
        'messages:server_tool_use {"type":"server_tool_use","id":"srvtoolu_01",'
        '"name":"web_search","input":{"query":"rain"}}',
        'messages:web_search_tool_result {"type":"web_search_tool_result","tool_use_id":"srvtoolu_01","content":[{"type":"web_search_result","title":"Rain","url":"https://example.com/rain","encrypted_content":"EqgfCioIARgB","page_age":null}]}',
        "OutputText: It rains.",
        "OutputText:  Take a coat.",
        "completed",
    ],
}
LOST: dict[str, list[str]] = {
    "half_a_character_at_the_end": ["stream"],
    "unknown_blocks_deltas_and_events": ["content[0]", "stream", "content[1]"],
}
