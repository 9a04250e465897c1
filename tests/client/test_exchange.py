"""Failures: unreachable servers, refusals, HTML pages, and what is retried (B-9)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.conversing import Sleeps, client_of, gateway

from antiphon import testing
from antiphon.config import Timeouts
from antiphon.errors import ApiError, ClientFault, UpstreamFault
from antiphon.testing import ResponsesServer, turn
from antiphon.testing.script import PlainReply

pytestmark = pytest.mark.io
HELLO = turn(testing.text("Hello."))
PAGE = PlainReply(status=200, body=b"<html>Log in</html>", headers={"content-type": "text/html"})


def refused(reply: Any, **settings: Any) -> ApiError:
    """The error that a client raises for an answer."""
    with ResponsesServer([reply]) as server, client_of(server.base_url, **settings) as client:
        with pytest.raises(ApiError) as caught:
            client.create("Hi.")
    return caught.value


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529, 408])
def test_transient_error_is_retried_after_retry_after(status: int) -> None:
    """B-9: `Retry-After` in each of its forms, and a default without it."""
    sleeps = Sleeps()
    busy = [
        testing.error(status, headers={"retry-after": "7"}),
        testing.error(status, headers={"retry-after-ms": "250"}),
    ]
    with ResponsesServer([*busy, HELLO]) as server, client_of(server.base_url, retries=sleeps.retries()) as client:
        assert client.create("Hi.").output_text == "Hello."
        assert len({received.body for received in server.received}) == 1
    assert sleeps.taken == [7.0, 0.25]


def test_retry_delay_grows_without_retry_after() -> None:
    sleeps = Sleeps()
    with (
        ResponsesServer([testing.error(503)] * 6) as server,
        client_of(server.base_url, retries=sleeps.retries(5)) as client,
    ):
        with pytest.raises(UpstreamFault) as caught:
            client.create("Hi.")
        assert (caught.value.code, caught.value.status) == ("overloaded", 503)
    for wait, most in zip(sleeps.taken, [0.5, 1, 2, 4, 8], strict=True):
        assert most * 0.75 <= wait <= most


def test_retry_after_over_the_limit_is_raised_without_waiting() -> None:
    sleeps = Sleeps()
    error = refused(testing.error(429, headers={"retry-after": "61"}), retries=sleeps.retries())
    assert (error.retry_after, error.code, sleeps.taken) == (61.0, "rate_limit_exceeded", [])


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_client_error_is_not_retried(status: int) -> None:
    sleeps = Sleeps()
    error = refused(testing.error(status, "No.", param="input[0]"), retries=sleeps.retries())
    assert isinstance(error, ClientFault)
    assert (error.status, sleeps.taken) == (status, [])


@pytest.mark.parametrize(
    ("status", "code"), [(401, "invalid_api_key"), (402, "payment_required"), (403, "access_denied")]
)
def test_refused_key_is_a_client_fault(status: int, code: str) -> None:
    """ERR-4: with the server's own message, unlike the key of a gateway."""
    error = refused(testing.error(status, "Incorrect API key."))
    assert isinstance(error, ClientFault)
    subject = "the server requires a key" if status == 401 else "the server refused the key"  # none was sent
    assert (error.status, error.code, error.message) == (status, code, f"{subject}: Incorrect API key.")
    page = PlainReply(status=status, body=b"<html>", headers={"content-type": "text/html"})
    assert refused(page).message == subject


def test_unreachable_server_is_retried() -> None:
    sleeps = Sleeps()
    with client_of("http://127.0.0.1:9", retries=sleeps.retries()) as client, pytest.raises(UpstreamFault) as caught:
        client.create("Hi.")
    assert (caught.value.code, caught.value.message) == ("upstream_unavailable", "the server cannot be reached")
    assert len(sleeps.taken) == 2


def test_disconnect_before_the_answer_is_retried() -> None:
    with ResponsesServer([testing.exactly(testing.end("rst")), HELLO]) as server:
        with client_of(server.base_url, retries=Sleeps().retries()) as client:
            assert client.create("Hi.").output_text == "Hello."


def test_timeout_is_not_retried() -> None:
    """It may still be working, and its work may be expensive."""
    sleeps = Sleeps()
    error = refused(testing.exactly(testing.end("hang")), retries=sleeps.retries(), timeouts=Timeouts(first_byte=0.1))
    assert (error.code, error.status, sleeps.taken) == ("upstream_timeout", 504, [])
    assert "the server did not answer" in error.message


def test_html_and_compressed_answers_are_refused() -> None:
    assert "an HTML page" in refused(PAGE).message
    packed = {"content-type": "application/json", "content-encoding": "gzip"}
    assert "compressed" in refused(PlainReply(status=200, body=b"\x1f\x8b", headers=packed)).message
    assert refused(PlainReply(status=500, body=b"\x1f\x8b", headers=packed)).status == 500


def test_redirect_is_not_followed() -> None:
    error = refused(PlainReply(status=307, body=b"", headers={"location": "http://127.0.0.1:9/"}))
    assert (error.status, error.code) == (307, "upstream_invalid_response")


def test_truncated_answer_raises_disconnected() -> None:
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    assert refused(testing.exactly(head % 200, testing.end("fin"))).code == "upstream_disconnected"
    assert refused(testing.exactly(head % 418, testing.end("fin"))).status == 418


def test_oversized_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.client.asynchronous.MAX_BODY_BYTES", 10)
    assert "expected at most 10 bytes" in refused(HELLO).message


def test_invalid_json_answer_is_refused() -> None:
    assert (
        refused(PlainReply(status=200, body=b"[1]", headers={"content-type": "application/json"})).code
        == "upstream_invalid_response"
    )
    assert (
        refused(PlainReply(status=200, body=b"{", headers={"content-type": "application/json"})).code
        == "upstream_invalid_response"
    )


def test_error_and_stream_have_the_request_id_of_the_server() -> None:
    """HTTP-8."""
    error = refused(testing.error(400, headers={"x-request-id": "req_7"}))
    assert (error.request_id, refused(testing.error(400)).request_id) == ("req_7", None)
    with gateway() as running, client_of(running.url) as client, client.stream("Hi.") as stream:
        assert (stream.request_id or "").startswith("req_")
        stream.final()
