"""`gateway/pipe`: upstream bytes to client bytes in one step."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from tests.gateway.scripted import target

from antiphon import sse
from antiphon.dialects import responses
from antiphon.dialects.common.server_turn import StreamReader
from antiphon.dialects.responses.stream_out import MESSAGE_END, with_complete_usage
from antiphon.errors import StorageUnavailable, UpstreamFault
from antiphon.gateway.context import GatewayContext
from antiphon.gateway.pipe import LOSSES_EVENT, MAX_OUTPUT_BYTES, Pipe
from antiphon.gateway.recording import Recorder
from antiphon.gateway.run_turn import record_abandoned_turn
from antiphon.gateway.turn import UpstreamTurn
from antiphon.gateway.turn_data import prepare_request
from antiphon.protocol.codec import decode_event, decode_request
from antiphon.protocol.content import OutputText
from antiphon.protocol.events import OutputTextDelta, ResponseEvent, StreamEvent
from antiphon.protocol.fold import fold_events, replay_response
from antiphon.protocol.grammar import Violation, find_violations
from antiphon.protocol.items import Message
from antiphon.protocol.losses import Losses
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.status import ItemStatus
from antiphon.store.interface import StoredTurn

CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "Hel"}}]},
    {"choices": [{"index": 0, "delta": {"content": "lo, wörld \u2028"}}]},
    {
        "choices": [
            {
                "index": 0,
                "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
            }
        ]
    },
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}},
]
STREAM = b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in CHUNKS) + b"data: [DONE]\n\n"
TOOLS = '"tools": [{"type": "function", "name": "f"}, {"type": "web_search"}]'
ASKED = b'{"model": "m", "input": "Hi", "stream": true, ' + TOOLS.encode() + b"}"


def make_pipe(asked: bytes = ASKED, **settings: object) -> Pipe:
    numbers = iter(range(10_000))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)
    turn = UpstreamTurn(prepare_request(decode_request(asked), target().plan_translation()), target(), stamps, None)
    return turn.make_pipe(responses.EventsFromHub(turn.prepared.request), **settings)  # type: ignore[arg-type]


def read(out: bytes) -> list[StreamEvent]:
    frames = sse.Decoder().feed(out)
    assert frames[-1].data == sse.DONE
    return [decode_event(frame.data) for frame in frames[:-1]]


def test_pipe_translates_a_whole_stream() -> None:
    """HTTP-3, HTTP-4: and afterwards the pipe has the response that the client received."""
    pipe = make_pipe()
    out = pipe.feed(STREAM)
    events = read(out)
    assert find_violations(events) == []
    assert pipe.has_ended
    assert pipe.response is not None
    assert with_complete_usage(pipe.response) == fold_events(events)
    assert pipe.error is None
    assert pipe.finish() == b""


@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=20).map(sorted))
def test_pipe_output_is_the_same_for_any_split(cuts: list[int]) -> None:
    pieces = [STREAM[start:end] for start, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
    pipe = make_pipe()
    assert b"".join(map(pipe.feed, pieces)) == make_pipe().feed(STREAM)


@pytest.mark.parametrize("end", range(0, len(STREAM) - 14, 7))
def test_truncated_stream_ends_once(end: int) -> None:
    """STR-7, STR-8."""
    pipe = make_pipe()
    out = pipe.feed(STREAM[:end]) + pipe.finish(UpstreamFault("cut", code="upstream_disconnected"))
    events = read(out)
    assert find_violations(events) == []
    assert pipe.response is not None
    assert pipe.response.status in ("failed", "completed")
    assert (pipe.error is not None) == (pipe.response.status == "failed")
    assert pipe.finish() == b""


def test_losses_event_precedes_the_end_on_request() -> None:
    """F-4, STR-5: the event is numbered like any other."""
    events = read(make_pipe(reports_losses=True).feed(STREAM))
    assert find_violations(events) == []
    losses_event = msgspec.json.decode(events[-2].raw)  # type: ignore[union-attr]
    assert losses_event["type"] == LOSSES_EVENT
    assert losses_event["losses"][0]["path"] == "tools[1]"
    assert len(events) == len(read(make_pipe().feed(STREAM))) + 1


def test_losses_after_the_start_of_a_stream_are_reported() -> None:
    """F-4, TOOL-3: the loss of a withheld call is found only after the headers were sent."""
    asked = b'{"model": "m", "input": "Hi", "stream": true, "tool_choice": "none", "tools": [{"type": "function", "name": "f"}]}'
    pipe = make_pipe(asked, reports_losses=True)
    before = len(pipe.losses)
    events = read(pipe.feed(STREAM))
    assert find_violations(events) == []
    losses = msgspec.json.decode(events[-2].raw)["losses"]  # type: ignore[union-attr]
    assert len(losses) == len(pipe.losses) > before
    assert any("withheld" in loss["what"] for loss in losses)


WITHHOLDING = b'{"model": "m", "input": "Hi", "stream": true, "tool_choice": "none", "tools": [{"type": "function", "name": "f"}]}'


def commented(losses: Losses) -> bytes:
    return b": " + ", ".join(loss.path for loss in losses).encode() + b"\n\n"


def test_losses_after_the_head_are_in_a_comment_before_the_end() -> None:
    """F-4: only the losses that the head does not report."""
    pipe = make_pipe(WITHHOLDING, loss_comment=commented)
    head_losses = pipe.losses_for_head()
    out = pipe.feed(STREAM)
    late_losses = [loss for loss in pipe.losses if loss not in list(head_losses)]
    assert late_losses
    comment = b": " + ", ".join(loss.path for loss in late_losses).encode() + b"\n\n"
    assert out.count(b"\n\n: ") == 1
    assert comment + b"event: response.completed" in out
    assert read(out) == read(make_pipe(WITHHOLDING).feed(STREAM))


@pytest.mark.parametrize(
    ("asked", "settings", "has_head"),
    [
        (ASKED, {"loss_comment": commented}, True),  # the head reports all
        (WITHHOLDING, {"loss_comment": commented}, False),  # the head comes later and reports all
        (WITHHOLDING, {}, True),  # the client does not ignore comments
    ],
)
def test_comment_is_omitted_if_the_head_reports_all_losses(
    asked: bytes, settings: dict[str, object], has_head: bool
) -> None:
    pipe = make_pipe(asked, **settings)
    if has_head:
        pipe.losses_for_head()
    assert b"\n\n: " not in pipe.feed(STREAM)


def test_loss_comment_precedes_the_terminal_event_of_a_failed_stream() -> None:
    """C7: `response.failed`, not the `error` before it. The comment is sent once."""
    pipe = make_pipe(WITHHOLDING, loss_comment=commented)
    pipe.losses_for_head()
    cut = STREAM.index(b'"finish_reason"')
    out = pipe.feed(STREAM[:cut]) + pipe.finish()
    assert out.count(b"\n\n: ") == 1
    assert out.index(b"event: error") < out.index(b"\n\n: ") < out.index(b"event: response.failed")


def test_loss_comment_precedes_the_terminal_event_of_a_response_that_is_not_stored() -> None:
    pipe = holding(WITHHOLDING, loss_comment=commented)
    pipe.losses_for_head()
    out = pipe.feed(STREAM)
    assert b"\n\n: " not in out
    failed = pipe.fail(StorageUnavailable("the disk is full"))
    assert failed.count(b"\n\n: ") == 1
    assert failed.index(b"event: error") < failed.index(b"\n\n: ") < failed.index(b"event: response.failed")


def test_losses_event_precedes_the_error_of_a_failed_stream() -> None:
    """Invariant 1: an `error` event comes right before `response.failed`."""
    pipe = make_pipe(reports_losses=True)
    events = read(pipe.feed(STREAM[:200]) + pipe.finish())
    assert find_violations(events) == []
    assert [msgspec.json.decode(msgspec.json.encode(event)).get("type") for event in events[-2:]] == [
        "error",
        "response.failed",
    ]
    assert LOSSES_EVENT.encode() in msgspec.json.encode(events[-3])


def test_losses_event_is_omitted_without_losses() -> None:
    asked = b'{"model": "m", "input": "Hi", "stream": true}'
    assert LOSSES_EVENT.encode() not in make_pipe(asked, reports_losses=True).feed(STREAM)


def test_violations_are_reported_to_the_callback() -> None:
    violations: list[Violation] = []
    pipe = make_pipe(on_violation=violations.append)
    events = read(pipe.feed(STREAM))
    assert violations == []
    pipe.write_events(events[:1])  # after the end: an internal error
    assert [violation.row for violation in violations] == ["STR-7"]


def test_oversized_upstream_event_fails_the_response() -> None:
    pipe = make_pipe()
    pipe._reader = small = StreamReader(pipe._reader._to_hub)
    small._frames = sse.Decoder(max_length=100)
    events = read(pipe.feed(b"data: " + b"x" * 200))
    assert find_violations(events) == []
    assert pipe.response is not None
    assert pipe.response.status == "failed"


# Consecutive deltas


DELTAS = st.one_of(
    st.text(max_size=8).map(lambda text: {"content": text}),
    st.sampled_from(
        [
            {"content": "50% of {it} \u2028\n"},
            {"refusal": "No."},
            {"reasoning_content": "hm"},
            {"content": "x", "role": "assistant"},
            {"content": "a<think>b</think>c"},
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
            {"tool_calls": [{"index": 1, "id": "d", "function": {"name": "g", "arguments": "{}"}}]},
        ]
    ),
)
ASKED_IN_WAYS = [
    ASKED,
    ASKED[:-1]
    + b', "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}}',
    ASKED[:-1] + b', "include": ["message.output_text.logprobs"], "parallel_tool_calls": false}',
]


@given(deltas=st.lists(DELTAS, max_size=12), asked=st.sampled_from(ASKED_IN_WAYS), judged=st.booleans())
def test_consecutive_deltas_are_encoded_like_single_deltas(
    deltas: list[dict[str, object]], asked: bytes, judged: bool
) -> None:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    frames = [b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks]
    violations: list[Violation] = []
    at_once, one_by_one = (make_pipe(asked, on_violation=violations.append if judged else None) for _ in range(2))
    reader, pipe = make_pipe(asked)._reader, make_pipe(asked)
    one_by_one._reader._text_run = one_by_one._text_run = None  # no runs at all
    data = b"".join(map(one_by_one.feed, frames)) + one_by_one.finish()
    assert at_once.feed(b"".join(frames)) + at_once.finish() == data
    assert (
        pipe.write_events(reader.feed(b"".join(frames))) + pipe.write_events(reader.finish()) == data
    )  # as single events
    assert find_violations(read(data)) == []
    assert not violations


def test_consecutive_deltas_are_padded() -> None:
    """STR-13."""
    asked = ASKED[:-1] + b', "stream_options": {"include_obfuscation": true}}'
    numbers = iter(range(10_000))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)
    turn = UpstreamTurn(
        prepare_request(decode_request(asked), target().plan_translation()),
        target(),
        stamps,
        lambda length: "p" * length,
    )
    pipe = turn.make_pipe(responses.EventsFromHub(turn.prepared.request))
    texts = [event for event in read(pipe.feed(STREAM)) if isinstance(event, OutputTextDelta)]
    assert [event.obfuscation for event in texts] == ["p" * len(event.delta) for event in texts]
    assert len(texts) == 2


# Ends that wait until the response is stored


def holding(asked: bytes = ASKED, **settings: object) -> Pipe:
    pipe = make_pipe(asked, **settings)
    pipe._holds_terminal_event = True
    return pipe


def test_held_end_is_sent_when_released() -> None:
    pipe = holding()
    before = pipe.feed(STREAM)
    assert pipe.has_ended
    assert pipe.is_holding_end
    assert b"response.completed" not in before
    assert before + pipe.release() == make_pipe().feed(STREAM)
    assert not pipe.is_holding_end
    assert pipe.release() == b""


def test_response_that_cannot_be_stored_fails() -> None:
    """STR-8: a response that was not saved is never completed."""
    pipe = holding()
    out = pipe.feed(STREAM) + pipe.fail(StorageUnavailable("the disk is full"))
    events = read(out)
    assert find_violations(events) == []
    assert pipe.response is not None
    assert (pipe.response.status, pipe.response.error and pipe.response.error.code) == ("failed", "storage_unavailable")
    assert pipe.response is not None
    assert fold_events(events) == with_complete_usage(pipe.response)


def test_failed_response_does_not_hold_its_end() -> None:
    pipe = holding()
    out = pipe.feed(STREAM[: len(STREAM) // 3]) + pipe.finish(UpstreamFault("cut", code="upstream_disconnected"))
    assert not pipe.is_holding_end
    assert find_violations(read(out)) == []
    assert pipe.recorded_response is not None
    assert pipe.recorded_response.status == "failed"


def test_recorded_response_has_withheld_items() -> None:
    """RSN-2, STR-12: trimmed for the client, complete for the next turn; forbidden calls are in neither (TOOL-3)."""
    token = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [token]}}]}
    stream = b"data: " + msgspec.json.encode(chunk) + b"\n\n" + STREAM
    asked = ASKED[:-1] + b', "tool_choice": "none"}'
    pipe = holding(asked)
    pipe.feed(stream)
    assert pipe.response is not None
    assert pipe.recorded_response is not None
    (shown,), (recorded,) = pipe.response.output, pipe.recorded_response.output
    assert isinstance(shown, Message)
    assert isinstance(recorded, Message)
    assert isinstance(shown.content[0], OutputText)
    assert isinstance(recorded.content[0], OutputText)
    assert not shown.content[0].logprobs
    assert recorded.content[0].logprobs


def test_pipe_for_websockets_emits_one_message_per_event() -> None:
    """WS-3: one JSON message per event, also of consecutive deltas."""
    numbers = iter(range(10_000))
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)
    turn = UpstreamTurn(prepare_request(decode_request(ASKED), target().plan_translation()), target(), stamps, None)
    writer = responses.EventsFromHub(turn.prepared.request, framing="websocket")
    pipe = turn.make_pipe(writer, separator=MESSAGE_END)
    messages = pipe.feed(STREAM).split(MESSAGE_END)
    assert find_violations(events := [decode_event(message) for message in messages]) == []
    assert pipe.response is not None
    assert fold_events(events) == with_complete_usage(pipe.response)
    assert len(events) == len(read(make_pipe().feed(STREAM)))


# The first content


def chunk(delta: dict[str, object], **fields: object) -> bytes:
    choice = {"index": 0, "delta": delta, **fields}
    return b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\n"


@pytest.mark.parametrize(
    ("data", "has_content", "is_refusal"),
    [
        (b": waiting\n\n", False, False),
        (chunk({"role": "assistant", "content": ""}), False, False),
        (chunk({"content": "H"}), True, False),
        (chunk({"content": "H"}) + chunk({"content": "i"}), True, False),
        (chunk({"reasoning_content": "hm"}), True, False),
        (chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]}), True, False),
        (chunk({"refusal": "No."}), True, True),
        (chunk({}, finish_reason="stop") + b"data: [DONE]\n\n", True, False),
        (chunk({}, finish_reason="content_filter") + b"data: [DONE]\n\n", True, True),
        (b'data: {"error": {"message": "broken"}}\n\n', False, False),
    ],
)
def test_content_is_text_reasoning_a_call_or_a_proper_end(data: bytes, has_content: bool, is_refusal: bool) -> None:
    pipe = make_pipe()
    pipe.feed(data)
    assert (pipe.has_content, pipe.is_refusal) == (has_content, is_refusal)


def test_cut_stream_without_content_has_none_at_its_end() -> None:
    pipe = make_pipe()
    pipe.feed(chunk({"role": "assistant", "content": ""}))
    pipe.finish(UpstreamFault("cut", code="upstream_disconnected"))
    assert not pipe.has_content


def test_losses_that_no_head_reported_are_in_a_comment() -> None:
    pipe = make_pipe(loss_comment=lambda losses: b": %d losses\n\n" % len(losses))
    pipe.report_no_losses_in_head()
    assert b": 1 losses\n\n" in pipe.feed(STREAM)


def large_stream(size: int) -> bytes:
    """A stream whose last events repeat a text of this size."""
    text = {"choices": [{"index": 0, "delta": {"content": "x" * 1000}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    frames = [text] * (size // 1000) + [end]
    return b"".join(b"data: " + msgspec.json.encode(frame) + b"\n\n" for frame in frames) + b"data: [DONE]\n\n"


def all_output(pipe: Pipe, output: bytes) -> list[bytes]:
    outputs = [output]
    while pipe.has_backlog:
        outputs.append(pipe.write_backlog())
    return outputs


def test_large_answer_is_written_in_several_calls() -> None:
    size = MAX_OUTPUT_BYTES + 100_000
    pipe = make_pipe()
    outputs = all_output(pipe, pipe.feed(large_stream(size)))
    assert pipe.has_ended
    # Each of the last events is written alone.
    assert all(size - 1000 < len(output) < size + 10_000 for output in outputs[-4:])
    assert not find_violations(read(b"".join(outputs)))


def test_large_text_is_not_encoded_in_the_step_that_joins_it() -> None:
    """Each takes long, and others are served between two calls."""
    stream = large_stream(MAX_OUTPUT_BYTES + 100_000)
    pipe = make_pipe()
    end = stream.index(b'data: {"choices":[{"index":0,"delta":{},"finish_reason"')
    all_output(pipe, pipe.feed(stream[:end]))
    assert pipe.feed(stream[end:]) == b""
    assert b"response.output_text.done" in pipe.write_backlog()


def test_large_answer_of_many_items_is_written_in_several_calls() -> None:
    part = OutputText(text="x" * 1000, annotations=[], logprobs=[])
    items = [Message(id=f"m{at}", status=ItemStatus.COMPLETED, role="assistant", content=[part]) for at in range(600)]
    initial = make_initial_response(decode_request(ASKED), id="r", created_at=1)
    response = replace(initial, status="completed", output=items)
    pipe = make_pipe()
    outputs = all_output(pipe, pipe.write_events(replay_response(response)))
    assert len(outputs) > 2
    assert max(map(len, outputs)) < 2 * MAX_OUTPUT_BYTES
    assert not find_violations(read(b"".join(outputs)))


def make_pipe_with_large_settings(*, is_recorded: bool = False, **settings: object) -> tuple[Pipe, Raw]:
    """A pipe whose response repeats encoded instructions, as those of a large request are."""
    numbers = iter(range(10_000))
    instructions = Raw(b'"%b"' % (b"x" * (3 * MAX_OUTPUT_BYTES)))
    prepared = prepare_request(decode_request(ASKED), target().plan_translation())
    prepared.request = replace(prepared.request, instructions=instructions)
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1)
    recorder = cast(Recorder, object()) if is_recorded else None  # the test releases the end itself
    turn = UpstreamTurn(prepared, target(), stamps, None, recorder=recorder)
    return turn.make_pipe(responses.EventsFromHub(prepared.request), **settings), instructions  # type: ignore[arg-type]


def test_large_settings_are_written_in_pieces() -> None:
    """Every event that repeats them is the same as in one piece, and no output is large."""
    pipe, instructions = make_pipe_with_large_settings()
    outputs = all_output(pipe, pipe.feed(STREAM))
    assert max(map(len, outputs)) < 1.1 * MAX_OUTPUT_BYTES
    events = read(b"".join(outputs))
    assert [event.response.instructions for event in events if isinstance(event, ResponseEvent)] == [
        msgspec.json.decode(instructions)
    ] * 3
    assert not find_violations(events)
    assert outputs[-1].endswith(b"}\n\ndata: [DONE]\n\n")


def test_held_end_with_large_settings_is_written_in_pieces() -> None:
    def comment(losses: Losses) -> bytes:
        return b": %d losses\n\n" % len(losses)

    pipe, _ = make_pipe_with_large_settings(is_recorded=True, loss_comment=comment)
    pipe.report_no_losses_in_head()
    outputs = all_output(pipe, pipe.feed(STREAM))
    assert pipe.is_holding_end
    end = all_output(pipe, pipe.release())
    assert max(map(len, end)) < 1.1 * MAX_OUTPUT_BYTES
    assert b"".join(end).startswith(b": 1 losses\n\nevent: response.completed\n")
    assert not find_violations(read(b"".join(outputs + end)))


def test_failure_in_place_of_a_held_end_with_large_settings_is_written_in_pieces() -> None:
    pipe, _ = make_pipe_with_large_settings(is_recorded=True)
    outputs = all_output(pipe, pipe.feed(STREAM))
    outputs += all_output(pipe, pipe.fail(StorageUnavailable("full")))
    assert max(map(len, outputs)) < 1.1 * MAX_OUTPUT_BYTES
    assert read(b"".join(outputs))[-1].response.status == "failed"  # type: ignore[union-attr]


def test_events_after_a_backlog_keep_their_order() -> None:
    stream = large_stream(MAX_OUTPUT_BYTES + 100_000)
    pipe = make_pipe()
    outputs = [pipe.feed(stream[: stream.rindex(b"data: [DONE]")])]
    outputs += all_output(pipe, pipe.finish())
    assert not find_violations(read(b"".join(outputs)))


def test_abandoned_large_answer_is_recorded_whole() -> None:
    """The client left while the last events waited for it."""
    saved: list[Response] = []

    class SavingRecorder:
        has_started = False

        async def save(self, response: Response) -> StoredTurn:
            saved.append(response)
            return StoredTurn(id=response.id, input=b"", output=b"")

    prepared = prepare_request(decode_request(ASKED), target().plan_translation())
    stamps = Stamps(lambda prefix: prefix, lambda: 1)
    turn = UpstreamTurn(prepared, target(), stamps, None, recorder=SavingRecorder())
    pipe = turn.make_pipe(responses.EventsFromHub(prepared.request))
    size = 3 * MAX_OUTPUT_BYTES // 1000 * 1000
    pipe.feed(large_stream(size))
    assert pipe.has_backlog
    asyncio.run(record_abandoned_turn(cast(GatewayContext, None), turn, pipe))
    [response] = saved
    [message] = response.output
    assert (response.status, response.error and response.error.code) == ("failed", "client_disconnected")
    assert isinstance(message, Message)
    assert [len(part.text) for part in message.content if isinstance(part, OutputText)] == [size]
