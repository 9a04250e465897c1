"""Raw streams of gemini servers, each named after the behaviour it shows. The laws of all dialects are in `test_laws`.

`x.json` beside `x.sse` is the same answer without a stream.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dialects.gemini.reading import frames_of, read_frames, read_whole, reader

from antiphon.protocol.content import OutputText, UrlCitation
from antiphon.protocol.events import OutputTextDelta, StreamEvent
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.items import Message

FOLDER = Path(__file__).parents[2] / "recordings" / "gemini"
STREAMS = sorted(FOLDER.glob("*.sse"))
PAIRS = [path for path in STREAMS if path.with_suffix(".json").exists()]


def of(name: str) -> bytes:
    return (FOLDER / f"{name}.sse").read_bytes()


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_recorded_stream_folds_to_the_recorded_answer(path: Path) -> None:
    """STR-14, law (c)."""
    response, _ = read_whole(path.with_suffix(".json").read_bytes())
    assert read_frames(frames_of(path.read_bytes())).response == response


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recording_contains_its_expected_content(path: Path) -> None:
    reading = read_frames(frames_of(path.read_bytes()))
    assert find_violations(reading.events) == []
    assert reading.summary == SUMMARIES[path.stem]
    assert [loss.path for loss in reading.losses] == LOST.get(path.stem, [])


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_text_runs_equal_single_frames(path: Path) -> None:
    """The fast path for many frames at once omits nothing and repeats nothing."""
    frames, to_hub = frames_of(path.read_bytes()), reader()
    deltas, at = 0, 0
    events: list[StreamEvent] = []
    while at < len(frames):
        run, at = to_hub.text_run(frames, at)
        deltas += len(run.deltas) if run is not None else 0
        if run is None:
            events += to_hub.feed(frames[at])
            at += 1
    events += to_hub.finish()
    whole = read_frames(frames)
    assert deltas + sum(isinstance(event, OutputTextDelta) for event in events) == sum(
        isinstance(event, OutputTextDelta) for event in whole.events
    )
    assert events[-1] == whole.events[-1]


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("text", (8, 5, 13, 0, 0)),
        ("thoughts_then_text", (12, 49, 61, 0, 40)),
        ("cached_tokens", (2100, 2, 2102, 2048, 0)),
        ("tool_use_tokens", (310, 2, 312, 0, 0)),
        ("usage_only_in_the_first_chunk", (3, 1, 4, 0, 0)),
        ("usage_after_the_finish_reason", (3, 1, 4, 0, 0)),
        ("max_tokens_while_thinking", (4, 64, 68, 0, 64)),
    ],
)
def test_usage_follows_the_hub_definition(name: str, tokens: tuple[int, ...]) -> None:
    """REQ-4: thoughts are inside the output, cached tokens inside the input, and no token is counted twice."""
    usage = read_frames(frames_of(of(name))).response.usage
    assert usage is not None
    read, written = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, read, written) == tokens


def test_sources_become_citations_of_characters() -> None:
    """STR-11: the API counts bytes, the hub characters."""
    [message] = read_frames(frames_of(of("grounded_with_citations"))).response.output
    assert isinstance(message, Message)
    [part] = message.content
    assert isinstance(part, OutputText)
    cited = [
        (part.text[annotation.start_index : annotation.end_index], annotation.url)
        for annotation in part.annotations
        if isinstance(annotation, UrlCitation)
    ]
    assert cited == [
        ("España g", "https://a.example/1"),
        ("España g", "https://b.example/2"),
        ("nó la Euro.", "https://b.example/2"),
    ]


def test_log_probabilities_are_kept_with_their_text() -> None:
    """STR-12."""
    [message] = read_frames(frames_of(of("logprobs"))).response.output
    assert isinstance(message, Message)
    [part] = message.content
    assert isinstance(part, OutputText)
    assert part.logprobs
    [token] = part.logprobs
    assert (token.token, token.logprob, token.bytes) == ("Yes", -0.1, [89, 101, 115])
    assert [(top.token, top.logprob) for top in token.top_logprobs] == [("Yes", -0.1), ("No", -2.5)]


SUMMARIES: dict[str, list[str]] = {
    "blocked_prompt": ["incomplete: content_filter"],
    "cached_tokens": ["Again.", "completed"],
    "citation_of_a_source": ["To be or", "completed"],
    "code_is_run": [
        "gemini:executableCode",
        "signed by gemini, on part: cmVz",
        "gemini:codeExecutionResult",
        "It is 42.",
        "completed",
    ],
    "custom_tool_and_namespace": [
        'p1 = apply_patch[*** Begin "Patch"\n]',
        'f1 = files.read({"path":"a"})',
        "completed",
    ],
    "empty_answer": ["completed"],
    "empty_candidates": ["Late", "completed"],
    "error_at_once": ["failed: rate_limit_exceeded"],
    "error_in_the_stream": ["The (incomplete)", "failed: overloaded"],
    "grounded_with_citations": ["España ganó la Euro.", "completed"],
    "image_in_the_answer": ["Here:", "gemini:inlineData", "completed"],
    "logprobs": ["Yes", "completed"],
    "malformed_function_call": ["incomplete: malformed_function_call"],
    "max_tokens_cuts_the_text": ["Once upon a (incomplete)", "incomplete: max_output_tokens"],
    "max_tokens_while_thinking": ["thought: Long ago (incomplete)", "incomplete: max_output_tokens"],
    "no_finish_reason": ["Fine so far (incomplete)", "failed: upstream_disconnected"],
    "nulls_and_unknown_fields": ["xy", "completed"],
    "parallel_calls_with_ids": [
        'oslo-1 = get_weather({"city":"Oslo"})',
        'rome-2 = get_weather({"city":"Rome"})',
        "completed",
    ],
    "parallel_calls_without_ids": [
        "signed by gemini, on call: c2ln",
        'call_2 = get_weather({"city":"Cork"})',
        "call_4 = get_time({})",
        "completed",
    ],
    "recitation_stops_it": ["It was the best (incomplete)", "incomplete: content_filter"],
    "safety_stops_it": ["First you take (incomplete)", "incomplete: content_filter"],
    "second_candidate_ignored": ["One", "completed"],
    "signature_on_a_thought": ["thought: Hmm, so.", "signed by gemini, on thought: dGhvdWdodA==", "Yes.", "completed"],
    "signature_on_an_empty_last_text": ["It is noon.", "signed by gemini, on text: ZW5k", "completed"],
    "text": ["Grüße aus Köln 🌧️", "completed"],
    "text_after_a_call": ["Before.", "t1 = get_time({})", "After it.", "completed"],
    "text_and_call_in_one_chunk": ["Let me look.", 'b1 = get_weather({"city":"Bonn"})', "completed"],
    "text_with_line_feeds_alone": ["One two", "completed"],
    "thought_after_text": ["First", "thought: wait", "Second", "completed"],
    "thoughts_then_a_signed_call": [
        "thought: The user wants rain.",
        "signed by gemini, on call: c2lnbmVkLWNhbGw=",
        'call_3 = get_weather({"city":"Lyon"})',
        "completed",
    ],
    "thoughts_then_text": ["thought: **Comparing**\n\n9.11 and 9.8.\n\nSo 9.8.", "9.8 is greater.", "completed"],
    "tool_use_tokens": ["Found.", "completed"],
    "two_calls_of_one_name": [
        'call_1 = get_weather({"city":"Kyiv"})',
        'call_3 = get_weather({"city":"Kyiv"})',
        "completed",
    ],
    "two_calls_share_an_id": [
        'c1 = get_weather({"city":"Bern"})',
        'call_2 = get_weather({"city":"Graz"})',
        "completed",
    ],
    "unexpected_tool_call": ["Now (incomplete)", "incomplete: unexpected_tool_call"],
    "unknown_finish_reason": ["Bye (incomplete)", "incomplete: tired"],
    "unknown_part": ["Still here.", "completed"],
    "usage_after_the_finish_reason": ["Ok", "completed"],
    "usage_in_every_chunk": ["Well then!", "completed"],
    "usage_only_in_the_first_chunk": ["Ok.", "completed"],
}
LOST: dict[str, list[str]] = {
    "blocked_prompt": ["finishMessage"],
    "grounded_with_citations": ["groundingMetadata.webSearchQueries"],
    "malformed_function_call": ["finishMessage"],
    "recitation_stops_it": ["finishMessage"],
    "second_candidate_ignored": ["candidates[1]"],
    "two_calls_share_an_id": ["functionCall.id"],
    "unknown_part": ["content.parts"],
}
