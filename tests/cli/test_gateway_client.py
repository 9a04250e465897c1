"""Calling a gateway, and the messages when it does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cli.network import MODELS, FakeAnswer, FakeNetwork, nobody, refusal, says, stream

from antiphon.cli.exits import CommandFailed
from antiphon.cli.gateway_client import call_gateway
from antiphon.client import AsyncClient, Model
from antiphon.errors import UpstreamFault
from antiphon.protocol.events import OutputTextDelta, ResponseCompleted, StreamEvent

URL = "http://gateway:8080"


def _call(
    network: FakeNetwork, call: Callable[[AsyncClient], Awaitable[Any]], environ: dict[str, str] | None = None
) -> Any:
    results: list[Any] = []

    async def keep_result(client: AsyncClient) -> None:
        results.append(await call(client))

    call_gateway(keep_result, URL, environ or {}, network)
    return results[0]


async def _read_events(client: AsyncClient) -> list[StreamEvent]:
    async with client.stream("hi", model="mock-1") as stream:
        return [event async for event in stream]


def test_call_gateway_sends_the_key_if_set() -> None:
    network = FakeNetwork(models=FakeAnswer(MODELS))
    _call(network, AsyncClient.models, {"ANTIPHON_API_KEY": " sk-1\n"})
    assert network.sent[0].headers["authorization"] == "Bearer sk-1"
    network = FakeNetwork(models=FakeAnswer(MODELS))
    _call(network, AsyncClient.models)
    assert "authorization" not in network.sent[0].headers


def test_call_gateway_reads_models_and_closes_the_transport() -> None:
    network = FakeNetwork(models=FakeAnswer(MODELS[:20], MODELS[20:]))
    assert _call(network, AsyncClient.models) == [
        Model(id="mock-1", owned_by="lab"),
        Model(id="local", owned_by="embedded"),
    ]
    assert (network.sent[0].method, network.sent[0].url) == ("GET", "http://gateway:8080/v1/models")
    assert network.closed


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data":[1]}', b"[" * 100_000])
def test_call_gateway_rejects_a_model_list_of_another_form(body: bytes) -> None:
    with pytest.raises(CommandFailed, match="upstream_invalid_response: the server's answer is not a list of models"):
        _call(FakeNetwork(models=FakeAnswer(body)), AsyncClient.models)


def test_call_gateway_yields_events_until_the_end() -> None:
    network = FakeNetwork(responses=stream(says("Hel", "lo")))
    events = _call(network, _read_events)
    assert [event.delta for event in events if isinstance(event, OutputTextDelta)] == ["Hel", "lo"]
    assert isinstance(events[-1], ResponseCompleted)
    sent = network.sent[0]
    assert (sent.method, sent.url) == ("POST", "http://gateway:8080/v1/responses")
    assert sent.headers["content-type"] == "application/json"
    assert sent.body == b'{"model":"mock-1","input":"hi","stream":true}'


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (nobody(), "no gateway answers at http://gateway:8080; check the address of the gateway"),
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
def test_call_gateway_reports_network_faults_of_head_and_body(fault: UpstreamFault, expected: str) -> None:
    in_the_head = FakeNetwork(models=fault)
    with pytest.raises(CommandFailed) as raised:
        _call(in_the_head, AsyncClient.models)
    assert str(raised.value) == expected
    assert in_the_head.closed
    in_the_body = FakeNetwork(models=FakeAnswer(MODELS[:20], fault))
    with pytest.raises(CommandFailed) as raised:
        _call(in_the_body, AsyncClient.models)
    assert str(raised.value) == expected


def test_call_gateway_reports_type_code_field_and_request_of_an_error() -> None:
    """HTTP-8, ERR-1: with the id, the request can be found in the gateway's log."""
    answer = refusal(404, "not_found", "model_not_found", "no model 'x'", "model", x_request_id="req_7")
    with pytest.raises(CommandFailed) as raised:
        _call(FakeNetwork(responses=answer), _read_events)
    assert str(raised.value) == (
        "not_found/model_not_found: no model 'x' (at model)\n`antiphon models` lists the models of the gateway\n"
        "request id req_7"
    )


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (502, "upstream_unavailable", "start its server, or correct its base_url"),
        (504, "upstream_timeout", "`antiphon upstreams` shows the health"),
        (502, "upstream_auth_failed", "correct the key of the upstream"),
        (502, "upstream_credentials_exhausted", "correct the keys of the upstream"),
    ],
)
def test_call_gateway_reports_the_upstream_and_the_next_step(status: int, code: str, hint: str) -> None:
    answer = refusal(status, "server_error", code, "the upstream 'lab' failed")
    with pytest.raises(CommandFailed) as raised:
        _call(FakeNetwork(responses=answer), _read_events)
    first, second = str(raised.value).split("\n")
    assert first == f"server_error/{code}: the upstream 'lab' failed"
    assert second.startswith(hint)


def test_call_gateway_reports_retry_after() -> None:
    answer = refusal(429, "too_many_requests", None, "slow down", retry_after="7")
    with pytest.raises(CommandFailed) as raised:
        _call(FakeNetwork(responses=answer), _read_events)
    assert str(raised.value) == "too_many_requests/rate_limit_exceeded: slow down\nretry after 7 s"


def test_call_gateway_reports_an_unreadable_error() -> None:
    with pytest.raises(CommandFailed, match="Bad Gateway"):
        _call(FakeNetwork(responses=FakeAnswer(b"Bad Gateway", status=502)), _read_events)
