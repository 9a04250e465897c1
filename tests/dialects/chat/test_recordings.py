"""Raw streams of chat servers, each named after the behaviour it shows. The laws of all dialects are in `test_laws`.

`x.json` beside `x.sse` is the same answer without a stream; `x_plain.json` beside `x_stream.sse` is the answer of a
real server to the same request, with its own ids."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.dialects.chat.reading import REQUEST, frames_of, read_frames, read_whole

from antiphon.dialects.chat import EventsFromHub, error_to_hub, response_from_hub
from antiphon.errors import ClientFault
from antiphon.protocol.items import FunctionCall
from antiphon.protocol.response import Response


def plain_of(path: Path) -> Path:
    """The plain answer of a real server to the same request."""
    return path.with_name(path.name.replace("_stream.sse", "_plain.json"))


FOLDER = Path(__file__).parents[2] / "recordings" / "chat"
STREAMS = sorted(FOLDER.glob("*.sse"))
PAIRS = [path for path in STREAMS if path.with_suffix(".json").exists()]
REAL_PAIRS = [path for path in STREAMS if path.stem.endswith("_stream") and plain_of(path).exists()]
USAGE = [
    "text_usage_in_last_chunk",
    "usage_in_every_chunk",
    "usage_inside_the_choice",
    "reasoning_content_then_text",
    "llama_cpp_usage_stream",
]


def of(name: str) -> Path:
    return FOLDER / f"{name}.sse"


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_recorded_stream_folds_to_the_recorded_answer(path: Path) -> None:
    """STR-14, law (c)."""
    response, _ = read_whole(path.with_suffix(".json").read_bytes())
    assert read_frames(frames_of(path.read_bytes())).response == response


@pytest.mark.parametrize("path", REAL_PAIRS, ids=lambda path: path.stem)
def test_stream_of_a_real_server_folds_to_its_answer(path: Path) -> None:
    """STR-14: usage is in a stream only on request."""
    response, _ = read_whole(plain_of(path).read_bytes())
    assert without_call_ids(read_frames(frames_of(path.read_bytes())).response) == without_call_ids(response)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recording_survives_the_way_to_a_chat_client(path: Path) -> None:
    """E-6, law (d): hub → chat → hub keeps the content and the status."""
    reading = read_frames(frames_of(path.read_bytes()))
    from_hub = EventsFromHub(REQUEST)
    data = b"".join(map(from_hub.feed, reading.events)) + from_hub.finish()
    again = read_frames(frames_of(data))
    if reading.response.status == "failed":
        assert again.response.status == "failed"
        return
    # A chat answer has one text, so the messages of an answer are separated by a blank line.
    first, second = ([str(part).replace("\n\n", "") for part in read.summary] for read in (again, reading))
    assert first == second
    assert list(from_hub.losses) == []
    body, _ = response_from_hub(reading.response, REQUEST)
    assert read_whole(body)[0].usage == reading.response.usage


@pytest.mark.parametrize("name", [path.stem for path in STREAMS if not path.stem.startswith("llama_cpp_")])
def test_recording_gives_the_expected_summary_and_losses(name: str) -> None:
    reading = read_frames(frames_of(of(name).read_bytes()))
    assert reading.summary == SUMMARIES[name]
    assert [loss.path for loss in reading.losses] == LOST.get(name, [])


@pytest.mark.parametrize("name", USAGE)
def test_usage_is_read_from_any_place(name: str) -> None:
    """REQ-4."""
    usage = read_frames(frames_of(of(name).read_bytes())).response.usage
    assert usage is not None
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0


def test_errors_of_a_real_server_are_mapped() -> None:
    """ERR-4."""
    overflow = error_to_hub(400, {}, (FOLDER / "llama_cpp_error_context_overflow.json").read_bytes())
    assert (overflow.status, overflow.code) == (400, "context_length_exceeded")
    refused = error_to_hub(400, {}, (FOLDER / "llama_cpp_error_bad_request.json").read_bytes())
    assert isinstance(refused, ClientFault)
    assert refused.message == "Expected 'messages' to be an array"


def without_call_ids(response: Response) -> Response:
    output = [
        msgspec.structs.replace(item, call_id="") if isinstance(item, FunctionCall) else item
        for item in response.output
    ]
    return msgspec.structs.replace(response, output=output, usage=None)


SUMMARIES: dict[str, list[str]] = {
    "arguments_as_an_object": ['call_o = get_weather({"city":"Köln","days":3})', "completed"],
    "call_into_a_namespace": ['call_ns = files.read({"path":"a"})', "completed"],
    "call_with_finish_reason_in_one_chunk": [
        "OutputText: Looking",
        'D681PevKs = get_weather({"city": "Nice"})',
        "completed",
    ],
    "calls_share_index_zero": [
        'call_a0 = get_weather({"city":"Kyiv"})',
        'call_b0 = get_weather({"city":"Lviv"})',
        "completed",
    ],
    "calls_without_ids_or_indexes": [
        'call_1 = get_weather({"city":"Cork"})',
        'call_3 = get_weather({"city":"Galway"})',
        "completed",
    ],
    "characters_cut_in_two": ["ReasoningText: a😀b", "OutputText: 🚀 up 🌍", "completed"],
    "citations": ["OutputText: It is known.", "completed"],
    "complete_without_done": ["OutputText: Fine", "completed"],
    "content_filter_stops_it": ["OutputText: First you take (incomplete)", "incomplete: content_filter"],
    "content_in_parts_with_thinking": ["ReasoningText: Hmm, so.", "OutputText: It is noon.", "completed"],
    "custom_tool_as_one_string": ['call_1s = apply_patch[*** Begin \nPatch 😀 "end"]', "completed"],
    "custom_tool_in_its_own_form": ["call_cT1 = apply_patch[*** Begin Patch\n*** End Patch]", "completed"],
    "done_without_finish_reason": ["OutputText: Fine", "completed"],
    "error_event_by_name": ["OutputText: One (incomplete)", "failed: upstream_error"],
    "error_object_in_stream": ["OutputText: The (incomplete)", "failed: context_length_exceeded"],
    "error_with_finish_reason_error": ["OutputText: Half (incomplete)", "failed: upstream_error"],
    "finish_reason_without_output": ["completed"],
    "function_call_before_tool_calls": ['call_1 = get_weather({"city":"Bonn"})', "completed"],
    "ids_change_and_names_repeat": ['chatcmpl-tool-01 = get_weather({"city": "Graz"})', "completed"],
    "length_cuts_arguments": [
        'chatcmpl-tool-5e = get_weather({"city": "San F) (incomplete)',
        "incomplete: max_output_tokens",
    ],
    "line_endings_of_another_kind": ["OutputText: a\u2028b\u2029c\x85d\n\ndata: [DONE]\n\nevent: x", "completed"],
    "logprobs": ["OutputText: Yes.", "completed"],
    "name_in_pieces_and_sent_twice": [
        "OutputText: Let me look.",
        'call_s1 = get_weather({"city":"Bern"})',
        "completed",
    ],
    "nulls_where_others_have_lists": ["OutputText: x", "completed"],
    "parallel_calls_interleaved": [
        'call_pA1 = get_weather({"city":"Oslo"})',
        'call_pB2 = get_weather({"city":"Rome"})',
        "call_pC3 = get_time({})",
        "completed",
    ],
    "reasoning_content_then_text": ["ReasoningText: Compare 9.11 and 9.8.", "OutputText: 9.8 is greater.", "completed"],
    "reasoning_details_with_sealed_form": [
        "ReasoningText: Let me see.",
        "sealed: c2VhbGVk",
        "OutputText: Done.",
        "completed",
    ],
    "reasoning_field_then_call": [
        "ReasoningText: The user wants rain.",
        'chatcmpl-tool-9d = get_weather({"city": "Lyon"})',
        "completed",
    ],
    "refusal": ["Refusal: I'm sorry, I cannot help with that.", "completed"],
    "second_answer_ignored": ["OutputText: One", "completed"],
    "several_calls_in_one_chunk": ['call_7x = get_weather({"city":"Lima"})', "call_8y = get_time({})", "completed"],
    "text_after_a_call": ["OutputText: Before.", "call_t = get_time({})", "OutputText: After it.", "completed"],
    "text_usage_in_last_chunk": ["OutputText: Grüße aus Köln 🌧️", "completed"],
    "think_tags_around_nothing": ["OutputText: Hi!", "completed"],
    "think_tags_cut_anywhere": ["ReasoningText: Is 2<3? Yes", "OutputText: 2 < 3", "completed"],
    "usage_in_every_chunk": ["OutputText: Well then", "completed"],
    "usage_inside_the_choice": ["OutputText: Ok", "completed"],
}
LOST: dict[str, list[str]] = {"ids_change_and_names_repeat": ["tool_calls.id"], "second_answer_ignored": ["choices[1]"]}
