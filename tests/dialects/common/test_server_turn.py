"""The URL of a turn in each dialect, and the end of a server's stream, the same in every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.generate.events import counting_stamps

from antiphon.dialects.common.server_turn import (
    StreamOutcome,
    StreamReader,
    StreamToHub,
    invalid_upstream_data,
    turn_url,
)
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import SERVER_DIALECTS
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.content import ReasoningText, SummaryText
from antiphon.protocol.items import Reasoning
from antiphon.protocol.request import ReasoningConfigParam, Request
from antiphon.protocol.response import Usage, make_initial_response

BASE = "http://lab/v1"


class Answer:
    def __init__(self) -> None:
        self.outcomes: list[StreamOutcome] = []

    def finish(self, outcome: StreamOutcome) -> None:
        self.outcomes.append(outcome)


class Reader(StreamToHub):
    """A dialect of one word: the reason of its end."""

    _answer: Answer

    def __init__(self) -> None:
        super().__init__(make_initial_response(Request(model="m"), id="resp_1", created_at=1), counting_stamps())
        self._answer = Answer()

    def feed(self, word: str) -> None:
        self._stop_reason = word

    @property
    def outcomes(self) -> list[StreamOutcome]:
        return self._answer.outcomes

    def _read_whole(self, body: bytes) -> None:
        self._stop_reason = body.decode()
        self._end_response()

    def _end_response(self) -> None:
        if self._stop_reason == "error":
            self._fail(UpstreamFault("it gave up"))
        else:
            self._end_as("max_output_tokens" if self._stop_reason == "length" else None)

    def _final_usage(self) -> Usage | None:
        return None


@pytest.mark.parametrize(("word", "status"), [("stop", "completed"), ("length", "incomplete"), ("error", "failed")])
def test_finish_reason_determines_the_single_end(word: str, status: str) -> None:
    """REQ-3, STR-7: bytes that break off after it change nothing."""
    reader = Reader()
    reader.feed(word)
    last = reader.finish(UpstreamFault("cut"))[-1]
    assert last.__struct_config__.tag == f"response.{status}"
    assert (reader.finish(), reader.outcomes) == ([], [status])


@pytest.mark.parametrize("error", [None, UpstreamFault("cut", code="upstream_disconnected")])
def test_stream_without_a_finish_reason_fails(error: ApiError | None) -> None:
    """STR-8."""
    reader = Reader()
    assert reader.finish(error)
    assert reader.outcomes == ["failed"]
    assert reader.error is not None
    assert reader.error.code == "upstream_disconnected"


def test_plain_answer_is_read_like_a_stream_and_its_error_raised() -> None:
    """STR-14."""
    response, losses = Reader().response(b"length")
    assert (response.status, list(losses)) == ("incomplete", [])
    with pytest.raises(UpstreamFault, match="it gave up"):
        Reader().response(b"error")


def test_invalid_upstream_data_is_quoted_briefly_without_keys() -> None:
    """ERR-5."""
    fault = invalid_upstream_data("nonsense", b"sk-" + b"a" * 40 + b" \xff" + b"x" * 100)
    assert fault.code == "upstream_invalid_response"
    assert fault.message.startswith("the upstream sent nonsense: ")
    assert "aaaa" not in fault.message
    assert len(fault.message) < 120


WHOLE_ANSWERS: dict[ServerDialectName, Any] = {
    "chat": {
        "choices": [{"message": {"role": "assistant", "reasoning_content": "Hm.", "content": "Hello."}}],
    },
    "messages": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "Hello."}],
        "stop_reason": "end_turn",
    },
    "gemini": {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Hello."}]},
                "finishReason": "STOP",
            }
        ]
    },
    "ollama": {"message": {"role": "assistant", "thinking": "Hm.", "content": "Hello."}, "done": True},
}


@pytest.mark.parametrize("dialect", WHOLE_ANSWERS)
@pytest.mark.parametrize("summary", [None, "auto", "detailed"])
def test_open_reasoning_is_a_summary_only_on_request(dialect: ServerDialectName, summary: Any) -> None:
    """RSN-4: it comes once. Reasoning of gemini servers is always a summary."""
    request = Request(model="m", reasoning=ReasoningConfigParam(summary=summary))
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    server = SERVER_DIALECTS[dialect]
    body = json.dumps(WHOLE_ANSWERS[dialect]).encode()
    response, _ = server.response_to_hub(body, request, initial_response, counting_stamps(), server.wire_type())
    item = response.output[0]
    assert isinstance(item, Reasoning)
    is_summary = summary is not None or dialect == "gemini"
    assert item.summary == ([SummaryText(text="Hm.")] if is_summary else [])
    assert (item.content or []) == ([] if is_summary else [ReasoningText(text="Hm.")])


@pytest.mark.parametrize(
    ("dialect", "whole", "streamed"),
    [
        ("chat", "/chat/completions", "/chat/completions"),
        ("responses", "/responses", "/responses"),
        ("messages", "/messages", "/messages"),
        ("gemini", "/models/m:generateContent", "/models/m:streamGenerateContent?alt=sse"),
    ],
)
def test_url_of_a_turn_follows_the_dialect(dialect: str, whole: str, streamed: str) -> None:
    server_dialect = SERVER_DIALECTS[dialect]  # type: ignore[index]
    assert turn_url(server_dialect, BASE, "m", streams=False) == BASE + whole
    assert turn_url(server_dialect, BASE, "m", streams=True) == BASE + streamed


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("m", "models/m"),
        ("models/m", "models/m"),
        ("tunedModels/m", "tunedModels/m"),
        ("publishers/lab/models/m", "publishers/lab/models/m"),
        ("lab/m", "models/lab/m"),
        ("m?x=1#y z:é", "models/m%3Fx%3D1%23y%20z%3A%C3%A9"),
    ],
)
def test_model_in_a_path_is_escaped(model: str, path: str) -> None:
    assert turn_url(SERVER_DIALECTS["gemini"], BASE, model, streams=False) == f"{BASE}/{path}:generateContent"


def test_all_frames_of_a_stream_are_observed() -> None:
    request = Request(model="m", input="hi")
    initial_response = make_initial_response(request, id="resp_1", created_at=1)
    server = SERVER_DIALECTS["chat"]
    reader = StreamReader(server.events_to_hub(request, initial_response, counting_stamps(), server.wire_type()))
    observed: list[bytes] = []
    reader.on_frames = lambda frames: observed.extend(frame.data for frame in frames)
    reader.feed(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\ndata: [DONE]')
    reader.finish()
    assert [data[:6] for data in observed] == [b'{"choi', b"[DONE]"]
