"""`POST /v1/responses` over sockets: a running gateway before a strict, scripted chat server."""

from __future__ import annotations

import threading
from typing import Any, Final

import httpx2
import msgspec
import pytest
from msgspec.structs import replace
from tests.generate.schema import Schema, published
from tests.running import BOUND, Running, one_upstream, read_all, running, until

from antiphon import sse, testing
from antiphon.config import KeyConfig, ServerConfig, Timeouts
from antiphon.dialects.responses.stream_out import SelectableEventStyle
from antiphon.errors import UpstreamFault
from antiphon.gateway import pipe
from antiphon.protocol.codec import decode_event, decode_response
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.fold import fold_events
from antiphon.protocol.grammar import Grammar, find_violations
from antiphon.testing import ChatServer, Gate, ResponsesServer, turn
from antiphon.testing.script import ScriptedTurn
from antiphon.upstream.http import HttpTransport

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
ASKED = {"model": "mock-1", "input": "Say hello."}
STREAMED = {**ASKED, "stream": True}


def events_of(answer: httpx2.Response) -> list[StreamEvent]:
    assert answer.status_code == 200, answer.text
    return [decode_event(frame.data) for frame in sse.Decoder().feed(answer.content) if frame.data != sse.DONE]


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    """ERR-1: every answer with another status than 2xx has this shape."""
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert answer.headers["x-request-id"].startswith("req_")
    return dict(error)


# Answers


def test_plain_answer_is_the_whole_response() -> None:
    """HTTP-2: all required fields, the request's settings with their effective values."""
    asked = {**ASKED, "temperature": 0.5, "metadata": {"a": "b"}, "max_output_tokens": 100}
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(asked)
        assert not upstream.refusals
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) >= set(published()["ResponseResource"]["required"])
    assert (body["temperature"], body["metadata"], body["max_output_tokens"]) == (0.5, {"a": "b"}, 100)
    assert (body["status"], body["model"], body["store"]) == ("completed", "mock-1", False)
    assert body["output"][0]["content"][0]["text"] == "Hello."
    assert body["usage"]["input_tokens"] == 5


def test_stream_has_the_form_of_the_specification() -> None:
    """HTTP-3, HTTP-4, HTTP-5."""
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(STREAMED)
        assert not upstream.refusals
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    for block in blocks[:-2]:
        name, data = block.split("\n")
        assert name == "event: " + msgspec.json.decode(data.removeprefix("data: "))["type"]
    assert "\nid:" not in answer.text
    assert find_violations(events_of(answer)) == []


