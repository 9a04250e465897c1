"""`gateway/turn`: a turn without sockets, for each combination of streaming client and upstream."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace
from tests.gateway.scripted import JSON, SSE, ScriptedAnswer, ScriptedTransport, target
from tests.store.stores import open_sqlite_store

from antiphon.config import Config, TraceConfig, UpstreamConfig
from antiphon.dialects.common.refused_reasoning import RefusedPart
from antiphon.errors import ApiError, UpstreamFault
from antiphon.gateway.recording import ResponseRecorder, input_with_ids
from antiphon.gateway.routes import Routes
from antiphon.gateway.turn import UpstreamTurn, is_json, is_stream
from antiphon.gateway.turn_data import RetryRequest, prepare_request, prepare_retry
from antiphon.gateway.upstreams import Target
from antiphon.protocol import codec
from antiphon.protocol.codec import decode_request
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import find_violations
from antiphon.protocol.output_limits import OutputLimits
from antiphon.protocol.request import input_items
from antiphon.protocol.response import IncompleteDetails, Response
from antiphon.protocol.stamps import Stamps
from antiphon.store.interface import ResponseRecord
from antiphon.trace.writer import TraceWriter

T = TypeVar("T")
SEALED = "reasoning.encrypted_content"
COMPLETION = {
    "id": "x",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
WHOLE = msgspec.json.encode(COMPLETION)
STREAM = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\ndata: {"choices":[{"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\ndata: [DONE]\n\n'
)


def begin(dialect: str = "chat", **fields: Any) -> UpstreamTurn:
    request = decode_request(msgspec.json.encode({"model": "m", "input": "Hi", **fields}))
    numbers = itertools.count()
    stamps = Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1_760_000_000)
    return UpstreamTurn(prepare_request(request, target(dialect).plan_translation()), target(dialect), stamps, None)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


async def whole(turn: UpstreamTurn, answer: ScriptedAnswer) -> Response:
    return await turn.read_response(await turn.send_request(ScriptedTransport(answer)))


def raised(turn: UpstreamTurn, answer: ScriptedAnswer) -> ApiError:
    with pytest.raises(ApiError) as caught:
        run(whole(turn, answer))
    return caught.value


def test_stream_and_plain_answer_give_the_same_response() -> None:
    """STR-14: also where the upstream ignores `stream`."""
    answers = [
        run(whole(begin(), ScriptedAnswer([WHOLE[:9], WHOLE[9:]], JSON))),
        run(whole(begin(), ScriptedAnswer([STREAM[:50], STREAM[50:]], SSE))),
    ]

    async def as_events() -> Response:
        turn = begin(stream=True)
        events = await turn.read_response_as_events(
            await turn.send_request(ScriptedTransport(ScriptedAnswer([WHOLE], JSON)))
        )
        assert find_violations(events) == []
        return fold_events(events)

    answers.append(run(as_events()))
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].model == "m"


def test_upstream_is_called_once_at_its_own_path() -> None:
    transport = ScriptedTransport(ScriptedAnswer([WHOLE], JSON))
    run(begin().send_request(transport))
    (asked,) = transport.asked
    assert (asked.method, asked.url) == ("POST", "http://lab/v1/chat/completions")
    assert msgspec.json.decode(asked.body)["messages"] == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("status", "body", "expected", "code"),
    [
        (401, b'{"error":{"message":"bad key sk-123456789"}}', 502, "upstream_auth_failed"),
        (429, b'{"error":{"message":"slow"}}', 429, "rate_limit_exceeded"),
        (500, b"<html>", 502, "upstream_error"),
        (503, b"", 503, "overloaded"),
        (302, b"", 502, "upstream_invalid_response"),
        (204, b"", 502, "upstream_invalid_response"),
    ],
)
def test_error_statuses_are_mapped_to_errors(status: int, body: bytes, expected: int, code: str) -> None:
    """ERR-4: and no redirect is followed."""
    transport = ScriptedTransport(ScriptedAnswer([body], {"location": "http://elsewhere/"}, status))
    with pytest.raises(ApiError) as caught:
        run(begin().send_request(transport))
    assert (caught.value.status, caught.value.code) == (expected, code)
    assert "sk-" not in caught.value.message
    assert len(transport.asked) == 1


def test_error_with_a_truncated_body_is_mapped_by_its_status() -> None:
    error = raised(begin(), ScriptedAnswer([b"{", UpstreamFault("cut")], JSON, 429))
    assert error.status == 429


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content-type": "text/event-stream", "content-encoding": "gzip"}, "compressed"),
        ({"content-type": "application/json", "content-encoding": "BR"}, "compressed"),
        ({"content-type": "Text/HTML; charset=utf-8"}, "page"),
    ],
)
def test_unreadable_responses_are_refused_by_their_headers(headers: dict[str, str], expected: str) -> None:
    answer = ScriptedAnswer([b"\x1f\x8b"], headers)
    error = raised(begin(), answer)
    assert (error.status, error.code) == (502, "upstream_invalid_response")
    assert expected in error.message
    assert answer.aborted


def test_compressed_error_is_mapped_by_its_status() -> None:
    error = raised(begin(), ScriptedAnswer([b"\x1f\x8b"], {"content-encoding": "gzip"}, 429))
    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    assert error.message.isascii()


def test_answer_with_identity_encoding_is_read() -> None:
    assert run(whole(begin(), ScriptedAnswer([WHOLE], {**JSON, "content-encoding": "Identity"}))).status == "completed"


def test_stream_broken_after_its_finish_reason_is_complete_for_a_plain_client() -> None:
    data = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    response = run(whole(begin(), ScriptedAnswer([data, UpstreamFault("silent", code="upstream_timeout")], SSE)))
    assert response.status == "completed"
    early = raised(
        begin(),
        ScriptedAnswer([data.replace(b'"stop"', b"null"), UpstreamFault("silent", code="upstream_timeout")], SSE),
    )
    assert early.code == "upstream_timeout"


def test_endless_plain_answer_is_refused() -> None:
    answer = ScriptedAnswer([b" " * (OutputLimits().max_bytes // 2)] * 3, JSON)
    assert raised(begin(), answer).code == "upstream_invalid_response"
    assert answer.aborted


def test_plain_answer_with_too_many_items_is_refused() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for number, status in ((1000, "completed"), (1001, None)):
        calls = [{**call, "id": f"c{each}"} for each in range(number)]
        body = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
        answer = ScriptedAnswer([msgspec.json.encode(body)], JSON)
        if status is not None:
            assert run(whole(begin(), answer)).status == status
        else:
            error = raised(begin(), answer)
            assert (error.status, error.code) == (502, "upstream_invalid_response")
            assert "1001 items" in error.message


@pytest.mark.slow
def test_endless_stream_is_incomplete_for_a_plain_client() -> None:
    answer = ScriptedAnswer([b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"x" * 1024 * 1024)] * 65, SSE)
    response = run(whole(begin(), answer))
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_bytes"


def test_broken_stream_is_an_error_for_a_plain_client() -> None:
    assert raised(begin(), ScriptedAnswer([STREAM[:60]], SSE)).code == "upstream_disconnected"


def test_failed_upstream_response_is_an_error_for_a_plain_client() -> None:
    body = {
        "id": "r",
        "object": "response",
        "status": "failed",
        "output": [],
        "error": {"code": "rate_limit_exceeded", "message": "slow"},
    }
    error = raised(begin("responses"), ScriptedAnswer([msgspec.json.encode(body)], JSON))
    assert (error.status, error.code, error.message) == (429, "rate_limit_exceeded", "slow")


def test_answer_with_only_a_forbidden_call_is_incomplete() -> None:
    """TOOL-3."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    turn = begin(tools=[{"type": "function", "name": "f"}], tool_choice="none")
    response = run(whole(turn, ScriptedAnswer([msgspec.json.encode(body)], JSON)))
    assert (response.status, response.output) == ("incomplete", [])
    assert response.incomplete_details == IncompleteDetails(reason="tool_not_allowed")
    assert any("withheld" in loss.what for loss in turn.losses)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"background": True}, "unsupported_parameter", "background"),
    ],
)
def test_parameters_that_need_a_store_are_refused_without_one(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        begin(**fields)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)


