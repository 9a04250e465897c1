"""Laws (c) and (d) of Ollama's API over generated bodies and answers."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from tests.dialects.ollama.reading import REQUEST, read_frames, read_whole
from tests.generate.ollama_bodies import GeneratedAnswer, answers, bodies

from antiphon import sse
from antiphon.dialects.ollama import EventsFromHub, request_from_hub, request_to_hub, response_from_hub
from antiphon.protocol import codec


@settings(max_examples=100)
@given(bodies())
def test_server_gets_the_body_of_a_client_unchanged(body: dict[str, Any]) -> None:
    """Law (d), REQ-7: messages, calls with their ids, tools, and every setting of the dialect's own."""
    request, losses = request_to_hub(codec.encode(body))
    sent, more_losses = request_from_hub(request)
    assert [*losses, *more_losses] == []
    assert json.loads(sent) == body


@settings(max_examples=100)
@given(answers())
def test_stream_folds_to_the_whole_answer(answer: GeneratedAnswer) -> None:
    """STR-14, law (c)."""
    response, _ = read_whole(codec.encode(answer.whole))
    assert read_frames(_frames(answer)).response == response


@settings(max_examples=100)
@given(answers())
def test_client_gets_the_answer_of_a_server_unchanged(answer: GeneratedAnswer) -> None:
    """Law (d): thinking, text, calls, the reason and the counts. The seal of the reasoning repeats its text."""
    response, losses = read_whole(codec.encode(answer.whole))
    body, more_losses = response_from_hub(response, REQUEST)
    assert [*losses, *more_losses] == []
    assert json.loads(body) == answer.whole


@settings(max_examples=100)
@given(answers())
def test_client_gets_the_lines_of_a_server_unchanged(answer: GeneratedAnswer) -> None:
    """Law (d): line by line."""
    from_hub = EventsFromHub(REQUEST)
    out = b"".join(map(from_hub.feed, read_frames(_frames(answer)).events)) + from_hub.finish()
    assert [json.loads(line) for line in out.splitlines()] == answer.lines


def _frames(answer: GeneratedAnswer) -> list[sse.Frame]:
    return [sse.Frame("", codec.encode(line)) for line in answer.lines]