def test_stream_and_plain_answer_give_the_same_response() -> None:
    """STR-14: times and ids aside."""
    calls = testing.interleaved(testing.tool_call("c1", "f", '{"a":', "1}"), testing.tool_call("c2", "g", "{}"))
    reply = turn(testing.reasoning("Well", "…"), testing.text("Hi"), calls, testing.usage(7, 9, reasoning=3))
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in "fg"]
    with ChatServer([reply, reply]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        streamed = fold_events(events_of(gateway.post({**STREAMED, "tools": tools})))
        plain = decode_response(gateway.post({**ASKED, "tools": tools}).content)
    assert [_bare(item) for item in streamed.output] == [_bare(item) for item in plain.output]
    assert len(plain.output) == 4
    assert (streamed.usage, streamed.status, streamed.tools) == (plain.usage, plain.status, plain.tools)


def _bare(item: object) -> Any:
    members = msgspec.json.decode(msgspec.json.encode(item))
    members.pop("id")
    return members


def test_events_are_flushed_one_by_one() -> None:
    """HTTP-7: events arrive while the upstream is still silent about the rest."""
    gate = Gate()
    reply = turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))
    with ChatServer([reply]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        with (
            httpx2.Client(timeout=60) as client,
            client.stream("POST", gateway.url + "/v1/responses", json=STREAMED) as answer,
        ):
            seen = b""
            pieces = answer.iter_raw()
            while b'"delta":"Hel"' not in seen:
                seen += next(pieces)
            gate.open()
            rest = b"".join(pieces)
    assert b'"text":"Hello."' in rest


@pytest.mark.parametrize("asked", [ASKED, STREAMED])
@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (testing.error(429, headers={"retry-after": "7"}), 429, "rate_limit_exceeded"),
        (testing.error(500), 502, "upstream_error"),
        (testing.error(503), 503, "overloaded"),
        (testing.error(529), 503, "overloaded"),
        (testing.error(401, "bad key sk-live-123456"), 502, "upstream_auth_failed"),
        (testing.error(403, "no"), 502, "upstream_auth_failed"),
        (testing.error(400, "maximum context length is 10 tokens"), 400, "context_length_exceeded"),
        (testing.error(404, "no such model", code="model_not_found"), 404, "model_not_found"),
        (testing.exactly(testing.SSE_HEAD, b"data: not json\n\n"), 502, "upstream_invalid_response"),
        (
            testing.exactly(testing.SSE_HEAD, b'data: {"error":{"message":"slow down","code":429}}\n\n'),
            429,
            "rate_limit_exceeded",
        ),
        (
            testing.exactly(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
            502,
            "upstream_invalid_response",
        ),
        (testing.exactly(b"garbage\r\n\r\n"), 502, "upstream_invalid_response"),
        (testing.exactly(testing.end("rst")), 502, "upstream_disconnected"),
    ],
)
def test_failure_before_the_first_event_has_its_error_status(asked: Any, reply: Any, status: int, code: str) -> None:
    """HTTP-7, ERR-2, ERR-4: streaming or not, since the 200 waits for the first valid event."""
    with ChatServer(lambda _: reply) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(asked)
        (line,) = gateway.requests(1)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (status, code)
    assert "sk-live" not in answer.text
    assert line["error"] == code
    if status == 429:
        wanted = "7" if "retry-after" in getattr(reply, "headers", {}) else "1"
        assert answer.headers["retry-after"] == wanted


@pytest.mark.parametrize("asked", [ASKED, STREAMED])
def test_unreachable_upstream_is_502(asked: Any) -> None:
    """Upstream: refused."""
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway:
        answer = gateway.post(asked)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_unavailable")
    assert "127.0.0.1" not in answer.text


def test_silent_upstream_is_504() -> None:
    """Upstream: never sends anything."""
    limits = Timeouts(first_byte=0.2)
    with ChatServer(lambda _: testing.exactly(testing.end("hang"))) as upstream:
        with running(one_upstream(upstream.base_url, timeouts=limits)) as gateway:
            for asked in (ASKED, STREAMED):
                answer = gateway.post(asked)
                assert (answer.status_code, error_of(answer)["code"]) == (504, "upstream_timeout")


@pytest.mark.parametrize("how", ["fin", "mid-chunk", "rst", "hang"])
def test_broken_upstream_stream_ends_with_a_failed_event(how: Any) -> None:
    """STR-8: `error`, then `response.failed`, then `[DONE]`."""
    reply = turn(testing.text("Hel"), testing.end(how))
    with (
        ChatServer([reply]) as upstream,
        running(one_upstream(upstream.base_url, timeouts=Timeouts(idle=0.3))) as gateway,
    ):
        answer = gateway.post(STREAMED)
        (line,) = gateway.requests(1)
    events = events_of(answer)
    assert find_violations(events) == []
    response = fold_events(events)
    wanted = "upstream_timeout" if how == "hang" else "upstream_disconnected"
    assert response.error is not None
    assert (response.status, response.error.code) == ("failed", wanted)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert line["error"] == wanted