def test_store_is_echoed_with_its_effective_value() -> None:
    """HTTP-2, REQ-6: nothing is stored, and a client that requested it is informed."""
    turn = begin(store=True)
    assert turn.initial_response.store is False
    assert [loss.path for loss in turn.losses] == ["store"]
    assert list(begin().losses) == []


@pytest.mark.parametrize("is_stored", [True, False])
def test_upstream_request_never_asks_to_store(is_stored: bool) -> None:
    """Regardless of the upstream's own storage: clients only get our ids."""
    request = decode_request(
        b'{"model": "m", "input": "Hi", "previous_response_id": "resp_1", "conversation": "conv_1"}'
    )
    prepared = prepare_request(request, target("responses", profile="openai").plan_translation(is_stored=is_stored))
    sent = msgspec.json.decode(prepared.body)
    assert sent["store"] is False
    assert not {"previous_response_id", "conversation"} & set(sent)
    assert sent["include"] == ["reasoning.encrypted_content"]  # RSN-2: otherwise it would not accept its own reasoning
    assert prepared.request.store is is_stored
    assert prepared.request.previous_response_id == "resp_1"
    assert not prepared.request.include


def test_abort_aborts_the_upstream_answer_at_any_time() -> None:
    turn = begin()
    turn.abort()
    answer = ScriptedAnswer([WHOLE], JSON)
    run(turn.send_request(ScriptedTransport(answer)))
    turn.abort()
    assert answer.aborted


