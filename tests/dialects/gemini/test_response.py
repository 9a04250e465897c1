"""Plain answers for a gemini client: the stream's pieces joined."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from msgspec import Raw
from tests.dialects.gemini.client_stream import HEAD, REQUEST, USAGE, GeminiWriter, signed, stream_to_client
from tests.dialects.gemini.reading import frames_of
from tests.generate.events import counting_stamps, responses

from antiphon.dialects.gemini import EventsToHub, response_from_hub, response_to_hub
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.content import LogProb
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.items import Message, Reasoning, UnknownItem
from antiphon.protocol.response import Response, make_initial_response


def candidate_of(life: GeminiWriter) -> Any:
    body, _ = response_from_hub(fold_events(life.collector.events), REQUEST)
    return json.loads(body)["candidates"][0]


def output_of(response: Response) -> Any:
    return msgspec.to_builtins([response.status, response.output, response.usage, response.incomplete_details])


@settings(max_examples=30)
@given(responses(("complete", "incomplete")))
def test_whole_answer_equals_its_stream(response: Response) -> None:
    """Law (c), STR-14: a client of this dialect reads both, and both name every loss.

    A seal between two texts of a truncated answer is in both. Our reader assigns it to the truncated text if both are
    in one frame."""
    assume(response.status != "incomplete" or not has_seal_between_texts(response))
    assume(not has_tokens_of_several_texts(response))
    body, losses = response_from_hub(response, REQUEST)
    whole, _ = response_to_hub(
        body, REQUEST, make_initial_response(REQUEST, id="resp_2", created_at=1), counting_stamps()
    )
    stream = stream_to_client(replay_response(response))
    to_hub = EventsToHub(REQUEST, make_initial_response(REQUEST, id="resp_2", created_at=1), counting_stamps())
    events = [event for frame in frames_of(stream.data) for event in to_hub.feed(frame)] + to_hub.finish()
    assert output_of(whole) == output_of(fold_events(events))
    assert list(losses) == list(stream.from_hub.losses)


def has_tokens_of_several_texts(response: Response) -> bool:
    """Whether tokens must be assigned to texts. Generated tokens do not spell their text, so that is not possible."""
    texts = [part for item in response.output if isinstance(item, Message) for part in item.content]
    return len(texts) > 1 and any(getattr(part, "logprobs", None) for part in texts)


def has_seal_between_texts(response: Response) -> bool:
    kinds = [type(item) for item in response.output if not isinstance(item, Reasoning) or item.encrypted_content]
    return any(kinds[at : at + 3] == [Message, Reasoning, Message] for at in range(len(kinds)))


def test_pieces_of_one_text_are_joined_and_other_parts_stay_separate() -> None:
    life = GeminiWriter()
    life.add_reasoning("r", "h")
    life.add_reasoning("r", "m")
    life.set_encrypted_content("r", "seal")
    life.close_item("r")
    life.add_text("t", "Hel")
    life.add_text("t", "lo")
    life.close_item("t")
    life.open_call("c", name="look", call_id="c_a")
    life.close_item("c")
    life.add_text("u", "!")
    life.complete(USAGE)
    body, losses = response_from_hub(fold_events(life.collector.events), REQUEST)
    assert list(losses) == []
    assert json.loads(body) == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "Hello", "thoughtSignature": signed("seal")},
                        {"functionCall": {"id": "c_a", "name": "look", "args": {}}},
                        {"text": "!"},
                    ],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 30,
            "candidatesTokenCount": 7,
            "totalTokenCount": 42,
            "cachedContentTokenCount": 8,
            "thoughtsTokenCount": 5,
        },
        **HEAD,
    }


def test_thought_after_a_signed_thought_is_a_new_part() -> None:
    """RSN-2: a signature closes its thought."""
    life = GeminiWriter()
    for number in (1, 2):
        life.set_encrypted_content(number, f"seal {number}")
        life.close_item(number)
    life.add_reasoning(3, "hm")
    life.complete()
    assert candidate_of(life)["content"]["parts"] == [
        {"text": "", "thought": True, "thoughtSignature": signed("seal 1")},
        {"text": "", "thought": True, "thoughtSignature": signed("seal 2")},
        {"text": "hm", "thought": True},
    ]


def test_empty_answer_has_an_empty_part() -> None:
    life = GeminiWriter()
    life.complete()
    assert candidate_of(life)["content"]["parts"] == [{"text": ""}]


def test_trailing_signature_keeps_its_part() -> None:
    life = GeminiWriter()
    life.add_text("t", "Done")
    life.close_item("t")
    life.set_encrypted_content("r", "seal")
    life.complete()
    assert candidate_of(life)["content"]["parts"] == [
        {"text": "Done"},
        {"text": "", "thoughtSignature": signed("seal")},
    ]


def test_native_parts_keep_their_place_between_texts() -> None:
    own = UnknownItem(kind="gemini:toolCall", raw=Raw(b'{"type":"gemini:toolCall","toolCall":{"id":"1"}}'))
    life = GeminiWriter()
    life.add_text("a", "x")
    life.close_item("a")
    life.add_whole_item("b", own)
    life.add_text("c", "y")
    life.complete()
    assert candidate_of(life)["content"]["parts"] == [{"text": "x"}, {"toolCall": {"id": "1"}}, {"text": "y"}]


def test_log_probabilities_are_joined() -> None:
    """STR-12."""
    life = GeminiWriter()
    for token in ("a", "b"):
        life.add_text("t", token, logprobs=[LogProb(token=token, logprob=-1, bytes=[], top_logprobs=[])])
    life.complete()
    logprobs = candidate_of(life)["logprobsResult"]
    assert [token["token"] for token in logprobs["chosenCandidates"]] == ["a", "b"]
    assert len(logprobs["topCandidates"]) == 2


def test_failed_response_raises_its_error() -> None:
    life = GeminiWriter()
    life.fail(UpstreamFault("slow", code="upstream_timeout"))
    with pytest.raises(ApiError, match="slow") as caught:
        response_from_hub(fold_events(life.collector.events), REQUEST)
    assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")


def test_unfinished_response_is_refused() -> None:
    life = GeminiWriter()
    life.start()
    with pytest.raises(ApiError, match="in_progress"):
        response_from_hub(fold_events(life.collector.events), REQUEST)


def test_tokens_of_a_whole_answer_are_divided_among_its_texts() -> None:
    chosen = [{"token": token, "logProbability": -0.5} for token in ("Hel", "lo", "wor", "ld", "!")]
    parts = [{"text": "Hello"}, {"text": "hm", "thought": True}, {"text": "wor"}, {"text": "ld!"}]
    answer = {
        "candidates": [
            {"content": {"parts": parts}, "finishReason": "STOP", "logprobsResult": {"chosenCandidates": chosen}}
        ]
    }
    response, losses = response_to_hub(
        json.dumps(answer).encode(), REQUEST, make_initial_response(REQUEST, id="r", created_at=1), counting_stamps()
    )
    texts = [part for item in response.output if isinstance(item, Message) for part in item.content]
    assert [[token.token for token in getattr(part, "logprobs", ())] for part in texts] == [
        ["Hel", "lo"],
        ["wor", "ld", "!"],
    ]
    assert list(losses) == []