def test_stream_starts_after_the_first_byte_timeout() -> None:
    """HTTP-7: then comments fill the silence, and a failure is an event in the stream."""
    gates = Gate(), Gate()
    script = [
        turn(testing.wait(gates[0]), testing.text("Late.")),
        turn(testing.wait(gates[1]), testing.raw(b"data: nonsense\n\n"), testing.end("fin")),
    ]
    with ChatServer(script) as upstream:
        with running(one_upstream(upstream.base_url), first_byte_timeout=0.05, keepalive_interval=0.05) as gateway:
            answers = []
            for gate in gates:
                with (
                    httpx2.Client(timeout=60) as client,
                    client.stream("POST", gateway.url + "/v1/responses", json=STREAMED) as answer,
                ):
                    pieces = answer.iter_raw()
                    seen = next(pieces) + next(pieces)
                    assert seen.startswith(b": ")
                    assert b"data" not in seen
                    gate.open()
                    answers.append(seen + b"".join(pieces))
    late, broken = ([decode_event(frame.data) for frame in sse.Decoder().feed(answer)[:-1]] for answer in answers)
    assert find_violations(late) == find_violations(broken) == []
    assert (fold_events(late).status, fold_events(broken).status) == ("completed", "failed")


def test_upstream_answer_in_the_other_form_is_accepted() -> None:
    script = [turn(testing.text("Hello."), stream=True), turn(testing.text("Hello."), stream=False)]
    with ChatServer(script) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        plain = decode_response(gateway.post(ASKED).content)
        streamed = fold_events(events_of(gateway.post(STREAMED)))
    assert plain.output[0].content == streamed.output[0].content  # type: ignore[union-attr]


def test_upstream_connection_is_reused() -> None:
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        network = gateway.services.transport
        assert isinstance(network, HttpTransport)
        for asked in (ASKED, STREAMED, ASKED, STREAMED):
            assert gateway.post(asked).status_code == 200
            until(lambda: network.connections_in_use == 0)  # a stream releases it a moment after its answer is sent
        assert upstream.open_connections == 1


def test_responses_upstream_answers_plain_and_streamed() -> None:
    with ResponsesServer() as upstream, running(one_upstream(upstream.base_url, dialect="responses")) as gateway:
        assert find_violations(events_of(gateway.post(STREAMED))) == []
        assert gateway.post(ASKED).json()["status"] == "completed"
        assert not upstream.refusals


# Losses, styles, logs


