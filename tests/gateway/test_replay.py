"""`gateway/replay`: turns of the real server, replayed from their traces."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.api.askers import ASKERS, Asker
from tests.cli.recorded import KEY, record
from tests.gateway.scripted import JSON, SSE, ScriptedAnswer

from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.replay import NotReplayable, RecordedResponse, ReplayResult, replay_trace
from antiphon.trace.reader import RecordedTrace, read_trace
from antiphon.trace.records import (
    AnyTraceRecord,
    ClientHead,
    ClientPiece,
    ClientRequest,
    OmittedData,
    RawData,
    TraceNote,
    UpstreamHead,
    UpstreamRequest,
)

FINISHED = b'data: {"choices":[{"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
FIRST_PIECE = b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
WHOLE = b'{"choices":[{"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}'
FAILED = b'data: {"error":{"message":"no more room","code":500}}\n\n'
CALLS = (
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_0123456789abcdef0123456789abcdef",'
    b'"function":{"name":"look","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
)
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}


def stream(*pieces: bytes | ApiError) -> ScriptedAnswer:
    return ScriptedAnswer(pieces, SSE)


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "mock-1", "input": "Hi", "stream": True, "store": False, **fields}


def recorded(
    folder: Path, body: Mapping[str, Any] | bytes, *answers: ScriptedAnswer | ApiError, **options: Any
) -> RecordedTrace:
    record(folder, body, *answers, **options)
    return read_trace(folder, "last")


def with_note(trace: RecordedTrace, name: str, value: str) -> RecordedTrace:
    return replace(trace, records=[*trace.records, TraceNote(at=1.0, name=name, value=value)])


def changed(trace: RecordedTrace, kind: type, change: Callable[[Any], AnyTraceRecord | None]) -> RecordedTrace:
    """The trace with every record of a kind changed, or removed."""
    records = [change(each) if isinstance(each, kind) else each for each in trace.records]
    return replace(trace, records=[each for each in records if each is not None])


def differences_in(made: ReplayResult) -> list[tuple[str, str, str]]:
    return [(each.what, each.recorded, each.made) for each in made.differences]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (asking(), stream(FIRST_PIECE[:9], FIRST_PIECE[9:] + FINISHED)),
        (asking(), ScriptedAnswer([WHOLE[:9], WHOLE[9:]], JSON)),
        (asking(stream=False), ScriptedAnswer([WHOLE], JSON)),
        (asking(stream=False), stream(FIRST_PIECE, FINISHED)),
        (asking(tools=[LOOK]), stream(CALLS)),
        (asking(stream_options={"include_obfuscation": True}), stream(FIRST_PIECE, FINISHED)),
        (asking(input=f"my key is {KEY}"), stream(FIRST_PIECE, FINISHED)),
        (asking(), stream(FIRST_PIECE, FAILED)),
        (asking(), stream(FAILED)),
        (asking(stream=False), stream(FAILED)),
        (asking(), stream(FIRST_PIECE)),
        (asking(), ScriptedAnswer([b'{"error":{"message":"slow down"}}'], {**JSON, "retry-after": "3"}, status=429)),
        (asking(stream=False), ScriptedAnswer([b"<html>"], {"content-type": "text/html"}, status=503)),
        (asking(stream=False), ScriptedAnswer([b"{"], JSON)),
    ],
    ids=[
        "a stream",
        "a whole answer where a stream was asked for",
        "a whole answer",
        "a stream where none was asked for",
        "a call",
        "padding",
        "a key in the prompt",
        "an error after text",
        "an error at once",
        "an error in one piece",
        "a stream without an end",
        "a refusal",
        "a refusal without sense",
        "an answer without sense",
    ],
)
def test_replay_of_a_turn_has_no_differences(tmp_path: Path, body: dict[str, Any], answer: ScriptedAnswer) -> None:
    made = replay_trace(recorded(tmp_path, body, answer))
    assert differences_in(made) == []
    assert not made.is_cut_short


@pytest.mark.parametrize("asker", ASKERS, ids=lambda asker: asker.dialect)
@pytest.mark.parametrize("is_stream", [True, False])
def test_replay_of_another_client_dialect_has_no_differences(tmp_path: Path, asker: Asker, is_stream: bool) -> None:
    """The stream of a Gemini client without `alt=sse` is an array, in which no name marks the end."""
    path, body = (asker.stream_path, asker.streamed) if is_stream else (asker.path, asker.asked)
    answers = [
        stream(FIRST_PIECE, FINISHED),
        stream(FIRST_PIECE),
        ScriptedAnswer([WHOLE], JSON),
        ScriptedAnswer([b'{"error":{"message":"slow down"}}'], JSON, status=429),
    ]
    for answer in answers:
        trace = recorded(tmp_path, body, answer, path=path.partition("?")[0], headers={"antiphon-extensions": "losses"})
        made = replay_trace(trace)
        assert differences_in(made) == []
        started_a_second_earlier = replace(trace, summary=replace(trace.summary, time=trace.summary.time - 1))
        assert differences_in(replay_trace(started_a_second_earlier)) == []
        assert not made.is_cut_short


@pytest.mark.parametrize(
    ("style", "name"), [(None, "reasoning_text"), ("standard", "reasoning"), ("older", "reasoning_text")]
)
def test_replay_writes_the_recorded_style_and_the_losses_event(tmp_path: Path, style: str | None, name: str) -> None:
    """API-6."""
    headers = {"antiphon-extensions": "other, Losses"} | ({"antiphon-style": style} if style else {})
    answer = b'data: {"choices":[{"delta":{"reasoning_content":"Hm."}}]}\n\n'
    made = replay_trace(recorded(tmp_path, asking(store=True), stream(answer, FINISHED), headers=headers))
    assert differences_in(made) == []
    assert f"response.{name}.delta".encode() in made.answer
    assert b"antiphon:losses" in made.answer
    assert [loss.path for loss in made.losses] == ["store"]


def test_replay_over_a_responses_upstream_has_no_differences(tmp_path: Path) -> None:
    answer = record(tmp_path / "chat", asking(), stream(FIRST_PIECE, FINISHED))
    made = replay_trace(recorded(tmp_path, asking(), stream(answer[:500], answer[500:]), dialect="responses"))
    assert differences_in(made) == []


def test_replay_of_a_retry_without_a_refused_part_has_no_differences(tmp_path: Path) -> None:
    """RSN-3: the trace records what was left out, also of later turns."""
    refusal = ScriptedAnswer(
        [b'{"error":{"message":"Encrypted content is not supported with this model."}}'], JSON, status=400
    )
    answer = record(tmp_path / "chat", asking(), stream(FIRST_PIECE, FINISHED))
    asked = asking(include=["reasoning.encrypted_content"])
    trace = recorded(tmp_path, asked, refusal, stream(answer), dialect="responses")
    assert trace.notes["left_out"] == "encrypted_reasoning"
    made = replay_trace(trace)
    assert differences_in(made) == []
    assert [loss.path for loss in made.losses] == ["include[0]"]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_note_of_a_part_that_cannot_be_omitted_is_ignored(tmp_path: Path, dialect: str) -> None:
    recorded_answer = record(tmp_path / "chat", asking(), stream(FIRST_PIECE, FINISHED))
    answer = stream(recorded_answer) if dialect == "responses" else stream(FIRST_PIECE, FINISHED)
    trace = with_note(recorded(tmp_path, asking(), answer, dialect=dialect), "left_out", "reasoning")
    assert differences_in(replay_trace(trace)) == []


def test_replay_refuses_an_undecodable_request(tmp_path: Path) -> None:
    made = replay_trace(recorded(tmp_path, b'{"model": "mock-1", "input": 7}'))
    assert differences_in(made) == []
    assert (made.status, made.upstream_body) == (400, None)


def test_replay_refuses_a_request_that_was_refused(tmp_path: Path) -> None:
    made = replay_trace(recorded(tmp_path, asking(background=True)))
    assert differences_in(made) == []
    assert (made.status, made.upstream_body) == (400, None)


def test_answer_of_a_disconnected_client_is_compared_up_to_its_end(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(), stream(FIRST_PIECE, FIRST_PIECE, FINISHED), leaves_after=1)
    made = replay_trace(trace)
    assert differences_in(made) == []
    assert made.is_cut_short


@pytest.mark.parametrize("pieces", [(FIRST_PIECE, UpstreamFault("it hung up", code="upstream_disconnected")), ()])
def test_network_fault_is_replayed_from_its_note(tmp_path: Path, pieces: tuple[bytes | ApiError, ...]) -> None:
    answer = stream(*pieces) if pieces else UpstreamFault("it was silent", code="upstream_timeout", status=504)
    trace = recorded(tmp_path, asking(), answer)
    note = "upstream_disconnected: it hung up" if pieces else "upstream_timeout: it was silent"
    made = replay_trace(with_note(trace, "upstream_fault", note))
    assert differences_in(made) == []
    assert made.status == (200 if pieces else 504)


def test_differences_are_shown_from_their_first_byte(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(stream=False), ScriptedAnswer([WHOLE], JSON))
    trace = changed(
        trace, UpstreamRequest, lambda each: replace(each, body=RawData(each.body.raw.replace(b"Hi", b"Ho")))
    )
    trace = changed(trace, ClientHead, lambda each: replace(each, status=201))
    trace = changed(
        trace, ClientPiece, lambda each: replace(each, data=RawData(each.data.raw.replace(b"Hello.", b"Bye.")))
    )
    request, status, answer = differences_in(replay_trace(trace))
    assert request[0] == "the request to the upstream"
    assert '"content":"Ho"' in request[1]
    assert '"content":"Hi"' in request[2]
    assert status == ("the status", "201", "200")
    assert answer[0] == "the answer"
    assert '"text":"Bye."' in answer[1]
    assert '"text":"Hello."' in answer[2]


def test_longer_answer_than_recorded_is_a_difference(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(), stream(FIRST_PIECE, FINISHED))
    data = b"".join(piece.data.raw for piece in trace.client_pieces).removesuffix(b"data: [DONE]\n\n")
    pieces = iter([ClientPiece(at=1.0, data=RawData(data))])
    ((title, then, now),) = differences_in(replay_trace(changed(trace, ClientPiece, lambda _: next(pieces, None))))
    assert title == "the answer"
    assert now == then + "\n [DONE]"


def test_trace_without_an_upstream_request_is_not_replayable(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(stream=False, stream_options={"include_obfuscation": True}))
    with pytest.raises(NotReplayable, match="no request was sent to an upstream"):
        replay_trace(trace)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ClientRequest, "no request was recorded"),
        (ClientHead, "no response was recorded"),
        (UpstreamHead, "the upstream did not answer"),
    ],
)
def test_trace_with_a_missing_record_is_not_replayable(tmp_path: Path, kind: type, expected: str) -> None:
    trace = recorded(tmp_path, asking(), stream(FIRST_PIECE, FINISHED))
    with pytest.raises(NotReplayable, match=expected):
        replay_trace(changed(trace, kind, lambda _: None))


def test_trace_with_omitted_data_is_not_replayable(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(), stream(FIRST_PIECE, FINISHED))
    trace = replace(
        trace, records=[*trace.records, OmittedData(at=1.0, missing={"upstream_piece": 3, "client_piece": 4})]
    )
    with pytest.raises(NotReplayable, match="does not contain client_piece, upstream_piece"):
        replay_trace(trace)


def test_trace_of_an_unserved_model_is_not_replayable(tmp_path: Path) -> None:
    with pytest.raises(NotReplayable, match="no upstream was chosen"):
        replay_trace(recorded(tmp_path, asking(model="unknown")))


def test_recorded_response_can_be_read_after_abort(tmp_path: Path) -> None:
    answer = RecordedResponse(recorded(tmp_path, asking(stream=False), ScriptedAnswer([WHOLE], JSON)))

    async def read() -> list[bytes]:
        answer.abort()
        await answer.close()
        return [piece async for piece in answer.pieces()]

    assert asyncio.run(read()) == [WHOLE]


@pytest.mark.parametrize("streams", [True, False], ids=["a stream", "whole"])
def test_replay_of_a_stored_chain_has_no_differences(tmp_path: Path, streams: bool) -> None:
    """The resolved history is in its trace: a replay needs no store."""
    store = f"sqlite:///{tmp_path}/antiphon.db"
    first = recorded(tmp_path, asking(stream=streams, store=True), stream(FIRST_PIECE, FINISHED), store=store)
    made = replay_trace(first)
    assert differences_in(made) == []
    data = b"".join(piece.data.raw for piece in first.client_pieces)
    match = re.search(rb"resp_[0-9a-f]{40}", data)
    assert match is not None
    going_on = asking(stream=streams, store=True, input="And?", previous_response_id=match[0].decode())
    again = replay_trace(recorded(tmp_path, going_on, stream(FIRST_PIECE, FINISHED), store=store))
    assert differences_in(again) == []
    assert again.upstream_body is not None
    roles = [message["role"] for message in msgspec.json.decode(again.upstream_body)["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_trace_with_an_unknown_previous_response_is_not_replayable(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(previous_response_id="resp_1"))
    with pytest.raises(NotReplayable, match="was not found"):
        replay_trace(trace)


def test_trace_of_a_websocket_turn_is_not_replayable(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(), stream(FIRST_PIECE, FINISHED))
    with pytest.raises(NotReplayable, match="WebSocket"):
        replay_trace(changed(trace, ClientRequest, lambda each: replace(each, method="WEBSOCKET")))


def test_trace_with_several_upstream_requests_is_not_replayable(tmp_path: Path) -> None:
    trace = recorded(tmp_path, asking(), stream(FIRST_PIECE, FINISHED))
    trace = replace(trace, records=[*trace.records, TraceNote(at=1.0, name="conversation", value="compacted")])
    with pytest.raises(NotReplayable, match="several upstream requests"):
        replay_trace(trace)


def test_truncated_conversation_is_read_from_the_trace(tmp_path: Path) -> None:
    """REQ-2."""
    body = asking(truncation="auto", input=[{"role": "user", "content": "a " * 400}, {"role": "user", "content": "b"}])
    trace = recorded(
        tmp_path,
        body,
        ScriptedAnswer([b'{"data":[{"id":"m","context_length":256}]}'], JSON),
        stream(FIRST_PIECE, FINISHED),
    )
    made = replay_trace(trace)
    assert differences_in(made) == []
    assert b"a a" not in (made.upstream_body or b"")


def test_replay_of_a_client_of_the_dialect_of_the_server_keeps_the_form_of_its_request(tmp_path: Path) -> None:
    body = {"model": "mock-1", "messages": [{"role": "user", "content": "Hi", "unknown": 1}], "seed": None}
    trace = recorded(tmp_path, body, ScriptedAnswer([WHOLE], JSON), path="/v1/chat/completions")
    assert differences_in(replay_trace(trace)) == []


@pytest.mark.slow
def test_replay_of_a_large_answer_has_no_differences(tmp_path: Path) -> None:
    """Its last events are written one after the other."""
    text = b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"x" * 200_000)
    trace = recorded(tmp_path, asking(), stream(*[text] * 8, FINISHED))
    assert differences_in(replay_trace(trace)) == []
