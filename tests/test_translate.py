"""`antiphon.translate`: requests, responses and streams. `tests/cli/test_translate.py` translates between all pairs."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from antiphon import translate
from antiphon.errors import InvalidJson, InvalidValue, ProfileError
from antiphon.profiles import load_profile
from antiphon.protocol.stamps import Stamps

RECORDINGS = Path(__file__).parent / "recordings"
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
STREAM = (
    b'data: {"model":"m","choices":[{"delta":{"content":"Hel"}}]}\n\n'
    b'data: {"model":"m","choices":[{"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


def counting_stamps() -> Stamps:
    numbers = count(1)
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_700_000_000)


@pytest.mark.parametrize("body", [REQUEST, json.dumps(REQUEST), json.dumps(REQUEST).encode()])
def test_request_accepts_an_object_text_and_bytes(body: Any) -> None:
    """F-4."""
    translation = translate.request(body, from_="chat", to="responses")
    assert (translation.json["model"], list(translation.losses), translation.path) == ("m", [], "")
    assert json.loads(translation.body) == translation.json


def test_request_accepts_a_loaded_profile_and_another_model() -> None:
    translation = translate.request(REQUEST, from_="chat", to="messages", profile=load_profile("anthropic"), model="n")
    assert translation.json["model"] == "n"


def test_request_refuses_a_profile_of_another_dialect() -> None:
    with pytest.raises(ProfileError, match="expected a profile of dialect 'chat'"):
        translate.request(REQUEST, from_="messages", to="chat", profile="anthropic")


def test_request_refuses_an_invalid_request() -> None:
    with pytest.raises(InvalidValue):
        translate.request({"model": "m", "input": 1}, from_="responses", to="chat")


def test_response_uses_the_given_stamps() -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}
    made = translate.response(body, from_="chat", to="responses", stamps=counting_stamps())
    assert (made.json["id"], made.json["created_at"], made.json["model"]) == ("resp_1", 1_700_000_000, "unknown")
    assert translate.response(body, from_="chat", to="responses").json["id"].startswith("resp_")


def test_stream_gives_the_same_events_however_its_bytes_are_divided() -> None:
    """STR-1."""
    whole = _translated([STREAM])
    assert b'"text":"Hello."' in whole
    assert _translated([STREAM[index : index + 1] for index in range(len(STREAM))]) == whole


@pytest.mark.parametrize("prefix", [b"", b" \n", b"\xef\xbb\xbf"])
def test_stream_reads_json_lines_and_arrays(prefix: bytes) -> None:
    chunks = [frame.removeprefix(b"data: ") for frame in STREAM.split(b"\n\n")[:2]]
    whole = _translated([STREAM])
    assert _translated([prefix, b"[", chunks[0], b",", chunks[1], b"]"]) == whole
    assert _translated([prefix, chunks[0] + b"\n", chunks[1][:9], chunks[1][9:]]) == whole


def test_stream_refuses_an_incomplete_array() -> None:
    with pytest.raises(InvalidJson, match="starts like a JSON array but is not valid"):
        _translated([b'[{"choices":'])


def test_stream_without_an_event_ends_with_an_error() -> None:
    assert b"response.failed" in _translated([b" \n"])


def test_stream_reports_losses_at_its_end() -> None:
    """F-4."""
    recording = (RECORDINGS / "chat" / "citations.sse").read_bytes()
    translated = translate.stream([recording], from_="chat", to="messages")
    assert not len(translated.losses)
    assert b"message_stop" in b"".join(translated)
    assert [loss.path for loss in translated.losses] == ["output[0].annotations"]


def _translated(pieces: list[bytes]) -> bytes:
    return b"".join(translate.stream(pieces, from_="chat", to="responses", stamps=counting_stamps()))


def test_reasoning_keeps_the_form_of_the_server() -> None:
    """RSN-1: without the request it is unknown whether the client asked for a summary."""
    message = {"role": "assistant", "reasoning_content": "Hm.", "content": "Hello."}
    whole = translate.response({"model": "m", "choices": [{"message": message}]}, from_="chat", to="responses")
    assert whole.json["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    piece = b'data: {"choices":[{"delta":{"reasoning_content":"Hm."},"finish_reason":"stop"}]}\n\n'
    streamed = b"".join(translate.stream([piece], from_="chat", to="responses"))
    assert b"reasoning_text.delta" in streamed
    assert b"reasoning_summary_text" not in streamed