def test_losses_are_reported_in_a_header_and_on_request_in_an_event() -> None:
    """F-4, REQ-6."""
    tools = [{"type": "web_search"}, {"type": "function", "name": "f"}]
    with ChatServer([HELLO, HELLO, HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        plain = gateway.post({**ASKED, "tools": tools})
        streamed = gateway.post({**STREAMED, "tools": tools})
        response = gateway.post({**STREAMED, "tools": tools}, antiphon_extensions="losses")
        lines = gateway.requests(3)
    assert plain.headers["antiphon-losses"] == streamed.headers["antiphon-losses"] == "1; tools[0]"
    assert "antiphon:losses" not in streamed.text
    events = events_of(response)
    assert find_violations(events) == []
    assert b"web_search" in msgspec.json.encode(events[-2])
    assert [line["losses"] for line in lines] == [1, 1, 1]


@pytest.mark.parametrize(
    ("path", "asked", "end"),
    [
        ("/v1/responses", {**STREAMED, "tool_choice": "none"}, b"event: response.completed"),
        (
            "/v1/messages",
            {
                **{"model": "mock-1", "stream": True, "max_tokens": 9, "tool_choice": {"type": "none"}},
                "messages": [{"role": "user", "content": "Hi"}],
            },
            b"event: message_stop",
        ),
        (
            "/v1/chat/completions",
            {
                **{"model": "mock-1", "stream": True, "tool_choice": "none", "stream_options": {"include_usage": True}},
                "messages": [{"role": "user", "content": "Hi"}],
            },
            b"data: [DONE]",
        ),
        (
            "/v1beta/models/mock-1:streamGenerateContent?alt=sse",
            {"contents": [{"parts": [{"text": "Hi"}]}], "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
            None,
        ),
    ],
)
def test_losses_after_the_head_of_a_stream_are_in_a_comment_and_in_the_log(
    path: str, asked: dict[str, Any], end: bytes | None
) -> None:
    """F-4: clients of the Gemini API read comments as data, so they get none."""
    gate = Gate()
    reply = turn(testing.text("Hel"), testing.wait(gate), testing.tool_call("c", "f", "{}"))
    with ChatServer([reply]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        with (
            httpx2.Client(timeout=60) as client,
            client.stream("POST", gateway.url + path, json=asked) as answer,
        ):
            pieces = answer.iter_raw()
            seen = next(pieces)
            while b"Hel" not in seen:
                seen += next(pieces)
            gate.open()
            seen += b"".join(pieces)
            assert "antiphon-losses" not in answer.headers
        (line,) = gateway.requests(1)
    assert line["losses"] == 1
    comments = [row for row in seen.split(b"\n") if row.startswith(b": antiphon-losses: 1; ")]
    assert len(comments) == (end is not None)
    if end is not None:
        assert comments[0] + b"\n\n" + end in seen
        frames_after = sse.Decoder().feed(seen.partition(comments[0])[2])
        assert len([frame for frame in frames_after if frame.event or end.endswith(frame.data)]) == 1


def style_in(stream: str) -> str:
    """The style in which a stream with reasoning and an error is written."""
    (name,) = (name for name in ("reasoning", "reasoning_text") if f"event: response.{name}.delta" in stream)
    errors = [
        msgspec.json.decode(frame.data) for frame in sse.Decoder().feed(stream.encode()) if frame.event == "error"
    ]
    parts = (name, "error" in errors[0], stream.endswith("data: [DONE]\n\n"))
    return {
        ("reasoning_text", True, True): "default",
        ("reasoning", True, True): "standard",
        ("reasoning_text", False, False): "older",
    }[parts]


FAILS: Final = turn(testing.reasoning("Hm."), testing.text("Hel"), testing.end("fin"))
PLAIN, OLDER = "sk-plain-0123456789", "sk-older-0123456789"


@pytest.mark.parametrize(("server", "unchosen"), [(None, "default"), ("standard", "standard")])
def test_style_is_chosen_by_header_key_and_server(server: SelectableEventStyle | None, unchosen: str) -> None:
    """API-6: twice each, so that a repeated request on one connection is covered too."""
    keys = [KeyConfig(name="alice", env="PLAIN"), KeyConfig(name="alice", env="OLDER", style="older")]
    with ChatServer(lambda _: FAILS) as upstream:
        config = replace(one_upstream(upstream.base_url), keys=keys, server=ServerConfig(style=server))
        with (
            running(config, environ={"PLAIN": PLAIN, "OLDER": OLDER}) as gateway,
            httpx2.Client(timeout=BOUND) as client,
        ):

            def styles(key: str, **headers: str) -> list[str]:
                named = {name.replace("_", "-"): value for name, value in headers.items()} | {
                    "authorization": f"Bearer {key}"
                }
                return [
                    style_in(client.post(f"{gateway.url}/v1/responses", json=STREAMED, headers=named).text)
                    for _ in range(2)
                ]

            assert styles(PLAIN) == styles(PLAIN, user_agent="OpenAI/Python 3.49.0") == [unchosen] * 2
            assert styles(OLDER) == ["older"] * 2
            assert (
                styles(OLDER, antiphon_style="standard") == styles(PLAIN, antiphon_style="standard") == ["standard"] * 2
            )
            assert styles(PLAIN, antiphon_style="older") == ["older"] * 2
            wrong = gateway.post(STREAMED, authorization=f"Bearer {PLAIN}", antiphon_style="newest")
    assert (wrong.status_code, error_of(wrong)["param"]) == (400, "antiphon-style")


def published_events() -> dict[str, Schema]:
    """The specification's events by their type."""
    schemas = [schema for name, schema in published().items() if name.endswith("StreamingEvent")]
    return {schema["properties"]["type"]["enum"][0]: schema for schema in schemas}


@pytest.mark.parametrize(
    ("reply", "style"),
    [
        (turn(testing.text("Hi"), testing.tool_call("c1", "f", "{}")), None),
        (turn(testing.text("Hel"), testing.end("fin")), None),
        (turn(testing.reasoning("Hm."), testing.text("Hi")), "standard"),
        (FAILS, "standard"),
    ],
)
def test_stream_has_only_events_of_the_specification(reply: ScriptedTurn, style: str | None) -> None:
    """STR-8, STR-10, API-6: by default unless a model streams its reasoning, and then in the style `standard`. The
    official compliance suite refuses every other event, and sends no header that chooses a style."""
    asked = {**STREAMED, "tools": [{"type": "function", "name": "f"}]}
    with ChatServer([reply]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(asked, **({"antiphon_style": style} if style else {}))
    events = [msgspec.json.decode(frame.data) for frame in sse.Decoder().feed(answer.content) if frame.data != sse.DONE]
    schemas = published_events()
    for event in events:
        assert set(event) >= set(schemas[event["type"]]["required"])


def test_log_has_one_line_per_request_without_prompt_and_key() -> None:
    """HTTP-8."""
    config = one_upstream("", api_key_env="LAB_KEY")
    with ChatServer([HELLO], key="sk-lab-0123456789") as upstream:
        upstreams = [msgspec.structs.replace(config.upstreams[0], base_url=upstream.base_url)]
        config = msgspec.structs.replace(config, upstreams=upstreams)
        with running(config, environ={"LAB_KEY": "sk-lab-0123456789"}) as gateway:
            answer = gateway.post({**STREAMED, "input": "the secret prompt"}, authorization="Bearer sk-client-123456")
            (line,) = gateway.requests(1)
            written = str(gateway.log)
    assert answer.status_code == 200
    assert line["request_id"] == answer.headers["x-request-id"]
    assert (line["status"], line["model"], line["upstream"], line["input_tokens"]) == (200, "mock-1", "lab", 5)
    assert line["response_id"] == fold_events(events_of(answer)).id
    for secret in ("secret prompt", "sk-lab", "sk-client", "Hello."):
        assert secret not in written


def test_stream_in_one_piece_has_a_first_event_time() -> None:
    data = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    with ChatServer([testing.exactly(testing.SSE_HEAD + data, testing.end("fin"))]) as upstream:
        with running(one_upstream(upstream.base_url)) as gateway:
            assert fold_events(events_of(gateway.post(STREAMED))).status == "completed"
            [line] = gateway.requests(1)
    assert 0 < line["first_event_ms"] <= line["duration_ms"]


def event_stream(events: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)


THING: dict[str, Any] = {"type": "thing", "id": "t_1", "status": "completed"}
UNKNOWN_ITEM: list[dict[str, Any]] = [
    {"type": "response.output_item.added", "output_index": 0, "item": THING},
    {"type": "response.output_item.done", "output_index": 0, "item": THING},
    {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [THING]}},
]


@pytest.mark.parametrize("is_strict", [False, True])
def test_debug_mode_checks_our_output_against_the_grammar(monkeypatch: pytest.MonkeyPatch, is_strict: bool) -> None:
    """`serve --debug`: a violation of the grammar is logged. Types that a server invents pass unchanged (ITEM-5); they
    are a violation only for a grammar that judges them."""
    if is_strict:
        monkeypatch.setattr(pipe, "Grammar", lambda **_: Grammar())
    reply = testing.exactly(testing.SSE_HEAD, event_stream(UNKNOWN_ITEM), testing.end("fin"))
    with ResponsesServer(lambda _: reply) as upstream:
        with running(one_upstream(upstream.base_url, dialect="responses"), condoned={"ITEM-5", "STR-2"}) as gateway:
            answer = gateway.post(STREAMED)
            gateway.requests(1)
            violations = [line for line in gateway.log if line["event"] == "grammar_violation"]
    assert b'"type":"thing"' in answer.content
    assert {line["row"] for line in violations} == ({"ITEM-5", "STR-2"} if is_strict else set())
    assert all(line["request_id"] == answer.headers["x-request-id"] for line in violations)


# Clients that disconnect or do not read


@pytest.mark.parametrize("asked", [ASKED, STREAMED])
def test_disconnect_before_the_first_byte_cancels_the_upstream(asked: Any) -> None:
    """Client: disconnects before the first byte."""
    gate = Gate()
    with ChatServer(lambda _: turn(testing.wait(gate), testing.text("Never."))) as upstream:
        with running(one_upstream(upstream.base_url)) as gateway:
            leave_after(gateway, asked, b"", lambda: upstream.wait_received(1))
            upstream.wait_disconnected(1)
            (line,) = gateway.requests(1)
            assert line["client_left"]
            gate.open()
            assert gateway.post(asked).status_code == 200


def test_disconnect_during_the_stream_cancels_the_upstream() -> None:
    """Client: disconnects in the middle, and during arguments."""
    tools = [{"type": "function", "name": "f"}]
    gate = Gate()
    for element in (testing.text("Hel"), testing.tool_call("c", "f", '{"a":')):
        with ChatServer([turn(element, testing.wait(gate), testing.text("never"))]) as upstream:
            with running(one_upstream(upstream.base_url)) as gateway:
                leave_after(gateway, {**STREAMED, "tools": tools}, b".delta")
                upstream.wait_disconnected(1)
                (line,) = gateway.requests(1)
                assert line["client_left"]
                assert gateway.services.transport.open_connections == 0  # type: ignore[attr-defined]


def leave_after(gateway: Running, asked: Any, seen: bytes, reached: Any = None) -> None:
    """Sends a request and disconnects once these bytes arrived, or once `reached` returns."""
    body = msgspec.json.encode(asked)
    head = (
        b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % len(body)
    )
    with gateway.connect() as connection:
        connection.sendall(head + body)
        if reached is not None:
            reached()
        data = b""
        while seen not in data:
            data += connection.recv(65536)


def test_disconnect_during_the_request_body_makes_no_upstream_call() -> None:
    with ChatServer() as upstream, running(one_upstream(upstream.base_url)) as gateway:
        with gateway.connect() as connection:
            connection.sendall(
                b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
            )
        (line,) = gateway.requests(1)
        assert line["client_left"]
        assert upstream.received == []
        assert gateway.post(ASKED).status_code == 200


def test_slow_client_pauses_reading_from_the_upstream() -> None:
    """Client: at most 256 KiB are buffered in user space, so the upstream cannot have sent everything."""
    big = "x" * 65536
    reply = turn(*[testing.text(big)] * 300)
    with ChatServer([reply, *[HELLO] * 5]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        body = msgspec.json.encode(STREAMED)
        head = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += b"connection: close\r\ncontent-length: %d\r\n\r\n"
        with gateway.connect() as connection:
            connection.sendall(head % len(body) + body)
            upstream.wait_received(1)
            for _ in range(5):
                assert gateway.post(ASKED).status_code == 200  # other clients are unaffected
            until(lambda: upstream.in_flight == 1)
            data = read_all(connection)
        assert data.count(big.encode()) >= 300


# Internal errors


class Broken:
    """A transport with a bug."""

    async def send(self, *_: Any) -> Any:
        raise ZeroDivisionError("division by sk-secret-123456")

    async def close(self) -> None:
        pass


def test_internal_error_is_a_500_without_details_and_is_logged() -> None:
    """ERR-5, HTTP-8."""
    lines: list[dict[str, Any]] = []
    with running(one_upstream("http://127.0.0.1:1/v1"), transport=Broken(), has_a_fault=True) as gateway:
        answer = gateway.post(ASKED)
        gateway.requests(1)
        lines = gateway.log
    assert (answer.status_code, error_of(answer)["code"]) == (500, "internal_error")
    assert "Zero" not in answer.text
    fault_line = next(line for line in lines if "exception" in line)
    assert fault_line["request_id"] == answer.headers["x-request-id"]
    assert "ZeroDivisionError" in fault_line["exception"]
    assert "sk-secret" not in str(lines)


class BrokenAnswer:
    """An answer that raises in its middle."""

    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    async def pieces(self) -> Any:
        yield b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
        raise ZeroDivisionError

    def abort(self) -> None:
        pass


class BreaksLater(Broken):
    async def send(self, *_: Any) -> Any:
        return BrokenAnswer()


def test_internal_error_during_a_stream_ends_it_with_a_failed_event() -> None:
    """STR-7."""
    with running(one_upstream("http://127.0.0.1:1/v1"), transport=BreaksLater(), has_a_fault=True) as gateway:
        answer = gateway.post(STREAMED)
    events = events_of(answer)
    assert find_violations(events) == []
    response = fold_events(events)
    assert response.error is not None
    assert (response.status, response.error.code) == ("failed", "internal_error")


def test_answer_does_not_wait_for_the_end_of_the_upstream_body() -> None:
    gate = Gate()
    data = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    with ChatServer([testing.exactly(testing.SSE_HEAD, data, testing.wait(gate))]) as upstream:
        with running(one_upstream(upstream.base_url)) as gateway:
            assert fold_events(events_of(gateway.post(STREAMED))).status == "completed"
            upstream.wait_disconnected(1)
            until(lambda: gateway.services.transport.open_connections == 0)  # type: ignore[attr-defined]


def test_transport_fault_is_reported_with_its_code() -> None:
    class Failing(Broken):
        async def send(self, *_: Any) -> Any:
            raise UpstreamFault("the upstream cannot be reached", code="upstream_unavailable")

    with running(one_upstream("http://127.0.0.1:1/v1"), transport=Failing()) as gateway:
        assert error_of(gateway.post(ASKED))["code"] == "upstream_unavailable"


def test_shutdown_ends_running_answers_with_an_error() -> None:
    """Invariant 1: when the grace period for running answers ends, they fail with a terminal event."""
    gates = Gate(), Gate()
    reply = [
        turn(testing.text("Hel"), testing.wait(gates[0]), testing.text("lo.")),
        turn(testing.wait(gates[1]), testing.text("Hello.")),
    ]
    answers: list[httpx2.Response] = []
    started = threading.Event()

    def stream(url: str) -> None:
        with httpx2.Client(timeout=60) as client, client.stream("POST", url + "/v1/responses", json=STREAMED) as answer:
            started.set()  # the response head is sent
            answer.read()
            answers.append(answer)

    with ChatServer(reply) as upstream:
        config = one_upstream(upstream.base_url)
        config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, grace=0.2))
        with running(config) as gateway:
            clients = [threading.Thread(target=stream, args=(gateway.url,))]
            clients += [threading.Thread(target=lambda: answers.append(gateway.post(ASKED)))]
            for client, gate in zip(clients, gates, strict=True):
                client.start()
                gate.wait_reached()
            started.wait(60)
        for client in clients:
            client.join(60)
    streamed, plain = sorted(answers, key=lambda answer: answer.status_code)
    response = fold_events(events_of(streamed))
    assert find_violations(events_of(streamed)) == []
    assert response.error is not None
    assert (response.status, response.error.code) == ("failed", "server_shutdown")
    assert (plain.status_code, error_of(plain)["code"]) == (503, "server_shutdown")
