"""The gateway's address, the key it is called with, and the messages when it does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cli.network import MODELS, FakeAnswer, FakeNetwork, nobody, refusal, says, stream

from antiphon.cli.exits import CommandFailed, InvalidUsage
from antiphon.cli.gateway_client import (
    MAX_BODY,
    GatewayClient,
    ListedModel,
    ReceivedEvent,
    call_gateway,
    describe_error,
    gateway_key,
    gateway_url,
)
from antiphon.errors import UpstreamFault
from antiphon.protocol.events import OutputTextDelta, ResponseCompleted
from antiphon.protocol.request import Request

URL = "http://gateway:8080"
QUESTION = Request(model="mock-1", input="hi", stream=True)


def _call(
    network: FakeNetwork, call: Callable[[GatewayClient], Awaitable[Any]], environ: dict[str, str] | None = None
) -> Any:
    got: list[Any] = []

    async def keep(gateway: GatewayClient) -> None:
        got.append(await call(gateway))

    call_gateway(keep, URL, environ or {}, network)
    return got[0]


async def _read_events(gateway: GatewayClient) -> list[ReceivedEvent]:
    answer = await gateway.start_response(QUESTION)
    return [event async for event in gateway.events(answer)]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        (" http://127.0.0.1:8080/v1/ ", "http://127.0.0.1:8080"),
        ("localhost:9000", "http://localhost:9000"),
        ("https://gateway.example/antiphon/v1", "https://gateway.example/antiphon"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_gateway_url_accepts_addresses_with_and_without_version(given: str, meant: str) -> None:
    assert gateway_url(given, {}) == meant


@pytest.mark.parametrize(
    "given",
    [
        "ftp://gateway",
        "http://",
        "http://gateway:port",
        "http://gateway:99999",
        "http://gateway:0",
        "http://[::1",
        "http://gateway?x=1",
        "http://gateway#x",
        "http://gate way",
        "http://gatewäy",
        "http://gate\r\nway",
        "http://gate\x1b[2Jway",
        "\x1b]0;",
    ],
)
def test_gateway_url_rejects_invalid_addresses(given: str) -> None:
    with pytest.raises(InvalidUsage, match=r"invalid gateway URL .*: expected a URL such as http://127\.0\.0\.1:8080"):
        gateway_url(given, {})


def test_gateway_url_rejects_a_password_without_showing_it() -> None:
    with pytest.raises(InvalidUsage, match=r"set the key in \$ANTIPHON_API_KEY") as raised:
        gateway_url("http://me:secret@gateway", {})
    assert "secret" not in str(raised.value)


def test_gateway_url_prefers_option_then_environment_then_default() -> None:
    environ = {"ANTIPHON_URL": "http://there:1/v1"}
    assert gateway_url("http://here:2", environ) == "http://here:2"
    assert gateway_url(None, environ) == "http://there:1"
    assert gateway_url(None, {"ANTIPHON_URL": ""}) == "http://127.0.0.1:8080"


def test_gateway_client_sends_the_key_if_set() -> None:
    network = FakeNetwork(models=FakeAnswer(MODELS))
    _call(network, GatewayClient.models, {"ANTIPHON_API_KEY": " sk-1\n"})
    assert network.sent[0].headers["authorization"] == "Bearer sk-1"
    network = FakeNetwork(models=FakeAnswer(MODELS))
    _call(network, GatewayClient.models)
    assert "authorization" not in network.sent[0].headers


@pytest.mark.parametrize("key", ["a\r\nb: c", "schlüssel", "a\x00b"])
def test_gateway_key_rejects_invalid_characters_without_showing_them(key: str) -> None:
    with pytest.raises(InvalidUsage) as raised:
        gateway_key({"ANTIPHON_API_KEY": key})
    assert key not in str(raised.value)


def test_gateway_client_reads_models_and_closes_the_transport() -> None:
    network = FakeNetwork(models=FakeAnswer(MODELS[:20], MODELS[20:]))
    assert _call(network, GatewayClient.models) == [
        ListedModel(id="mock-1", owned_by="lab"),
        ListedModel(id="local", owned_by="embedded"),
    ]
    assert (network.sent[0].method, network.sent[0].url) == ("GET", "http://gateway:8080/v1/models")
    assert network.closed


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data":[1]}', b"[" * 100_000])
def test_gateway_client_rejects_a_model_list_of_another_form(body: bytes) -> None:
    with pytest.raises(CommandFailed, match="the server at http://gateway:8080 is not an Antiphon gateway"):
        _call(FakeNetwork(models=FakeAnswer(body)), GatewayClient.models)


def test_gateway_client_aborts_an_oversized_model_list() -> None:
    answer = FakeAnswer(*[bytes(MAX_BODY // 2)] * 3)
    with pytest.raises(CommandFailed, match="its answer is larger than 16777216 bytes"):
        _call(FakeNetwork(models=answer), GatewayClient.models)
    assert answer.aborted


def test_gateway_client_yields_events_with_their_bytes_until_done() -> None:
    network = FakeNetwork(responses=stream(says("Hel", "lo")))
    events = _call(network, _read_events)
    assert [event.delta for _, event in events if isinstance(event, OutputTextDelta)] == ["Hel", "lo"]
    assert isinstance(events[-1].event, ResponseCompleted)
    assert all(raw.startswith(b'{"type":') for raw, _ in events)
    sent = network.sent[0]
    assert (sent.method, sent.url) == ("POST", "http://gateway:8080/v1/responses")
    assert sent.headers["content-type"] == "application/json"
    assert sent.body == b'{"model":"mock-1","input":"hi","stream":true}'


@pytest.mark.parametrize("end", [b"", b"data: [DONE]"])
def test_gateway_client_reads_a_last_event_without_blank_line(end: bytes) -> None:
    body = b"".join(piece for piece in stream(says("Hello"))._pieces if isinstance(piece, bytes)).removesuffix(
        b"data: [DONE]\n\n"
    )
    cut = body.removesuffix(b"\n") if not end else body + end
    events = _call(FakeNetwork(responses=FakeAnswer(cut, headers={"content-type": "text/event-stream"})), _read_events)
    assert isinstance(events[-1].event, ResponseCompleted)


def test_gateway_client_accepts_a_stream_without_done() -> None:
    empty = FakeAnswer(b": hello\n\n", headers={"content-type": "text/event-stream; charset=utf-8"})
    assert _call(FakeNetwork(responses=empty), _read_events) == []


def test_gateway_client_rejects_an_answer_that_is_no_stream() -> None:
    answer = FakeAnswer(b"{}", headers={"content-type": "application/json"})
    with pytest.raises(CommandFailed, match="expected a stream of events, got something else"):
        _call(FakeNetwork(responses=answer), _read_events)
    assert answer.aborted


def test_gateway_client_reports_an_undecodable_event() -> None:
    answer = FakeAnswer(
        b'data: {"type":"response.output_text.delta"}\n\n', headers={"content-type": "text/event-stream"}
    )
    with pytest.raises(CommandFailed, match="cannot decode the answer of http://gateway:8080: "):
        _call(FakeNetwork(responses=answer), _read_events)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (nobody(), "no gateway answers at http://gateway:8080; start one with `antiphon serve`"),
        (
            UpstreamFault("x", code="upstream_timeout", status=504),
            "the gateway at http://gateway:8080 did not answer in time",
        ),
        (
            UpstreamFault("x", code="upstream_disconnected"),
            "the gateway at http://gateway:8080 closed the connection before the end of its answer",
        ),
        (
            UpstreamFault("x", code="upstream_invalid_response"),
            "the gateway at http://gateway:8080 sent an invalid HTTP response",
        ),
    ],
)
def test_gateway_client_reports_network_faults_of_head_and_body(fault: UpstreamFault, expected: str) -> None:
    in_the_head = FakeNetwork(models=fault)
    with pytest.raises(CommandFailed) as raised:
        _call(in_the_head, GatewayClient.models)
    assert str(raised.value) == expected
    assert in_the_head.closed
    in_the_body = FakeNetwork(models=FakeAnswer(MODELS[:20], fault))
    with pytest.raises(CommandFailed) as raised:
        _call(in_the_body, GatewayClient.models)
    assert str(raised.value) == expected


def test_gateway_client_reports_type_code_field_and_request_of_an_error() -> None:
    """HTTP-8, ERR-1: with the id, the request can be found in the gateway's log."""
    answer = refusal(404, "not_found", "model_not_found", "no model 'x'", "model", x_request_id="req_7")
    with pytest.raises(CommandFailed) as raised:
        _call(FakeNetwork(responses=answer), _read_events)
    assert str(raised.value) == "not_found/model_not_found: no model 'x' (at model)\nrequest id req_7"


def test_gateway_client_reports_retry_after() -> None:
    answer = refusal(429, "too_many_requests", None, "slow down", retry_after="7")
    with pytest.raises(CommandFailed) as raised:
        _call(FakeNetwork(responses=answer), _read_events)
    assert str(raised.value) == "too_many_requests: slow down\nretry after 7 s"


def test_gateway_client_reports_the_status_of_an_unreadable_error() -> None:
    with pytest.raises(CommandFailed, match="is not an Antiphon gateway: it sent status 502 without a valid error"):
        _call(FakeNetwork(responses=FakeAnswer(b"Bad Gateway", status=502)), _read_events)


def test_describe_error_removes_control_characters() -> None:
    assert describe_error("a\x1b[2J", None, "b\n\x9bc", "d\x07") == "a[2J: b c (at d)"
