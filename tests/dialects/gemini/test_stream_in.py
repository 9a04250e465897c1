"""Behaviour of gemini servers that the recordings do not show, in streams and in plain answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from tests.dialects.gemini.reading import (
    REQUEST,
    STOP,
    call,
    frame,
    parts,
    read,
    read_frames,
    read_whole,
    reader,
    summary_of,
)

from antiphon import sse
from antiphon.dialects.dialect import ClientDialectName
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.dialects.registry import CLIENT_DIALECTS
from antiphon.errors import ApiError, UpstreamFault
from antiphon.protocol.events import ResponseCompleted, ResponseFailed
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.losses import Loss
from antiphon.protocol.nesting import MAX_NESTING

SIGNED_END = {"text": "", "thoughtSignature": "a"}
FAILED_CALLS = ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
# The end that clients receive, and whether it names the reason.
WORDS: dict[ClientDialectName, Callable[[str], tuple[str, bool]]] = {
    "chat": lambda _: ('"finish_reason":"length"', False),
    "messages": lambda _: ('"stop_reason":"max_tokens"', False),
    "gemini": lambda reason: (f'"finishReason":"{reason}"', True),
    "responses": lambda reason: (f'"incomplete_details":{{"reason":"{reason.lower()}"}}', True),
    "ollama": lambda _: ('"done_reason":"length"', False),
    "vscode": lambda reason: (f'"reason":"{reason.lower()}"', True),
}


def paths(losses: Any) -> list[str]:
    return [loss.path for loss in losses]


def test_stream_with_a_finish_reason_completes_despite_a_fault() -> None:
    """Faults: complete, but ended by an error of the connection."""
    to_hub = reader()
    to_hub.feed(frame(parts({"text": "All of it."}, finishReason="STOP")))
    assert isinstance(to_hub.finish(UpstreamFault("reset", code="upstream_disconnected"))[-1], ResponseCompleted)


def test_disconnect_error_is_reported() -> None:
    to_hub = reader()
    to_hub.feed(frame(parts({"text": "Half"})))
    events = to_hub.finish(UpstreamFault("silent for too long", code="upstream_timeout"))
    assert to_hub.error is not None
    assert to_hub.error.code == "upstream_timeout"
    assert isinstance(events[-1], ResponseFailed)


def test_array_of_chunks_is_read_like_events() -> None:
    """The form of a stream without server-sent events; chunks after an error are ignored."""
    chunks = [parts({"text": "Hel"}), parts({"text": "lo"}, finishReason="STOP")]
    assert read_frames([frame(chunks)]).summary == ["Hello", "completed"]
    assert summary_of(read_whole(json.dumps(chunks).encode())[0]) == ["Hello", "completed"]
    error = {"error": {"code": 500, "message": "no", "status": "INTERNAL"}}
    assert read_frames([frame([error, *chunks])]).summary == ["failed: upstream_error"]


def test_frames_after_the_end_are_ignored() -> None:
    """STR-7."""
    to_hub = reader()
    to_hub.feed(frame({"error": {"code": 500, "message": "no", "status": "INTERNAL"}}))
    assert to_hub.feed(frame(parts({"text": "more"}))) == []
    assert to_hub.text_run([frame(parts({"text": "more"}))], 0) == (None, 0)
    assert to_hub.finish() == []


@pytest.mark.parametrize("data", [b" ", b"[DONE]", b" [DONE] "])
def test_blank_data_and_foreign_end_markers_are_ignored(data: bytes) -> None:
    assert read(parts({"text": "Hi"}), data).summary == ["Hi", "completed"]


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"candidates": 3}', b'"\xff"', b"[" * 5000])
def test_invalid_data_fails_the_stream(data: bytes) -> None:
    """Faults: data that is no answer of this API, before and in the middle of a text."""
    assert read_frames([sse.Frame("", data)]).summary == ["failed: upstream_invalid_response"]
    assert read(parts({"text": "Hi"}), data).summary == ["Hi (incomplete)", "failed: upstream_invalid_response"]


@pytest.mark.parametrize("levels", [MAX_NESTING, MAX_NESTING + 1, 900, 5000])
def test_chunk_nesting_is_limited(levels: int) -> None:
    """Faults: deeply nested arguments are decoded up to the limit; beyond it the answer is invalid."""
    chunk = json.dumps(parts(call("get_time", {"x": 0}))).encode()
    before = chunk[: chunk.index(b'"x": 0')]
    depth = levels - (before.count(b"{") + before.count(b"[") - before.count(b"}") - before.count(b"]"))
    deep = chunk.replace(b'"x": 0', b'"x": ' + b"[" * depth + b"]" * depth)
    assert str(read(deep).summary[-1]) == (
        "completed" if levels <= MAX_NESTING else "failed: upstream_invalid_response"
    )


def test_text_in_many_pieces_is_joined() -> None:
    """STR-6: servers that always send more than text are read as well."""
    chunks = [parts({"text": f"{at} "}, safetyRatings=[], finishReason=None, tokenCount=at) for at in range(12)]
    odd = [parts({"text": f"{at} "}, citationMetadata={}) for at in range(12)]
    reading = read(*chunks, *odd)
    assert reading.summary == ["".join(f"{at} " for at in [*range(12), *range(12)]), "completed"]
    assert find_violations(reading.events) == []


def test_text_after_a_signature_is_another_message() -> None:
    """RSN-2: signed and unsigned text stay separate."""
    signed = {"text": "One", "thoughtSignature": "a"}
    assert read(parts(signed), parts({"text": "Two"})).summary == [
        "One",
        "signed by gemini, on text: a",
        "Two",
        "completed",
    ]


def test_two_signatures_after_one_text_are_both_kept() -> None:
    """RSN-2."""
    summary = read(parts({"text": "One", "thoughtSignature": "a"}), parts({"thoughtSignature": "b"})).summary
    assert summary == ["One", "signed by gemini, on text: a", "signed by gemini, on text: b", "completed"]


@pytest.mark.parametrize("pieces", [[{"text": "One", "thoughtSignature": "a"}], [{"text": "One"}, SIGNED_END]])
def test_signature_of_a_truncated_answer_is_kept(pieces: list[dict[str, Any]]) -> None:
    """RSN-2, ITEM-3: the server signed the text, so the text is complete."""
    *others, last = pieces
    frames = [frame(parts(piece)) for piece in others]
    cut = read_frames([*frames, frame(parts(last, finishReason="MAX_TOKENS"))])
    assert cut.summary == ["One", "signed by gemini, on text: a", "incomplete: max_output_tokens"]
    assert list(cut.losses) == []


def test_signature_between_the_texts_of_a_truncated_answer_is_kept() -> None:
    """RSN-2, ITEM-3: the last text is incomplete, and no signature follows it."""
    cut = read_frames([frame(parts({"text": "One"}, SIGNED_END, {"text": "Tw"}, finishReason="MAX_TOKENS"))])
    assert cut.summary == ["One", "signed by gemini, on text: a", "Tw (incomplete)", "incomplete: max_output_tokens"]


def test_signature_after_a_truncated_thought_is_kept() -> None:
    cut = read_frames([frame(parts({"text": "Hm.", "thought": True}, SIGNED_END, finishReason="MAX_TOKENS"))])
    assert list(cut.losses) == []
    assert cut.summary[-2:] == ["signed by gemini, on text: a", "incomplete: max_output_tokens"]


def test_signature_is_sealed_with_the_maker_of_the_profile() -> None:
    """RSN-2, RSN-3."""
    reading = read(parts({**call("get_time", id="c"), "thoughtSignature": "a"}), wire=GeminiWire(maker="acme"))
    assert reading.summary[0] == "signed by acme, on call: a"


def test_empty_thought_makes_no_item() -> None:
    assert read(parts({"text": "", "thought": True}), parts({"text": "Hi"})).summary == ["Hi", "completed"]


def test_signature_alone_on_a_thought_is_kept() -> None:
    """RSN-1."""
    summary = read(parts({"thought": True, "thoughtSignature": "t"})).summary
    assert summary == ["signed by gemini, on thought: t", "completed"]


def test_call_names_are_mapped_back_to_the_hub() -> None:
    """REQ-8: a name that starts with a digit was sent with a prefix; an invalid name is replaced."""
    reading = read(
        parts(call("_2fast", id="a"), call("no.such:tool", id="b"), call("files__edit", {"input": "x", "y": 1}, id="c"))
    )
    assert reading.summary[:-1] == ["a = 2fast({})", "b = no_such_tool({})", "c = files.edit[x]"]
    assert paths(reading.losses) == ["functionCall.name", "functionCall.args"]


def test_call_without_a_name_is_not_delivered() -> None:
    """TOOL-3."""
    reading = read(parts({"functionCall": {"args": {}}}))
    assert reading.summary == ["completed"]
    assert paths(reading.losses) == ["functionCall"]


def test_call_that_is_sent_again_is_one_call() -> None:
    signed = call("get_time", {"x": 1}, id="a") | {"thoughtSignature": "s"}
    once = read(parts(signed), parts(call("get_time", id="b")))
    twice = read(parts(signed), parts(signed, call("get_time", id="b")))
    assert twice.summary == once.summary
    assert list(twice.losses) == []


def test_other_call_with_the_same_id_is_a_second_call() -> None:
    reading = read(parts(call("get_time", {"x": 1}, id="a")), parts(call("get_time", {"x": 2}, id="a")))
    assert reading.summary == ['a = get_time({"x":1})', 'call_2 = get_time({"x":2})', "completed"]
    assert paths(reading.losses) == ["functionCall.id"]


def test_calls_without_ids_are_all_delivered() -> None:
    reading = read(parts(call("get_time")), parts(call("get_time")))
    assert len(reading.summary) == 3


def test_overlong_call_id_is_replaced() -> None:
    """REQ-8."""
    reading = read(parts(call("get_time", id="x" * 65)))
    assert reading.summary == ["call_1 = get_time({})", "completed"]
    assert paths(reading.losses) == ["functionCall.id"]


@pytest.mark.parametrize(
    "grounding",
    [
        {"groundingChunks": [{"web": {"uri": "https://a.example"}}]},
        {
            "groundingChunks": [{"maps": {}}],
            "groundingSupports": [{"segment": {"endIndex": 1}, "groundingChunkIndices": [0, 7]}],
        },
        {"groundingChunks": [{"web": {}}], "groundingSupports": [{"groundingChunkIndices": [0]}, {}]},
    ],
)
def test_unusable_grounding_sources_are_losses(grounding: dict[str, Any]) -> None:
    """F-4."""
    reading = read(parts({"text": "x"}, groundingMetadata=grounding))
    assert reading.summary == ["x", "completed"]
    assert {path.partition(".")[0] for path in paths(reading.losses)} == {"groundingMetadata"}


def test_sources_of_a_closed_text_are_a_loss() -> None:
    """F-4: a call followed it, and a done item is not changed (ITEM-4)."""
    citation = {"citations": [{"startIndex": 0, "endIndex": 1, "uri": "https://a.example", "title": "a"}]}
    reading = read(parts({"text": "x"}, call("get_time"), citationMetadata=citation))
    assert paths(reading.losses) == ["groundingMetadata"]


def test_log_probabilities_without_text_are_a_loss() -> None:
    """F-4, STR-12: also where a member of them is missing."""
    tokens = {"chosenCandidates": [{"token": "a"}, {"logProbability": -1}], "topCandidates": [{}]}
    assert paths(read(parts(logprobsResult=tokens)).losses) == ["logprobsResult"]


FINISH_REASONS = {
    "STOP": "completed",
    "FINISH_REASON_UNSPECIFIED": "incomplete: finish_reason_unspecified",
    "OTHER": "incomplete: other",
    "NO_IMAGE": "incomplete: no_image",
    "MAX_TOKENS": "incomplete: max_output_tokens",
    "CONTINUATION": "incomplete: max_output_tokens",
    "SAFETY": "incomplete: content_filter",
    "RECITATION": "incomplete: content_filter",
    "LANGUAGE": "incomplete: content_filter",
    "BLOCKLIST": "incomplete: content_filter",
    "PROHIBITED_CONTENT": "incomplete: content_filter",
    "SPII": "incomplete: content_filter",
    "IMAGE_SAFETY": "incomplete: content_filter",
    "IMAGE_PROHIBITED_CONTENT": "incomplete: content_filter",
    "IMAGE_RECITATION": "incomplete: content_filter",
    "IMAGE_OTHER": "incomplete: content_filter",
    "MALFORMED_FUNCTION_CALL": "incomplete: malformed_function_call",
    "UNEXPECTED_TOOL_CALL": "incomplete: unexpected_tool_call",
    "TOO_MANY_TOOL_CALLS": "incomplete: too_many_tool_calls",
    "MALFORMED_RESPONSE": "incomplete: malformed_response",
}


@pytest.mark.parametrize(
    ("reason", "end"),
    [*FINISH_REASONS.items(), ("MODEL_ARMOR", "incomplete: content_filter"), ("TIRED", "incomplete: tired")],
)
def test_finish_reason_determines_the_status(reason: str, end: str) -> None:
    """REQ-3: an unknown reason is never a complete answer."""
    reading = read_frames([frame(parts({"text": "x"}, finishReason=reason))])
    assert reading.summary[-1] == end
    assert paths(reading.losses) == []


def test_whole_calls_are_delivered_despite_an_unknown_finish_reason() -> None:
    """REQ-3: the response is incomplete, and its calls are complete."""
    reading = read_frames([frame(parts(call("get_time", {}, id="c"), finishReason="OTHER"))])
    assert reading.summary == ["c = get_time({})", "incomplete: other"]
    assert paths(reading.losses) == []


def test_every_finish_reason_of_the_sdk_has_a_status() -> None:
    """REQ-3: the page of the dialects lists them too."""
    assert set(FINISH_REASONS) == {reason.value for reason in types.FinishReason}
    page = (Path(__file__).parents[3] / "docs" / "dialects.md").read_text(encoding="utf-8")
    assert [reason for reason in FINISH_REASONS if f"`{reason}`" not in page] == []


@pytest.mark.parametrize(
    ("number", "end"),
    [
        (1, "completed"),
        (2, "incomplete: max_output_tokens"),
        (3, "incomplete: content_filter"),
        (9, "incomplete: other"),
    ],
)
def test_finish_reason_may_be_the_number_of_the_enum(number: int, end: str) -> None:
    """REQ-3: as servers with a protobuf library send it."""
    reading = read_frames([frame(parts({"text": "x"}, finishReason=number))])
    assert reading.summary[-1] == end
    assert paths(reading.losses) == []


@pytest.mark.parametrize(
    ("traffic", "tier"), [("ON_DEMAND_PRIORITY", "priority"), ("ON_DEMAND", "default"), (1, "default")]
)
def test_traffic_type_is_the_service_tier_and_may_be_a_number(traffic: str | int, tier: str) -> None:
    """REQ-3: as servers with a protobuf library send it."""
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2, "trafficType": traffic}
    reading = read_frames([frame({**parts({"text": "x"}, finishReason="STOP"), "usageMetadata": usage})])
    assert reading.summary[-1] == "completed"
    assert reading.response.service_tier == tier


def test_message_beside_a_normal_end_is_no_loss() -> None:
    """F-4: servers describe calls with it."""
    described = parts(call("get_time", {}), finishReason="STOP", finishMessage="Model generated function call(s).")
    assert paths(read_frames([frame(described)]).losses) == []


def test_malformed_call_is_a_loss() -> None:
    """F-4: with the server's message; the answer has no error."""
    to_hub = reader()
    to_hub.feed(frame(parts({"text": "x"}, finishReason="MALFORMED_FUNCTION_CALL", finishMessage="print(x)")))
    to_hub.finish()
    assert to_hub.error is None
    assert [(loss.path, loss.what) for loss in to_hub.losses] == [("finishMessage", "print(x)")]


