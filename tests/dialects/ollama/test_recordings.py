"""Raw streams of Ollama servers, each named after the behaviour it shows. The laws of all dialects are in `test_laws`.

`x.json` beside `x.ndjson` is the same answer without a stream.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dialects.ollama.reading import frames_of, read_frames, read_whole

FOLDER = Path(__file__).parents[2] / "recordings" / "ollama"
STREAMS = sorted(FOLDER.glob("*.ndjson"))
PAIRS = [path for path in STREAMS if path.with_suffix(".json").exists()]


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_recorded_stream_folds_to_the_recorded_answer(path: Path) -> None:
    """STR-14, law (c)."""
    response, _ = read_whole(path.with_suffix(".json").read_bytes())
    assert read_frames(frames_of(path.read_bytes())).response == response


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recording_contains_its_expected_content(path: Path) -> None:
    reading = read_frames(frames_of(path.read_bytes()))
    assert reading.summary == SUMMARIES[path.stem]
    assert [loss.path for loss in reading.losses] == LOST.get(path.stem, [])


WEATHER = 'call get_weather {"city":"Oslo"}'
ENDED = ["completed", "26+9"]
SUMMARIES = {
    "text": ["text Good morning, Oslo.", *ENDED],
    "text_of_one_line": ["text Yes.", *ENDED],
    "text_in_the_last_line": ["text Good day.", *ENDED],
    "empty_answer": ENDED,
    "unicode_text": ["text Grüße aus 東京 🌤\u2028!", *ENDED],
    "thinking_then_text": ["thinking The user greets.", "text Hello!", *ENDED],
    "thinking_alone": ["thinking Hm.", "incomplete", "max_output_tokens", "26+9"],
    "thinking_and_text_in_one_line": ["thinking 2 + 2.", "text Four", *ENDED],
    "text_then_thinking": ["text Wait.", "thinking Once more.", "text Done.", *ENDED],
    "one_call": [WEATHER, *ENDED],
    "call_without_an_id": [WEATHER, *ENDED],
    "call_after_text": ["text Let me look.", WEATHER, *ENDED],
    "call_after_thinking": ["thinking I need the weather.", WEATHER, *ENDED],
    "two_calls_in_one_line": [WEATHER, 'call get_weather {"city":"Rome","unit":"celsius"}', *ENDED],
    "two_calls_in_two_lines": [WEATHER, 'call get_weather {"city":"Rome","unit":"celsius"}', *ENDED],
    "text_after_a_call": [WEATHER, "text I asked.", *ENDED],
    "two_calls_with_one_id": [WEATHER, WEATHER, *ENDED],
    "call_without_arguments": ["call get_weather {}", *ENDED],
    "call_with_arguments_as_text": [WEATHER, *ENDED],
    "call_without_a_name": ENDED,
    "custom_tool_and_namespace": [
        "custom apply_patch + a\n- b",
        'call files.read {"path":"/a"}',
        "custom files.edit x",
        *ENDED,
    ],
    "custom_tool_with_more_arguments": ["custom apply_patch +", *ENDED],
    "tool_that_was_not_offered": ["call look_up_ {}", *ENDED],
    "length_cuts_the_text": ["text One, two,", "incomplete", "max_output_tokens", "26+9"],
    "unknown_reason": ["text Hm.", "incomplete", "context_shift", "26+9"],
    "no_reason": ["text Hi.", "completed"],
    "load": ["completed"],
    "no_counts": ["text Hi.", "completed"],
    "cached_prompt_is_not_counted": ["text Hi.", "completed", "0+3"],
    "logprobs": ["text Hi", *ENDED],
    "logprobs_of_a_call": [WEATHER, *ENDED],
    "error_at_once": ["failed", "upstream_error"],
    "error_in_the_stream": ["text Half an", "failed", "upstream_error"],
    "error_object": ["failed", "upstream_error"],
    "cut_after_text": ["text Half an", "failed", "upstream_disconnected"],
    "generate": ["text Blue.", *ENDED],
    "generate_with_thinking": ["thinking Sky.", "text Blue.", *ENDED],
    "images_in_the_answer": ENDED,
    "nulls_and_unknown_fields": ["text Hi.", "completed"],
    "not_json": ["text Hi", "failed", "upstream_invalid_response"],
    "line_without_a_message": ["failed", "upstream_invalid_response"],
    "windows_line_ends_and_blank_lines": ["text Hi.", "completed"],
    "no_line_end_at_the_end": ["text Hi.", "completed"],
}
LOST = {
    "two_calls_with_one_id": ["message.tool_calls.id"],
    "call_without_a_name": ["message.tool_calls"],
    "custom_tool_with_more_arguments": ["message.tool_calls.function.arguments"],
    "tool_that_was_not_offered": ["message.tool_calls.name"],
    "logprobs_of_a_call": ["logprobs"],
    "images_in_the_answer": ["message.images"],
}
