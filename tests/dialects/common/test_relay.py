"""`dialects/common/relay`: frames of the same dialect pass as they came, unless the translation says something else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.counting import lines_of
from tests.dialects.common.relaying import RelayedStream, relayed_stream, relayed_whole

from antiphon import sse
from antiphon.dialects import chat
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.relay import MAX_QUEUE_BYTES, relayed_answer, repaired_answer
from antiphon.errors import UpstreamFault
from antiphon.protocol.content import UnknownContent
from antiphon.protocol.events import ResponseCreated, TextRun
from antiphon.protocol.items import Message
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.protocol.status import ItemStatus

REQUEST = (
    b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hi"}]}'
)


HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}


def chunk(delta: dict[str, Any], finish: str | None = None, **members: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**HEAD, "choices": [choice], **members}


def encode(*chunks: Any, is_complete: bool = True) -> bytes:
    frames = b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in chunks)
    return frames + (sse.DONE_FRAME if is_complete else b"")


CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
CHUNKS = [
    chunk({"role": "assistant", "content": ""}, unknown=[1]),
    chunk({"reasoning": "Hm.", "unknown": 2}, system_fingerprint="fp"),
    chunk({"content": "Hel"}, obfuscation="xyz"),
    chunk({"content": "lo \u2028"}),
    {**HEAD, "choices": [{"index": 1, "delta": {"content": "another answer"}, "finish_reason": None}]},
    chunk({"tool_calls": [CALL]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
    chunk({}, "tool_calls", x_groq={"id": 1}),
    {**HEAD, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}},
]
STREAM = encode(*CHUNKS)


def chunks_in(out: bytes) -> list[Any]:
    frames = sse.Decoder().feed(out)
    assert frames[-1].data == sse.DONE
    return [msgspec.json.decode(frame.data) for frame in frames[:-1]]


def test_frames_pass_as_they_came() -> None:
    out, is_relayed = relayed_stream("chat", REQUEST, STREAM)
    assert is_relayed
    assert chunks_in(out) == CHUNKS


@pytest.mark.parametrize("cut", range(1, len(STREAM), 13))
def test_frames_pass_however_the_bytes_are_cut(cut: int) -> None:
    stream = RelayedStream("chat", REQUEST)
    assert chunks_in(stream.feed(STREAM[:cut]) + stream.feed(STREAM[cut:]) + stream.finish()) == CHUNKS


def test_content_passes_at_once_and_the_end_waits_for_the_end_of_the_response() -> None:
    """A call waits for its first arguments, because only then its name is complete."""
    stream = RelayedStream("chat", REQUEST)
    sent = [stream.feed(encode(each, is_complete=False)) for each in CHUNKS]
    assert [bool(data) for data in sent] == [True] * 5 + [False] + [True] * 2 + [False] * 2
    assert chunks_in(b"".join(sent) + stream.feed(sse.DONE_FRAME)) == CHUNKS


def test_missing_last_frame_is_added() -> None:
    out, is_relayed = relayed_stream("chat", REQUEST, encode(*CHUNKS, is_complete=False))
    assert is_relayed
    assert chunks_in(out) == CHUNKS


def test_frames_after_the_last_one_are_ignored() -> None:
    out, _ = relayed_stream("chat", REQUEST, STREAM + encode(CHUNKS[2]))
    assert chunks_in(out) == CHUNKS


def test_mapped_model_name_is_replaced() -> None:
    out, _ = relayed_stream("chat", REQUEST, STREAM, model="alias")
    assert chunks_in(out) == [{**each, "model": "alias"} for each in CHUNKS]


def test_members_that_clients_need_are_added() -> None:
    out, is_relayed = relayed_stream(
        "chat", REQUEST, encode({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]})
    )
    assert is_relayed
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    head = {"id": "chatcmpl-resp_1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    assert chunks_in(out) == [{**head, "choices": [choice]}]


def test_repeated_finish_reason_does_not_delay_content() -> None:
    chunks = [chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop"), chunk({}, "stop")]
    stream = RelayedStream("chat", REQUEST)
    first, second = (stream.feed(encode(each, is_complete=False)) for each in chunks[:2])
    assert (first, bool(second)) == (b"", True)
    assert chunks_in(second + stream.feed(encode(chunks[2])) + stream.finish()) == chunks


def test_empty_finish_reason_at_the_end_becomes_one_normal_end() -> None:
    """C3: some servers end a stream with an empty reason. Those that send it with every chunk do not wait for it."""
    chunks = [chunk({"role": "assistant", "content": ""}, ""), chunk({"content": "a"}, ""), chunk({"content": "b"}, "")]
    stream = RelayedStream("chat", REQUEST)
    sent = [stream.feed(encode(each, is_complete=False)) for each in chunks]
    assert [bool(data) for data in sent] == [False, True, True]
    end = stream.feed(encode(chunk({}, ""))) + stream.finish()
    *content, last = chunks_in(b"".join(sent) + end)
    assert content == chunks
    assert (last["choices"][0]["finish_reason"], last["id"]) == ("stop", chunks[0]["id"])


def test_usage_that_only_the_gateway_wants_is_withheld() -> None:
    request = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    assert chunks_in(relayed_stream("chat", request, STREAM)[0]) == CHUNKS[:-1]
    not_asked = ChatWire(stream_usage=False)
    assert chunks_in(relayed_stream("chat", request, STREAM, wire=not_asked)[0]) == CHUNKS


@pytest.mark.parametrize(
    "odd_chunk",
    [
        chunk({"content": "<think>a</think>b"}),
        chunk({"tool_calls": [{**CALL, "id": None}]}),
        chunk({"tool_calls": [CALL, {"index": 0, "function": {"name": "oo"}}]}),
        chunk({"function_call": {"name": "f", "arguments": "{}"}}),
        chunk({"content": {"text": "no string"}}),
        {"choices": ["no object"]},
        {"choices": [{"index": 0, "delta": "no object"}]},
        chunk({"reasoning_details": ["no object"]}),
        ["no object"],
    ],
)
def test_repaired_answer_is_translated(odd_chunk: Any) -> None:
    """From the first difference on. Nothing that was sent before is sent again."""
    stream = RelayedStream("chat", REQUEST)
    before = stream.feed(encode(CHUNKS[0], is_complete=False))
    out = (
        before + stream.feed(encode(odd_chunk, is_complete=False)) + stream.feed(encode(*CHUNKS[2:])) + stream.finish()
    )
    assert not stream.relay.is_active
    first, *others = chunks_in(out)
    assert first == CHUNKS[0]
    assert all("role" not in choice["delta"] for each in others for choice in each.get("choices", ()))
    if odd_chunk == chunk({"content": "<think>a</think>b"}):
        deltas = [choice["delta"] for each in others for choice in each["choices"]]
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "a"
        assert "".join(delta.get("content") or "" for delta in deltas) == "bHello \u2028"


def test_text_that_may_be_a_tag_waits_and_passes() -> None:
    chunks = [chunk({"content": "<"}), chunk({"content": "b>"}), chunk({}, "stop")]
    out, is_relayed = relayed_stream("chat", REQUEST, encode(*chunks))
    assert is_relayed
    assert chunks_in(out) == chunks


def test_cut_stream_ends_with_an_error() -> None:
    stream = RelayedStream("chat", REQUEST)
    out = stream.feed(encode(*CHUNKS[:4], is_complete=False)) + stream.finish(UpstreamFault("it is gone"))
    *passed, last = chunks_in(out)
    assert passed == CHUNKS[:4]
    assert last["error"]["message"] == "it is gone"


def test_stream_without_a_finish_reason_is_translated() -> None:
    out, is_relayed = relayed_stream("chat", REQUEST, encode(*CHUNKS[:4]))
    assert not is_relayed
    assert '"finish_reason":"stop"' in out.decode()


def test_content_that_the_hub_does_not_have_is_translated() -> None:
    """The reader ignores a refusal in an unknown form; then the frame that has it is not the whole truth."""
    chunks = [chunk({"content": [{"type": "refusal", "refusal": 1}]}), chunk({}, "stop")]
    _, is_relayed = relayed_stream("chat", REQUEST, encode(*chunks))
    assert not is_relayed


def test_message_that_repeats_the_text_of_a_stream_is_ignored() -> None:
    chunks = [chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop")]
    for each, text in zip(chunks, ("a", "ab", "ab"), strict=True):
        each["choices"][0]["message"] = {"role": "assistant", "content": text}
    out, is_relayed = relayed_stream("chat", REQUEST, encode(*chunks))
    assert is_relayed
    assert chunks_in(out) == chunks


@pytest.mark.slow
def test_long_stream_that_comes_at_once_passes() -> None:
    chunks = [chunk({"content": f"{number}"}) for number in range(20_000)]
    assert len(encode(*chunks)) > MAX_QUEUE_BYTES
    out, is_relayed = relayed_stream("chat", REQUEST, encode(*chunks, chunk({}, "stop")))
    assert is_relayed
    assert len(chunks_in(out)) == 20_001


@pytest.mark.without_coverage  # coverage counts lines too
def test_frames_that_come_at_once_are_queued_in_linear_time() -> None:
    def steps(count: int) -> int:
        relay = RelayedStream("chat", REQUEST).relay
        frames = sse.Decoder().feed(encode(*[chunk({"content": "x"})] * count, is_complete=False))
        return lines_of(lambda: relay.add_frames(frames))

    assert steps(400) < 2.2 * steps(200)


def test_frames_wait_only_up_to_a_limit() -> None:
    stream = RelayedStream("chat", REQUEST)
    long_chunk = chunk({"content": "<think>" + "x" * MAX_QUEUE_BYTES})
    stream.feed(encode(long_chunk, is_complete=False))
    assert not stream.relay.is_active
    assert stream.relay.flush() == b""


WHOLE = {
    **HEAD,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello",
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "x"}},
                ],
            },
            "finish_reason": "tool_calls",
        },
        {"index": 1, "message": {"role": "assistant", "content": "Another"}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1},
    "unknown": None,
}


def test_whole_answer_passes_as_it_came() -> None:
    body = msgspec.json.encode(WHOLE)
    request = msgspec.json.encode(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [
                {"type": "function", "function": {"name": "f"}},
                {"type": "custom", "custom": {"name": "g"}},
            ],
        }
    )
    assert relayed_whole("chat", request, body) == body
    renamed = relayed_whole("chat", request, body, model="alias")
    assert renamed is not None
    assert msgspec.json.decode(renamed) == {**WHOLE, "model": "alias"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "<think>a</think>b"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}]},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ],
)
def test_repaired_whole_answer_is_translated(message: dict[str, Any]) -> None:
    body = msgspec.json.encode({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert relayed_whole("chat", REQUEST, body) is None


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}], "content": "a"},
    ],
)
def test_other_content_passes_too(message: dict[str, Any]) -> None:
    body = msgspec.json.encode({**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert relayed_whole("chat", REQUEST, body) == body


def test_run_of_texts_confirms_its_frames() -> None:
    relay = RelayedStream("chat", REQUEST).relay
    relay.add_frames(sse.Decoder().feed(encode(*CHUNKS[2:4], is_complete=False)))
    assert relay.deliver(TextRun(0, "msg_1", 0, 0, ["Hel", "lo \u2028"]), b"translation") == encode(
        *CHUNKS[2:4], is_complete=False
    ).replace("\u2028".encode(), b"\\u2028")


def test_part_of_a_frame_is_not_sent_twice() -> None:
    """The hub confirmed one and a half frames when the difference was found: both are translated."""
    relay = RelayedStream("chat", REQUEST).relay
    relay.add_frames(sse.Decoder().feed(encode(chunk({"content": "ab"}), chunk({"content": "cd"}), is_complete=False)))
    abc, x, y = (encode(chunk({"content": text}), is_complete=False) for text in ("abc", "x", "y"))
    assert relay.deliver(TextRun(0, "msg_1", 0, 0, ["ab", "c"]), abc) == b""
    assert relay.deliver(TextRun(2, "msg_1", 0, 0, ["x"]), x) == abc + x
    assert relay.deliver(TextRun(3, "msg_1", 0, 0, ["y"]), y) == y


def test_part_of_an_unknown_kind_is_translated() -> None:
    body = msgspec.json.encode({**WHOLE, "choices": WHOLE["choices"][:1]})  # type: ignore[index]
    part = UnknownContent(kind="unknown", raw=msgspec.Raw(b"{}"))
    message = Message(id="msg_1", status=ItemStatus.COMPLETED, role="assistant", content=[part])
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    content = chat.AnswerContent(Request(), ChatWire(), response, None)
    assert relayed_answer(content, body, replace(response, output=[message])) is None


@pytest.mark.parametrize("body", [b"[]", b"no JSON", b'{"choices":[{"index":0,"message":{"content":"a"}}]}'])
def test_body_that_is_no_complete_answer_is_translated(body: bytes) -> None:
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    assert relayed_answer(chat.AnswerContent(Request(), ChatWire(), response, None), body, response) is None


def test_choice_without_a_message_passes() -> None:
    chunks = [chunk({"content": "a"}), {**HEAD, "choices": [{"index": 0, "finish_reason": "stop"}]}]
    out, is_relayed = relayed_stream("chat", REQUEST, encode(*chunks))
    assert is_relayed
    assert chunks_in(out) == chunks


def test_answer_without_frames_is_translated() -> None:
    """The server may send a whole answer although a stream was requested."""
    stream = RelayedStream("chat", REQUEST)
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    assert stream.relay.deliver(ResponseCreated(sequence_number=0, response=response), b"start") == b"start"


# Members of answers that need a repair

PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "4"}]
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "prompt_audio_seconds": {}, "service_tier": "x"}
PLAIN_REQUEST = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}'


def test_repaired_stream_keeps_the_members_of_the_server() -> None:
    """B3: the server sends usage that nobody asked for."""
    chunks = [
        chunk({"role": "assistant", "content": ""}, p="ab"),
        chunk({"content": PARTS}),
        chunk({"content": "!"}, system_fingerprint="fp"),
        {
            **HEAD,
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop", "matched_stop": 2}],
            "usage": USAGE,
        },
    ]
    out, is_relayed = relayed_stream("chat", PLAIN_REQUEST, encode(*chunks), wire=ChatWire(stream_usage=False))
    received = chunks_in(out)
    assert not is_relayed
    assert {(each["id"], each["created"], each["model"], each["p"]) for each in received} == {("c1", 1, "m-1", "ab")}
    assert [each["usage"] for each in received if "usage" in each] == [USAGE]
    assert received[-1]["choices"][0]["matched_stop"] == 2
    assert received[-1]["system_fingerprint"] == "fp"
    assert not any("service_tier" in each for each in received)
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in received) == "4!"
    assert "".join(each["choices"][0]["delta"].get("reasoning_content") or "" for each in received) == "Hm."


@pytest.mark.parametrize(("request_body", "usages"), [(PLAIN_REQUEST, []), (REQUEST, [USAGE])])
def test_repaired_stream_has_the_usage_that_the_client_wants(request_body: bytes, usages: list[Any]) -> None:
    """The gateway asked for usage. A client that asked too gets it as the server sent it."""
    chunks = [chunk({"content": PARTS}), chunk({}, "stop"), {**HEAD, "choices": [], "usage": USAGE}]
    out, is_relayed = relayed_stream("chat", request_body, encode(*chunks), model="mapped")
    assert not is_relayed
    assert [each["usage"] for each in chunks_in(out) if "usage" in each] == usages
    assert {each["model"] for each in chunks_in(out)} == {"mapped"}


def test_repaired_stream_ends_with_the_error_of_the_gateway() -> None:
    stream = RelayedStream("chat", REQUEST)
    out = stream.feed(encode(chunk({"content": PARTS}), 7, is_complete=False)) + stream.finish(
        UpstreamFault("cut", code="x")
    )
    *_, error = chunks_in(out)
    assert error.keys() == {"error"}


def test_repaired_whole_answer_keeps_the_members_of_the_server() -> None:
    """B3, B4: the content is repaired, and nothing else. Other choices stay."""
    message = {"role": "assistant", "content": PARTS, "tool_calls": None, "audio": {"id": "audio_1"}}
    other = {"index": 1, "message": {"role": "assistant", "content": "5"}, "finish_reason": "stop"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "content_filter_results": {"hate": {}}}
    members = {"id": "c1", "created": 1, "model": "m-1", "usage": USAGE, "provider": "x", "citations": ["https://a"]}
    body = msgspec.json.encode({**members, "object": "chat.completion", "choices": [choice, other]})
    translation = {
        **{"id": "gateway", "object": "chat.completion", "created": 2, "model": "m", "usage": {"prompt_tokens": 1}},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}],
    }
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    content = chat.AnswerContent(Request(), ChatWire(), response, "mapped")
    repaired = msgspec.json.decode(repaired_answer(content, body, msgspec.json.encode(translation)))
    assert repaired == {
        **members,
        "model": "mapped",
        "object": "chat.completion",
        "choices": [{**choice, "message": {"role": "assistant", "content": "4", "audio": {"id": "audio_1"}}}, other],
    }


@pytest.mark.parametrize("body", [b"[]", b'{"choices":[]}', b'{"choices":[7]}', b'{"choices":null}'])
def test_answer_of_another_form_is_the_translation(body: bytes) -> None:
    translation = {"id": "x", "object": "chat.completion", "created": 2, "model": "m", "choices": [{"index": 0}]}
    response = make_initial_response(Request(), id="resp_1", created_at=1)
    content = chat.AnswerContent(Request(), ChatWire(), response, None)
    assert msgspec.json.decode(repaired_answer(content, body, msgspec.json.encode(translation))) == translation