def test_body_type_is_read_from_the_headers() -> None:
    assert is_stream(ScriptedAnswer([], {"content-type": "Text/Event-Stream; charset=utf-8"}))
    assert is_json(ScriptedAnswer([], {"content-type": "application/json"}))
    assert not is_stream(ScriptedAnswer([], {}))
    assert not is_json(ScriptedAnswer([], {}))


def test_running_turn_keeps_only_the_offered_tools_of_its_input() -> None:
    """Decoding the answer requires the offered tools, and nothing else of the request."""
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "more"}]}
    message = {"type": "message", "role": "user", "content": "Hi"}
    body = msgspec.json.encode({"model": "m", "input": [message, more, message]})
    prepared = prepare_request(decode_request(body), target().plan_translation())
    for remaining in (prepared.request, prepared.upstream_request):
        assert msgspec.json.decode(codec.encode(remaining.input)) == [more]
    assert (
        prepare_request(decode_request(b'{"model": "m", "input": "Hi"}'), target().plan_translation()).request.input
        is msgspec.UNSET
    )


def test_recorded_whole_response_has_withheld_items() -> None:
    """STR-12, RSN-2: trimmed for the client only; the next turn, and later requests, can have it."""
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    choice = {
        "message": {"role": "assistant", "content": "Hi"},
        "finish_reason": "stop",
        "logprobs": {"content": [token]},
    }
    request = decode_request(b'{"model": "m", "input": "Hi"}')
    answer = ScriptedAnswer([msgspec.json.encode({"choices": [choice]})], JSON)
    stamps = Stamps(lambda prefix: f"{prefix}_1", lambda: 1_760_000_000)

    async def within() -> tuple[Response, ResponseRecord | None]:
        async with open_sqlite_store() as store:
            recorder = ResponseRecorder(store, "alice", input_with_ids(input_items(request), stamps), stamps)
            response = await UpstreamTurn(
                prepare_request(request, target().plan_translation(is_stored=True)),
                target(),
                stamps,
                None,
                None,
                recorder,
            ).read_response(answer)
            return response, await store.get("alice", response.id)

    response, record = run(within())
    assert record is not None
    assert b'"logprob":-0.5' not in codec.encode(response.output)
    assert b'"logprob":-0.5' in record.output


@pytest.mark.parametrize(("key", "expected"), [("open sesame", "you sent [key]"), ("open", "you sent open")])
def test_key_echoed_by_a_server_is_masked(key: str, expected: str) -> None:
    """ERR-5: by its value, not by the usual form of keys; a very short key may be any word."""
    config = UpstreamConfig(name="lab", dialect="chat", base_url="http://lab/v1", api_key_env="KEY", models=["*"])
    place = Routes(Config(upstreams=[config]), {"KEY": key}, {}).find("m")
    stamps = Stamps(lambda prefix: f"{prefix}_1", lambda: 1)
    turn = UpstreamTurn(
        prepare_request(decode_request(b'{"model": "m", "input": "Hi"}'), place.plan_translation()), place, stamps, None
    )
    error_body = msgspec.json.encode({"error": {"message": f"you sent {key}"}})
    with pytest.raises(ApiError) as caught:
        run(turn.send_request(ScriptedTransport(ScriptedAnswer([error_body], JSON, 400))))
    assert caught.value.message == expected


# Refused reasoning


OWN = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
REFUSED = (
    b'{"error":{"message":"The encrypted content gAAA could not be verified.","code":"invalid_encrypted_content"}}'
)
RESPONSE = b'{"id":"r","object":"response","status":"completed","output":[]}'
HISTORY = [
    {"role": "user", "content": "Hi"},
    OWN,
    {"role": "assistant", "content": "so"},
    {"role": "user", "content": "And?"},
]


