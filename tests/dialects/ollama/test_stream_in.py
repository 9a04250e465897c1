"""`dialects/ollama/stream_in`: what the recordings do not show."""

from __future__ import annotations

import json

import pytest
from tests.dialects.ollama.reading import INITIAL_RESPONSE, REQUEST, frames_of, read, read_frames, read_whole
from tests.generate.events import counting_stamps

from antiphon import sse
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.ollama import EventsToHub
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.content import LogProb, OutputText, TopLogProb
from antiphon.protocol.events import ResponseIncomplete
from antiphon.protocol.items import FunctionCall, Message, Reasoning
from antiphon.protocol.output_limits import OutputLimits


def test_call_keeps_its_id_or_gets_a_new_one() -> None:
    function = {"name": "get_weather", "arguments": {}}
    calls = [{"id": "call_a", "function": function}, {"function": function}]
    reading = read({"message": {"tool_calls": calls}, "done": False})
    ids = [item.call_id for item in reading.response.output if isinstance(item, FunctionCall)]
    assert ids[0] == "call_a"
    assert ids[1].startswith("call_")


def test_logprobs_have_bytes_even_if_the_server_sends_none() -> None:
    token = {"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Yo", "logprob": -1, "bytes": [89, 111]}]}
    reading = read({"message": {"content": "Hi"}, "logprobs": [token], "done": False})
    [message] = reading.response.output
    assert isinstance(message, Message)
    [part] = message.content
    assert isinstance(part, OutputText)
    top = TopLogProb(token="Yo", logprob=-1, bytes=[89, 111])
    assert part.logprobs == [LogProb(token="Hi", logprob=-0.5, bytes=[72, 105], top_logprobs=[top])]


def test_lines_after_the_end_are_ignored() -> None:
    to_hub = EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps())
    [bad, late] = frames_of(b'{"error":"x"}\n{"message":{"content":"late"},"done":true}\n')
    assert to_hub.feed(bad)
    assert to_hub.feed(late) == []
    assert to_hub.finish() == []


def test_whole_answer_without_done_is_complete() -> None:
    assert read_whole(b'{"message":{"content":"Hi"}}')[0].status == "completed"


@pytest.mark.parametrize(
    ("body", "code"),
    [(b'{"error":"model runner failed"}', "upstream_error"), (b"<html>", "upstream_invalid_response")],
)
def test_whole_answer_with_an_error_raises_it(body: bytes, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_whole(body)
    assert isinstance(caught.value, UpstreamFault)
    assert caught.value.code == code


def test_answer_beyond_its_limit_is_cut_off() -> None:
    to_hub = EventsToHub(REQUEST, INITIAL_RESPONSE, counting_stamps())
    to_hub.limit_output(OutputLimits(max_items=5))
    to_hub.feed(frames_of(b'{"message":{"content":"Hi"},"done":false}')[0])
    assert isinstance(to_hub.end_incomplete("max_output_items")[-1], ResponseIncomplete)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_reasoning_is_sealed_with_the_name_of_its_maker(reason: str) -> None:
    """RSN-2, RSN-3: each item in an envelope of its own, also if the answer was cut."""
    lines = [{"thinking": "Hm"}, {"thinking": "."}, {"content": "Four"}, {"thinking": "Well."}]
    reading = read_frames(
        [
            *(sse.Frame("", json.dumps({"message": message, "done": False}).encode()) for message in lines),
            sse.Frame("", json.dumps({"message": {"content": ""}, "done": True, "done_reason": reason}).encode()),
        ]
    )
    sealed = [item.encrypted_content for item in reading.response.output if isinstance(item, Reasoning)]
    assert sealed == [seal_reasoning("ollama", {"thinking": text}) for text in ("Hm.", "Well.")]
