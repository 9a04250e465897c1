"""What an attempt that failed leaves behind: nothing in the answer, and its record in the log, the trace, the metrics,
the usage and the span, all under the id of the request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.faults.routing_lab import CLIENTS, request_of
from tests.ops.test_telemetry import Collected
from tests.running import Running, running, until
from tests.websocket_client import open_websocket

from antiphon import sse, testing
from antiphon.config import (
    Config,
    HealthConfig,
    ModelConfig,
    RetryConfig,
    StoreConfig,
    TargetConfig,
    TraceConfig,
    UpstreamConfig,
)
from antiphon.protocol import codec
from antiphon.testing import ChatServer, MessagesServer, Reply, end, exactly, turn
from antiphon.testing.messages.errors import error_event
from antiphon.trace.reader import read_trace
from antiphon.trace.records import Route

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nx-leaked: LEAKED\r\nrequest-id: req_LEAKED\r\n\r\n"
#: The opening of an answer with all that a client could take for its own, and the tokens that it was billed for.
OPENING = {
    "type": "message_start",
    "message": {
        "id": "msg_LEAKED",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "LEAKED",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 4242, "output_tokens": 1},
    },
}
FAILED_AFTER_OPENING = exactly(
    HEAD, sse.encode_frame("message_start", codec.encode(OPENING)), error_event(), end("fin")
)
ANSWER = turn(testing.text("Second."), testing.usage(7, 3))
#: What commits an answer in the dialects that have an opening.
OPENINGS = {
    "responses": b"event: response.created",
    "chat": b'"role":"assistant"',
    "messages": b"event: message_start",
    "websocket": b'"type":"response.created"',
}


@contextmanager
def failing_gateway(
    folder: Path, first: Reply, second: Reply = ANSWER, *, model: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Running]:
    """A gateway whose model is asked at one Messages server, then at another. `model` has other targets; a chat server
    gives the first reply too."""
    with (
        MessagesServer(lambda _: first) as failing,
        MessagesServer(lambda _: second) as working,
        ChatServer(lambda _: first) as chat,
    ):
        targets = [TargetConfig(upstream="first", model="m"), TargetConfig(upstream="second", model="m", priority=2)]
        config = Config(
            upstreams=[
                UpstreamConfig(name="first", dialect="messages", base_url=failing.base_url, models=["f"]),
                UpstreamConfig(name="chat", dialect="chat", base_url=chat.base_url, models=["c"]),
                UpstreamConfig(name="second", dialect="messages", base_url=working.base_url, models=["s"]),
            ],
            models=[ModelConfig(**{"name": "m", "targets": targets, **(model or {})})],
            retry=RetryConfig(rounds=1),
            health=HealthConfig(min_requests=1000),
            store=StoreConfig(url=f"sqlite:///{folder}/a.db"),
            trace=TraceConfig(dir=str(folder / "traces")),
        )
        with running(config, **settings) as gateway:
            yield gateway


@pytest.mark.parametrize("client", CLIENTS)
def test_losing_attempt_leaks_nothing_into_the_answer(client: str, tmp_path: Path) -> None:
    with failing_gateway(tmp_path, FAILED_AFTER_OPENING, ANSWER) as gateway:
        received = b"".join(received_bytes(gateway, client))
    assert b"Second." in received
    assert b"LEAKED" not in received
    assert b"4242" not in received
    assert client not in OPENINGS or received.count(OPENINGS[client]) == 1


def received_bytes(gateway: Running, client: str) -> Iterator[bytes]:
    """All bytes that a client gets: heads and bodies."""
    if client == "websocket":
        with open_websocket(gateway.port, "/v1/responses") as socket:
            socket.send({"type": "response.create", "model": "m", "input": "Hi."})
            message = ""
            while '"response.completed"' not in message:
                message = socket.receive()
                yield message.encode()
        return
    if client == "background":
        id = gateway.post({"model": "m", "input": "Hi.", "background": True}).json()["id"]
        until(lambda: gateway.get(f"/v1/responses/{id}").json()["status"] == "completed")
        answers = [gateway.get(f"/v1/responses/{id}"), gateway.get(f"/v1/responses/{id}?stream=true")]
    elif client == "vscode":
        body = {"model": "m", "messages": [{"role": 1, "content": [{"value": "Hi."}]}]}
        answers = [gateway.post(body, "/v1/vscode/chat")]
    else:
        answers = [gateway.post(*reversed(request_of(client, "m", stream=True)))]
    for answer in answers:
        yield repr(answer.headers).encode()
        yield answer.content


def test_error_without_its_body_does_not_delay_the_next_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.gateway.turn.ERROR_BODY_SECONDS", 0.05)
    hanging = exactly(b"HTTP/1.1 500 X\r\ncontent-length: 9\r\n\r\n", end("hang"))
    with failing_gateway(tmp_path, hanging) as gateway:
        answer = gateway.post({"model": "m", "input": "Hi."})
    assert (answer.status_code, answer.headers["antiphon-attempts"]) == (200, "2")


def test_stream_that_the_first_target_refuses_names_it(tmp_path: Path) -> None:
    with failing_gateway(tmp_path, testing.messages_error(400)) as gateway:
        answer = gateway.post({"model": "m", "input": "Hi.", "stream": True})
    headers = answer.headers
    assert (answer.status_code, headers["antiphon-upstream"], headers["antiphon-attempts"]) == (400, "first", "1")


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "Half"}]])
def test_whole_answer_that_a_refusal_broke_off_is_asked_elsewhere(content: list[Any], tmp_path: Path) -> None:
    refused = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "refusal",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    model = {
        "targets": [TargetConfig(upstream="first", model="m")],
        "on_refusal": [TargetConfig(upstream="second", model="m")],
    }
    with failing_gateway(tmp_path, testing.whole(refused), model=model) as gateway:
        answer = gateway.post({"model": "m", "input": "Hi."})
    assert (answer.status_code, answer.headers["antiphon-upstream"]) == (200, "second")


def usage_rows(gateway: Running) -> dict[str, tuple[int, int, int, int]]:
    """Requests, errors, input and output tokens by upstream."""
    rows = gateway.get("/v1/usage?by=upstream").json()["data"]
    return {
        row["upstream"]: (row["requests"], row["errors"], row["input_tokens"], row["output_tokens"]) for row in rows
    }


def test_usage_counts_what_each_attempt_was_billed(tmp_path: Path) -> None:
    with failing_gateway(tmp_path, FAILED_AFTER_OPENING, ANSWER) as gateway:
        gateway.post({"model": "m", "input": "Hi.", "stream": True})
        until(lambda: len(usage_rows(gateway)) == 2)
        assert usage_rows(gateway) == {"first": (0, 0, 4242, 1), "second": (1, 0, 7, 3)}


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_usage_counts_attempts_whose_connection_was_lost(how: str, tmp_path: Path) -> None:
    lost = exactly(HEAD, sse.encode_frame("message_start", codec.encode(OPENING)), end(how))  # type: ignore[arg-type]
    with failing_gateway(tmp_path, lost, lost) as gateway:
        assert b"upstream_disconnected" in gateway.post({"model": "m", "input": "Hi.", "stream": True}).content
        until(lambda: len(usage_rows(gateway)) == 2)
        assert usage_rows(gateway) == {"first": (0, 0, 4242, 1), "second": (1, 1, 4242, 1)}


@pytest.mark.parametrize("stream", [False, True])
def test_usage_counts_a_failed_answer_that_was_not_streamed(stream: bool, tmp_path: Path) -> None:
    usage = {"prompt_tokens": 70, "completion_tokens": 1, "total_tokens": 71}
    failed = testing.whole({"error": {"message": "no", "code": 502}, "choices": [], "usage": usage})
    targets = [TargetConfig(upstream="chat", model="m"), TargetConfig(upstream="second", model="m", priority=2)]
    with failing_gateway(tmp_path, failed, model={"targets": targets}) as gateway:
        assert gateway.post({"model": "m", "input": "Hi.", "stream": stream}).status_code == 200
        until(lambda: len(usage_rows(gateway)) == 2)
        assert usage_rows(gateway) == {"chat": (0, 0, 70, 1), "second": (1, 0, 7, 3)}


def test_usage_of_a_turn_whose_last_attempt_fails_is_counted_once(tmp_path: Path) -> None:
    with failing_gateway(tmp_path, FAILED_AFTER_OPENING, FAILED_AFTER_OPENING) as gateway:
        assert b"overloaded" in gateway.post({"model": "m", "input": "Hi.", "stream": True}).content
        until(lambda: len(usage_rows(gateway)) == 2)
        assert usage_rows(gateway) == {"first": (0, 0, 4242, 1), "second": (1, 1, 4242, 1)}


def test_usage_counts_a_refusal_that_another_target_replaces(tmp_path: Path) -> None:
    """The server billed its refusal, streamed or not."""
    refusal = turn(testing.refusal("No."), testing.usage(11, 2))
    model = {
        "targets": [TargetConfig(upstream="chat", model="m")],
        "on_refusal": [TargetConfig(upstream="second", model="m")],
    }
    for place, stream in enumerate((True, False)):
        folder = tmp_path / str(place)
        folder.mkdir()
        with failing_gateway(folder, refusal, model=model) as gateway:
            assert gateway.post({"model": "m", "input": "Hi.", "stream": stream}).status_code == 200
            until(lambda gateway=gateway: len(usage_rows(gateway)) == 2)  # type: ignore[misc]
            assert usage_rows(gateway) == {"chat": (0, 0, 11, 2), "second": (1, 0, 7, 3)}


def test_one_id_groups_the_attempts_in_log_trace_metrics_and_span(tmp_path: Path) -> None:
    collected = Collected()
    with failing_gateway(tmp_path, FAILED_AFTER_OPENING, ANSWER, open_telemetry=collected.open) as gateway:
        answer = gateway.post({"model": "m", "input": "Hi.", "stream": True})
        id = answer.headers["x-request-id"]
        [request] = gateway.requests(1)
        [failure] = [line for line in gateway.log if line["event"] == "attempt_failed"]
        [span] = collected.spans(1)
        metrics = gateway.get("/metrics").text
    trace = read_trace(tmp_path / "traces", id)
    assert (request["request_id"], request["attempts"], request["upstream"]) == (id, 2, "second")
    assert (failure["request_id"], failure["attempt"], failure["upstream"]) == (id, 1, "first")
    assert (failure["kind"], failure["code"]) == ("server", "overloaded")
    assert trace.notes["attempt_failed"] == "1 first: server, overloaded"
    routes = [record.upstream for record in trace.records if isinstance(record, Route)]
    assert routes == ["first", "second"]
    attributes = dict(span.attributes or {})
    assert (attributes["antiphon.request.id"], attributes["antiphon.attempts"]) == (id, 2)
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
        (
            "antiphon.attempt_failed",
            {
                "antiphon.attempt": 1,
                "antiphon.upstream": "first",
                "antiphon.outcome": "server",
                "error.type": "overloaded",
            },
        )
    ]
    assert 'antiphon_attempts_total{upstream="first",outcome="server"} 1' in metrics
    assert 'antiphon_attempts_total{upstream="second",outcome="answered"} 1' in metrics