@pytest.mark.parametrize("stream", [False, True])
def test_refused_reasoning_is_dropped_and_the_request_retried(stream: bool) -> None:
    """RSN-3: with a loss, and the callback is called."""
    codes: list[str] = []
    turn = begin("responses", input=HISTORY, stream=stream)
    turn.on_retry = lambda error: codes.append(error.code)
    transport = ScriptedTransport(ScriptedAnswer([REFUSED], JSON, 400), ScriptedAnswer([RESPONSE], JSON))
    run(turn.send_request(transport))
    first, second = [msgspec.json.decode(asked.body)["input"] for asked in transport.asked]
    assert [item for item in first if item.get("type") != "reasoning"] == second
    assert len(first) == len(second) + 1
    assert [loss.path for loss in turn.losses] == ["input"]
    assert codes == ["invalid_encrypted_content"]
    assert turn.prepared.retry_source is None  # an answer may take long, and keeps no history


def test_turn_prepared_in_another_process_is_retried_there() -> None:
    """RSN-3."""
    turn = begin("responses", input=HISTORY)
    retry_source, turn.prepared.retry_source = turn.prepared.retry_source, None
    assert retry_source is not None

    async def retry(refused_parts: Sequence[RefusedPart]) -> RetryRequest | None:
        return prepare_retry(retry_source, turn.prepared.plan, refused_parts)

    turn.prepare_retry = retry
    transport = ScriptedTransport(ScriptedAnswer([REFUSED], JSON, 400), ScriptedAnswer([RESPONSE], JSON))
    run(turn.send_request(transport))
    first, second = [msgspec.json.decode(asked.body)["input"] for asked in transport.asked]
    assert [item for item in first if item.get("type") != "reasoning"] == second
    assert [loss.path for loss in turn.losses] == ["input"]
    assert turn.prepare_retry is None  # it holds the client's body


def test_refusal_is_raised_if_another_process_prepares_no_retry() -> None:
    """RSN-3."""
    turn = begin("responses", input=HISTORY)
    turn.prepared.retry_source = None
    asked_parts: list[RefusedPart] = []

    async def no_retry(refused_parts: Sequence[RefusedPart]) -> RetryRequest | None:
        asked_parts.extend(refused_parts)
        return None

    turn.prepare_retry = no_retry
    transport = ScriptedTransport(ScriptedAnswer([REFUSED], JSON, 400))
    with pytest.raises(ApiError, match="could not be verified"):
        run(turn.send_request(transport))
    assert asked_parts == ["reasoning"]
    assert len(transport.asked) == 1


def test_refusal_is_raised_if_no_retry_can_be_prepared() -> None:
    """RSN-3."""
    turn = begin("responses", input=HISTORY)
    turn.prepared.retry_source = None
    with pytest.raises(ApiError, match="could not be verified"):
        run(turn.send_request(ScriptedTransport(ScriptedAnswer([REFUSED], JSON, 400))))


def test_trace_records_a_refusal_of_reasoning(tmp_path: Path) -> None:
    """RSN-3: the trace shows why the server was called twice."""
    traces = TraceWriter(TraceConfig(dir=str(tmp_path)))
    request = decode_request(msgspec.json.encode({"model": "m", "input": HISTORY}))
    trace = traces.start_trace("req_1")
    trace.record_client_request("POST", "/v1/responses", [], b"{}")
    turn = UpstreamTurn(
        prepare_request(request, target("responses").plan_translation()),
        target("responses"),
        Stamps(lambda prefix: f"{prefix}_1", lambda: 1),
        None,
        trace,
    )
    run(turn.send_request(ScriptedTransport(ScriptedAnswer([REFUSED], JSON, 400), ScriptedAnswer([RESPONSE], JSON))))
    trace.finish()
    traces.close()
    assert b"invalid_encrypted_content: The encrypted content" in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*.*")
    )


def test_refused_reasoning_is_retried_only_once() -> None:
    """RSN-3."""
    transport = ScriptedTransport(*(ScriptedAnswer([REFUSED], JSON, 400) for _ in range(3)))
    with pytest.raises(ApiError, match="could not be verified"):
        run(begin("responses", input=HISTORY).send_request(transport))
    assert len(transport.asked) == 2


@pytest.mark.parametrize(
    ("fields", "body", "status"),
    [
        ({"input": HISTORY}, b'{"error":{"message":"no such setting"}}', 400),
        ({"input": HISTORY}, REFUSED, 500),
        ({"input": "Hi"}, REFUSED, 400),
        ({"input": [HISTORY[0], HISTORY[2], HISTORY[3]]}, REFUSED, 400),
        # None of it was sent: another server made it.
        (
            {"input": [HISTORY[0], {**OWN, "encrypted_content": "antiphon.reasoning.other.e30="}, *HISTORY[2:]]},
            REFUSED,
            400,
        ),
    ],
)
def test_other_refusals_are_not_retried(fields: dict[str, Any], body: bytes, status: int) -> None:
    """RSN-3."""
    transport = ScriptedTransport(ScriptedAnswer([body], JSON, status))
    with pytest.raises(ApiError):
        run(begin("responses", **fields).send_request(transport))
    assert len(transport.asked) == 1


