"""`dialects/gemini/answer_content`: answers of a Gemini server pass to Gemini clients as they came."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.dialects.common.relaying import relayed_stream, relayed_whole

from antiphon import sse

REQUEST = b'{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}'


def answer(*parts: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **members}], "modelVersion": "m-1"}


ANSWERS: list[dict[str, Any]] = [
    answer({"text": "Hm.", "thought": True}, index=0),
    answer({"text": "Hel"}, safetyRatings=[{"category": "A"}], createTime="2026"),
    answer({"text": "lo"}, {"executableCode": {"language": "PYTHON", "code": "1"}}, avgLogprobs=-0.1),
    {"candidates": [{"index": 1, "content": {"parts": [{"text": "another answer"}]}}]},
    answer({"functionCall": {"name": "f", "args": {"a": "\u00e9"}}, "thoughtSignature": "c2lnbmVk"}),
    answer({"functionCall": {"id": "c2", "name": "g"}}),
    answer({"functionCall": {"name": "h", "willContinue": True}}),
    answer({"functionCall": {"partialArgs": [{"jsonPath": "$.a", "numberValue": 1}], "willContinue": True}}),
    answer({"functionCall": {}}),
    {**answer(finishReason="LANGUAGE", groundingMetadata={"unknown": 1}), "usageMetadata": {"promptTokenCount": 1}},
]


def encode(*answers: dict[str, Any]) -> bytes:
    return b"".join(sse.encode_data(msgspec.json.encode(each)) for each in answers)


def answers_in(out: bytes) -> list[Any]:
    return [msgspec.json.decode(frame.data) for frame in sse.Decoder().feed(out)]


def test_stream_passes_as_it_came() -> None:
    out, is_relayed = relayed_stream("gemini", REQUEST, encode(*ANSWERS))
    assert is_relayed
    assert answers_in(out) == ANSWERS


def test_mapped_model_name_is_replaced() -> None:
    out, _ = relayed_stream("gemini", REQUEST, encode(*ANSWERS), model="alias")
    renamed = [{**each, "modelVersion": "alias"} if "modelVersion" in each else each for each in ANSWERS]
    assert answers_in(out) == renamed


def test_blocked_prompt_passes_as_it_came() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": []}, "modelVersion": "m-1"}
    out, is_relayed = relayed_stream("gemini", REQUEST, encode(blocked))
    assert is_relayed
    assert answers_in(out) == [blocked]


@pytest.mark.parametrize(
    "odd_answer",
    [{"error": {"code": 503, "message": "busy"}}, answer({"functionCall": {"args": {}}}), answer({"text": 1})],
)
def test_other_answers_are_translated(odd_answer: dict[str, Any]) -> None:
    out, is_relayed = relayed_stream("gemini", REQUEST, encode(ANSWERS[1], odd_answer, ANSWERS[-1]))
    assert not is_relayed
    assert answers_in(out)[0] == ANSWERS[1]


def test_whole_answer_passes_as_it_came() -> None:
    whole = {**answer({"text": "Hello"}, {"functionCall": {"name": "f", "args": {}}}, finishReason="STOP"), "x": 1}
    body = msgspec.json.encode(whole)
    assert relayed_whole("gemini", REQUEST, body) == body


def test_call_that_is_sent_again_is_delivered_once() -> None:
    call = {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}}
    out, is_relayed = relayed_stream("gemini", REQUEST, encode(answer(call), answer(call, finishReason="STOP")))
    parts = [part for each in answers_in(out) for part in each["candidates"][0]["content"]["parts"]]
    assert not is_relayed
    assert [part for part in parts if "functionCall" in part] == [call]


def test_calls_are_delivered_once_before_a_call_that_is_sent_again() -> None:
    calls: list[Any] = [{"functionCall": {"id": id, "name": "f", "args": {}}} for id in ("c1", "c2")]
    out, _ = relayed_stream("gemini", REQUEST, encode(answer(*calls), answer(calls[1], finishReason="STOP")))
    parts = [part for each in answers_in(out) for part in each["candidates"][0]["content"]["parts"]]
    assert [part["functionCall"]["id"] for part in parts if "functionCall" in part] == ["c1", "c2"]