@pytest.mark.without_coverage
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("reason", FAILED_CALLS)
@pytest.mark.parametrize("client", CLIENT_DIALECTS)
@given(kinds=st.lists(st.sampled_from(["text", "call"]), max_size=3))
def test_failed_call_reaches_clients_of_every_dialect(
    client: ClientDialectName, reason: str, streams: bool, kinds: list[str]
) -> None:
    """REQ-3, F-4: the output before it, and the reason for the end, as a client value or as a loss."""
    sent = [
        {"text": f"text {at}"} if kind == "text" else call("get_time", {}, id=f"call_{at}")
        for at, kind in enumerate(kinds)
    ]
    client_dialect = CLIENT_DIALECTS[client]
    losses: list[Loss]
    if streams:
        from_hub = client_dialect.events_from_hub(REQUEST)
        reading = read_frames([*(frame(parts(part)) for part in sent), frame(parts(finishReason=reason))])
        data = b"".join([from_hub.feed(event) for event in reading.events] + [from_hub.finish()]).decode()
        losses = [*reading.losses, *from_hub.losses]
    else:
        response, lost = read_whole(json.dumps(parts(*sent, finishReason=reason)).encode())
        body, more = client_dialect.response_from_hub(response, REQUEST)
        data, losses = body.decode(), [*lost, *more]
    assert [
        mark for mark in (f"text {at}" for at, kind in enumerate(kinds) if kind == "text") if mark not in data
    ] == []
    assert [
        mark for mark in (f"call_{at}" for at, kind in enumerate(kinds) if kind == "call") if mark not in data
    ] == []
    word, is_named = WORDS[client](reason)
    assert word in data.replace(" ", "")
    assert [loss.path for loss in losses] == ([] if is_named else ["incomplete_details.reason"])