def test_refused_reasoning_is_not_retried_in_strict_mode() -> None:
    """RSN-3, REQ-6."""
    turn = begin("responses", input=HISTORY)
    turn.allows_lossy_retry = False
    transport = ScriptedTransport(ScriptedAnswer([REFUSED], JSON, 400))
    with pytest.raises(ApiError):
        run(turn.send_request(transport))
    assert len(transport.asked) == 1


# Refused encrypted reasoning


PLAIN = b'{"error":{"message":"Encrypted content is not supported with this model.","param":"include"}}'


def begin_at(place: Target, **fields: Any) -> UpstreamTurn:
    request = decode_request(msgspec.json.encode({"model": "m", "input": "Hi", **fields}))
    return UpstreamTurn(
        prepare_request(request, place.plan_translation()), place, Stamps(lambda prefix: f"{prefix}_1", lambda: 1), None
    )


def includes(transport: ScriptedTransport) -> list[Any]:
    return [msgspec.json.decode(asked.body).get("include") for asked in transport.asked]


@pytest.mark.parametrize("allows_lossy_retry", [True, False])
def test_refused_encrypted_reasoning_is_omitted_and_remembered(allows_lossy_retry: bool) -> None:
    """RSN-3: for that upstream and model. Nothing is lost by it, so it is left out in strict mode too."""
    place = target("responses", profile="azure")
    transport = ScriptedTransport(
        ScriptedAnswer([PLAIN], JSON, 400), *(ScriptedAnswer([RESPONSE], JSON) for _ in range(3))
    )
    turn = begin_at(place)
    turn.allows_lossy_retry = allows_lossy_retry
    run(turn.send_request(transport))
    assert list(turn.losses) == []
    run(begin_at(place).send_request(transport))
    run(begin_at(replace(place, model="other")).send_request(transport))
    assert includes(transport) == [[SEALED], None, None, [SEALED]]


def test_refused_encrypted_reasoning_is_a_loss_if_requested() -> None:
    """REQ-6."""
    place = target("responses", profile="azure")
    turn = begin_at(place, include=[SEALED])
    run(turn.send_request(ScriptedTransport(ScriptedAnswer([PLAIN], JSON, 400), ScriptedAnswer([RESPONSE], JSON))))
    assert [loss.path for loss in turn.losses] == ["include[0]"]
    assert [loss.path for loss in begin_at(place, include=[SEALED]).losses] == ["include[0]"]


def test_requested_encrypted_reasoning_is_not_omitted_in_strict_mode() -> None:
    """REQ-6."""
    turn = begin_at(target("responses", profile="azure"), include=[SEALED])
    turn.allows_lossy_retry = False
    transport = ScriptedTransport(ScriptedAnswer([PLAIN], JSON, 400))
    with pytest.raises(ApiError, match="Encrypted content is not supported"):
        run(turn.send_request(transport))
    assert len(transport.asked) == 1


def test_refusal_is_remembered_only_if_the_retry_succeeded() -> None:
    place = target("responses", profile="azure")
    busy = ScriptedAnswer([b'{"error":{"message":"busy"}}'], JSON, 529)
    transport = ScriptedTransport(ScriptedAnswer([PLAIN], JSON, 400), busy, ScriptedAnswer([RESPONSE], JSON))
    with pytest.raises(ApiError, match="busy"):
        run(begin_at(place).send_request(transport))
    run(begin_at(place).send_request(transport))
    assert includes(transport) == [[SEALED], None, [SEALED]]


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_refusal_of_a_part_that_was_not_sent_is_not_retried(dialect: str) -> None:
    transport = ScriptedTransport(ScriptedAnswer([PLAIN], JSON, 400))
    with pytest.raises(ApiError, match="Encrypted content is not supported"):
        run(begin(dialect, input=HISTORY).send_request(transport))
    assert len(transport.asked) == 1


def test_whole_answer_can_be_rejected_before_it_is_stored() -> None:
    turn = begin()

    def reject(response: Response) -> None:
        raise UpstreamFault(f"{len(response.output)} items")

    turn.check_response = reject
    assert raised(turn, ScriptedAnswer([WHOLE], JSON)).message == "1 items"