def test_prompt_feedback_without_block_is_ignored() -> None:
    assert read({**parts({"text": "Hi"}), "promptFeedback": {"safetyRatings": []}}).summary == ["Hi", "completed"]


def test_text_run_declines_frames_without_text() -> None:
    """A run ends at the first frame with anything else, and empty frames give no run."""
    to_hub = reader()
    text, empty, last = frame(parts({"text": "a"})), frame(parts({"text": ""})), frame(STOP)
    assert to_hub.text_run([text], 0) == (None, 0)  # nothing is open yet
    to_hub.feed(text)
    run, at = to_hub.text_run([text, empty, text, last, text], 0)
    assert run is not None
    assert (run.deltas, at) == (["a", "a"], 3)
    assert to_hub.text_run([empty, last], 0) == (None, 0)


@pytest.mark.parametrize("body", [b"", b"[DONE]", b"{", b"{}", b'{"candidates": []}', b'{"candidates": [null]}'])
def test_plain_answer_without_a_candidate_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamFault) as caught:
        read_whole(body)
    assert caught.value.code == "upstream_invalid_response"


def test_error_in_place_of_a_plain_answer_is_raised() -> None:
    with pytest.raises(ApiError) as caught:
        read_whole(b'{"error": {"code": 404, "message": "models/x is not found", "status": "NOT_FOUND"}}')
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_plain_answer_needs_no_finish_reason() -> None:
    response, _ = read_whole(json.dumps(parts({"text": "Hi"})).encode())
    assert response.status == "completed"


def test_usage_is_null_only_if_missing() -> None:
    """REQ-4."""
    assert read(parts({"text": "x"})).response.usage is None
    usage = read(
        {**parts({"text": "x"}), "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2}}
    ).response.usage
    assert usage is not None
    assert usage.total_tokens == 5


@pytest.mark.parametrize("first", [None, {"index": 1, "content": {"parts": [{"text": "other"}]}}])
def test_first_answer_after_another_candidate_is_read(first: dict[str, Any] | None) -> None:
    chosen = {"index": 0, "content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    result = read({"candidates": [first, chosen]})
    assert result.summary == ["Hi", "completed"]
    assert paths(result.losses) == ([] if first is None else ["candidates[1]"])


def test_index_behind_the_last_source_is_a_loss() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
        "groundingSupports": [{"segment": {"endIndex": 1}, "groundingChunkIndices": [0, 1]}],
    }
    reading = read(parts({"text": "x"}, groundingMetadata=grounding))
    assert reading.summary == ["x", "completed"]
    assert paths(reading.losses) == ["groundingMetadata"]
